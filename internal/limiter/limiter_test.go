// The decision, case by case, in synthetic time: standalone, with an authority, and
// without it.

package limiter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/policy"
)

// rig is one limiter, an authority that may fail, and time.
type rig struct {
	t         *testing.T
	l         *Limiter
	now       time.Duration
	states    map[string]*bucket.State
	holders   map[string]*bucket.Holders // of concurrency limits
	delay     time.Duration              // from ask to answer
	fail      error                      // what asks come to
	away      bool                       // the authority cannot be reached
	flying    []*flight
	asked     []bucket.Ask
	decisions map[uint32]Decision
	when      map[uint32]time.Duration // they came
	errors    map[uint32]*Error
	all       map[uint32][]Decision
	allowed   map[uint32]bool
	gone      bool
	arrivals  [][]uint32 // calls that came together
	ref       uint32
}

type flight struct {
	q   *bucket.Question
	due time.Duration
}

const rigPolicies = `
policies:
  five: {limit: 5/minute}
  ten: {limit: 10/second}
  big: {limit: 1000/second}
  two: {limit: [3/second, 20/minute]}
  tick: {limit: 5/10s, refill: interval}
  exact: {limit: 100/second, consistency: exact}
  watch: {limit: 1/hour, mode: shadow}
  lists: {limit: 1/hour, exempt: ["10.0.0.0/8"], block: ["bad:*"], overrides: [{key: "vip:*", limit: 100/second}]}
  allow: {limit: 5/minute, when_redis_is_down: allow}
  deny: {limit: 5/minute, when_redis_is_down: deny}
  error: {limit: 5/minute, when_redis_is_down: error}
  half: {limit: 100/minute, when_redis_is_down: {mode: local, share: 0.5}}
`

func newRig(t *testing.T, standalone bool) *rig {
	t.Helper()
	r := &rig{t: t, now: time.Hour, delay: time.Millisecond, states: map[string]*bucket.State{},
		holders: map[string]*bucket.Holders{}, decisions: map[uint32]Decision{}, when: map[uint32]time.Duration{}, errors: map[uint32]*Error{}, all: map[uint32][]Decision{}, allowed: map[uint32]bool{}}
	o := Options{Clock: func() time.Duration { return r.now }, Jitter: func() float64 { return 0.5 }}
	if !standalone {
		o.Redis = r
	}
	r.l = New(parse(t, rigPolicies), o)
	return r
}

func parse(t testing.TB, yaml string) *policy.Set {
	t.Helper()
	c, err := policy.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return c.Policies
}

func (r *rig) Ask(q *bucket.Question) {
	r.asked = append(r.asked, q.Ask)
	r.flying = append(r.flying, &flight{q, r.now + r.delay})
}

func (r *rig) Home(_, _ string) uint16 { return 0 }
func (r *rig) Reachable(uint16) bool   { return !r.away }
func (r *rig) Degraded() bool          { return r.away }

func (r *rig) Decided(ref uint32, d Decision, err *Error) {
	if _, twice := r.decisions[ref]; twice {
		r.t.Errorf("call %d was answered twice", ref)
	}
	r.decisions[ref], r.errors[ref], r.when[ref] = d, err, r.now
}

func (r *rig) AllDecided(ref uint32, allowed bool, ds []Decision, err *Error) {
	r.all[ref], r.allowed[ref], r.errors[ref] = ds, allowed, err
}

func (r *rig) Gone() bool { return r.gone }

// pass lets d go by, a millisecond at a time.
func (r *rig) pass(d time.Duration) {
	for end := r.now + d; r.now < end; {
		r.now += time.Millisecond
		flying := r.flying
		r.flying = nil
		for _, f := range flying {
			if f.due > r.now {
				r.flying = append(r.flying, f)
				continue
			}
			r.answer(f.q)
		}
		r.l.Advance(r.now)
	}
}

