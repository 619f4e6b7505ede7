// Calls that wait: who is served when, who is denied at once, and who never blocks
// whom.

package limiter

import (
	"testing"
	"time"
)

// leaver is a caller of its own, who may go.
type leaver struct {
	*rig
	gone bool
}

func (c *leaver) Gone() bool { return c.gone }

// beginFor is begin for a caller of its own.
func (r *rig) beginFor(to Replier, name string, cost int64, wait time.Duration) uint32 {
	r.ref++
	c := &Call{Policy: []byte(name), Key: []byte("k"), Cost: cost, Wait: wait}
	if d, pending, err := r.l.Acquire(r.now, c, to, r.ref); !pending {
		r.Decided(r.ref, d, err)
	}
	return r.ref
}

// everyQueue is everyMode without the leaky bucket, whose calls wait otherwise.
func everyQueue(t *testing.T, f func(t *testing.T, mode, fields string)) {
	for _, mode := range []string{"standalone", "leased", "away"} {
		for _, a := range ten {
			if a.name != "leaky_bucket" {
				t.Run(a.name+", "+mode, func(t *testing.T) { f(t, mode, a.fields) })
			}
		}
	}
}

func TestWaitersAreServedWhenPermitsCome(t *testing.T) {
	everyQueue(t, func(t *testing.T, mode, fields string) {
		need := used(t, mode, fields, 10).acquire("p", "k", 3).RetryAfter
		for _, c := range []struct {
			wait   time.Duration
			served bool
		}{{need + 50*ms, true}, {need + 5*ms, true}, {need - 5*ms, false}} {
			r := used(t, mode, fields, 10)
			began := r.now
			ref := r.begin(r.l.Acquire, "p", "k", 3, min(MaxWait, c.wait))
			d := r.end(ref)
			took := r.when[ref] - began
			switch {
			case c.wait > MaxWait:
			case d.Allowed != c.served:
				t.Errorf("waiting %v of %v: got %+v after %v", c.wait, need, d, took)
			case c.served && (took < need-3*ms || took > need+4*ms):
				t.Errorf("waiting %v of %v: served after %v", c.wait, need, took)
			case !c.served && (took > 2*ms || d.RetryAfter < need-3*ms || d.RetryAfter > need+3*ms):
				t.Errorf("waiting %v of %v: got %+v after %v, want a denial at once", c.wait, need, d, took)
			}
		}
	})
}

