// Reading values one after the other, and telling what stands where something
// else was expected.

package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// reader takes values off the front of b. A method that returns false has taken
// nothing: what was not wanted still stands at the front, for describe.
type reader struct{ b []byte }

// integer takes an integer of any encoding that is within lo..hi.
func (r *reader) integer(lo, hi int64) (int64, bool) {
	if len(r.b) > 0 && r.b[0] < 0x80 && int64(r.b[0]) >= lo && int64(r.b[0]) <= hi {
		v := int64(r.b[0])
		r.b = r.b[1:]
		return v, true
	}
	return r.wide(lo, hi)
}

func (r *reader) wide(lo, hi int64) (int64, bool) {
	u, negative, n := number(r.b)
	v := int64(u)
	if n == 0 || negative != (v < 0) || v < lo || v > hi {
		return 0, false
	}
	r.b = r.b[n:]
	return v, true
}

// unsigned takes an integer of any encoding that is not negative.
func (r *reader) unsigned() (uint64, bool) {
	u, negative, n := number(r.b)
	if n == 0 || negative {
		return 0, false
	}
	r.b = r.b[n:]
	return u, true
}

// number reads the integer that b starts with: its 64 bits, in two's complement
// when negative, and the bytes it takes, 0 when b starts with something else.
func number(b []byte) (u uint64, negative bool, n int) {
	if len(b) == 0 {
		return 0, false, 0
	}
	c := b[0]
	if c < 0x80 || c >= 0xe0 {
		return uint64(int8(c)), c >= 0xe0, 1
	}
	if c < 0xcc || c > 0xd3 {
		return 0, false, 0
	}
	n = 1 + 1<<(c&3)
	if len(b) < n {
		return 0, false, 0
	}
	switch n {
	case 2:
		u = uint64(b[1])
	case 3:
		u = uint64(binary.BigEndian.Uint16(b[1:]))
	case 5:
		u = uint64(binary.BigEndian.Uint32(b[1:]))
	case 9:
		u = binary.BigEndian.Uint64(b[1:])
	}
	if c >= 0xd0 {
		unused := 64 - 8*(n-1)
		u = uint64(int64(u<<unused) >> unused)
		negative = int64(u) < 0
	}
	return u, negative, n
}

// bytes takes a str or bin of lo..hi bytes.
func (r *reader) bytes(lo, hi int) ([]byte, bool) {
	if len(r.b) > 0 && r.b[0]&0xe0 == 0xa0 {
		if n := int(r.b[0] & 0x1f); n >= lo && n <= hi && n < len(r.b) {
			v := r.b[1 : 1+n : 1+n]
			r.b = r.b[1+n:]
			return v, true
		}
	}
	return r.longBytes(lo, hi)
}

func (r *reader) longBytes(lo, hi int) ([]byte, bool) {
	start, end := span(r.b)
	if end == 0 || end-start < lo || end-start > hi {
		return nil, false
	}
	v := r.b[start:end:end]
	r.b = r.b[end:]
	return v, true
}

// span returns where the bytes of the str or bin that b starts with begin and
// end; 0, 0 when b starts with something else.
func span(b []byte) (start, end int) {
	if len(b) == 0 {
		return 0, 0
	}
	c := b[0]
	if c&0xe0 == 0xa0 {
		start, end = 1, 1+int(c&0x1f)
	} else {
		if !(c >= 0xc4 && c <= 0xc6 || c >= 0xd9 && c <= 0xdb) {
			return 0, 0
		}
		size, _ := longHead(b)
		if size > int64(len(b)) {
			return 0, 0
		}
		start, end = headerSize(c), int(size)
	}
	if end > len(b) {
		return 0, 0
	}
	return start, end
}

// array takes the header of an array and returns the number of its items.
func (r *reader) array() (int, bool) {
	if len(r.b) > 0 && r.b[0]&0xf0 == 0x90 {
		n := int(r.b[0] & 0x0f)
		r.b = r.b[1:]
		return n, true
	}
	return r.container(false)
}

// container takes the header of an array or map and returns how many values or
// pairs it holds.
func (r *reader) container(wantMap bool) (int, bool) {
	if len(r.b) == 0 {
		return 0, false
	}
	size, items := head(r.b)
	if size <= 0 || items < 0 || isMap(r.b[0]) != wantMap || items > math.MaxInt32 {
		return 0, false
	}
	r.b = r.b[size:]
	if wantMap {
		items /= 2
	}
	return int(items), true
}

// boolean takes a true or false.
func (r *reader) boolean() (v, ok bool) {
	if len(r.b) == 0 || r.b[0]&0xfe != 0xc2 {
		return false, false
	}
	v = r.b[0] == 0xc3
	r.b = r.b[1:]
	return v, true
}

// skip takes n values of any kind.
func (r *reader) skip(n int) bool {
	b := r.b
	for range n {
		var s Scanner
		size, err := s.Next(b)
		if err != nil || size == 0 {
			return false
		}
		b = b[size:]
	}
	r.b = b
	return true
}

// describe puts the value that b starts with in words, for an error message.
func describe(b []byte) string {
	if len(b) == 0 {
		return "(nothing)"
	}
	if u, negative, n := number(b); n > 0 {
		if negative {
			return strconv.FormatInt(int64(u), 10)
		}
		return strconv.FormatUint(u, 10)
	}
	if start, end := span(b); end > 0 {
		return quote(b[start:end])
	}
	size, items := head(b)
	switch {
	case size > int64(len(b)) || size <= 0:
		return "(cut off)"
	case items >= 0 && isMap(b[0]):
		return fmt.Sprintf("(a map of %d)", items/2)
	case items >= 0:
		return fmt.Sprintf("(an array of %d)", items)
	}
	return describeScalar(b)
}

func describeScalar(b []byte) string {
	switch b[0] {
	case 0xc0:
		return "nil"
	case 0xc2:
		return "false"
	case 0xc3:
		return "true"
	case 0xca:
		f := math.Float32frombits(binary.BigEndian.Uint32(b[1:]))
		return strconv.FormatFloat(float64(f), 'g', -1, 32) + " (a float)"
	case 0xcb:
		f := math.Float64frombits(binary.BigEndian.Uint64(b[1:]))
		return strconv.FormatFloat(f, 'g', -1, 64) + " (a float)"
	}
	return "(an extension)"
}

func quote(b []byte) string {
	s := `"` + Printable(b) + `"`
	if len(b) > maxEcho {
		s += fmt.Sprintf("... of %d bytes", len(b))
	}
	return s
}

const maxEcho = 64 // bytes of a peer's value that are repeated to it or to a log

// Printable returns at most 64 bytes of what a peer sent, fit for a message or a
// log line: all that is not printable UTF-8 is shown as "?".
func Printable(b []byte) string {
	out := make([]byte, 0, min(len(b), maxEcho))
	for len(b) > 0 {
		c, n := utf8.DecodeRune(b)
		if len(out)+n > maxEcho {
			break
		}
		if c == utf8.RuneError && n == 1 || !unicode.IsPrint(c) {
			out = append(out, '?')
		} else {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return string(out)
}