func (r *rig) answer(q *bucket.Question) {
	if r.fail != nil {
		q.Answer(q, bucket.Grant{}, r.fail)
		return
	}
	name := q.Policy + ":" + q.Key
	if q.Rule.Algorithm == bucket.Concurrency {
		if r.holders[name] == nil {
			r.holders[name] = &bucket.Holders{}
		}
		q.Answer(q, r.holders[name].Apply(q.Rule, r.now.Microseconds(), &q.Ask), nil)
		return
	}
	if r.states[name] == nil {
		r.states[name] = &bucket.State{}
	}
	q.Answer(q, r.states[name].Apply(q.Rule, r.now.Microseconds(), &q.Ask), nil)
}

type asker func(time.Duration, *Call, Replier, uint32) (Decision, bool, *Error)

func (r *rig) begin(ask asker, name, key string, cost int64, wait time.Duration) uint32 {
	r.ref++
	c := &Call{Policy: []byte(name), Key: []byte(key), Cost: cost, Wait: wait}
	if d, pending, err := ask(r.now, c, r, r.ref); !pending {
		r.Decided(r.ref, d, err)
	}
	return r.ref
}

// end lets time pass until the call is answered.
func (r *rig) end(ref uint32) Decision {
	r.t.Helper()
	for range 70_000 {
		if d, ok := r.decisions[ref]; ok {
			return d
		}
		r.pass(time.Millisecond)
	}
	r.t.Fatalf("call %d was never answered", ref)
	return Decision{}
}

func (r *rig) acquire(name, key string, cost int64) Decision {
	r.t.Helper()
	return r.end(r.begin(r.l.Acquire, name, key, cost, 0))
}

func (r *rig) peek(name, key string) Decision {
	r.t.Helper()
	return r.end(r.begin(r.l.Peek, name, key, 1, 0))
}

func (r *rig) want(d Decision, allowed bool, source Source, remaining int64) {
	r.t.Helper()
	if d.Allowed != allowed || d.Source != source || d.Remaining != remaining {
		r.t.Errorf("got %+v, want allowed %v from %v with %d left", d, allowed, source, remaining)
	}
}

func TestStandaloneTokenBucket(t *testing.T) {
	r := newRig(t, true)
	for i := range int64(5) {
		r.want(r.acquire("five", "a", 1), true, FromStandalone, 4-i)
	}
	d := r.acquire("five", "a", 1)
	r.want(d, false, FromStandalone, 0)
	if d.RetryAfter != 12*time.Second || d.ResetAfter != time.Minute || d.Limit != 5 {
		t.Errorf("got %+v, want retry after 12 s, full in 1 m, of 5", d)
	}
	r.pass(11999 * time.Millisecond)
	r.want(r.acquire("five", "a", 1), false, FromStandalone, 0)
	r.pass(time.Millisecond)
	r.want(r.acquire("five", "a", 1), true, FromStandalone, 0)
	for key, left := range map[string]int64{"a": 0, "new": 5} {
		if d := r.acquire("five", key, 6); d.Allowed || d.RetryAfter != Never || d.Remaining != left || d.Limit != 5 {
			t.Errorf("a cost above the capacity, of %d: got %+v", left, d)
		}
	}
	r.want(r.acquire("five", "b", 5), true, FromStandalone, 0)
}

func TestStandaloneSeveralLimitsAndIntervals(t *testing.T) {
	r := newRig(t, true)
	for range 6 {
		r.want(r.acquire("two", "a", 3), true, FromStandalone, min(0, 0))
		r.pass(time.Second)
	}
	d := r.acquire("two", "a", 3) // 18 of 20 are spent, 5 s bring 1.67
	if !d.Allowed {
		t.Errorf("3.67 permits a minute are left: got %+v", d)
	}
	if d := r.acquire("two", "a", 3); d.Allowed || d.RetryAfter < 5*time.Second {
		t.Errorf("the minute is used up: got %+v", d)
	}
	r.want(r.acquire("tick", "a", 5), true, FromStandalone, 0)
	r.pass(9999 * time.Millisecond)
	r.want(r.acquire("tick", "a", 1), false, FromStandalone, 0)
	r.pass(time.Millisecond)
	r.want(r.acquire("tick", "a", 1), true, FromStandalone, 4)
}

