// Permits of concurrency limits, and calls for several buckets at once.

package limiter

import (
	"fmt"
	"testing"
	"time"
)

const heldPolicies = `  three: {limit: 3, algorithm: concurrency, max_hold: 10s}
  many: {limit: 20, algorithm: concurrency, max_hold: 10s}
`

func everyHolding(t *testing.T, f func(t *testing.T, r *rig, name string, limit int64)) {
	for _, mode := range []string{"standalone", "leased", "away"} {
		for name, limit := range map[string]int64{"three": 3, "many": 20} {
			t.Run(name+", "+mode, func(t *testing.T) {
				r := newRigOf(t, mode == "standalone", heldPolicies)
				r.away = mode == "away"
				f(t, r, name, limit)
			})
		}
	}
}

// hold acquires permits of one each, and wants them all.
func (r *rig) hold(name string, n int64, to *Caller) (permits []uint64) {
	r.t.Helper()
	for range n {
		d := r.acquireAs(name, to, 0)
		if !d.Allowed || d.Permit == 0 {
			r.t.Fatalf("permit %d of %d: got %+v", len(permits)+1, n, d)
		}
		permits = append(permits, d.Permit)
	}
	return permits
}

func (r *rig) acquireAs(name string, to *Caller, wait time.Duration) Decision {
	r.t.Helper()
	r.ref++
	c := &Call{Policy: []byte(name), Key: []byte("k"), Cost: 1, Caller: to, Wait: wait}
	ref := r.ref
	if d, pending, err := r.l.Acquire(r.now, c, r, ref); !pending {
		r.Decided(ref, d, err)
	}
	return r.end(ref)
}

// free wants so many permits to be free: it takes them all, and one more in vain.
func (r *rig) free(name string, n int64) {
	r.t.Helper()
	r.pass(150 * ms) // what was released reaches the authority
	permits := r.hold(name, n, nil)
	if d := r.acquireAs(name, nil, 0); d.Allowed || d.RetryAfter <= 0 || d.Permit != 0 {
		r.t.Errorf("one more than %d: got %+v", n, d)
	}
	for _, p := range permits {
		r.l.Release(r.now, p)
	}
	r.pass(150 * ms)
}

func TestHeldPermitsEndInEveryWay(t *testing.T) {
	everyHolding(t, func(t *testing.T, r *rig, name string, limit int64) {
		permits := r.hold(name, limit, nil)
		if d := r.acquireAs(name, nil, 0); d.Allowed {
			t.Errorf("above the limit: got %+v", d)
		}
		if !r.l.Release(r.now, permits[0]) || r.l.Release(r.now, permits[0]) || r.l.Release(r.now, 12345) {
			t.Error("a permit is released once, and one that nobody has never")
		}
		r.free(name, 1)
		began := r.now - 150*2*ms
		r.pass(began + 10*time.Second - 20*ms - r.now) // the first of the others was taken a little earlier
		if r.l.permits.count() == 0 {
			t.Error("permits ended before max_hold")
		}
		r.pass(400 * ms)
		if r.l.permits.count() != 0 || r.l.Release(r.now, permits[1]) {
			t.Errorf("%d permits are held after max_hold", r.l.permits.count())
		}
		r.free(name, limit)
	})
}

func TestResetEndsWhatIsHeld(t *testing.T) {
	everyHolding(t, func(t *testing.T, r *rig, name string, limit int64) {
		permits := r.hold(name, limit, nil)
		err := r.reset(name, "k")
		if (err != nil) != r.away {
			t.Errorf("got %v", err)
		}
		r.free(name, limit)
		again := r.hold(name, limit, nil)
		for _, p := range permits {
			if r.l.Release(r.now, p) {
				t.Error("a permit of before the reset was still held")
			}
		}
		if d := r.acquireAs(name, nil, 0); d.Allowed {
			t.Errorf("releasing permits of before made room: %+v", d)
		}
		for _, p := range again {
			r.l.Release(r.now, p)
		}
		r.free(name, limit)
	})
}

