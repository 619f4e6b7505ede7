// Where a message ends, found before the message is read.

package protocol

import "encoding/binary"

// Scanner finds the end of the message that a growing buffer starts with. It
// accepts any MessagePack value: what the message means is ParseRequest's and
// ParseResponse's business.
//
// It allocates nothing, does not recurse, and looks at every byte of a header
// once however the bytes arrive: between two calls it remembers how far it got
// and how many values each open array or map still lacks. A message is refused
// as soon as its headers tell that it goes over a bound, so a length chosen by
// the peer is never more than a number that is compared. A buffer of MaxMessage
// bytes is always enough: Next answers with a message or an error then.
//
// The zero Scanner is ready to use. It belongs to one connection and one goroutine.
type Scanner struct {
	pos   int           // where the next header is; beyond the buffer while a body is on its way
	left  int           // values that the innermost open array or map still lacks; meaningless at pos 0
	depth int           // arrays and maps that are open
	outer [MaxDepth]int // what left was, and will be again, around each of them
}

// Next looks at buf, which starts where the message does and holds at least what
// it held at the last call. With n > 0 the first n bytes are one whole message,
// and the Scanner is ready for the next one. With n == 0 it needs more bytes.
// An error is final: an *Error with InvalidRequest, to be answered if MsgID
// tells to whom, before the connection is closed.
func (s *Scanner) Next(buf []byte) (n int, err error) {
	pos, left := s.pos, s.left
	if pos == 0 {
		left = 1
	}
	end := min(len(buf), MaxMessage)
	for left > 0 {
		if pos >= end {
			s.pos, s.left = pos, left
			return 0, s.fits(1)
		}
		left--
		switch c := buf[pos]; {
		case c < 0x80 || c >= 0xe0:
			pos++
		case c >= 0xa0 && c < 0xc0:
			pos += 1 + int(c&0x1f)
		case c >= 0x90 && c < 0xa0 && s.depth < MaxDepth:
			s.outer[s.depth] = left
			s.depth++
			pos, left = pos+1, int(c&0x0f)
		default:
			size, inside, err := s.enter(buf, pos, left)
			if size == 0 {
				s.pos, s.left = pos, left+1
				return 0, err
			}
			pos += size
			left = inside
		}
		for left == 0 && s.depth > 0 {
			s.depth--
			left = s.outer[s.depth]
		}
	}
	s.pos, s.left = pos, left
	if pos > end {
		return 0, s.fits(0)
	}
	s.pos = 0
	return pos, nil
}

// enter reads the header at pos, of a value after which its array or map lacks
// left more. It returns the bytes to go on by and how many values are due then:
// left, or those inside the array or map that was entered. A size of 0 says that
// the header is not whole yet, or what is wrong with it.
func (s *Scanner) enter(buf []byte, pos, left int) (size, due int, err error) {
	n, items := head(buf[pos:])
	s.pos = pos
	switch {
	case n < 0:
		return 0, 0, errorf(InvalidRequest, "byte 0x%02x at %d: not MessagePack", buf[pos], pos)
	case n == 0:
		return 0, 0, s.fits(int64(headerSize(buf[pos])))
	case int64(pos)+n > MaxMessage:
		return 0, 0, s.fits(n)
	case items < 0:
		return int(n), left, nil
	}
	if err := s.allows(items, isMap(buf[pos])); err != nil {
		return 0, 0, err
	}
	s.outer[s.depth] = left
	s.depth++
	return int(n), int(items), nil
}

// fits refuses a message that goes on for size bytes more than MaxMessage has room for.
func (s *Scanner) fits(size int64) error {
	if total := int64(s.pos) + size; total > MaxMessage {
		return errorf(InvalidRequest, "message of at least %d bytes: allowed are up to %d", total, MaxMessage)
	}
	return nil
}