func TestListsOverridesAndShadow(t *testing.T) {
	r := newRig(t, true)
	for range 3 {
		r.want(r.acquire("lists", "10.1.2.3", 1), true, FromList, 1)
	}
	if d := r.acquire("lists", "bad:1", 1); d.Allowed || d.Source != FromList || d.RetryAfter != Never {
		t.Errorf("blocked: got %+v", d)
	}
	r.want(r.acquire("lists", "vip:1", 50), true, FromStandalone, 50)
	r.want(r.acquire("watch", "a", 1), true, FromStandalone, 0)
	if d := r.acquire("watch", "a", 1); !d.Allowed || !d.Shadow || d.RetryAfter != 0 {
		t.Errorf("shadow: got %+v", d)
	}
}

func TestUnknownPolicyNamesTheNearest(t *testing.T) {
	r := newRig(t, true)
	ref := r.begin(r.l.Acquire, "fivee", "a", 1, 0)
	if err := r.errors[ref]; err == nil || err.Kind != UnknownPolicy || !strings.Contains(err.Message, `"five"`) {
		t.Errorf("got %v", err)
	}
}

func TestRefundAndResetStandalone(t *testing.T) {
	r := newRig(t, true)
	r.acquire("five", "a", 5)
	if err := r.l.Refund(r.now, &Call{Policy: []byte("five"), Key: []byte("a"), Cost: 2}); err != nil {
		t.Fatal(err)
	}
	r.want(r.peek("five", "a"), true, FromStandalone, 2)
	if err := r.l.Refund(r.now, &Call{Policy: []byte("five"), Key: []byte("a"), Cost: 1000}); err != nil {
		t.Fatal(err)
	}
	r.want(r.peek("five", "a"), true, FromStandalone, 5)
	r.acquire("five", "a", 5)
	if pending, err := r.l.Reset(r.now, &Call{Policy: []byte("five"), Key: []byte("a")}, r, 99); pending || err != nil {
		t.Fatal(pending, err)
	}
	r.want(r.acquire("five", "a", 1), true, FromStandalone, 4)
}

func TestWaitersAreServedInOrder(t *testing.T) {
	for _, standalone := range []bool{true, false} {
		t.Run(fmt.Sprintf("standalone %v", standalone), func(t *testing.T) {
			r := newRig(t, standalone)
			r.acquire("ten", "a", 10)
			big := r.begin(r.l.Acquire, "ten", "a", 8, 2*time.Second)
			small := r.begin(r.l.Acquire, "ten", "a", 1, 2*time.Second)
			late := r.begin(r.l.Acquire, "ten", "a", 9, time.Second)
			r.pass(5 * time.Millisecond)
			if d, ok := r.decisions[late]; !ok || d.Allowed || d.RetryAfter < 1700*time.Millisecond || d.RetryAfter > 1900*time.Millisecond {
				t.Errorf("a call that cannot make it is denied at once, with 1.8 s: got %+v, %v", d, ok)
			}
			if d := r.acquire("ten", "a", 1); d.Allowed {
				t.Errorf("a call must not overtake the waiting: %+v", d)
			}
			began := r.now
			if d := r.end(big); !d.Allowed {
				t.Errorf("the large call: %+v", d)
			}
			if took := r.now - began; took < 700*time.Millisecond || took > 900*time.Millisecond {
				t.Errorf("8 permits at 10/s took %v", took)
			}
			if _, early := r.decisions[small]; early && standalone {
				t.Error("the small call went before its turn")
			}
			if d := r.end(small); !d.Allowed {
				t.Errorf("the small call: %+v", d)
			}
		})
	}
}

