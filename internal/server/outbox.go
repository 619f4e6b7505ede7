// This file is the write side of a connection: the one place that writes.

package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxLate is how many bytes of late replies may wait for a connection that does
// not read; beyond it the connection is closed.
const maxLate = 1 << 20

// keepBuffer is the largest reply buffer kept for reuse.
const keepBuffer = 16 << 10

// outbox writes a connection's replies. There are two writers. The reader of the
// connection writes what it decided itself, in one blocking write per chunk of
// input: a peer that does not read its replies is not read from. Replies decided
// elsewhere are late: they are appended under mu, and whoever finds no flusher at
// work starts one, a goroutine that lives until nothing is left. So appending
// never blocks. The two may write at once: net.Conn keeps each write whole.
//
// Neither sets a deadline, which would cost a timer per write. Each notes when
// its write began, and the server's sweeper breaks the connection whose write
// lasts too long.
type outbox struct {
	nc    net.Conn
	now   func() time.Duration
	ended *sync.WaitGroup // the goroutines of all connections
	slow  *atomic.Uint64  // connections broken because they did not read

	reader, flusher stamp
	bytes           atomic.Uint64
	gone            atomic.Bool // nobody reads replies any more
	failed          atomic.Bool // a reply was not written

	mu       sync.Mutex // guards the fields that follow
	late     []byte
	spare    []byte // the flusher's other buffer
	flushing bool
	closed   bool
}

// stamp is when a write began, plus one; 0 while none is under way.
type stamp struct{ at atomic.Int64 }

func (s *stamp) overdue(now, after time.Duration) bool {
	at := s.at.Load()
	return at != 0 && int64(now)-at > int64(after)
}

// write reports whether all of p was written. st is the calling writer's.
func (o *outbox) write(st *stamp, now time.Duration, p []byte) bool {
	st.at.Store(int64(now) + 1)
	n, err := o.nc.Write(p)
	st.at.Store(0)
	o.bytes.Add(uint64(n))
	if err != nil {
		o.failed.Store(true)
	}
	return err == nil
}

func (o *outbox) stuck(now, after time.Duration) bool {
	return o.reader.overdue(now, after) || o.flusher.overdue(now, after)
}

// breakSlow ends the connection of a peer that does not read, without blocking.
func (o *outbox) breakSlow() {
	if !o.gone.Load() {
		o.slow.Add(1)
		o.kick()
	}
}

// kick ends the connection without blocking: its reader and its writers fail
// now, and the reader cleans up.
func (o *outbox) kick() {
	o.gone.Store(true)
	o.nc.SetDeadline(longAgo)
}

var longAgo = time.Unix(1, 0)

// openLate returns the buffer to append a late reply to, with mu held, for
// closeLate to release; or false, with mu free, when the connection has ended.
// Once there is too much of it, the connection is ending.
func (o *outbox) openLate() ([]byte, bool) {
	o.mu.Lock()
	if o.closed || len(o.late) > maxLate {
		o.mu.Unlock()
		return nil, false
	}
	return o.late, true
}

// closeLate requires that mu is held, by openLate.
func (o *outbox) closeLate(late []byte) {
	o.late = late
	if len(late) > maxLate {
		o.breakSlow()
	}
	if !o.flushing {
		o.flushing = true
		o.ended.Add(1)
		go o.flush()
	}
	o.mu.Unlock()
}

func (o *outbox) flush() {
	defer o.ended.Done()
	for p := o.take(); p != nil; p = o.take() {
		if !o.write(&o.flusher, o.now(), p) {
			o.kick()
		}
		o.giveBack(p)
	}
}

// take returns the late replies, or nil when there are none and flushing is over.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.late) == 0 {
		o.flushing = false
		return nil
	}
	p := o.late
	o.late, o.spare = o.spare[:0], nil
	return p
}

func (o *outbox) giveBack(p []byte) {
	if cap(p) <= keepBuffer {
		o.mu.Lock()
		o.spare = p
		o.mu.Unlock()
	}
}

// quiet reports whether every late reply given so far has been written.
func (o *outbox) quiet() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.late) == 0 && !o.flushing
}

// close is the reader's last act. Late replies from now on are dropped. It reports
// whether all until now were written.
func (o *outbox) close() (written bool) {
	o.gone.Store(true)
	o.mu.Lock()
	written = len(o.late) == 0 && !o.flushing && !o.failed.Load()
	o.closed = true
	o.late = nil
	o.mu.Unlock()
	o.nc.Close()
	return written
}
