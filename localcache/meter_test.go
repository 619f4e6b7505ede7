// The promise of each algorithm as a meter: told of every permit when it was truly
// used, on the authority's clock, it says how far the limit was exceeded at worst.

package localcache

import (
	"math/rand/v2"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

// meter measures uses that come in the order of their times, in µs.
type meter interface {
	use(at, permits int64)
	excess() float64
}

// metersOf returns what limit i of r promises.
func metersOf(r *bucket.Rule, i int) []meter {
	l := r.Limits[i]
	period := l.Period.Microseconds()
	switch r.Algorithm {
	case bucket.FixedWindow:
		return []meter{&windowMeter{capacity: l.Count, period: period, clock: !r.FirstUse}}
	case bucket.SlidingLog:
		return []meter{&logMeter{capacity: l.Count, period: period}}
	case bucket.SlidingWindow:
		part := (period + int64(r.Parts) - 1) / int64(r.Parts)
		return []meter{&logMeter{capacity: l.Count, period: period - part}, &logMeter{capacity: l.Count, period: period, part: part}}
	case bucket.Concurrency:
		return []meter{&heldMeter{capacity: l.Count}}
	}
	return []meter{newLevelMeter(r, i)}
}

// levelMeter is a leaky bucket: its height above the capacity is the largest excess
// over B + r·Δ in any interval.
type levelMeter struct {
	capacity, rate, height, most float64
	at                           int64
}

func newLevelMeter(r *bucket.Rule, i int) *levelMeter {
	l := r.Limits[i]
	m := &levelMeter{capacity: float64(l.Burst + r.Borrow), rate: float64(l.Count) / float64(l.Period.Microseconds())}
	if r.Interval { // one tick more than Δ holds periods
		m.capacity += float64(l.Count)
	}
	return m
}

func (m *levelMeter) use(at, permits int64) {
	m.height = max(0, m.height-float64(at-m.at)*m.rate) + float64(permits)
	m.at, m.most = at, max(m.most, m.height-m.capacity)
}

func (m *levelMeter) excess() float64 { return m.most }

// windowMeter counts uses in one window of the authority, by the clock or as it
// says that they began.
type windowMeter struct {
	capacity, period, start, used, most int64
	clock                               bool
}

func (m *windowMeter) use(at, permits int64) {
	if m.clock {
		m.began(at - at%m.period)
	} else if at >= m.start+m.period {
		m.start, m.used = at, 0
	}
	m.used += permits
	m.most = max(m.most, m.used-m.capacity)
}

// began says when the window that is now began. One that begins before the last is
// over takes its uses along.
func (m *windowMeter) began(start int64) {
	if start >= m.start+m.period {
		m.used = 0
	}
	m.start = max(m.start, start)
}

func (m *windowMeter) excess() float64 { return float64(m.most) }

// logMeter remembers each use for a period. The parts of a sliding window fade out
// as they leave: of those that fall into the oldest one, cut by the edge of the
// period, as large a fraction may come on top as the edge has gone through it. With
// the edge a fraction θ into a part, m uses of which are inside still, at least
// (1-θ)·m were counted when the latest use was granted, and all younger ones in
// full: so there are at most capacity + θ·m.
type logMeter struct {
	capacity, period, part, sum int64
	uses                        []useAt
	most                        float64
}

type useAt struct{ at, permits int64 }

func (m *logMeter) use(at, permits int64) {
	m.uses = append(m.uses, useAt{at, permits})
	m.sum += permits
	for m.uses[0].at <= at-m.period {
		m.sum -= m.uses[0].permits
		m.uses = m.uses[1:]
	}
	m.most = max(m.most, float64(m.sum-m.capacity)-m.faded(at-m.period))
}

// faded returns θ·m.
func (m *logMeter) faded(edge int64) float64 {
	if m.part == 0 || edge < 0 {
		return 0
	}
	inside, next := int64(0), edge-edge%m.part+m.part
	for _, u := range m.uses {
		if u.at >= next {
			break
		}
		inside += u.permits
	}
	return float64(inside) * float64(edge%m.part) / float64(m.part)
}

func (m *logMeter) excess() float64 { return m.most }

// heldMeter counts what is held: uses below zero are permits given up.
type heldMeter struct{ capacity, held, most int64 }

func (m *heldMeter) use(_, permits int64) {
	m.held += permits
	m.most = max(m.most, m.held-m.capacity)
}

func (m *heldMeter) excess() float64 { return float64(m.most) }

// The bound of a sliding window is reached: what came at the end of a part has faded
// by nine tenths when nine tenths of the part have left the period, and is still
// within it to the last permit.
func TestASlidingWindowLetsThroughWhatHasFaded(t *testing.T) {
	rule := mustRule(t, bucket.Rule{Algorithm: bucket.SlidingWindow}, bucket.Limit{Count: 100, Period: time.Second, Burst: 100})
	meters := metersOf(rule, 0)
	exact := &logMeter{capacity: 100, period: 1e6}
	var g bucket.Gauge
	g.Fill(rule, 1, 0)
	for _, at := range []int64{5_099_999, 6_090_000} {
		g.Refill(rule, 1, at, 0)
		free := g.Free(rule, 1, at, 0)
		g.Use(rule, at, free)
		for _, m := range append(meters, exact) {
			m.use(at, int64(free))
		}
	}
	if exact.excess() != 90 || meters[0].excess() > 0 || meters[1].excess() != 0 {
		t.Errorf("%g above the limit in a period, %g in one less a part, %g above the bound; want 90, 0 and 0",
			exact.excess(), meters[0].excess(), meters[1].excess())
	}
}

// Ten parts of a period tell it from an exact log by a few per cent of what is let
// through, at every load that comes evenly.
func TestASlidingWindowIsNearlyALog(t *testing.T) {
	const seconds, most = 200, 0.03
	limit := bucket.Limit{Count: 100, Period: time.Second, Burst: 100}
	log, window := mustRule(t, bucket.Rule{Algorithm: bucket.SlidingLog}, limit), mustRule(t, bucket.Rule{Algorithm: bucket.SlidingWindow}, limit)
	for _, load := range []float64{0.5, 0.9, 1, 1.2, 2, 10} {
		exact, parts := admitted(log, load, seconds), admitted(window, load, seconds)
		t.Logf("%gx: %.0f by the log, %.0f by the window: %+.2f %%", load, exact, parts, 100*(parts/exact-1))
		if parts < exact*(1-most) || parts > exact*(1+most) {
			t.Errorf("%gx: %g by the window, %g by the log", load, parts, exact)
		}
	}
}

// admitted returns how much of so many seconds of even traffic r lets through.
func admitted(r *bucket.Rule, load, seconds float64) (permits float64) {
	var g bucket.Gauge
	rng := rand.New(rand.NewPCG(11, 1))
	g.Fill(r, 1, 0)
	rate := load * float64(r.Limits[0].Count) / r.Limits[0].Period.Seconds()
	for at := 0.0; at < seconds; at += rng.ExpFloat64() / rate {
		now := int64(at * 1e6)
		g.Refill(r, 1, now, 0)
		if r.Covers(g.Free(r, 1, now, 0), 1) {
			g.Use(r, now, 1)
			permits++
		}
	}
	return permits
}

func mustRule(t testing.TB, r bucket.Rule, limits ...bucket.Limit) *bucket.Rule {
	t.Helper()
	r, err := r.With(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}
