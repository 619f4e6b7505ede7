// The promise against adversaries: hosts that hoard leases and dump them together,
// answers that take any time or never come, asks that arrive after later ones; and
// known mistakes that a test must notice.

package localcache

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unique"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/meter"
)

// mistake is a way to get leases wrong.
type mistake string

const (
	none          mistake = ""
	blindRetry    mistake = "a report is sent twice"
	spendReturned mistake = "a host goes on spending what it gave back"
	refillToBurst mistake = "refill stops at B, not at B less what is outstanding"
	lifeFromReply mistake = "a lease lives from the reply, not from the send"
	outlivesEnd   mistake = "a lease outlives its window"
	sameEpoch     mistake = "reports of leases of an earlier window are taken"
	markedAtGrant mistake = "what a log leases is marked when it is granted, and not out"
	usedEarlier   mistake = "a report says its permits were used half a second too early"
	notOut        mistake = "a log does not count what is out"
	leaseLong     mistake = "what a host holds is given up with its lease, not a period later"
	noSeq         mistake = "an ask that comes late counts as the latest"
	madeUpTwice   mistake = "a step back of the clock is made up for twice"
	notHandedOn   mistake = "what a host holds is given up when its holders must have, though it may be handed on"
)

// contest is a rule, and the mistakes that show with it.
type contest struct {
	name   string
	rule   bucket.Rule
	limits []bucket.Limit
	shows  []mistake
}

func perSecond(count, burst int64, seconds float64) bucket.Limit {
	return bucket.Limit{Count: count, Period: time.Duration(seconds * float64(time.Second)), Burst: burst}
}

var contests = []contest{
	{"token bucket of 20", bucket.Rule{}, []bucket.Limit{perSecond(40, 20, 1)},
		[]mistake{blindRetry, spendReturned, refillToBurst, lifeFromReply, madeUpTwice}},
	{"token bucket of 100", bucket.Rule{}, []bucket.Limit{perSecond(200, 100, 1)}, nil},
	{"token bucket of two limits", bucket.Rule{}, []bucket.Limit{perSecond(20, 20, 1), perSecond(60, 60, 10)},
		[]mistake{spendReturned}},
	{"token bucket that borrows", bucket.Rule{Borrow: 30}, []bucket.Limit{perSecond(40, 20, 1)},
		[]mistake{blindRetry, refillToBurst}},
	{"token bucket by ticks", bucket.Rule{Interval: true}, []bucket.Limit{perSecond(10, 30, 0.5)},
		[]mistake{spendReturned, refillToBurst}},
	{"leaky bucket", bucket.Rule{Algorithm: bucket.LeakyBucket}, []bucket.Limit{perSecond(40, 20, 1)},
		[]mistake{blindRetry, refillToBurst}},
	{"leaky bucket of 5", bucket.Rule{Algorithm: bucket.LeakyBucket}, []bucket.Limit{perSecond(20, 5, 1)}, nil},
	{"fixed windows of 0.7 s", bucket.Rule{Algorithm: bucket.FixedWindow}, []bucket.Limit{perSecond(20, 20, 0.7)},
		[]mistake{outlivesEnd, sameEpoch, spendReturned}},
	{"fixed windows of 5 s", bucket.Rule{Algorithm: bucket.FixedWindow}, []bucket.Limit{perSecond(50, 50, 5)},
		[]mistake{outlivesEnd, lifeFromReply}},
	{"fixed windows of two lengths", bucket.Rule{Algorithm: bucket.FixedWindow}, []bucket.Limit{perSecond(20, 20, 1), perSecond(50, 50, 4)},
		[]mistake{outlivesEnd}},
	{"windows from the first use", bucket.Rule{Algorithm: bucket.FixedWindow, FirstUse: true}, []bucket.Limit{perSecond(20, 20, 1.5)},
		[]mistake{outlivesEnd}},
	{"log of 1 s", bucket.Rule{Algorithm: bucket.SlidingLog}, []bucket.Limit{perSecond(20, 20, 1)},
		[]mistake{markedAtGrant, usedEarlier, notOut, spendReturned, madeUpTwice}},
	{"log of 5 s", bucket.Rule{Algorithm: bucket.SlidingLog}, []bucket.Limit{perSecond(100, 100, 5)},
		[]mistake{markedAtGrant, usedEarlier}},
	{"logs of two lengths", bucket.Rule{Algorithm: bucket.SlidingLog}, []bucket.Limit{perSecond(20, 20, 1), perSecond(50, 50, 6)},
		[]mistake{markedAtGrant}},
	{"sliding window of 1 s", bucket.Rule{Algorithm: bucket.SlidingWindow, Parts: 4}, []bucket.Limit{perSecond(20, 20, 1)},
		[]mistake{markedAtGrant, notOut}},
	{"sliding window of 5 s", bucket.Rule{Algorithm: bucket.SlidingWindow}, []bucket.Limit{perSecond(100, 100, 5)},
		[]mistake{markedAtGrant, spendReturned}},
	{"20 held for 3 s", bucket.Rule{Algorithm: bucket.Concurrency}, []bucket.Limit{perSecond(20, 20, 3)},
		[]mistake{leaseLong, noSeq, notHandedOn, spendReturned}},
	{"20 held for half a second", bucket.Rule{Algorithm: bucket.Concurrency}, []bucket.Limit{perSecond(20, 20, 0.5)},
		[]mistake{leaseLong}},
	{"4 held for 2 s", bucket.Rule{Algorithm: bucket.Concurrency}, []bucket.Limit{perSecond(4, 4, 2)},
		[]mistake{leaseLong, noSeq}},
}

