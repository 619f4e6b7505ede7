// What each way to ask gives for each algorithm, with a full and a used-up bucket:
// standalone, out of leases, and cut off from the authority after some use.

package limiter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

// used returns a rig whose bucket p:k of ten permits has so many used, and that is
// then as mode says.
func used(t *testing.T, mode, fields string, cost int64) *rig {
	t.Helper()
	r := newRigOf(t, mode == "standalone", "  p: {"+fields+"}")
	r.pass(3 * ms)
	if cost > 0 {
		if d := r.acquire("p", "k", cost); !d.Allowed {
			t.Fatalf("%d of 10: got %+v", cost, d)
		}
	}
	r.away = mode == "away"
	return r
}

func everyMode(t *testing.T, f func(t *testing.T, mode, fields string)) {
	for _, mode := range []string{"standalone", "leased", "away"} {
		for _, a := range ten {
			t.Run(a.name+", "+mode, func(t *testing.T) { f(t, mode, a.fields) })
		}
	}
}

// source is where the answers of a mode may come from.
func (r *rig) source(d Decision, mode string) {
	r.t.Helper()
	ok := map[string]bool{
		"standalone": d.Source == FromStandalone, "away": d.Source == FromFallback || d.Source == FromDenial,
		"leased": d.Source <= FromDenial,
	}
	if !ok[mode] {
		r.t.Errorf("%s: got %+v", mode, d)
	}
}

func TestRetryAfterAndResetAfterAreExact(t *testing.T) {
	everyMode(t, func(t *testing.T, mode, fields string) {
		for _, cost := range []int64{1, 3, 10} {
			d := used(t, mode, fields, 10).acquire("p", "k", cost)
			if d.Allowed || d.RetryAfter <= 0 || d.Remaining != 0 {
				t.Fatalf("%d of none: got %+v", cost, d)
			}
			for _, c := range []struct {
				after time.Duration
				ok    bool
			}{{d.RetryAfter, true}, {d.RetryAfter - 3*ms, false}} {
				r := used(t, mode, fields, 10)
				r.source(r.acquire("p", "k", cost), mode)
				r.pass(c.after)
				if d := r.acquire("p", "k", cost); d.Allowed != c.ok {
					t.Errorf("%d again after %v: got %+v, want allowed %v", cost, c.after, d, c.ok)
				}
			}
		}
		r := used(t, mode, fields, 10)
		full := r.acquire("p", "k", 1).ResetAfter
		for _, early := range []time.Duration{0, 3 * ms} {
			r := used(t, mode, fields, 10)
			r.pass(full - early)
			several := strings.Contains(fields, "[") // the slowest limit is full last, and has more than ten
			if d := r.acquire("p", "k", 10); d.Allowed != (early == 0 || several) {
				t.Errorf("all of it %v before it is full, in %v: got %+v", early, full, d)
			}
		}
	})
}

// What is leased and not used is left, and is not waited for either.
func TestResetAfterFitsRemaining(t *testing.T) {
	for _, a := range []string{"token_bucket", "leaky_bucket"} {
		r := newRigOf(t, false, "  p: {limit: 100/10s, algorithm: "+a+"}")
		leased := false
		for i := range 40 {
			d := r.acquire("p", "k", 1)
			leased = leased || d.Source == FromLease
			full := time.Duration(100-d.Remaining) * 100 * ms
			if d.ResetAfter > full+ms || d.ResetAfter < full-101*ms {
				t.Errorf("%s, call %d: got %+v, of which %d come back in %v", a, i, d, 100-d.Remaining, full)
				break
			}
			r.pass(2 * ms)
		}
		if !leased {
			t.Errorf("%s: nothing was leased: the test tries nothing", a)
		}
	}
}

func TestCostAboveTheCapacityNeverPasses(t *testing.T) {
	everyMode(t, func(t *testing.T, mode, fields string) {
		for _, had := range []int64{0, 4, 10} {
			r := used(t, mode, fields, had)
			for _, ask := range []asker{r.l.Acquire, r.l.Peek} {
				d := r.end(r.begin(ask, "p", "k", 11, time.Second))
				if d.Allowed || d.RetryAfter != Never || d.Remaining != 10-had || d.Limit != 10 {
					t.Errorf("11 of %d: got %+v", 10-had, d)
				}
			}
		}
	})
}

func TestPeekChangesNothing(t *testing.T) {
	fields := map[string]string{"token_bucket, interval": "limit: 10/second, refill: interval"}
	for _, a := range ten {
		fields[a.name] = a.fields
	}
	for name, f := range fields {
		for _, standalone := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, standalone %v", name, standalone), func(t *testing.T) {
				var seen [2][]bool
				for peeks := range seen {
					r := newRigOf(t, standalone, "  p: {"+f+", consistency: exact}")
					for i := range 60 {
						r.pass(time.Duration(50+i*i%11*40) * ms)
						if peeks == 1 {
							r.begin(r.l.Peek, "p", "k", int64(i%4), 0)
						}
						r.pass(time.Duration(50+i*37%11*40) * ms)
						seen[peeks] = append(seen[peeks], r.acquire("p", "k", int64(1+i*7%10)).Allowed)
					}
				}
				if fmt.Sprint(seen[0]) != fmt.Sprint(seen[1]) {
					t.Errorf("without and with peeks between:\n%v\n%v", seen[0], seen[1])
				}
			})
		}
	}
}