func TestWaiterThatLeavesFreesItsPlace(t *testing.T) {
	r := newRig(t, false)
	r.acquire("ten", "a", 10)
	r.begin(r.l.Acquire, "ten", "a", 9, 5*time.Second)
	r.gone = true
	r.pass(time.Second)
	r.gone = false
	if d := r.acquire("ten", "a", 8); !d.Allowed {
		t.Errorf("nine permits came and nobody took them: %+v", d)
	}
}

func TestPeekAndResetDoNotWaitBehindWaiters(t *testing.T) {
	r := newRig(t, false)
	r.acquire("ten", "a", 10)
	waiting := r.begin(r.l.Acquire, "ten", "a", 10, 5*time.Second)
	r.pass(2 * time.Millisecond)
	if d := r.peek("ten", "a"); d.Allowed || d.Source == FromFallback {
		t.Errorf("peek: %+v", d)
	}
	if pending, err := r.l.Reset(r.now, &Call{Policy: []byte("ten"), Key: []byte("a")}, r, 1000); !pending || err != nil {
		t.Fatal(pending, err)
	}
	began := r.now
	r.end(1000)
	if err := r.errors[1000]; err != nil || r.now-began > 10*time.Millisecond {
		t.Errorf("reset: %v after %v", err, r.now-began)
	}
	if d := r.end(waiting); !d.Allowed || r.now-began > 50*time.Millisecond {
		t.Errorf("the waiting call, after the reset: %+v after %v", d, r.now-began)
	}
}

func TestLeaseAnswersFromMemory(t *testing.T) {
	r := newRig(t, false)
	for range 200 {
		r.acquire("big", "a", 1)
		r.pass(2 * time.Millisecond)
	}
	before := len(r.asked)
	leased := 0
	for range 200 {
		if d := r.acquire("big", "a", 1); d.Source == FromLease {
			leased++
		}
		r.pass(2 * time.Millisecond)
	}
	if asks := len(r.asked) - before; asks > 20 || leased < 190 {
		t.Errorf("%d asks and %d calls from the lease, of 200", asks, leased)
	}
	r.pass(5 * time.Second)
	s := r.states["big:a"]
	r.acquire("big", "other", 1)
	if s.Outstanding > 0 {
		t.Errorf("an idle host keeps %d permits", s.Outstanding)
	}
}

func TestFarRedisIsAskedEarlier(t *testing.T) {
	r := newRig(t, false)
	r.delay = 15 * time.Millisecond // there and back
	leased := 0
	for i := range 1500 {
		ref := r.begin(r.l.Acquire, "big", "a", 1, 0)
		r.pass(2 * time.Millisecond)
		if d, ok := r.decisions[ref]; ok && i >= 500 && d.Source == FromLease {
			leased++
		}
	}
	if leased < 995 {
		t.Errorf("%d of 1000 calls at a steady rate were answered from the lease", leased)
	}
}

func TestDenialHoldsForItsCostOnly(t *testing.T) {
	r := newRig(t, false)
	if d := r.acquire("five", "a", 3); d.ResetAfter != 36*time.Second {
		t.Errorf("full again in %v, want the 36 s there were when Redis answered", d.ResetAfter)
	}
	if d := r.acquire("five", "a", 3); d.Allowed || d.Source != FromRedis {
		t.Fatalf("got %+v", d)
	}
	asks := len(r.asked)
	r.want(r.acquire("five", "a", 3), false, FromDenial, 2)
	if len(r.asked) != asks {
		t.Error("a remembered denial asked Redis")
	}
	r.want(r.acquire("five", "a", 2), true, FromRedis, 0)
	d := r.acquire("five", "a", 1)
	if d.Allowed || d.RetryAfter < 11*time.Second || d.RetryAfter > 12*time.Second {
		t.Errorf("got %+v, want a retry after of nearly 12 s", d)
	}
}