func TestNoAdversaryGetsMoreThanTheLimit(t *testing.T) {
	playAll(t, func(*adversary) {})
}

// Nor does one whose authority's clock steps back, by a little or by hours.
func TestStepsBackOfTheClockAddNothing(t *testing.T) {
	playAll(t, (*adversary).stepBack)
}

func playAll(t *testing.T, prepare func(*adversary)) {
	const seeds = 36
	for _, c := range contests {
		rule := mustRule(t, c.rule, c.limits...)
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			used := int64(0)
			for seed := range uint64(seeds) {
				a := newAdversary(seed, rule, 10+int(seed%3)*5, none)
				prepare(a)
				if over := a.run(1500); over > 1e-6 {
					t.Fatalf("seed %d: %g permits more than the rule allows", seed, over)
				}
				used += a.used
			}
			if used < seeds*rule.Capacity() {
				t.Fatalf("only %d permits were used: the test tries nothing", used)
			}
		})
	}
}

func TestEveryMistakeShows(t *testing.T) {
	for _, c := range contests {
		rule := mustRule(t, c.rule, c.limits...)
		for _, m := range c.shows {
			t.Run(string(m)+", "+c.name, func(t *testing.T) {
				t.Parallel()
				worst, seed := 0.0, uint64(0)
				for ; worst < 0.5 && seed < 600; seed++ {
					worst = max(worst, newAdversary(seed, rule, 10, m).run(1500))
				}
				t.Logf("%.2f permits above the limit, in run %d", worst, seed)
				if worst < 0.5 {
					t.Fatal("not noticed")
				}
			})
		}
	}
}

// adversary is hosts and an authority in steps of synthetic time.
type adversary struct {
	rng     *rand.Rand
	m       mistake
	now     time.Duration
	rule    *bucket.Rule
	state   bucket.State
	holders bucket.Holders // of a concurrency limit, in place of state
	hosts   []*host
	flying  []*letter
	meters  []meter.Meter
	used    int64
	maxWait time.Duration
	steps   bool          // of the authority's clock
	back    time.Duration // their sum
}

type host struct {
	b       *Bucket
	late    bool // spends a lease just before it ends
	pause   int  // steps between asks, on average
	away    time.Duration
	holding []holding
}

// letter is an ask on its way there, or its grant on the way back.
type letter struct {
	h         *host
	b         *Bucket // of the host, unless that has died since
	q         *bucket.Question
	sent, due time.Duration
	givenUp   time.Duration // the host counts it as lost from then on; 0: it waits for ever
	forsaken  bool          // it does
	grant     *bucket.Grant
}

