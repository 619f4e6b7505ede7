// Message boundaries: every bound at its edge and one past it, whole and in pieces.

package protocol

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
)

// withString returns a message of exactly size bytes that ends in a long str.
func withString(size int) []byte {
	head := unhex("940007a76163717569726592a3617069")
	return appendString(head, strings.Repeat("k", size-len(head)-sizeOfHeader(size-len(head))))
}

func sizeOfHeader(rest int) int {
	if rest > 1<<16+4 {
		return 5
	}
	return 3
}

// withInts returns a message of exactly size bytes, none of them in a long value.
func withInts(size int) []byte {
	const row = 3 + 1000
	rows := (size - 3) / row
	out := []byte{0xdc, 0, 0}
	for range rows {
		out = append(append(out, 0xdc, 1000>>8, 1000&0xff), make([]byte, 1000)...)
	}
	rest := size - len(out)
	out[1], out[2] = byte((rows+rest)>>8), byte(rows+rest)
	return append(out, make([]byte, rest)...)
}

func nested(depth int, innermost ...byte) []byte {
	return append(bytes.Repeat([]byte{0x91}, depth-1), innermost...)
}

func TestScannerBounds(t *testing.T) {
	tests := []struct {
		name    string
		message []byte
		refusal string // "" when the message is fine
	}{
		{"64 KiB in a str", withString(MaxMessage), ""},
		{"64 KiB and 1 in a str", withString(MaxMessage + 1), "message of at least 65537 bytes: allowed are up to 65536"},
		{"64 KiB of integers", withInts(MaxMessage), ""},
		{"64 KiB and 1 of integers", withInts(MaxMessage + 1), "message of at least 65537 bytes: allowed are up to 65536"},
		{"depth 8", nested(8, 0x91, 0xc0), ""},
		{"depth 8, empty", nested(8, 0x90), ""},
		{"depth 9", nested(9, 0x91, 0xc0), "nesting of 9: allowed are up to 8"},
		{"depth 9, empty", nested(9, 0x90), "nesting of 9: allowed are up to 8"},
		{"depth 9, map", nested(9, 0x80), "nesting of 9: allowed are up to 8"},
		{"array of 1024", append([]byte{0xdc, 4, 0}, make([]byte, 1024)...), ""},
		{"array of 1025", []byte{0xdc, 4, 1}, "array of 1025: allowed are up to 1024"},
		{"array32 of 1024", append([]byte{0xdd, 0, 0, 4, 0}, make([]byte, 1024)...), ""},
		{"array32 of 2^32-1", unhex("ddffffffff"), "array of 4294967295: allowed are up to 1024"},
		{"map of 1024", append([]byte{0xde, 4, 0}, make([]byte, 2048)...), ""},
		{"map of 1025", []byte{0xde, 4, 1}, "map of 1025: allowed are up to 1024"},
		{"map32 of 2^32-1", unhex("dfffffffff"), "map of 4294967295: allowed are up to 1024"},
		{"str32 of 2^32-1", unhex("dbffffffff"), "message of at least 4294967300 bytes: allowed are up to 65536"},
		{"0xc1", []byte{0xc1}, "byte 0xc1 at 0: not MessagePack"},
		{"0xc1 inside", []byte{0x92, 0, 0xc1}, "byte 0xc1 at 2: not MessagePack"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, step := range []int{len(tt.message), 1, 7} {
				n, err := feed(t, tt.message, step)
				if tt.refusal == "" && (err != nil || n != len(tt.message)) {
					t.Fatalf("step %d: %d, %v; want %d", step, n, err, len(tt.message))
				}
				if tt.refusal != "" {
					wantRefusal(t, err, tt.refusal)
				}
			}
		})
	}
}

func wantRefusal(t *testing.T, err error, message string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != InvalidRequest || e.Message != message {
		t.Fatalf("got %v, want %q", err, message)
	}
}

// feed hands message to a Scanner in pieces of step bytes. Everything the Scanner
// says to have passed is overwritten, so that looking at it twice would show.
func feed(t *testing.T, message []byte, step int) (int, error) {
	t.Helper()
	var s Scanner
	passed := 0
	buf := bytes.Clone(message)
	for size := step; ; size = min(size+step, len(buf)) {
		n, err := s.Next(buf[:min(size, len(buf))])
		if n > 0 || err != nil {
			return n, err
		}
		if size >= len(buf) {
			t.Fatalf("step %d: waits for more than the %d bytes there are", step, len(buf))
		}
		if size >= MaxMessage {
			t.Fatalf("step %d: waits with %d bytes in the buffer", step, size)
		}
		for ; passed < min(s.pos, size); passed++ {
			buf[passed] = 0xc1
		}
	}
}

func TestScannerRefusesAtTheHeader(t *testing.T) {
	for _, header := range []string{"940007da ffff", "c5ffff", "c8ffff", "db00010000", "c600010000", "c900010000", "dc0401", "de0401"} {
		message := unhex(strings.ReplaceAll(header, " ", ""))
		var s Scanner
		if _, err := s.Next(message); err == nil {
			t.Errorf("%s: not refused", header)
		}
		if _, err := s.Next(append(message, 0)); err == nil {
			t.Errorf("%s: not refused when asked again", header)
		}
	}
}

func TestScannerPipelined(t *testing.T) {
	one, two := unhex("9400ce7fffffffa470696e6790"), unhex("9302a6726566756e6493a3617069a7757365723a343201")
	buf := append(append(bytes.Clone(one), two...), one[:4]...)
	var s Scanner
	for _, want := range []int{len(one), len(two), 0} {
		n, err := s.Next(buf)
		if n != want || err != nil {
			t.Fatalf("Next: %d, %v; want %d", n, err, want)
		}
		buf = buf[n:]
	}
	if n, err := s.Next(append(buf, one[4:]...)); n != len(one) || err != nil {
		t.Fatalf("the rest of the third: %d, %v", n, err)
	}
}

func TestHostileHeadersAllocateNothingBig(t *testing.T) {
	var before, after runtime.MemStats
	headers := [][]byte{
		unhex("dd7fffffff"), unhex("c640000000"), unhex("db7fffffff"), unhex("df7fffffff"), unhex("c97fffffff"),
		nested(9, 0x90),
	}
	runtime.ReadMemStats(&before)
	for _, h := range headers {
		var s Scanner
		if _, err := s.Next(h); err == nil {
			t.Errorf("%x: not refused", h)
		}
		ParseRequest(append(unhex("940007"), h...))
		ParseRequest(h)
		ParseResponse(append(unhex("940107c0"), h...))
		ParseAll(append(unhex("92c3"), h...))
		ParseInfo(h)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<10 {
		t.Errorf("%d bytes allocated for %d hostile headers", grown, len(headers))
	}
}

func TestMsgID(t *testing.T) {
	tests := []struct {
		hex string
		id  uint32
		ok  bool
	}{
		{"940007", 7, true},
		{"9400ceffffffff", 1<<32 - 1, true},
		{"dd7fffffff0007", 7, true},
		{"94cc00d00700", 7, true},
		{"9400", 0, false},
		{"9400ce0000", 0, false},
		{"9400ff", 0, false},
		{"940107", 0, false},
		{"9302a470696e67", 0, false},
		{"8100", 0, false},
		{"", 0, false},
	}
	for _, tt := range tests {
		if id, ok := MsgID(unhex(tt.hex)); id != tt.id || ok != tt.ok {
			t.Errorf("%s: %d, %v; want %d, %v", tt.hex, id, ok, tt.id, tt.ok)
		}
	}
}
