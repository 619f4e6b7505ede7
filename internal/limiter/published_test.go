// What others have published of their limiters, as tables: the series of calls, and
// the numbers that they must get here. Where an algorithm of ours differs from the
// one in the source, the table says what ours gives and why.

package limiter

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// newRigOf is newRig with policies of its own.
func newRigOf(t *testing.T, standalone bool, policies string) *rig {
	t.Helper()
	r := newRig(t, standalone)
	r.l.SetPolicies(parse(t, "policies:\n"+policies))
	return r
}

// passTo lets time go by until at after the start of the rig.
func (r *rig) passTo(at time.Duration) {
	r.t.Helper()
	if left := time.Hour + at - r.now; left > 0 {
		r.pass(left)
	}
}

// ms makes tables readable.
const ms = time.Millisecond

// step is a call of cost n.
type step struct {
	at time.Duration
	n  int64
	ok bool
}

// Go's golang.org/x/time/rate, rate_test.go: TestLimiterBurst1 and TestLimiterBurst3;
// 10 a second. Its last step of Burst3, a cost of 0, is a peek here.
func TestGoRateTables(t *testing.T) {
	for _, c := range []struct {
		name  string
		burst int
		steps []step
	}{
		{"TestLimiterBurst1", 1, []step{
			{0, 1, true}, {0, 1, false}, {0, 1, false}, {100 * ms, 1, true}, {100 * ms, 1, false}, {100 * ms, 1, false},
			{200 * ms, 2, false}, {200 * ms, 1, true}, {200 * ms, 1, false},
		}},
		{"TestLimiterBurst3", 3, []step{
			{0, 2, true}, {0, 2, false}, {0, 1, true}, {0, 1, false}, {100 * ms, 4, false}, {200 * ms, 1, true}, {300 * ms, 1, true},
			{400 * ms, 1, true}, {400 * ms, 1, true}, {400 * ms, 1, false}, {400 * ms, 1, false}, {900 * ms, 3, true}, {900 * ms, 0, true},
		}},
	} {
		r := newRigOf(t, true, fmt.Sprintf("  p: {limit: 10/second, burst: %d}", c.burst))
		for i, s := range c.steps {
			r.passTo(s.at)
			ask := r.l.Acquire
			if s.n == 0 {
				ask = r.l.Peek
			}
			if d := r.end(r.begin(ask, "p", "k", s.n, 0)); d.Allowed != s.ok {
				t.Errorf("%s, step %d: got %+v, want allowed %v", c.name, i, d, s.ok)
			}
		}
	}
}

// guava is a pause, or an acquire of permits and how long it is to wait.
type guava struct {
	pause   time.Duration
	permits int64
	waits   time.Duration
	refused bool          // by tryAcquire
	timeout time.Duration // of tryAcquire; 0: acquire
}

