// Gauge is the algorithm of a rule at work: how much of each of its limits is
// used. The lease rule (state.go) and the local limits of an agent count with it.

package bucket

import "math"

// Gauge is what has been used of each limit of one rule. Its zero value is not
// ready: Fill it first.
//
// Permits are used, or are out: handed to somebody who may still use them. Those
// that are out are not free, and in a log or window they keep counting until they
// are given back, or are marked as used by then at the latest. An authority tells
// the methods how many are out; a local limit has none out, and may be scaled to a
// share of the rule.
type Gauge struct {
	levels Levels
	slides *slides // of the algorithms that log
}

// Fill makes every permit free at now.
func (g *Gauge) Fill(r *Rule, share float64, now int64) {
	if r.Algorithm.logs() {
		g.slides = &slides{}
		return
	}
	g.levels.fill(r, share, now)
}

// Resume makes g, filled at now, show share of what o does.
func (g *Gauge) Resume(r *Rule, share float64, now int64, o *Outlook) {
	if g.slides != nil {
		g.slides.resume(r, share, now, o)
		return
	}
	o.refill(r, now)
	for i := range r.N {
		g.levels[i].Permits = min(max(0, o.Levels[i].Permits*share), r.Rate(i, share).Cap)
		if r.Refill() != windowed {
			g.levels[i].At = o.Levels[i].At
		}
	}
}

// Refill brings g to now, and reports whether a window ended: all that is out
// ended with it.
func (g *Gauge) Refill(r *Rule, share float64, now, out int64) (ended bool) {
	if g.slides != nil {
		g.slides.forget(r, now)
		return false
	}
	return g.levels.refill(r, share, now, out)
}

// Free returns the permits that may be used, below zero when there is debt.
// REQUIRES: g is refilled to now, here and below.
func (g *Gauge) Free(r *Rule, share float64, now, out int64) float64 {
	if g.slides != nil {
		return g.slides.free(r, share, now, out)
	}
	return g.levels.least(r)
}

// Used returns the permits that are not free because they were used, of the limit of
// which it is most.
func (g *Gauge) Used(r *Rule, share float64, now int64) (used float64) {
	for i := range r.N {
		if g.slides != nil {
			used = max(used, g.slides[i].used(r.span(i), now))
		} else {
			used = max(used, r.Rate(i, share).Cap-g.levels[i].Permits)
		}
	}
	return used
}

// Use counts permits as used now.
func (g *Gauge) Use(r *Rule, now int64, permits float64) {
	if g.slides != nil {
		g.slides.add(r, now, now, permits)
		return
	}
	g.levels.add(r, -permits)
}

// Refund takes back permits used, as far as there are any.
func (g *Gauge) Refund(r *Rule, share float64, now int64, permits float64, out int64) {
	if g.slides != nil {
		g.slides.undo(r, now, permits)
		return
	}
	g.levels.refund(r, share, permits, out)
}

// Wait returns the microseconds until want permits are free if nobody else uses
// any; 0 when they are.
func (g *Gauge) Wait(r *Rule, share float64, now, out int64, want float64) int64 {
	if g.slides != nil {
		return g.slides.wait(r, share, now, out, want)
	}
	return g.levels.wait(r, share, now, want)
}

// Full returns the microseconds until all is free that is not out.
func (g *Gauge) Full(r *Rule, share float64, now, out int64) int64 {
	if g.slides != nil {
		return g.slides.full(r, now)
	}
	return g.levels.full(r, share, now, out)
}

// Reshape carries g over from a rule of the same algorithm with had limits, so
// that a change is never a free refill.
func (g *Gauge) Reshape(r *Rule, had int, out int64) {
	if g.slides != nil {
		g.slides.reshape(r, had)
		return
	}
	g.levels.reshape(r, had, out)
}

// pay uses permits now as far as there are any free.
func (g *Gauge) pay(r *Rule, now, out int64, permits float64) {
	if g.slides != nil {
		g.slides.add(r, now, now, min(permits, max(0, math.Floor(g.slides.free(r, 1, now, out)))))
		return
	}
	g.levels.pay(r, permits)
}

// lend, takeBack and spent are a lease's life: permits go out; some come back;
// the others were used, at a time or before.
func (g *Gauge) lend(r *Rule, permits float64) {
	if g.slides == nil {
		g.levels.add(r, -permits)
	}
}

func (g *Gauge) takeBack(r *Rule, permits float64) {
	if g.slides == nil {
		g.levels.add(r, permits)
	}
}

func (g *Gauge) spent(r *Rule, now, at int64, permits float64) {
	if g.slides != nil {
		g.slides.add(r, now, at, permits)
	}
}
