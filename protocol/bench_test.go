// What the hot path costs: reading one acquire and writing its decision.

package protocol

import (
	"encoding/hex"
	"testing"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

var (
	acquireFrame = unhex("940007a76163717569726593a3617069a7757365723a343201")
	allowedReply = Decision{Allowed: true, Limit: 100, Remaining: 99, ResetAfterMS: 1000}
)

func BenchmarkReadAcquire(b *testing.B) {
	var (
		s Scanner
		c Call
		o Options
	)
	b.ReportAllocs()
	for b.Loop() {
		n, err := s.Next(acquireFrame)
		if err != nil {
			b.Fatal(err)
		}
		r, _, perr := ParseRequest(acquireFrame[:n])
		if perr == nil {
			perr = r.Call(&c, &o)
		}
		if perr != nil {
			b.Fatal(perr)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	var s Scanner
	b.ReportAllocs()
	for b.Loop() {
		if n, err := s.Next(acquireFrame); n == 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkAppendDecision(b *testing.B) {
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendDecision(buf[:0], 7, &allowedReply)
	}
}