// Guava's RateLimiterTest, the bursty ones. A call of Guava's goes as soon as there is
// no debt, and leaves its cost to the next one: here, a `borrow` no smaller than the cost.
// Its limiters begin empty and save up a second's permits.
func TestGuavaTables(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   int
		borrow int64
		full   bool // begins idle
		calls  []guava
	}{
		{"testSimple", 5, 1, false, []guava{{permits: 1}, {permits: 1, waits: 200 * ms}, {permits: 1, waits: 200 * ms}}},
		{"testSimpleWithWait", 5, 1, false, []guava{{permits: 1}, {pause: 200 * ms}, {permits: 1}, {permits: 1, waits: 200 * ms}}},
		{"testSimpleAcquireEarliestAvailableIsInPast", 5, 1, false, []guava{
			{permits: 1}, {pause: 400 * ms}, {permits: 1}, {permits: 1}, {permits: 1, waits: 200 * ms},
		}},
		{"testOneSecondBurst", 5, 1, true, []guava{
			{permits: 1}, {permits: 1}, {permits: 3}, {permits: 1}, {permits: 1, waits: 200 * ms},
		}},
		{"testTryAcquire_noWaitAllowed", 5, 1, false, []guava{
			{permits: 1, timeout: ms}, {permits: 1, refused: true, timeout: ms}, {permits: 1, refused: true, timeout: ms},
			{pause: 100 * ms}, {permits: 1, refused: true, timeout: ms},
		}},
		{"testTryAcquire_someWaitAllowed", 5, 1, false, []guava{
			{permits: 1, timeout: ms}, {permits: 1, waits: 200 * ms, timeout: 200 * ms}, {permits: 1, refused: true, timeout: 100 * ms},
			{pause: 100 * ms}, {permits: 1, waits: 100 * ms, timeout: 100 * ms},
		}},
		{"testSimpleWeights", 1, 8, false, []guava{
			{permits: 1}, {permits: 1, waits: time.Second}, {permits: 2, waits: time.Second}, {permits: 4, waits: 2 * time.Second},
			{permits: 8, waits: 4 * time.Second}, {permits: 1, waits: 8 * time.Second},
		}},
		// What Guava has no bound for: a call of more than `borrow` waits for the rest first.
		{"testSimpleWeights with a borrow of 3", 1, 3, false, []guava{
			{permits: 1}, {permits: 4, waits: 2 * time.Second}, {permits: 1, waits: 3 * time.Second},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRigOf(t, true, fmt.Sprintf("  p: {limit: %d/second, borrow: %d}", c.rate, c.borrow))
			if !c.full {
				r.acquire("p", "k", int64(c.rate))
			}
			for i, call := range c.calls {
				r.guava(i, &call)
			}
		})
	}
}

func (r *rig) guava(i int, call *guava) {
	r.t.Helper()
	r.pass(call.pause)
	if call.permits == 0 {
		return
	}
	wait := call.timeout
	if wait == 0 {
		wait = MaxWait
	}
	began := r.now
	d := r.end(r.begin(r.l.Acquire, "p", "k", call.permits, wait))
	if took := r.now - began; d.Allowed == call.refused || took != call.waits {
		r.t.Errorf("call %d: got %+v after %v, want allowed %v after %v", i, d, took, !call.refused, call.waits)
	}
}

// nginx is limit_req as its module counts: thousandths of a request above the rate.
type nginx struct {
	rate, burst int64
	excess      int64
	last        time.Duration // of a request that passed
}

// request returns how long limit_req holds a request back, or that it rejects it.
// With nodelay it would pass at once.
func (z *nginx) request(at time.Duration) (delay time.Duration, ok bool) {
	excess := max(0, z.excess-z.rate*(at-z.last).Milliseconds()+1000)
	if excess > z.burst*1000 {
		return 0, false
	}
	z.excess, z.last = excess, at
	return time.Duration(excess) * ms / time.Duration(z.rate), true
}

