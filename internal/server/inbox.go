// This file is the read side's buffer: it grows with the bytes that arrive, not
// with what they announce.

package server

import "rlsidecar/protocol"

const readBuffer = 8 << 10

// inbox holds bytes read and not yet consumed. They begin at the start of a
// message.
type inbox struct {
	buf []byte
	n   int // buf[:n] is filled
}

// room returns free space to read into, of at least one byte: a scanner that has
// been shown protocol.MaxMessage bytes does not ask for more.
func (b *inbox) room() []byte {
	if b.n == len(b.buf) {
		grown := make([]byte, min(max(readBuffer, 2*len(b.buf)), protocol.MaxMessage))
		copy(grown, b.buf[:b.n])
		b.buf = grown
	}
	return b.buf[b.n:]
}

func (b *inbox) filled() []byte { return b.buf[:b.n] }

// drop forgets the first used bytes, and the large buffer a large message needed:
// then it returns true, and nobody should go on pointing into that buffer.
func (b *inbox) drop(used int) (shrunk bool) {
	if used == 0 {
		return false
	}
	rest := b.buf[used:b.n]
	if len(b.buf) > readBuffer && len(rest) < readBuffer {
		b.buf = make([]byte, readBuffer)
		shrunk = true
	}
	b.n = copy(b.buf, rest)
	return shrunk
}