const step = 20 * time.Millisecond

// ahead is the authority's clock, before it steps, less that of the hosts.
const ahead = 1000*time.Hour + 123_456*time.Microsecond

func newAdversary(seed uint64, rule *bucket.Rule, hosts int, m mistake) *adversary {
	a := &adversary{rng: rand.New(rand.NewPCG(seed, uint64(rule.Capacity()))), m: m, steps: m == madeUpTwice, now: time.Second, rule: rule}
	for i := range rule.N {
		a.meters = append(a.meters, meter.Of(rule, i)...)
	}
	a.maxWait = time.Duration(math.Pow(a.rng.Float64(), 3) * float64(2*time.Second))
	for range hosts {
		h := &host{late: a.rng.IntN(2) == 0, pause: 1 + int(150*math.Pow(a.rng.Float64(), 2))}
		a.hosts = append(a.hosts, h)
		a.start(h)
	}
	return a
}

// start gives h a new agent.
func (a *adversary) start(h *host) {
	shard := New(64, func(*Bucket) {}).Shard(nil)
	shard.agent = 1 + a.rng.Int64N(1<<50)
	h.b = &Bucket{Key: Key{unique.Make("p"), "k"}, Rule: a.rule, shard: shard}
}

// run returns the excess over the limit after so many steps.
func (a *adversary) run(steps int) (excess float64) {
	period := 10 + a.rng.IntN(400)
	dump := 1 + a.rng.IntN(30)
	for i := range steps {
		a.now += (step - time.Duration(a.rng.Int64N(int64(step/2)))).Truncate(time.Microsecond)
		if a.steps && a.chance(200) {
			a.back += time.Duration(math.Pow(a.rng.Float64(), 8) * float64(3*time.Hour)).Truncate(time.Microsecond)
		}
		dumping := i%period < dump
		for _, h := range a.hosts {
			a.giveUp(h, dumping)
		}
		a.deliver()
		for _, h := range a.hosts {
			a.act(h, dumping)
		}
	}
	for _, m := range a.meters {
		excess = max(excess, m.Excess())
	}
	return excess
}

func (a *adversary) chance(one int) bool { return a.rng.IntN(one) == 0 }

// stepBack has the authority's clock step back now and then. The parts of a sliding
// window are then no longer those of a meter that measures how they fade out: what it
// promises in full is measured alone.
func (a *adversary) stepBack() {
	a.steps = true
	if a.rule.Algorithm == bucket.SlidingWindow {
		a.meters = a.meters[:1]
	}
}

func (a *adversary) clock() int64 { return (a.now + ahead - a.back).Microseconds() }

// use tells every meter: in true time, but for windows, which are those of the
// bucket's own time.
func (a *adversary) use(permits int64) {
	for _, m := range a.meters {
		at := (a.now + ahead).Microseconds()
		if _, is := m.(*meter.Window); is {
			at = a.ownTime()
		}
		m.Use(at, permits)
	}
}

// ownTime is the time at which the authority would answer now.
func (a *adversary) ownTime() int64 {
	s, clock := &a.state, a.clock()
	if a.rule.Algorithm == bucket.FixedWindow && !a.rule.FirstUse && clock >= s.At {
		return clock
	}
	return max(s.At, clock+s.Ahead)
}

// act hoards, and dumps with all others what is held and what is left.
func (a *adversary) act(h *host, dumping bool) {
	if left := h.b.Permits(a.now); left > 0 {
		ends := h.late && h.b.end-a.now <= 2*step
		switch {
		case ends && !h.b.Asking && a.chance(2): // in time to keep it
			a.send(h, false)
		case dumping || ends:
			a.spend(h, left)
		case a.chance(50):
			a.spend(h, 1+a.rng.Int64N(left))
		}
	}
	if !h.b.Asking && (dumping || a.chance(h.pause)) {
		a.send(h, dumping)
	}
}

