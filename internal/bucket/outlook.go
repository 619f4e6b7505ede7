// Outlook is what an authority says of a bucket beside the permits it grants, so
// that an agent can answer for it a while: how much is free, and when more will be.

package bucket

import "math"

// Outlook is a bucket as it was at a time, with its future if nobody uses it. Of a
// rule with Levels it is exact for every cost. Of others it says how many permits
// are Free, when Want of them are, and when all are; between these it is a guess. Of a Concurrency rule only Free is known: nobody can tell
// when a holder gives up its permit.
type Outlook struct {
	Levels Levels
	Free   float64
	Want   float64
	Soon   int64 // µs on the clock of its owner: Want permits are free
	Full   int64 // µs: all are
}

// Shift moves o by so many microseconds, from one clock to another.
func (o *Outlook) Shift(by int64) {
	for i := range o.Levels {
		o.Levels[i].At += by
	}
	o.Soon += by
	o.Full += by
}

// Levelled reports whether the state of r's algorithm is a Level for each limit.
func (r *Rule) Levelled() bool { return r.Algorithm <= FixedWindow }

// look returns what g shows at now, for a call that needs want permits.
func (g *Gauge) look(r *Rule, now, out int64, want float64) (o Outlook) {
	if r.Levelled() {
		for i := range r.N {
			o.Levels[i] = g.levels[i]
			o.Levels[i].At -= now
		}
		return o
	}
	o.Free, o.Want = g.Free(r, 1, now, out), want
	o.Soon, o.Full = g.Wait(r, 1, now, out, want), g.Full(r, 1, now, out)
	return o
}

// refill brings the levels to now. The windows of another clock are not aligned to
// this one: they end a period after they began.
func (o *Outlook) refill(r *Rule, now int64) {
	for i := range r.N {
		rate := r.Rate(i, 1)
		rate.refill = min(rate.refill, atOnce)
		o.Levels[i].Refill(rate, now, rate.Cap)
	}
}

// Wait returns the microseconds from now until want permits are free, 0 when they
// are.
func (o *Outlook) Wait(r *Rule, now int64, want float64) int64 {
	if r.Levelled() {
		o.refill(r, now)
		return o.Levels.wait(r, 1, now, want)
	}
	at, capacity := o.Soon, float64(r.Capacity())
	switch {
	case want <= o.Free+slack:
		return 0
	case r.Algorithm == Concurrency:
		return 1
	case want > o.Want && capacity > o.Want:
		part := min(1, (want-o.Want)/(capacity-o.Want))
		at += int64(math.Ceil(part * float64(max(0, o.Full-o.Soon))))
	}
	return max(0, at-now)
}

// Lacks reports that want permits are surely not free at now, unless somebody gave
// some back.
func (o *Outlook) Lacks(r *Rule, now int64, want float64) bool {
	if r.Levelled() {
		return o.Wait(r, now, want) > 0
	}
	return r.Algorithm != Concurrency && want > o.Free+slack && want >= o.Want && now < o.Soon
}

// Left returns the permits free at now, debt counting as none.
func (o *Outlook) Left(r *Rule, now int64) int64 {
	free := o.Free
	if r.Levelled() {
		o.refill(r, now)
		free = o.Levels.least(r)
	} else if capacity := float64(r.Capacity()); r.Algorithm == Concurrency {
		return int64(max(0, free))
	} else if now >= o.Full {
		free = capacity
	} else if now >= o.Soon {
		free = max(free, o.Want)
		free += (capacity - free) * float64(now-o.Soon) / float64(max(1, o.Full-o.Soon))
	}
	return int64(max(0, free+slack))
}

// FullIn returns the microseconds from now until all permits are free.
func (o *Outlook) FullIn(r *Rule, now, out int64) int64 {
	if r.Levelled() {
		o.refill(r, now)
		return o.Levels.full(r, 1, now, out)
	}
	return max(0, o.Full-now)
}