// nginx, documentation of limit_req: `rate=R burst=B` has room for B requests beyond
// the one that passes. That is a leaky bucket with a burst of B+1, asked with a wait;
// with `nodelay`, asked without. 20 more after 101 and 501 ms are the example of the
// article "Rate Limiting with NGINX".
func TestNginxTables(t *testing.T) {
	for _, c := range []struct {
		rate, burst int64
		arrivals    []arrival
	}{
		{1, 5, []arrival{{0, 10, 6}, {time.Second, 10, 1}, {3500 * ms, 10, 2}}},
		{10, 20, []arrival{{0, 22, 21}}},
		{10, 20, []arrival{{0, 21, 21}, {101 * ms, 20, 1}}},
		{10, 20, []arrival{{0, 21, 21}, {501 * ms, 20, 5}}},
		{10, 0, []arrival{{0, 2, 1}, {50 * ms, 1, 0}, {100 * ms, 2, 1}, {250 * ms, 1, 1}, {300 * ms, 1, 0}}},
		{2, 3, []arrival{{0, 2, 2}, {250 * ms, 2, 2}, {600 * ms, 3, 1}, {5 * time.Second, 5, 4}}},
	} {
		for _, standalone := range []bool{true, false} {
			t.Run(fmt.Sprintf("rate=%dr/s burst=%d %v standalone %v", c.rate, c.burst, c.arrivals, standalone), func(t *testing.T) {
				policy := fmt.Sprintf("  p: {limit: %d/second, burst: %d, algorithm: leaky_bucket}", c.rate, c.burst+1)
				zone := nginx{rate: c.rate, burst: c.burst, last: -time.Hour}
				queued, nodelay := newRigOf(t, standalone, policy), newRigOf(t, standalone, policy)
				for i, a := range c.arrivals {
					want := zone.departures(a)
					if len(want) != a.passed {
						t.Fatalf("arrival %d: the count of this test lets %d pass, the table %d", i, len(want), a.passed)
					}
					queued.arrive(a, MaxWait)
					nodelay.arrive(a, 0)
					nodelay.pass(2 * ms)
					if n := len(nodelay.left(i)); n != a.passed {
						t.Errorf("arrival %d, nodelay: %d pass, want %d", i, n, a.passed)
					}
				}
				queued.pass(MaxWait)
				zone = nginx{rate: c.rate, burst: c.burst, last: -time.Hour}
				for i, a := range c.arrivals {
					queued.compare(i, queued.left(i), zone.departures(a))
				}
			})
		}
	}
}

// arrival is n requests at once, of which some pass.
type arrival struct {
	at        time.Duration
	n, passed int
}

// departures returns when the requests of a leave that are not rejected.
func (z *nginx) departures(a arrival) (leave []time.Duration) {
	for range a.n {
		if delay, ok := z.request(a.at); ok {
			leave = append(leave, a.at+delay)
		}
	}
	return leave
}

// arrive begins the calls of a, and left returns when those of arrival i were
// allowed.
func (r *rig) arrive(a arrival, wait time.Duration) {
	r.t.Helper()
	r.passTo(a.at)
	var refs []uint32
	for range a.n {
		refs = append(refs, r.begin(r.l.Acquire, "p", "k", 1, wait))
	}
	r.arrivals = append(r.arrivals, refs)
}

func (r *rig) left(i int) (at []time.Duration) {
	r.t.Helper()
	for _, ref := range r.arrivals[i] {
		d, ok := r.decisions[ref]
		if !ok {
			r.t.Errorf("call %d has no answer", ref)
		}
		if d.Allowed {
			at = append(at, r.when[ref]-time.Hour)
		}
	}
	return at
}

// compare wants the times that calls left, rounded up to the rig's millisecond; an
// authority may put them off by the time of an ask.
func (r *rig) compare(i int, got, want []time.Duration) {
	r.t.Helper()
	slack := ms
	if r.l.redis != nil {
		slack = 3 * ms
	}
	if len(got) != len(want) {
		r.t.Errorf("arrival %d: %d calls left, want %d", i, len(got), len(want))
		return
	}
	for k := range want {
		if got[k] < want[k] || got[k] > want[k]+slack {
			r.t.Errorf("arrival %d: call %d left at %v, want %v", i, k, got[k], want[k])
		}
	}
}

// series is calls of cost 1 that come at once, and how many pass.
type series []arrival