// allows tells whether an array or map with items values inside may be entered.
func (s *Scanner) allows(items int64, pairs bool) error {
	length, what := items, "array"
	if pairs {
		length, what = items/2, "map"
	}
	if length > MaxLen {
		return errorf(InvalidRequest, "%s of %d: allowed are up to %d", what, length, MaxLen)
	}
	if s.depth == MaxDepth {
		return errorf(InvalidRequest, "nesting of %d: allowed are up to %d", MaxDepth+1, MaxDepth)
	}
	return nil
}

func isMap(c byte) bool { return c&0xf0 == 0x80 || c >= 0xde && c <= 0xdf }

// form is the shape of the values that start with one of the bytes 0xc0 to 0xdf.
type form struct {
	length uint8 // bytes of the length that follows the first byte
	fixed  uint8 // bytes besides those that the length counts; 0: not MessagePack
	values uint8 // values per unit of the length; 0: the length counts bytes
}

var forms = [32]form{
	0x00: {0, 1, 0}, 0x02: {0, 1, 0}, 0x03: {0, 1, 0}, // nil, false, true
	0x04: {1, 2, 0}, 0x05: {2, 3, 0}, 0x06: {4, 5, 0}, // bin
	0x07: {1, 3, 0}, 0x08: {2, 4, 0}, 0x09: {4, 6, 0}, // ext
	0x0a: {0, 5, 0}, 0x0b: {0, 9, 0}, // float
	0x0c: {0, 2, 0}, 0x0d: {0, 3, 0}, 0x0e: {0, 5, 0}, 0x0f: {0, 9, 0}, // uint
	0x10: {0, 2, 0}, 0x11: {0, 3, 0}, 0x12: {0, 5, 0}, 0x13: {0, 9, 0}, // int
	0x14: {0, 3, 0}, 0x15: {0, 4, 0}, 0x16: {0, 6, 0}, 0x17: {0, 10, 0}, 0x18: {0, 18, 0}, // fixext
	0x19: {1, 2, 0}, 0x1a: {2, 3, 0}, 0x1b: {4, 5, 0}, // str
	0x1c: {2, 3, 1}, 0x1d: {4, 5, 1}, // array
	0x1e: {2, 3, 2}, 0x1f: {4, 5, 2}, // map
}

// head reads the header of the value that b, not empty, starts with. size is the
// bytes of the value without the values inside it: 0 when b ends within the
// header, -1 when this is not MessagePack. items is the number of values inside
// an array or map, -1 for all else.
func head(b []byte) (size, items int64) {
	switch c := b[0]; {
	case c < 0x80 || c >= 0xe0:
		return 1, -1
	case c < 0x90:
		return 1, 2 * int64(c&0x0f)
	case c < 0xa0:
		return 1, int64(c & 0x0f)
	case c < 0xc0:
		return 1 + int64(c&0x1f), -1
	}
	return longHead(b)
}

func longHead(b []byte) (size, items int64) {
	f := forms[b[0]-0xc0]
	if f.fixed == 0 {
		return -1, -1
	}
	if len(b) <= int(f.length) {
		return 0, -1
	}
	n := int64(0)
	switch f.length {
	case 1:
		n = int64(b[1])
	case 2:
		n = int64(binary.BigEndian.Uint16(b[1:]))
	case 4:
		n = int64(binary.BigEndian.Uint32(b[1:]))
	}
	if f.values > 0 {
		return int64(f.fixed), n * int64(f.values)
	}
	return int64(f.fixed) + n, -1
}

// headerSize is the least a value can take that starts with c and whose length
// has not arrived yet.
func headerSize(c byte) int { return int(forms[c-0xc0].fixed) }

// MsgID returns the id of the request that buf starts with, which need neither be
// whole nor be within the bounds. It fails for all but requests.
func MsgID(buf []byte) (id uint32, ok bool) {
	r := reader{buf}
	if _, ok = r.array(); !ok {
		return 0, false
	}
	if _, ok = r.integer(0, 0); !ok {
		return 0, false
	}
	v, ok := r.integer(0, 1<<32-1)
	return uint32(v), ok
}