func TestChangedLimitIsNoFreeRefillAndForgetsDenials(t *testing.T) {
	for _, standalone := range []bool{true, false} {
		r := newRig(t, standalone)
		r.acquire("five", "a", 5)
		r.acquire("five", "a", 1)
		r.l.SetPolicies(parse(t, "policies: {five: {limit: 60/minute}}"))
		r.pass(10 * time.Millisecond)
		d := r.acquire("five", "a", 1)
		if d.Allowed || d.Source == FromDenial || d.Limit != 60 || d.RetryAfter > time.Second {
			t.Errorf("standalone %v: got %+v, want a fresh denial of under 1 s, of 60", standalone, d)
		}
		r.pass(time.Second)
		if d := r.acquire("five", "a", 1); !d.Allowed {
			t.Errorf("standalone %v: the new rate does not hold: %+v", standalone, d)
		}
	}
}

func TestExactAsksEveryTime(t *testing.T) {
	r := newRig(t, false)
	for i := range 50 {
		if d := r.acquire("exact", "a", 1); !d.Allowed || d.Source != FromRedis {
			t.Fatalf("call %d: %+v", i, d)
		}
	}
	if len(r.asked) != 50 {
		t.Errorf("%d asks for 50 calls", len(r.asked))
	}
}

func TestRefundResetAndPeekReachRedis(t *testing.T) {
	r := newRig(t, false)
	r.acquire("five", "a", 5)
	r.acquire("five", "a", 1)
	if err := r.l.Refund(r.now, &Call{Policy: []byte("five"), Key: []byte("a"), Cost: 2}); err != nil {
		t.Fatal(err)
	}
	r.pass(5 * time.Millisecond)
	r.want(r.peek("five", "a"), true, FromRedis, 2)
	r.want(r.acquire("five", "a", 2), true, FromRedis, 0)
	if pending, err := r.l.Reset(r.now, &Call{Policy: []byte("five"), Key: []byte("a")}, r, 1000); !pending || err != nil {
		t.Fatal(pending, err)
	}
	r.end(1000)
	r.want(r.acquire("five", "a", 1), true, FromRedis, 4)
}

func TestAllOrNothing(t *testing.T) {
	for _, standalone := range []bool{true, false} {
		t.Run(fmt.Sprintf("standalone %v", standalone), func(t *testing.T) {
			r := newRig(t, standalone)
			r.acquire("five", "b", 5)
			all := func(ref uint32, keys ...string) bool {
				var calls []Call
				for _, k := range keys {
					calls = append(calls, Call{Policy: []byte("five"), Key: []byte(k), Cost: 2})
				}
				allowed, ds, pending, err := r.l.AcquireAll(r.now, calls, r, ref)
				if !pending {
					r.AllDecided(ref, allowed, ds, err)
				}
				r.pass(50 * time.Millisecond)
				if len(r.all[ref]) != len(keys) {
					t.Fatalf("%d decisions for %d calls: %v", len(r.all[ref]), len(keys), r.errors[ref])
				}
				return r.allowed[ref]
			}
			if all(1, "a", "b", "c") {
				t.Error("b is used up, all were allowed")
			}
			for _, k := range []string{"a", "c"} {
				if d := r.peek("five", k); d.Remaining != 5 {
					t.Errorf("%s lost permits: %+v", k, d)
				}
			}
			if !all(2, "a", "c", "a") {
				t.Errorf("denied: %+v", r.all[2])
			}
			if d := r.peek("five", "a"); d.Remaining != 1 {
				t.Errorf("a was charged twice: %+v", d)
			}
		})
	}
}

func TestWithoutRedis(t *testing.T) {
	r := newRig(t, false)
	r.away = true
	r.want(r.acquire("allow", "a", 5), true, FromFallback, 5)
	if d := r.acquire("deny", "a", 1); d.Allowed || d.Source != FromFallback || d.RetryAfter <= 0 {
		t.Errorf("deny: %+v", d)
	}
	ref := r.begin(r.l.Acquire, "error", "a", 1, 0)
	if err := r.errors[ref]; err == nil || err.Kind != Unavailable {
		t.Errorf("error: %v", err)
	}
	r.want(r.acquire("half", "a", 50), true, FromFallback, 0)
	if d := r.acquire("half", "a", 1); d.Allowed || d.RetryAfter > 1200*time.Millisecond || d.RetryAfter < 1100*time.Millisecond {
		t.Errorf("half of 100/minute brings one in 1.2 s: %+v", d)
	}
	if len(r.asked) != 0 {
		t.Error("Redis was asked though it cannot be reached")
	}
	r.away = false
	r.acquire("half", "a", 1)
	if debit := r.asked[0].Debit; debit != 50 {
		t.Errorf("the debit is %d, want 50", debit)
	}
	r.want(r.acquire("half", "a", 1), true, FromRedis, 48)
}