func (a *adversary) spend(h *host, permits int64) {
	if a.rule.Algorithm == bucket.Concurrency {
		a.hold(h, permits)
	} else if h.b.Take(a.now, permits) {
		a.use(permits)
		a.used += permits
	}
}

func (a *adversary) send(h *host, dumping bool) {
	w := a.want(dumping)
	q := &bucket.Question{Rule: a.rule, Ask: h.b.Ask(a.now, w)}
	if a.chance(2) { // keep all of it, whatever the demand
		h.b.permits += q.Ask.Return
		q.Ask.Keep, q.Ask.Return = q.Ask.Keep+q.Ask.Return, 0
	}
	if a.m == spendReturned {
		h.b.permits += q.Ask.Return
	}
	q.Ask.Lease, q.Ask.Rate, q.Ask.Seen = w.Lease, 500, float64(a.rng.IntN(30))
	l := &letter{h: h, b: h.b, q: q, sent: a.now, due: a.now + a.delay()}
	a.trouble(l)
	a.flying = append(a.flying, l)
}

func (a *adversary) want(dumping bool) Want {
	w := Want{Lease: !dumping && a.chance(2), Lead: 5 * time.Millisecond}
	if !dumping && !a.chance(20) {
		return w
	}
	w.First, w.Queued = 1, 1+a.rng.Int64N(a.rule.Capacity())
	if a.chance(4) {
		w.First = 1 + a.rng.Int64N(a.rule.MaxCost())
		w.Queued = w.First * int64(1+a.rng.IntN(3))
	}
	w.Unit = w.First
	if a.rule.Algorithm == bucket.LeakyBucket && a.chance(2) {
		w.Paced, w.Patience = true, time.Duration(a.rng.Int64N(int64(2*time.Second)))
	}
	return w
}

// trouble loses letters, and delays some for so long that later ones overtake them.
func (a *adversary) trouble(l *letter) {
	if a.chance(10) || a.now < l.h.away {
		l.givenUp = a.now + 1 + time.Duration(a.rng.Int64N(int64(2*a.maxWait)+int64(step)))
	}
	if l.givenUp > 0 && (a.chance(4) || a.now < l.h.away) {
		l.due += time.Duration(a.rng.Int64N(int64(5 * time.Second)))
	}
	if l.givenUp > 0 && a.chance(4) {
		l.due = 1 << 62 // it never gets there
	}
}

func (a *adversary) delay() time.Duration { return time.Duration(a.rng.Int64N(int64(a.maxWait) + 1)) }

func (a *adversary) deliver() {
	flying := a.flying
	a.flying = nil
	for _, l := range flying {
		if l.givenUp > 0 && l.givenUp <= a.now && !l.forsaken {
			l.forsaken = true
			l.b.Lost(&l.q.Ask)
		}
		switch {
		case l.due == 1<<62 && l.forsaken, l.grant != nil && l.forsaken:
		case l.due > a.now:
			a.flying = append(a.flying, l)
		case l.grant == nil:
			l.grant = a.execute(&l.q.Ask)
			l.due = a.now + a.delay()
			a.flying = append(a.flying, l)
		default:
			a.answer(l)
		}
	}
}

// execute is what the authority does, whose clock is another one.
func (a *adversary) execute(ask *bucket.Ask) *bucket.Grant {
	at := a.clock()
	var g bucket.Grant
	if a.rule.Algorithm == bucket.Concurrency {
		g = a.applyHolders(at, ask)
	} else {
		g = a.apply(at, ask)
		a.tellWindows(&g)
		a.use(g.Direct)
	}
	return &g
}

func (a *adversary) tellWindows(g *bucket.Grant) {
	for i, m := range a.meters {
		if w, ok := m.(*meter.Window); ok && !w.Clock {
			w.Began(a.state.At + g.Outlook.Levels[i].At)
		}
	}
}

