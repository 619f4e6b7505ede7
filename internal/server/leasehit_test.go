// What a lease hit costs from the bytes of the request to the bytes of the reply:
// no allocation, and the time that BenchmarkLeaseHit shows.

package server

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/limiter"
	"rlsidecar/internal/policy"
	"rlsidecar/protocol"
)

// plenty is an authority that grants far more than is ever asked for.
type plenty struct{}

func (plenty) Home(_, _ string) uint16 { return 0 }
func (plenty) Reachable(uint16) bool   { return true }
func (plenty) Degraded() bool          { return false }

func (plenty) Ask(q *bucket.Question) {
	g := bucket.Grant{Permits: q.Ask.Need + 1e12, Direct: q.Ask.Need, Epoch: 1, Slot: 1, Horizon: 0.5, Interval: 0.1, Hosts: 1, Life: 2}
	g.Outlook.Levels[0] = bucket.Level{Permits: float64(q.Rule.Capacity()), Burst: q.Rule.Capacity()}
	go q.Answer(q, g, nil)
}

const (
	leasePolicies = "policies:\n  api: {limit: 1000000000/second}\n"
	manyKeys      = 100_000
)

// hits is a connection that never reads, and an agent that holds leases.
type hits struct {
	t testing.TB
	c *conn
	d protocol.Decision
}

// newHits returns one whose leases never end when clock is a constant.
func newHits(t testing.TB, clock func() time.Duration) *hits {
	t.Helper()
	config, err := policy.Parse("hits.yaml", []byte(leasePolicies))
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		io.Copy(io.Discard, far)
	}()
	l := limiter.New(config.Policies, limiter.Options{Redis: plenty{}, Clock: clock})
	c := newConn(New(l, Config{}), near)
	t.Cleanup(func() {
		c.server.ended.Wait()
		near.Close()
		<-drained
	})
	return &hits{t: t, c: c}
}

// answer is what conn.chunk does with what was read, without the reading and the
// writing.
func (h *hits) answer(in []byte) []byte {
	h.c.reply = h.c.reply[:0]
	if used, p := h.c.session.answer(h.c.d.Now(), in); used != len(in) || p != needsMore {
		h.t.Fatalf("%d of %d bytes used, progress %d", used, len(in), p)
	}
	return h.c.reply
}

// warm asks until the answer comes from a lease. It yields rather than sleeps:
// there may be very many to warm.
func (h *hits) warm(frame []byte) {
	h.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if !h.c.settled() {
			continue
		}
		if reply := h.answer(frame); len(reply) > 0 && h.fromLease(reply) {
			return
		}
	}
	h.t.Fatal("no answer comes from a lease")
}

func (h *hits) fromLease(reply []byte) bool {
	h.t.Helper()
	r, err := protocol.ParseResponse(reply)
	if err == nil && r.Err != nil {
		err = r.Err
	}
	if err == nil {
		err = protocol.ParseDecision(r.Result, &h.d)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return h.d.Allowed && h.d.Source == uint8(limiter.FromLease)
}

// leaseCalls are the forms of a call that a lease answers.
func leaseCalls() map[string][]byte {
	named := protocol.Call{Policy: []byte("api"), Key: []byte("user:42"), Cost: 1}
	inline := protocol.Call{Inline: protocol.Inline{Count: 1e9, PeriodMS: 1000}, Key: []byte("user:42"), Cost: 1}
	return map[string][]byte{
		"policy": protocol.AppendAcquire(nil, 7, &named, nil),
		"inline": protocol.AppendAcquire(nil, 7, &inline, nil),
	}
}

func TestLeaseHitAllocatesNothing(t *testing.T) {
	for name, frame := range leaseCalls() {
		t.Run(name, func(t *testing.T) {
			h := newHits(t, func() time.Duration { return time.Second })
			h.warm(frame)
			const runs = 2000
			all := true
			allocs := testing.AllocsPerRun(runs, func() { all = h.fromLease(h.answer(frame)) && all })
			if allocs != 0 || !all {
				t.Errorf("%v allocations per call, all from the lease: %v; want 0 and true", allocs, all)
			}
		})
	}
}

func BenchmarkLeaseHit(b *testing.B) {
	for name, frame := range leaseCalls() {
		b.Run(name, func(b *testing.B) {
			h := newHits(b, nil)
			h.warm(frame)
			b.ReportAllocs()
			for b.Loop() {
				h.answer(frame)
			}
		})
	}
	b.Run("100k keys", benchmarkManyKeys)
}

// benchmarkManyKeys is about the memory of the machine: each call meets a bucket
// that no cache of the processor holds.
func benchmarkManyKeys(b *testing.B) {
	h := newHits(b, func() time.Duration { return time.Second })
	frames := make([][]byte, manyKeys)
	for i := range frames {
		c := protocol.Call{Policy: []byte("api"), Key: fmt.Appendf(nil, "user:%d", i), Cost: 1}
		frames[i] = protocol.AppendAcquire(nil, 7, &c, nil)
		h.warm(frames[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i = (i + 7919) % manyKeys {
		h.answer(frames[i])
	}
}
