// What a decision costs below the server.

package limiter

import (
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

func BenchmarkStandalone(b *testing.B) {
	l := New(parse(b, "policies: {api: {limit: 1_000_000_000/second}}"), Options{})
	c := &Call{Policy: []byte("api"), Key: []byte("user:42"), Cost: 1}
	for b.Loop() {
		if d, _, _ := l.Acquire(time.Second, c, nil, 1); !d.Allowed {
			b.Fatal("denied")
		}
	}
}

func BenchmarkLease(b *testing.B) {
	l := leaseFor(b)
	now := l.Now()
	c := &Call{Policy: []byte("api"), Key: []byte("user:42"), Cost: 1}
	for b.Loop() {
		if d, _, _ := l.Acquire(now, c, nil, 1); d.Source != FromLease {
			b.Fatal("not from the lease")
		}
	}
}

// generous grants a lease that a benchmark cannot spend.
type generous struct{}

func (g *generous) Ask(q *bucket.Question) {
	go q.Answer(q, bucket.Grant{Permits: 1 << 50, Slot: 1, Life: 2, Outlook: bucket.Outlook{Levels: bucket.Levels{{Permits: 5}}}}, nil)
}

func (g *generous) Home(_, _ string) uint16 { return 0 }
func (g *generous) Reachable(uint16) bool   { return true }
func (g *generous) Degraded() bool          { return false }

type answered chan Decision

func (a answered) Decided(_ uint32, d Decision, _ *Error) { a <- d }
func (a answered) Gone() bool                             { return false }

func leaseFor(b *testing.B) *Limiter {
	now := time.Second
	l := New(parse(b, "policies: {api: {limit: 1_000_000_000/second}}"), Options{Redis: &generous{}, Clock: func() time.Duration { return now }})
	to := make(answered, 1)
	if _, pending, _ := l.Acquire(now, &Call{Policy: []byte("api"), Key: []byte("user:42"), Cost: 1}, to, 1); pending {
		<-to
	}
	return l
}