func TestRefundComesBack(t *testing.T) {
	everyMode(t, func(t *testing.T, mode, fields string) {
		for _, c := range []struct{ used, back, left int64 }{{10, 3, 3}, {4, 3, 9}, {4, 9, 10}, {10, 1 << 50, 10}, {0, 5, 10}} {
			r := used(t, mode, fields, c.used)
			if err := r.l.Refund(r.now, &Call{Policy: []byte("p"), Key: []byte("k"), Cost: c.back}); err != nil {
				t.Fatal(err)
			}
			r.pass(4 * ms)
			if d := r.peek("p", "k"); d.Remaining != c.left {
				t.Errorf("%d used, %d given back: got %+v, want %d left", c.used, c.back, d, c.left)
			}
			if d := r.acquire("p", "k", c.left); !d.Allowed {
				t.Errorf("%d used, %d given back: %d are not there: %+v", c.used, c.back, c.left, d)
			}
			if d := r.acquire("p", "k", 1); d.Allowed {
				t.Errorf("%d used, %d given back: more than %d are there: %+v", c.used, c.back, c.left, d)
			}
		}
	})
}

func (r *rig) reset(name, key string) *Error {
	r.t.Helper()
	r.ref++
	pending, err := r.l.Reset(r.now, &Call{Policy: []byte(name), Key: []byte(key)}, r, r.ref)
	if pending {
		r.end(r.ref)
		return r.errors[r.ref]
	}
	return err
}

func TestResetStartsAfresh(t *testing.T) {
	everyMode(t, func(t *testing.T, mode, fields string) {
		r := used(t, mode, fields, 10)
		r.acquire("p", "k", 1)
		err := r.reset("p", "k")
		if (err != nil) != (mode == "away") || err != nil && err.Kind != Unavailable {
			t.Errorf("got %v", err)
		}
		if d := r.acquire("p", "k", 10); !d.Allowed {
			t.Errorf("all of it after a reset: got %+v", d)
		}
		if d := r.acquire("p", "k", 1); d.Allowed {
			t.Errorf("more than all of it: got %+v", d)
		}
	})
}

func TestShadowNeverDenies(t *testing.T) {
	everyMode(t, func(t *testing.T, mode, fields string) {
		r := used(t, mode, fields+", mode: shadow", 10)
		for range 3 {
			if d := r.acquire("p", "k", 1); !d.Allowed || !d.Shadow || d.RetryAfter != 0 || d.Permit != 0 {
				t.Errorf("got %+v", d)
			}
		}
	})
}

// Without the authority, what was used before counts, and what is used then is told
// to it afterwards.
func TestAnOutageIsPaidFor(t *testing.T) {
	for _, a := range ten {
		t.Run(a.name, func(t *testing.T) {
			r := used(t, "away", a.fields, 4)
			if d := r.acquire("p", "k", 5); !d.Allowed || d.Source != FromFallback || d.Remaining != 1 {
				t.Errorf("5 of 6: got %+v", d)
			}
			if d := r.acquire("p", "k", 2); d.Allowed {
				t.Errorf("2 of 1: got %+v", d)
			}
			if err := r.l.Refund(r.now, &Call{Policy: []byte("p"), Key: []byte("k"), Cost: 2}); err != nil {
				t.Fatal(err)
			}
			r.away = false
			if d := r.acquire("p", "k", 3); !d.Allowed || d.Source != FromRedis || d.Remaining != 0 {
				t.Errorf("the last three, of the authority: got %+v", d)
			}
			if d := r.acquire("p", "k", 1); d.Allowed {
				t.Errorf("one more: got %+v", d)
			}
		})
	}
}

// Callers' own limits, of every algorithm.
func TestInlineLimits(t *testing.T) {
	for i, name := range bucket.Algorithms() {
		for _, standalone := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, standalone %v", name, standalone), func(t *testing.T) {
				r := newRig(t, standalone)
				c := Call{Key: []byte("k"), Cost: 1}
				c.Inline.Algorithm = bucket.Algorithm(i)
				c.Inline.Limit = bucket.Limit{Count: 4, Period: 10 * time.Second, Burst: 4}
				allowed := 0
				for range 6 {
					r.ref++
					d, pending, err := r.l.Acquire(r.now, &c, r, r.ref)
					if !pending {
						r.Decided(r.ref, d, err)
					}
					if d := r.end(r.ref); d.Allowed {
						allowed++
					} else if d.Limit != 4 || d.RetryAfter <= 0 {
						t.Errorf("got %+v", d)
					}
					if r.errors[r.ref] != nil {
						t.Fatal(r.errors[r.ref])
					}
				}
				if allowed != 4 {
					t.Errorf("%d of 4 were allowed", allowed)
				}
			})
		}
	}
}