// apply is State.Apply with the mistakes in it.
func (a *adversary) apply(at int64, ask *bucket.Ask) bucket.Grant {
	s, asked := &a.state, *ask
	out := s.Outstanding
	switch a.m {
	case refillToBurst:
		s.Outstanding = 0
	case madeUpTwice:
		if at < s.At {
			s.Ahead = 2 * (s.At - at)
		}
	case usedEarlier:
		asked.Age += 0.5
	case markedAtGrant:
		asked.Keep, asked.Return, asked.Recorded = 0, 0, 0
	}
	g := s.Apply(a.rule, at, &asked)
	switch a.m {
	case none:
		a.checkBooks()
	case refillToBurst:
		s.Outstanding += out
	case blindRetry:
		if g.Permits == 0 {
			g = s.Apply(a.rule, at, &asked)
		}
	case sameEpoch:
		s.Epoch, g.Epoch = 1, 1
	case outlivesEnd:
		g.Life = bucket.LeaseLife / 1e6
	case notOut:
		s.Outstanding = 0
	case markedAtGrant:
		s.Gauge.Use(a.rule, at, float64(g.Permits-g.Direct))
		s.Outstanding, s.Slots = 0, nil
	}
	return g
}

func (a *adversary) checkBooks() {
	s := &a.state
	if s.Gauge.Free(a.rule, 1, s.At, s.Outstanding)+float64(s.Outstanding) > float64(a.rule.Capacity())+1e-6 {
		panic("l + o exceeds B")
	}
}

func (a *adversary) answer(l *letter) {
	sent := l.sent
	if a.m == lifeFromReply {
		sent = a.now
	}
	l.b.Granted(sent, a.now, l.q, l.grant, 0.5)
	l.b.Settle(l.grant.Direct)
}

// holding is permits of a concurrency limit that a caller holds.
type holding struct {
	name  Held
	cost  int64
	until time.Duration
}

// hold takes permits for several callers: some keep them as long as they may.
func (a *adversary) hold(h *host, permits int64) {
	for permits > 0 {
		cost := 1 + a.rng.Int64N(permits)
		permits -= cost
		if !h.b.Take(a.now, cost) {
			return
		}
		length := a.rule.Limits[0].Period
		if a.chance(2) {
			length = time.Duration(a.rng.Int64N(int64(length)))
		}
		h.holding = append(h.holding, holding{h.b.Holding(cost), cost, a.now + length})
		a.use(cost)
		a.used += cost
	}
}

// giveUp releases what is due. A host that dies gives up all; one that is cut off
// comes back, or not for longer than anybody may hold a permit.
func (a *adversary) giveUp(h *host, dumping bool) {
	if a.rule.Algorithm != bucket.Concurrency {
		return
	}
	dies := a.chance(2000)
	h.holding = slices.DeleteFunc(h.holding, func(held holding) bool {
		gone := dies || held.until <= a.now
		if gone {
			a.use(-held.cost)
			h.b.Release(a.now, held.name)
		}
		return gone
	})
	if dies {
		a.start(h)
	}
	if a.chance(500) {
		h.away = a.now + time.Duration(a.rng.Int64N(int64(2*(leaseLife+a.rule.Limits[0].Period))))
	}
	// whoever is next takes at once what was released
	if left := h.b.Permits(a.now); left > 0 && h.late && !dumping && a.chance(2) {
		a.hold(h, 1+a.rng.Int64N(left))
	}
}

// applyHolders is Holders.Apply with the mistakes in it.
func (a *adversary) applyHolders(at int64, ask *bucket.Ask) bucket.Grant {
	if a.m == noSeq {
		for i := range a.holders.All {
			a.holders.All[i].Seq = 0
		}
	}
	g := a.holders.Apply(a.rule, at, ask)
	for i := range a.holders.All {
		switch o := &a.holders.All[i]; {
		case a.m == leaseLong:
			o.End = min(o.End, at+bucket.LeaseLife)
		case a.m == notHandedOn && o.Agent == ask.Agent && o.Seq == ask.Seq && ask.Keep == ask.InUse && g.Permits == 0:
			o.End = at + max(bucket.LeaseLife, int64(ask.Holding*1e6))
		}
	}
	return g
}

func mustRule(t testing.TB, r bucket.Rule, limits ...bucket.Limit) *bucket.Rule {
	t.Helper()
	r, err := r.With(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}