func TestPermitsEndWithTheirProcess(t *testing.T) {
	for _, c := range []struct {
		name         string
		back         time.Duration // when the process connects again; 0: never
		other        bool          // a second connection stays open
		soon, forall bool          // held after 990 ms, and after 2 s
	}{
		{"gone", 0, false, true, false},
		{"back within a second", 950 * ms, false, true, true},
		{"back too late", 1010 * ms, false, true, false},
		{"another connection", 0, true, true, true},
	} {
		everyHolding(t, func(t *testing.T, r *rig, name string, limit int64) {
			process := Peer{Known: true, PID: 77}
			first := r.l.Connect(process)
			if c.other {
				r.l.Connect(process)
			}
			r.hold(name, limit, first)
			closed := r.now
			r.l.Disconnect(first)
			for r.now < closed+2*time.Second {
				r.pass(ms)
				if c.back > 0 && r.now == closed+c.back {
					r.l.Connect(process)
				}
				if r.now == closed+990*ms && (r.l.permits.count() == int(limit)) != c.soon {
					t.Errorf("%s: %d are held within a second", c.name, r.l.permits.count())
				}
			}
			if n := r.l.permits.count(); n != map[bool]int{true: int(limit)}[c.forall] {
				t.Errorf("%s: %d are held after two seconds", c.name, n)
			}
			if !c.forall {
				r.free(name, limit)
			}
		})
	}
}

// A waiter that leaves holds nothing, and who waits behind it is served.
func TestWaitersForHeldPermits(t *testing.T) {
	everyHolding(t, func(t *testing.T, r *rig, name string, limit int64) {
		permits := r.hold(name, limit, nil)
		leaves := &leaver{rig: r}
		gone := r.beginFor(leaves, name, 1, 5*time.Second)
		r.pass(10 * ms)
		stays := r.begin(r.l.Acquire, name, "k", 1, 5*time.Second)
		brief := r.begin(r.l.Acquire, name, "k", 1, 100*ms)
		r.pass(50 * ms)
		leaves.gone = true
		r.pass(100 * ms)
		if d, ok := r.decisions[brief]; !ok || d.Allowed {
			t.Errorf("who waits 100 ms: got %+v, %v", d, ok)
		}
		r.l.Release(r.now, permits[0])
		r.pass(60 * ms)
		if d := r.decisions[stays]; !d.Allowed || d.Permit == 0 {
			t.Errorf("who stays: got %+v", d)
		}
		if d := r.decisions[gone]; d.Allowed || d.Permit != 0 {
			t.Errorf("who left: got %+v", d)
		}
		for _, p := range append(permits[1:], r.decisions[stays].Permit) {
			if !r.l.Release(r.now, p) {
				t.Error("a permit was not held")
			}
		}
		r.free(name, limit)
	})
}

// Who is gone when its permit comes does not keep it.
func TestPermitForNobodyIsReleased(t *testing.T) {
	for _, name := range []string{"three", "many"} {
		r := newRigOf(t, false, heldPolicies)
		leaves := &leaver{rig: r}
		r.beginFor(leaves, name, 1, 0)
		leaves.gone = true
		r.pass(10 * ms)
		if n := r.l.permits.count(); n != 0 {
			t.Errorf("%s: %d are held by nobody", name, n)
		}
		r.free(name, map[string]int64{"three": 3, "many": 20}[name])
	}
}

func TestHeldPermitsCannotBeRefunded(t *testing.T) {
	everyHolding(t, func(t *testing.T, r *rig, name string, limit int64) {
		r.hold(name, limit, nil)
		err := r.l.Refund(r.now, &Call{Policy: []byte(name), Key: []byte("k"), Cost: 1})
		if err == nil || err.Kind != InvalidArgument {
			t.Errorf("got %v", err)
		}
		if d := r.acquireAs(name, nil, 0); d.Allowed {
			t.Errorf("got %+v", d)
		}
	})
}

