// Package meter is the promise of each algorithm, for tests: told of every permit when
// it was truly used, on the authority's clock, a meter says how far the limit was
// exceeded at worst.
package meter

import "rlsidecar/internal/bucket"

// Meter measures uses that come in the order of their times, in µs.
type Meter interface {
	Use(at, permits int64)
	Excess() float64
}

// Of returns what limit i of r promises.
func Of(r *bucket.Rule, i int) []Meter {
	l := r.Limits[i]
	period := l.Period.Microseconds()
	switch r.Algorithm {
	case bucket.FixedWindow:
		return []Meter{&Window{capacity: l.Count, period: period, Clock: !r.FirstUse}}
	case bucket.SlidingLog:
		return []Meter{&Log{capacity: l.Count, period: period}}
	case bucket.SlidingWindow:
		part := (period + int64(r.Parts) - 1) / int64(r.Parts)
		return []Meter{&Log{capacity: l.Count, period: period - part}, &Log{capacity: l.Count, period: period, part: part}}
	case bucket.Concurrency:
		return []Meter{&Held{Capacity: l.Count}}
	}
	return []Meter{newLevel(r, i)}
}

// Level is a leaky bucket: its height above the capacity is the largest excess
// over B + r·Δ in any interval.
type Level struct {
	Capacity, Rate float64 // permits; permits per µs
	height, most   float64
	at             int64
}

func newLevel(r *bucket.Rule, i int) *Level {
	l := r.Limits[i]
	m := &Level{Capacity: float64(l.Burst + r.Borrow), Rate: float64(l.Count) / float64(l.Period.Microseconds())}
	if r.Interval { // one tick more than Δ holds periods
		m.Capacity += float64(l.Count)
	}
	return m
}

func (m *Level) Use(at, permits int64) {
	m.height = max(0, m.height-float64(at-m.at)*m.Rate) + float64(permits)
	m.at, m.most = at, max(m.most, m.height-m.Capacity)
}

func (m *Level) Excess() float64 { return m.most }

// Window counts uses in one window of the authority, by the clock or as it
// says that they began.
type Window struct {
	capacity, period, start, used, most int64
	Clock                               bool
}

func (m *Window) Use(at, permits int64) {
	if m.Clock {
		m.Began(at - at%m.period)
	} else if at >= m.start+m.period {
		m.start, m.used = at, 0
	}
	m.used += permits
	m.most = max(m.most, m.used-m.capacity)
}

// Began says when the window that is now began. One that begins before the last is
// over takes its uses along.
func (m *Window) Began(start int64) {
	if start >= m.start+m.period {
		m.used = 0
	}
	m.start = max(m.start, start)
}

func (m *Window) Excess() float64 { return float64(m.most) }

// Log remembers each use for a period. The parts of a sliding window fade out
// as they leave: of those that fall into the oldest one, cut by the edge of the
// period, as large a fraction may come on top as the edge has gone through it. With
// the edge a fraction θ into a part, m uses of which are inside still, at least
// (1-θ)·m were counted when the latest use was granted, and all younger ones in
// full: so there are at most capacity + θ·m.
type Log struct {
	capacity, period, part, sum int64
	uses                        []useAt
	most                        float64
}

type useAt struct{ at, permits int64 }

func (m *Log) Use(at, permits int64) {
	m.uses = append(m.uses, useAt{at, permits})
	m.sum += permits
	for m.uses[0].at <= at-m.period {
		m.sum -= m.uses[0].permits
		m.uses = m.uses[1:]
	}
	m.most = max(m.most, float64(m.sum-m.capacity)-m.faded(at-m.period))
}

// faded returns θ·m.
func (m *Log) faded(edge int64) float64 {
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

func (m *Log) Excess() float64 { return m.most }

// Held counts what is held: uses below zero are permits given up.
type Held struct{ Capacity, Now, Most int64 }

func (m *Held) Use(_, permits int64) {
	m.Now += permits
	m.Most = max(m.Most, m.Now-m.Capacity)
}

func (m *Held) Excess() float64 { return float64(m.Most) }
