// Exactness in process: many agents, one authority that is the Go twin of the
// script, a network with delays, and synthetic time. The promise must hold in every
// run, and the limit must be used.

package limiter

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"rlsidecar/internal/arrivals"
	"rlsidecar/internal/bucket"
	"rlsidecar/internal/meter"
)

func TestManyAgentsKeepOneLimit(t *testing.T) {
	var mu sync.Mutex // guards used
	var used []float64
	t.Run("worlds", func(t *testing.T) {
		for _, agents := range []int{1, 2, 10, 50} {
			for _, kind := range []string{"even", "zipf", "jump", "onoff", "burst"} {
				if agents == 1 && (kind == "zipf" || kind == "jump" || kind == "onoff") {
					continue // one host has no others to differ from
				}
				t.Run(fmt.Sprintf("%d agents, %s", agents, kind), func(t *testing.T) {
					t.Parallel()
					for _, load := range []float64{0.1, 0.9, 1.5, 10} {
						share := useOfOneLimit(t, agents, kind, load)
						mu.Lock()
						used = append(used, share)
						mu.Unlock()
					}
				})
			}
		}
	})
	slices.Sort(used)
	mean, p5 := mean(used), used[len(used)/20]
	t.Logf("used of what a central limiter would admit: mean %.2f %%, p5 %.2f %%, worst %.2f %%", 100*mean, 100*p5, 100*used[0])
	if mean < 0.995 || p5 < 0.99 {
		t.Errorf("mean %.4f and p5 %.4f of the limit used: want 0.995 and 0.99", mean, p5)
	}
}

func useOfOneLimit(t *testing.T, agents int, kind string, load float64) float64 {
	const seconds = 8
	w := newWorld(t, "limit: 1000/second", agents, 7)
	w.run(kind, load, seconds*time.Second)
	w.check(t, fmt.Sprintf("%gx", load))
	if perSecond := float64(w.asks) / seconds; load > 1 && (perSecond > 2500 || perSecond/float64(agents) > 60) {
		t.Errorf("%gx: %.0f asks a second: want at most 2,500, and 60 a host", load, perSecond)
	}
	return w.used()
}

func TestSmallAndOddLimitsAreKept(t *testing.T) {
	for _, limit := range []string{
		"limit: 5/minute", "limit: 1/second", "limit: 1000/second, burst: 15", "limit: 100/second, burst: 3000",
		"limit: 50/second, refill: interval",
	} {
		for _, costs := range [][]int64{{1}, {1, 1, 1, 1, 5, 20}} {
			w := newWorld(t, limit, 10, 3)
			w.costs = costs
			w.run("even", 3, time.Duration(min(300, 2000/w.rate())*float64(time.Second)))
			w.check(t, fmt.Sprintf("%s, costs %v", limit, costs))
		}
	}
}

// world is agents, an authority and time.
type world struct {
	away    bool // the authority cannot be reached
	rng     *rand.Rand
	now     time.Duration
	rule    *bucket.Rule
	state   bucket.State
	holders bucket.Holders // of a concurrency limit, in place of state
	agents  []*agent
	events  events
	seq     int
	costs   []int64
	wait    time.Duration // each call's
	asks    int
	calls   int
	meters  []meter.Meter
	perfect bucket.Gauge // one limiter asked for every call
	central int64        // what it admitted
	granted int64
	decided func(a *agent, cost int64, d Decision) // told of every answer, if set
	taken   func(permits int64)                    // and of direct permits
	asked   func(a *agent, ask *bucket.Ask)        // and of every question
}

type agent struct {
	w      *world
	l      *Limiter
	alarm  time.Duration
	direct int64 // permits of the grant being answered that count from when they were granted
}

// event is something that happens to an agent; what it is to do by itself is nil.
type event struct {
	at  time.Duration
	seq int
	a   *agent
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// newWorld returns a world whose one policy has these fields.
func newWorld(t *testing.T, fields string, agents int, seed uint64) *world {
	t.Helper()
	set := parse(t, "policies: {p: {"+fields+"}}")
	rule := &set.Lookup([]byte("p")).Rule
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), rule: rule, costs: []int64{1}, now: time.Second}
	w.perfect.Fill(rule, 1, w.now.Microseconds())
	for i := range rule.N {
		w.meters = append(w.meters, meter.Of(rule, i)...)
	}
	for range agents {
		a := &agent{w: w}
		a.l = New(set, Options{Redis: a, Timeout: time.Second, Clock: func() time.Duration { return w.now }, Jitter: w.rng.Float64})
		w.agents = append(w.agents, a)
	}
	return w
}

func (w *world) after(d time.Duration, a *agent, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + d, w.seq, a, do})
}

// longest is the most that a message takes one way.
const longest = 2 * time.Millisecond

func (w *world) delay() time.Duration {
	return time.Duration(100+w.rng.Int64N(longest.Microseconds()-100)) * time.Microsecond
}

// Ask carries a question to the authority and its answer back.
func (a *agent) Ask(q *bucket.Question) {
	w := a.w
	w.asks++
	if w.asked != nil {
		w.asked(a, &q.Ask)
	}
	w.after(w.delay(), a, func() {
		if w.away {
			w.after(longest, a, func() { q.Answer(q, bucket.Grant{}, bucket.ErrLost) })
			return
		}
		g := w.apply(q)
		w.after(w.delay(), a, func() {
			a.direct = g.Direct
			q.Answer(q, g, nil)
			a.direct = 0
		})
	})
}