func TestAnswerComesInTimeWhateverRedisDoes(t *testing.T) {
	for _, fail := range []error{bucket.ErrLost, bucket.ErrRefused} {
		r := newRig(t, false)
		r.fail, r.delay = fail, 19*time.Millisecond
		began := r.now
		d := r.acquire("ten", "a", 1)
		if took := r.now - began; took > 20*time.Millisecond || !d.Allowed || d.Source != FromFallback {
			t.Errorf("%v: %+v after %v", fail, d, took)
		}
	}
	r := newRig(t, false)
	r.delay = time.Hour
	began := r.now
	d := r.acquire("ten", "a", 1)
	if took := r.now - began; took > 21*time.Millisecond || d.Source != FromFallback {
		t.Errorf("silence: %+v after %v", d, took)
	}
}

func TestLateGrantPaysForTheFallback(t *testing.T) {
	r := newRig(t, false)
	r.delay = 50 * time.Millisecond
	r.want(r.acquire("five", "a", 1), true, FromFallback, 4)
	r.pass(100 * time.Millisecond)
	r.delay = time.Millisecond
	r.want(r.peek("five", "a"), true, FromRedis, 4)
}

func TestDrainGivesLeasesBack(t *testing.T) {
	r := newRig(t, false)
	for range 100 {
		r.acquire("big", "a", 1)
		r.pass(time.Millisecond)
	}
	waiting := r.begin(r.l.Acquire, "ten", "w", 10, 0)
	r.end(waiting)
	waiting = r.begin(r.l.Acquire, "ten", "w", 5, 10*time.Second)
	r.pass(2 * time.Millisecond)
	if r.states["big:a"].Outstanding == 0 {
		t.Fatal("no lease to give back: the test tries nothing")
	}
	done := make(chan error)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r.l.draining.Store(true)
	for range 20 {
		r.l.drainOnce()
		r.pass(time.Millisecond)
	}
	go func() { done <- r.l.Drain(ctx) }()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if d, ok := r.decisions[waiting]; !ok || d.Allowed {
		t.Errorf("the waiting call: %+v, answered %v", d, ok)
	}
	if o := r.states["big:a"].Outstanding; o != 0 {
		t.Errorf("%d permits were not given back", o)
	}
	ref := r.begin(r.l.Acquire, "ten", "w", 1, 0)
	if err := r.errors[ref]; err == nil || err.Kind != ShuttingDown {
		t.Errorf("got %v", err)
	}
}

// A turn that is still far away does not hold up the end: its call is denied, and the
// place is given back.
func TestDrainDeniesThoseWhoWaitForTheirTurn(t *testing.T) {
	for _, standalone := range []bool{true, false} {
		r := newRig(t, standalone)
		r.l.SetPolicies(parse(t, "policies: {slow: {limit: 1/10s, burst: 3, algorithm: leaky_bucket}}"))
		first := r.begin(r.l.Acquire, "slow", "a", 1, time.Minute)
		second := r.begin(r.l.Acquire, "slow", "a", 1, time.Minute)
		r.pass(5 * time.Millisecond)
		if _, early := r.decisions[second]; early || !r.decisions[first].Allowed {
			t.Fatalf("before the end: first %+v, second answered %v", r.decisions[first], early)
		}
		r.l.draining.Store(true)
		for range 10 {
			r.l.drainOnce()
			r.pass(time.Millisecond)
		}
		if d, ok := r.decisions[second]; !ok || d.Allowed || d.RetryAfter < 9*time.Second {
			t.Errorf("standalone %v: %+v, answered %v", standalone, d, ok)
		}
		if calls, leases := r.l.drainOnce(); calls+leases > 0 {
			t.Errorf("standalone %v: %d calls and %d leases are left", standalone, calls, leases)
		}
		if s := r.states["slow:a"]; !standalone && s.Gauge.Free(&r.l.rules.Load().set.Lookup([]byte("slow")).Rule, 1, s.At, 0) < 1.9 {
			t.Error("the place was not given back")
		}
	}
}