func TestHoldingSeveralAtOnceAndPeeking(t *testing.T) {
	everyHolding(t, func(t *testing.T, r *rig, name string, limit int64) {
		d := r.end(r.begin(r.l.Acquire, name, "k", limit-1, 0))
		if !d.Allowed || d.Permit == 0 || d.Remaining != 1 || d.Limit != limit {
			t.Errorf("all but one: got %+v", d)
		}
		for _, c := range []struct {
			cost int64
			ok   bool
		}{{1, true}, {2, false}, {1, true}} {
			if d := r.end(r.begin(r.l.Peek, name, "k", c.cost, 0)); d.Allowed != c.ok || d.Remaining != 1 || d.Permit != 0 {
				t.Errorf("a look at %d: got %+v", c.cost, d)
			}
		}
		if over := r.end(r.begin(r.l.Acquire, name, "k", limit+1, time.Second)); over.Allowed || over.RetryAfter != Never || over.Remaining != 1 {
			t.Errorf("above the limit: got %+v", over)
		}
		if !r.l.Release(r.now, d.Permit) {
			t.Error("not held")
		}
		r.free(name, limit)
	})
}

// allOf makes a call for several buckets, given as policies.
func (r *rig) allOf(wait time.Duration, costs []int64, names ...string) (bool, []Decision) {
	r.t.Helper()
	r.ref++
	ref := r.ref
	var calls []Call
	for i, name := range names {
		calls = append(calls, Call{Policy: []byte(name), Key: []byte("k"), Cost: costs[i], Wait: wait})
	}
	allowed, ds, pending, err := r.l.AcquireAll(r.now, calls, r, ref)
	if !pending {
		r.AllDecided(ref, allowed, ds, err)
	}
	for i := 0; i < 70_000 && r.all[ref] == nil && r.errors[ref] == nil; i++ {
		r.pass(ms)
	}
	if err := r.errors[ref]; err != nil {
		r.t.Fatal(err)
	}
	return r.allowed[ref], r.all[ref]
}

func TestAllOrNothingAcrossAlgorithms(t *testing.T) {
	policies := heldPolicies + "  full: {limit: 1/day}\n"
	var names []string
	var costs []int64
	for i, a := range ten {
		name := fmt.Sprintf("a%d", i)
		policies += "  " + name + ": {" + a.fields + "}\n"
		names, costs = append(names, name), append(costs, 4)
	}
	names, costs = append(names, "three", "many"), append(costs, 2, 5)
	for _, mode := range []string{"standalone", "leased", "away"} {
		t.Run(mode, func(t *testing.T) {
			r := newRigOf(t, mode == "standalone", policies)
			r.pass(3 * ms)
			r.acquire("full", "k", 1)
			r.away = mode == "away"
			for round := range 3 {
				ok, ds := r.allOf(0, append(costs, 1), append(names, "full")...)
				if ok || len(ds) != len(names)+1 {
					t.Fatalf("round %d: got %v, %+v", round, ok, ds)
				}
				for i, d := range ds {
					if d.Permit != 0 || d.Allowed != (i < len(names)) {
						t.Errorf("%d: got %+v", i, d)
					}
				}
				r.pass(5 * ms)
			}
			r.pass(200 * ms)
			for i, name := range names {
				if d := r.end(r.begin(r.l.Peek, name, "k", 1, 0)); !d.Allowed || d.Remaining != d.Limit {
					t.Errorf("%s lost permits: got %+v, cost %d", name, d, costs[i])
				}
			}
			ok, ds := r.allOf(0, costs, names...)
			if !ok {
				t.Fatalf("got %+v", ds)
			}
			permits := 0
			for i, d := range ds {
				if d.Remaining != d.Limit-costs[i] {
					t.Errorf("%s: got %+v, cost %d", names[i], d, costs[i])
				}
				if d.Permit != 0 {
					permits++
				}
			}
			if permits != 2 || r.l.permits.count() != 2 {
				t.Errorf("%d permits, %d held: want 2", permits, r.l.permits.count())
			}
		})
	}
}

