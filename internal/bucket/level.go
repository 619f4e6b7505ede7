// Level is the token bucket itself: one number that rises with time. Redis, the
// local limits and an agent's memory of Redis all count with it.

package bucket

import "math"

// slack is how far a level may fall short of a cost and still cover it: it
// absorbs rounding, and is far below one permit.
const slack = 1e-6

// Level is the state of one Limit. Times are microseconds on the caller's clock.
type Level struct {
	Permits float64 // may be below zero: debt
	At      int64   // refill is credited up to here; for Interval limits, the last tick
	Burst   int64   // capacity when it was last used
}

// Rate is how a Level is refilled: Count permits per Period microseconds up to
// Cap, evenly or once per period.
type Rate struct {
	Count, Cap float64
	Period     int64
	Interval   bool
}

// Rate returns l's rate scaled by share: 1 is all of it. The capacity of a share
// never falls below one permit.
func (l Limit) Rate(share float64) Rate {
	cap := float64(l.Burst)
	if share < 1 {
		cap = max(1, share*cap)
	}
	return Rate{Count: share * float64(l.Count), Cap: cap, Period: l.Period.Microseconds(), Interval: l.Interval}
}

// seconds returns how long the rate takes to fill its bucket.
func (r Rate) seconds() float64 { return r.Cap * float64(r.Period) / (r.Count * 1e6) }

// Refill credits what time has brought since l.At, up to ceiling. Time that runs
// backwards brings nothing and is not remembered.
func (l *Level) Refill(r Rate, now int64, ceiling float64) {
	if now <= l.At {
		return
	}
	add := float64(now-l.At) * r.Count / float64(r.Period)
	at := now
	if r.Interval {
		ticks := (now - l.At) / r.Period
		add = float64(ticks) * r.Count
		if l.Permits < r.Cap {
			at = l.At + ticks*r.Period
		}
	}
	l.At = at
	if l.Permits < ceiling {
		l.Permits = min(ceiling, l.Permits+add)
	}
}

// Wait returns the microseconds from now until l, refilled at r, reaches want
// permits: 0 when it has them.
func (l *Level) Wait(r Rate, now int64, want float64) int64 {
	short := want - l.Permits
	if short <= slack {
		return 0
	}
	wait := short * float64(r.Period) / r.Count
	if r.Interval {
		wait = math.Ceil((short-slack)/r.Count) * float64(r.Period)
	}
	return max(0, int64(math.Ceil(min(wait, 1e17)))-(now-l.At))
}

// Levels is one Level for each limit of a Rule.
type Levels [MaxLimits]Level

// Fill makes every level full at now.
func (ls *Levels) Fill(r *Rule, now int64) {
	for i := range r.N {
		ls[i] = Level{Permits: float64(r.Limits[i].Burst), At: now, Burst: r.Limits[i].Burst}
	}
}

// Refill credits what time has brought to each level at this share of its rate.
func (ls *Levels) Refill(r *Rule, share float64, now int64) {
	for i := range r.N {
		rate := r.Limits[i].Rate(share)
		ls[i].Refill(rate, now, rate.Cap)
	}
}

// Add moves every level by permits, which may be negative.
func (ls *Levels) Add(r *Rule, permits float64) {
	for i := range r.N {
		ls[i].Permits += permits
	}
}

// Cover reports whether every level has cost permits.
func (ls *Levels) Cover(r *Rule, cost int64) bool {
	for i := range r.N {
		if ls[i].Permits+slack < float64(cost) {
			return false
		}
	}
	return true
}

// Whole returns how many permits every level has, debt counting as none.
func (ls *Levels) Whole(r *Rule) int64 { return int64(max(0, ls[ls.Least(r)].Permits+slack)) }

// Least returns the index of the level with the fewest permits.
func (ls *Levels) Least(r *Rule) int {
	least := 0
	for i := 1; i < r.N; i++ {
		if ls[i].Permits < ls[least].Permits {
			least = i
		}
	}
	return least
}

// Wait returns the microseconds until every level has want permits, refilled at
// this share of its rate, as if it had room for them.
func (ls *Levels) Wait(r *Rule, share float64, now int64, want float64) int64 {
	var wait int64
	for i := range r.N {
		wait = max(wait, ls[i].Wait(r.Limits[i].Rate(share), now, want))
	}
	return wait
}

// Full returns the microseconds until every level is at the capacity of its share.
func (ls *Levels) Full(r *Rule, share float64, now int64) int64 {
	var wait int64
	for i := range r.N {
		rate := r.Limits[i].Rate(share)
		wait = max(wait, ls[i].Wait(rate, now, rate.Cap))
	}
	return wait
}

// Reshape carries levels over to a rule that may have changed since they were
// last used, so that a change is never a free refill: a level keeps its place in
// the list and is cut to its new burst less what is outstanding; debt stays. When
// the number of limits changed, each starts with the most permits used of any.
func (ls *Levels) Reshape(r *Rule, had int, outstanding int64) {
	if had != r.N {
		used := 0.0
		for _, l := range ls[:had] {
			used = max(used, float64(l.Burst)-l.Permits)
		}
		at := ls[0].At
		for i := range r.N {
			ls[i] = Level{Permits: float64(r.Limits[i].Burst) - used, At: at}
		}
	}
	for i := range r.N {
		ls[i].Burst = r.Limits[i].Burst
		ls[i].Permits = min(ls[i].Permits, float64(ls[i].Burst-outstanding))
	}
}