func TestDrainAnswersWhatRedisDoesNot(t *testing.T) {
	r := newRig(t, false)
	r.delay = time.Hour
	waiting := r.begin(r.l.Acquire, "ten", "a", 1, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.l.Drain(ctx); err == nil {
		t.Error("nobody is told of what was left")
	}
	if ctx.Err() != nil {
		t.Error("no time is left to send the answers")
	}
	if d, ok := r.decisions[waiting]; !ok || d.Source != FromFallback {
		t.Errorf("the waiting call: %+v, answered %v", d, ok)
	}
}

func TestEvictedBucketsGiveBack(t *testing.T) {
	r := newRig(t, false)
	r.l = New(parse(t, rigPolicies), Options{Redis: r, MaxBuckets: 64, Clock: func() time.Duration { return r.now }})
	for range 50 {
		r.acquire("big", "a", 1)
		r.pass(time.Millisecond)
	}
	if r.states["big:a"].Outstanding == 0 {
		t.Fatal("no lease: the test tries nothing")
	}
	for i := range 1000 {
		r.acquire("five", fmt.Sprint(i), 1)
	}
	r.pass(5 * time.Millisecond)
	if o := r.states["big:a"].Outstanding; o != 0 {
		t.Errorf("the evicted bucket keeps %d permits", o)
	}
	if c := r.l.Leases(); c.Held > 64 || c.Evicted < 900 {
		t.Errorf("%+v", c)
	}
}

func TestBucketsThatTellNothingAreForgotten(t *testing.T) {
	for _, standalone := range []bool{true, false} {
		r := newRig(t, standalone)
		for i := range 1000 {
			r.acquire("five", fmt.Sprint(i), 1)
		}
		r.pass(time.Second)
		r.l.cache.Sweep(r.now)
		if held := r.l.Leases().Held; held < 400 {
			t.Errorf("standalone %v: %d buckets after a second, of 1000 that are not full", standalone, held)
		}
		r.pass(13 * time.Second)
		r.l.cache.Sweep(r.now)
		if c := r.l.Leases(); c.Held != 0 || c.Evicted != 0 {
			t.Errorf("standalone %v: %d buckets are held and %d were evicted, of 1000 that are full again", standalone, c.Held, c.Evicted)
		}
	}
}

func TestLeaseHitAllocatesNothing(t *testing.T) {
	r := newRig(t, true)
	c := &Call{Inline: policy.Inline{Limit: bucket.Limit{Count: 1e9, Period: time.Second, Burst: 1e9}}, Key: []byte("user:42"), Cost: 1}
	if n := testing.AllocsPerRun(1000, func() { r.l.Acquire(r.now, c, r, 1) }); n != 0 {
		t.Errorf("%v allocations standalone", n)
	}
	r = newRig(t, false)
	for range 500 {
		r.acquire("big", "user:42", 1)
		r.pass(time.Millisecond)
	}
	c = &Call{Policy: []byte("big"), Key: []byte("user:42"), Cost: 1}
	d, _, _ := r.l.Acquire(r.now, c, r, 1)
	if n := testing.AllocsPerRun(20, func() { d, _, _ = r.l.Acquire(r.now, c, r, 1) }); n != 0 || d.Source != FromLease {
		t.Errorf("%v allocations from the lease, %+v", n, d)
	}
}