// What is told to those behind others says when these will be done.
func TestDeniedBehindWaitersSaysWhen(t *testing.T) {
	for _, mode := range []string{"standalone", "leased", "away"} {
		t.Run(mode, func(t *testing.T) {
			r := used(t, mode, "limit: 10/second", 10)
			r.begin(r.l.Acquire, "p", "k", 10, 5*time.Second)
			r.pass(5 * ms)
			d := r.end(r.begin(r.l.Acquire, "p", "k", 5, time.Second))
			if d.Allowed || d.RetryAfter < 1480*ms || d.RetryAfter > 1505*ms {
				t.Errorf("5 behind 10, at 10 a second: got %+v, want 1.5 s", d)
			}
		})
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	everyQueue(t, func(t *testing.T, mode, fields string) {
		r := used(t, mode, fields, 10)
		var refs []uint32
		for i := range 24 {
			refs = append(refs, r.begin(r.l.Acquire, "p", "k", []int64{1, 8, 2, 1, 1, 5, 10, 1}[i%8], MaxWait))
			r.pass(time.Duration(i%3) * 7 * ms)
		}
		r.pass(MaxWait + time.Second)
		last, served := time.Duration(0), 0
		for i, ref := range refs {
			switch d, ok := r.decisions[ref]; {
			case !ok:
				t.Errorf("call %d has no answer", i)
			case !d.Allowed: // it could not make it
			case r.when[ref] < last:
				t.Errorf("call %d was served at %v, one before it at %v", i, r.when[ref], last)
			default:
				last = r.when[ref]
				served++
			}
		}
		if served < 2 {
			t.Errorf("%d calls were served: the test tries nothing", served)
		}
	})
}

func TestSmallCallsDoNotStarveALargeOne(t *testing.T) {
	everyQueue(t, func(t *testing.T, mode, fields string) {
		r := used(t, mode, fields, 10)
		need := r.acquire("p", "k", 10).RetryAfter
		if need > MaxWait-time.Second {
			need = r.acquire("p", "k", 4).RetryAfter
		}
		began := r.now
		large := r.begin(r.l.Acquire, "p", "k", map[bool]int64{true: 10, false: 4}[need > 0 && need < 20*time.Second], MaxWait)
		for r.now-began < need+20*ms && r.decisions[large] == (Decision{}) {
			before := r.now
			if ref := r.begin(r.l.Acquire, "p", "k", 1, 0); r.end(ref).Allowed && r.decisions[large] == (Decision{}) {
				t.Fatalf("a small call was served %v after the large one came, before it", before-began)
			}
			r.pass(10 * ms)
		}
		if d := r.end(large); !d.Allowed || r.when[large]-began > need+25*ms {
			t.Errorf("the large call: got %+v after %v, want it after %v", d, r.when[large]-began, need)
		}
	})
}

func TestWhoLeavesFreesThePlace(t *testing.T) {
	everyQueue(t, func(t *testing.T, mode, fields string) {
		r := used(t, mode, fields, 10)
		first := &leaver{rig: r}
		ref := r.beginFor(first, "p", 9, MaxWait)
		r.pass(2 * ms)
		if _, answered := r.decisions[ref]; answered {
			return // nine take longer than one may wait
		}
		second := r.begin(r.l.Acquire, "p", "k", 1, MaxWait)
		first.gone = true
		d := r.end(second)
		if !d.Allowed {
			t.Errorf("after the first left: got %+v", d)
		}
		if d, err := r.decisions[ref], r.errors[ref]; d.Allowed || err == nil {
			t.Errorf("who left: got %+v, %v", d, err)
		}
	})
}

func TestTooManyWaiters(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window", "leaky_bucket"} {
		for _, mode := range []string{"standalone", "leased", "away"} {
			t.Run(algorithm+", "+mode, func(t *testing.T) {
				r := newRigOf(t, mode == "standalone", "  p: {limit: 100000/30s, algorithm: "+algorithm+"}")
				if algorithm != "leaky_bucket" {
					r.acquire("p", "k", 100000)
					r.acquire("p", "k", 1000)
				}
				r.away = mode == "away"
				over, answered := 0, 0
				for range maxWaiting + 11 {
					ref := r.begin(r.l.Acquire, "p", "k", 1, MaxWait)
					if err := r.errors[ref]; err != nil && err.Kind == Overloaded {
						over++
					} else if _, ok := r.decisions[ref]; ok {
						answered++
					}
				}
				if over != 11-answered || answered > 10 {
					t.Errorf("%d calls were too many, and %d were answered at once, of %d", over, answered, maxWaiting+11)
				}
			})
		}
	}
}

// A leaky bucket lets those who wait go one after the other, whatever they cost.
func TestTurnsAreInOrder(t *testing.T) {
	for _, mode := range []string{"standalone", "leased", "away"} {
		t.Run(mode, func(t *testing.T) {
			r := used(t, mode, "limit: 10/second, algorithm: leaky_bucket", 0)
			var refs []uint32
			costs := []int64{1, 2, 1, 3, 1, 2}
			for _, cost := range costs {
				refs = append(refs, r.begin(r.l.Acquire, "p", "k", cost, 5*time.Second))
			}
			began := r.now
			late := r.begin(r.l.Acquire, "p", "k", 1, 5*time.Second)
			r.pass(20 * ms)
			if d, ok := r.decisions[late]; !ok || d.Allowed || d.RetryAfter < 70*ms || d.RetryAfter > 100*ms {
				t.Errorf("an eleventh: got %+v, %v", d, ok)
			}
			r.pass(2 * time.Second)
			turn := time.Duration(0)
			for i, ref := range refs {
				if at := r.when[ref] - began; !r.decisions[ref].Allowed || at < turn || at > turn+15*ms {
					t.Errorf("call %d left after %v, want %v: %+v", i, at, turn, r.decisions[ref])
				}
				turn += time.Duration(costs[i]) * 100 * ms
			}
			r.pass(time.Second)
			impatient := []time.Duration{0, 50 * ms, 250 * ms}
			r.acquire("p", "k", 1)
			for i, wait := range impatient {
				ref := r.begin(r.l.Acquire, "p", "k", 1, wait)
				if d := r.end(ref); d.Allowed != (wait != 50*ms) {
					t.Errorf("impatient call %d: got %+v", i, d)
				}
			}
		})
	}
}