// apply is the authority.
func (w *world) apply(q *bucket.Question) bucket.Grant {
	at := w.now.Microseconds()
	if w.rule.Algorithm == bucket.Concurrency {
		return w.holders.Apply(w.rule, at, &q.Ask)
	}
	g := w.state.Apply(w.rule, at, &q.Ask)
	for i, m := range w.meters {
		if m, ok := m.(*meter.Window); ok && !m.Clock {
			m.Began(at + g.Outlook.Levels[i].At)
		}
	}
	w.admit(g.Direct)
	if w.taken != nil {
		w.taken(g.Direct)
	}
	return g
}

func (a *agent) Home(_, _ string) uint16 { return 0 }
func (a *agent) Reachable(uint16) bool   { return !a.w.away }
func (a *agent) Degraded() bool          { return a.w.away }

func (a *agent) call(cost int64) {
	c := &Call{Policy: []byte("p"), Key: []byte("k"), Cost: cost, Wait: a.w.wait}
	d, pending, err := a.l.Acquire(a.w.now, c, a, uint32(cost))
	if !pending {
		a.Decided(uint32(cost), d, err)
	}
}

// Decided counts what was admitted; ref is the cost.
func (a *agent) Decided(cost uint32, d Decision, err *Error) {
	w := a.w
	if err != nil {
		panic(err)
	}
	if w.decided != nil {
		w.decided(a, int64(cost), d)
	}
	if !d.Allowed {
		return
	}
	w.granted += int64(cost)
	if w.paces() && d.Source == FromRedis {
		return // its permits were taken when it was given its turn
	}
	counted := min(a.direct, int64(cost))
	a.direct -= counted
	w.admit(int64(cost) - counted)
}

func (a *agent) Gone() bool { return false }

func (w *world) paces() bool { return w.wait > 0 && w.rule.Algorithm == bucket.LeakyBucket }

func (w *world) rate() float64 {
	return float64(w.rule.Limits[0].Count) / w.rule.Limits[0].Period.Seconds()
}

func (w *world) admit(permits int64) {
	if permits > 0 && w.rule.Algorithm != bucket.Concurrency {
		for _, m := range w.meters {
			m.Use(w.now.Microseconds(), permits)
		}
	}
}

func (w *world) admitCentrally(cost int64) {
	at := w.now.Microseconds()
	w.perfect.Refill(w.rule, 1, at, 0)
	if w.rule.Covers(w.perfect.Free(w.rule, 1, at, 0), cost) {
		w.perfect.Use(w.rule, at, float64(cost))
		w.central += cost
	}
}

// run lets calls come at load times the limit.
func (w *world) run(kind string, load float64, length time.Duration) {
	w.come(w.arrivals(kind, load*w.rate()/w.meanCost()), length, func(a *agent) {
		cost := w.costs[w.rng.IntN(len(w.costs))]
		w.admitCentrally(cost)
		a.call(cost)
	})
}

// arrivals are so many calls a second, spread over the agents.
func (w *world) arrivals(kind string, rate float64) *arrivals.Arrivals {
	return arrivals.New(kind, len(w.agents), rate, w.rng)
}

// come has calls come to agents.
func (w *world) come(calls *arrivals.Arrivals, length time.Duration, call func(*agent)) {
	start := w.now
	for {
		at, host := calls.Next()
		if at > length {
			w.advance(start + length)
			return
		}
		w.advance(start + at)
		w.calls++
		call(w.agents[host])
		w.wind(w.agents[host])
	}
}

func (w *world) meanCost() float64 {
	sum := 0.0
	for _, c := range w.costs {
		sum += float64(c)
	}
	return sum / float64(len(w.costs))
}

// advance does everything that happens up to t.
func (w *world) advance(t time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= t {
		e := heap.Pop(&w.events).(event)
		switch w.now = e.at; {
		case e.do != nil:
			e.do()
		case e.a.alarm != e.at:
			continue
		}
		w.wind(e.a)
	}
	w.now = t
}

// wind has a do what is due, and wakes it for what is next.
func (w *world) wind(a *agent) {
	had := a.alarm
	a.alarm = 0
	if next := a.l.Advance(w.now); next != 0 {
		a.alarm = max(w.now+time.Microsecond, next.Truncate(time.Microsecond)+time.Microsecond)
	}
	if a.alarm != 0 && a.alarm != had {
		w.after(a.alarm-w.now, a, nil)
	}
}

func (w *world) used() float64 { return float64(w.granted) / max(1, float64(w.central)) }

func (w *world) excess() (excess float64) {
	for _, m := range w.meters {
		excess = max(excess, m.Excess())
	}
	return excess
}

func (w *world) check(t *testing.T, name string) {
	t.Helper()
	t.Logf("%-44s used %6.2f %%, %6.1f asks per 1,000 calls", name, 100*w.used(), 1000*float64(w.asks)/float64(w.calls))
	if over := w.excess(); over > 1e-3 {
		t.Errorf("%s: %g permits more than the rule allows", name, over)
	}
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}