// peer is another host of the same authority.
func (r *rig) peer(policies string) *rig {
	r.t.Helper()
	other := newRigOf(r.t, false, policies)
	other.states, other.holders, other.now = r.states, r.holders, r.now
	return other
}

// together lets time go by on two hosts.
func together(d time.Duration, a, b *rig) {
	for range d / ms {
		a.pass(ms)
		b.pass(ms)
	}
}

// A reset on one host: the other may spend what it has been leased, for as long as a
// lease lives, and nothing of what was before.
func TestResetReachesOtherHosts(t *testing.T) {
	for _, a := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"} {
		t.Run(a, func(t *testing.T) {
			policies := "  p: {limit: 1000/day, algorithm: " + a + "}"
			here := newRigOf(t, false, policies)
			there := here.peer(policies)
			for range 300 {
				here.begin(here.l.Acquire, "p", "k", 1, 0)
				together(2*ms, here, there)
			}
			leased := here.states["p:k"].Outstanding
			if leased == 0 {
				t.Fatal("nothing is leased: the test tries nothing")
			}
			if err := there.reset("p", "k"); err != nil {
				t.Fatal(err)
			}
			here.now = there.now
			if d := there.acquire("p", "k", 1000); !d.Allowed {
				t.Fatalf("all of it after a reset: got %+v", d)
			}
			here.now = there.now
			still := int64(0)
			for range 2000 {
				if here.end(here.begin(here.l.Acquire, "p", "k", 1, 0)).Allowed {
					still++
				}
				for there.now < here.now {
					there.pass(ms)
				}
				together(ms, here, there)
			}
			if still > leased {
				t.Errorf("%d calls passed after the reset, %d were leased", still, leased)
			}
			if d := here.acquire("p", "k", 1); d.Allowed {
				t.Errorf("two seconds after the reset: got %+v", d)
			}
		})
	}
}

func TestResetOfHeldPermitsReachesOtherHosts(t *testing.T) {
	for name, limit := range map[string]int64{"three": 3, "many": 20} {
		here := newRigOf(t, false, heldPolicies)
		there := here.peer(heldPolicies)
		permits := here.hold(name, limit, nil)
		there.pass(here.now - there.now)
		if d := there.acquireAs(name, nil, 0); d.Allowed {
			t.Errorf("%s: the other host holds them all, got %+v", name, d)
		}
		if err := there.reset(name, "k"); err != nil {
			t.Fatal(err)
		}
		there.hold(name, limit, nil)
		here.pass(there.now - here.now + 150*ms)
		if d := here.acquireAs(name, nil, 0); d.Allowed {
			t.Errorf("%s: got %+v", name, d)
		}
		for _, p := range permits {
			if here.l.Release(here.now, p) {
				t.Errorf("%s: a permit of before the reset was still held", name)
			}
		}
	}
}

// Released on one host, a permit is there for those who wait on another.
func TestReleasedPermitsReachOtherHosts(t *testing.T) {
	for name, limit := range map[string]int64{"three": 3, "many": 20} {
		here := newRigOf(t, false, heldPolicies)
		there := here.peer(heldPolicies)
		permits := here.hold(name, limit, nil)
		there.pass(here.now - there.now)
		ref := there.begin(there.l.Acquire, name, "k", 1, 5*time.Second)
		together(100*ms, here, there)
		if d, answered := there.decisions[ref]; answered {
			t.Fatalf("%s: got %+v while all are held elsewhere", name, d)
		}
		here.l.Release(here.now, permits[0])
		together(2*time.Second, here, there)
		if d := there.decisions[ref]; !d.Allowed {
			t.Errorf("%s: got %+v", name, d)
		}
	}
}