// The window algorithms by the series that are told of them.
func TestWindowSeries(t *testing.T) {
	each := func(n ...int) (s series) { // after each second, and a hundredth: so many, of which so many pass
		for i := 0; i < len(n); i += 2 {
			s = append(s, arrival{time.Duration(i/2) * 1010 * ms, n[i], n[i+1]})
		}
		return s
	}
	for _, c := range []struct {
		source, fields string
		calls          series
	}{
		// A window of 3 s ends after the third second: 980 and 900 follow each other.
		{"1000 in 3 s", "fixed_window", each(10, 10, 10, 10, 980, 980, 900, 900, 100, 100, 0, 0)},
		{"1000 in 3 s", "sliding_log", each(10, 10, 10, 10, 980, 980, 900, 10, 100, 10, 0, 0, 1000, 990)},
		// Parts are 300 ms long, and a use counts from the start of its part. At 3.03 s a
		// tenth of the first 10 has faded, at 4.04 s all of them and 4.67 of the next; at
		// 5.05 s five sixths of the 980.
		{"1000 in 3 s", "sliding_window", each(10, 10, 10, 10, 980, 980, 900, 1, 100, 13, 1000, 822)},
		// With two parts of 1.5 s the 20 count from 0 s and the 980 from 1.5 s.
		{"1000 in 3 s", "sliding_window, buckets: 2", each(10, 10, 10, 10, 980, 980, 900, 0, 100, 13, 1000, 366)},
	} {
		runSeries(t, c.source, "limit: 1000/3s, algorithm: "+c.fields, c.calls)
	}
	edge := func(second int) series {
		return series{{59900 * ms, 5, 5}, {60000 * ms, 5, second}}
	}
	for _, c := range []struct {
		source, fields string
		calls          series
	}{
		{"Figma, an alternative approach to rate limiting: twice the limit around the minute", "fixed_window", edge(5)},
		{"the same", "fixed_window, align: first_use", edge(0)},
		{"the same", "sliding_window", edge(0)},
		{"the same", "sliding_log", edge(0)},
		{"the same", "token_bucket", edge(0)},
	} {
		runSeries(t, c.source, "limit: 5/minute, algorithm: "+c.fields, c.calls)
	}
	// A window of two minutes in two parts is the current minute, the one before, and
	// what is left of the one before that.
	weighted := func(source string, limit, before, current, passed int) {
		runSeries(t, source, fmt.Sprintf("limit: %d/2m, algorithm: sliding_window, buckets: 2", limit),
			series{{30 * time.Second, before, before}, {70 * time.Second, current, current}, {135 * time.Second, passed + 1, passed}})
	}
	weighted("Cloudflare, counting things: 42 * 45/60 + 18 = 49.5", 60, 42, 18, 10)
	weighted("RussellLuo/slidingwindow, as Kong counts: 86 * 45/60 + 12 = 76.5", 100, 86, 12, 23)
}

// runSeries makes the calls of a policy with these fields, standalone and with an
// authority.
func runSeries(t *testing.T, source, fields string, calls series) {
	for mode, m := range modes {
		t.Run(fmt.Sprintf("%s, %s, %s", source, fields, mode), func(t *testing.T) {
			r := newRigOf(t, m.standalone, "  p: {"+fields+m.fields+"}")
			for i, a := range calls {
				r.arrive(a, 0)
				r.pass(5 * ms)
				more := 0 // that come back while the authority is asked
				if !m.standalone {
					more = a.passed / 100
				}
				if n := len(r.left(i)); n < a.passed || n > a.passed+more {
					t.Errorf("%v: %d of %d pass, want %d and at most %d more", a.at, n, a.n, a.passed, more)
				}
			}
			if strings.HasPrefix(fields, "limit: 1000/3s, algorithm: sliding_log") {
				r.never(1000, 3*time.Second, len(calls))
			}
		})
	}
}

// never wants at most so many calls of the arrivals allowed in any period.
func (r *rig) never(limit int, period time.Duration, arrivals int) {
	r.t.Helper()
	var all []time.Duration
	for i := range arrivals {
		all = append(all, r.left(i)...)
	}
	slices.Sort(all)
	for i := limit; i < len(all); i++ {
		if all[i]-all[i-limit] < period {
			r.t.Fatalf("%d calls were allowed from %v to %v", limit+1, all[i-limit], all[i])
		}
	}
	if len(all) <= limit {
		r.t.Errorf("%d calls: the test tries nothing", len(all))
	}
}

// modes are how a limiter may know of a bucket.
var modes = map[string]struct {
	standalone bool
	fields     string
}{
	"standalone": {true, ""},
	"leased":     {false, ""},
	"exact":      {false, ", consistency: exact"},
}
