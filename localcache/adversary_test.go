// The promise against adversaries: hosts that hoard leases and dump them together,
// replies that take any time, and four known mistakes that a test must notice.

package localcache

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unique"

	"rlsidecar/internal/bucket"
)

// mistake is a way to get leases wrong.
type mistake int

const (
	none mistake = iota
	blindRetry
	spendReturned
	refillToBurst
	lifeFromReply
)

var mistakes = map[mistake]string{
	blindRetry:    "a report is sent twice",
	spendReturned: "a host goes on spending what it gave back",
	refillToBurst: "refill stops at B, not at B less what is outstanding",
	lifeFromReply: "a lease lives from the reply, not from the send",
}

func TestNoAdversaryGetsMoreThanTheLimit(t *testing.T) {
	for _, size := range []struct{ burst, hosts int }{{20, 2}, {20, 8}, {100, 8}, {100, 30}} {
		t.Run(fmt.Sprintf("burst %d, %d hosts", size.burst, size.hosts), func(t *testing.T) {
			used := int64(0)
			for seed := range uint64(100) {
				a := newAdversary(seed, size.burst, size.hosts, none)
				if over := a.run(2000); over > 1e-6 {
					t.Fatalf("seed %d: %g permits above B + r·Δ", seed, over)
				}
				used += a.used
			}
			if used < 100*int64(size.burst) {
				t.Fatalf("only %d permits were used: the test tries nothing", used)
			}
		})
	}
}

func TestEveryMistakeShows(t *testing.T) {
	for m, name := range mistakes {
		t.Run(name, func(t *testing.T) {
			worst := 0.0
			for seed := range uint64(200) {
				worst = max(worst, newAdversary(seed, 20, 8, m).run(2000))
			}
			t.Logf("%.2f permits above the limit", worst)
			if worst < 0.5 {
				t.Fatal("not noticed")
			}
		})
	}
}

// adversary is hosts and an authority in steps of synthetic time.
type adversary struct {
	rng     *rand.Rand
	m       mistake
	now     time.Duration
	rule    *bucket.Rule
	state   bucket.State
	hosts   []*host
	flying  []*letter
	meter   meter
	used    int64
	maxWait time.Duration
}

type host struct {
	b     *Bucket
	late  bool // spends a lease just before it ends
	pause int  // steps between asks, on average
}

// letter is an ask on its way there, or its grant on the way back.
type letter struct {
	h         *host
	q         *bucket.Question
	sent, due time.Duration
	grant     *bucket.Grant
}

// meter is the leaky bucket of what was used: its height above B is the largest
// excess over B + r·Δ in any interval.
type meter struct {
	height, rate, most float64
	at                 time.Duration
}

func (m *meter) use(now time.Duration, permits int64) {
	m.height = max(0, m.height-(now-m.at).Seconds()*m.rate) + float64(permits)
	m.at, m.most = now, max(m.most, m.height)
}

const step = 20 * time.Millisecond

func newAdversary(seed uint64, burst, hosts int, m mistake) *adversary {
	a := &adversary{rng: rand.New(rand.NewPCG(seed, uint64(burst))), m: m, now: time.Second}
	rule, err := bucket.NewRule(bucket.Limit{Count: int64(2 * burst), Period: time.Second, Burst: int64(burst)})
	if err != nil {
		panic(err)
	}
	a.rule, a.meter.rate = &rule, float64(2*burst)
	a.maxWait = time.Duration(a.rng.Int64N(int64(time.Second)))
	shard := New(64, func(*Bucket) {}).Shard(nil)
	for i := range hosts {
		b := &Bucket{Key: Key{unique.Make("p"), fmt.Sprint(i)}, Rule: a.rule, shard: shard}
		a.hosts = append(a.hosts, &host{b: b, late: a.rng.IntN(2) == 0, pause: 1 + a.rng.IntN(150)})
	}
	return a
}

// run returns the excess over the limit after so many steps.
func (a *adversary) run(steps int) float64 {
	period := 10 + a.rng.IntN(400)
	dump := 1 + a.rng.IntN(30)
	for i := range steps {
		a.now += (step - time.Duration(a.rng.Int64N(int64(step/2)))).Truncate(time.Microsecond)
		a.deliver()
		for _, h := range a.hosts {
			a.act(h, i%period < dump)
		}
	}
	return a.meter.most - float64(a.rule.Limits[0].Burst)
}

// act hoards, and dumps with all others what is held and what is left.
func (a *adversary) act(h *host, dumping bool) {
	left := h.b.Permits(a.now)
	ends := h.late && h.b.end-a.now <= 2*step
	if left > 0 && (dumping || ends || a.rng.IntN(100) == 0) && h.b.Take(a.now, left) {
		a.meter.use(a.now, left)
		a.used += left
	}
	if !h.b.Asking && (dumping || a.rng.IntN(h.pause) == 0) {
		a.send(h, dumping)
	}
}

func (a *adversary) send(h *host, dumping bool) {
	w := Want{Lease: !dumping && a.rng.IntN(2) == 0, Lead: 5 * time.Millisecond}
	if dumping || a.rng.IntN(20) == 0 {
		w.Queued, w.First, w.Unit = 1+a.rng.Int64N(a.rule.Capacity()), 1, 1
	}
	q := &bucket.Question{Rule: a.rule, Ask: h.b.Ask(a.now, w)}
	had := q.Ask.Keep + q.Ask.Return
	if a.rng.IntN(2) == 0 { // keep all of it, whatever the demand
		q.Ask.Keep, q.Ask.Return, h.b.permits = had, 0, had
	}
	if a.m == spendReturned {
		h.b.permits = had
	}
	q.Ask.Lease, q.Ask.Rate, q.Ask.Seen = w.Lease, 500, float64(a.rng.IntN(30))
	a.flying = append(a.flying, &letter{h: h, q: q, sent: a.now, due: a.now + a.delay()})
}

func (a *adversary) delay() time.Duration { return time.Duration(a.rng.Int64N(int64(a.maxWait) + 1)) }

func (a *adversary) deliver() {
	flying := a.flying
	a.flying = nil
	for _, l := range flying {
		switch {
		case l.due > a.now:
			a.flying = append(a.flying, l)
		case l.grant == nil:
			a.execute(l)
		default:
			a.answer(l)
		}
	}
}

// execute is what the authority does, whose clock is another one.
func (a *adversary) execute(l *letter) {
	at := (a.now + 1000*time.Hour).Microseconds()
	out := a.state.Outstanding
	if a.m == refillToBurst {
		a.state.Outstanding = 0
	}
	g := a.state.Apply(a.rule, at, &l.q.Ask)
	if a.m == refillToBurst {
		a.state.Outstanding += out
	}
	if a.m == blindRetry && g.Permits == 0 {
		g = a.state.Apply(a.rule, at, &l.q.Ask)
	}
	a.meter.use(a.now, g.Direct)
	if a.m == none && a.state.Gauge.Free(a.rule, 1, at, a.state.Outstanding)+float64(a.state.Outstanding) > float64(a.rule.Limits[0].Burst)+1e-6 {
		panic("l + o exceeds B")
	}
	if a.rng.IntN(20) == 0 { // the reply is lost
		l.h.b.Lost(&l.q.Ask)
		return
	}
	l.grant, l.due = &g, a.now+a.delay()
	a.flying = append(a.flying, l)
}

func (a *adversary) answer(l *letter) {
	sent := l.sent
	if a.m == lifeFromReply {
		sent = a.now
	}
	l.h.b.Granted(sent, a.now, l.q, l.grant, 0.5)
	l.h.b.Settle(l.grant.Direct)
}
