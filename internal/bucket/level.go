// Level is the algorithms whose state is one number that rises with time:
// TokenBucket, LeakyBucket and FixedWindow.

package bucket

import "math"

// slack is how far a level may fall short of a cost and still cover it: it
// absorbs rounding, and is far below one permit.
const slack = 1e-6

// Level is the state of one Limit. Times are microseconds on the caller's clock.
type Level struct {
	Permits float64 // may be below zero: debt
	At      int64   // refill is credited up to here; of what comes at once, the last time it came
	Burst   int64   // capacity when it was last used
}

// Rate is how a Level is refilled: Count permits per Period microseconds up to
// Cap, evenly or all at once.
type Rate struct {
	Count, Cap float64
	Period     int64
	refill     Refill
}

// Refill is how a level rises.
type Refill uint8

const (
	evenly   Refill = iota
	atOnce          // Count after each Period since the first use
	windowed        // up to Cap at each multiple of Period
	restarts        // up to Cap a Period after the first use
)

// Rate returns the rate of limit i scaled by share: 1 is all of it. The capacity
// of a share never falls below one permit.
func (r *Rule) Rate(i int, share float64) Rate {
	l := &r.Limits[i]
	cap := float64(l.Burst)
	if share < 1 {
		cap = max(1, share*cap)
	}
	rate := Rate{Count: share * float64(l.Count), Cap: cap, Period: l.Period.Microseconds(), refill: r.Refill()}
	if r.Algorithm == FixedWindow {
		rate.Count = cap
	}
	return rate
}

// Refill returns how the levels of r rise.
func (r *Rule) Refill() Refill {
	switch {
	case r.Algorithm == FixedWindow && r.FirstUse:
		return restarts
	case r.Algorithm == FixedWindow:
		return windowed
	case r.Interval:
		return atOnce
	}
	return evenly
}

// full returns a level that nobody has used at now.
func (r Rate) full(now int64) Level {
	if r.refill == windowed {
		now -= now % r.Period
	}
	return Level{Permits: r.Cap, At: now}
}

// Refill credits what time has brought since l.At, up to ceiling, and reports
// whether a window ended. Time that runs backwards brings nothing and is not
// remembered.
func (l *Level) Refill(r Rate, now int64, ceiling float64) (ended bool) {
	if now <= l.At {
		return false
	}
	switch r.refill {
	case windowed:
		start := now - now%r.Period
		if ended = start > l.At; ended {
			l.Permits, l.At = r.Cap, start
		}
		return ended
	case restarts:
		if ended = now-l.At >= r.Period; ended {
			l.Permits = r.Cap
		}
		if l.Permits >= r.Cap {
			l.At = now
		}
		return ended
	}
	add := float64(now-l.At) * r.Count / float64(r.Period)
	at := now
	if r.refill == atOnce {
		ticks := (now - l.At) / r.Period
		add = float64(ticks) * r.Count
		if min(ceiling, l.Permits+add) < r.Cap {
			at = l.At + ticks*r.Period
		}
	}
	l.At = at
	if l.Permits < ceiling {
		l.Permits = min(ceiling, l.Permits+add)
	}
	return false
}

// Wait returns the microseconds from now until l, refilled at r, reaches want
// permits, as if it had room for them: 0 when it has them.
func (l *Level) Wait(r Rate, now int64, want float64) int64 {
	short := want - l.Permits
	if short <= slack {
		return 0
	}
	wait := short * float64(r.Period) / r.Count
	if r.refill != evenly {
		wait = math.Ceil((short-slack)/r.Count) * float64(r.Period)
	}
	return max(0, int64(math.Ceil(min(wait, 1e17)))-(now-l.At))
}

// Levels is one Level for each limit of a Rule.
type Levels [MaxLimits]Level

func (ls *Levels) fill(r *Rule, share float64, now int64) {
	for i := range r.N {
		ls[i] = r.Rate(i, share).full(now)
		ls[i].Burst = r.Limits[i].Burst
	}
}

func (ls *Levels) refill(r *Rule, share float64, now, out int64) (ended bool) {
	for i := range r.N {
		rate := r.Rate(i, share)
		if ls[i].Refill(rate, now, rate.Cap-float64(out)) {
			ended = true
		}
	}
	return ended
}

func (ls *Levels) add(r *Rule, permits float64) {
	for i := range r.N {
		ls[i].Permits += permits
	}
}

// pay takes permits off every level down to zero; debt stays as it is.
func (ls *Levels) pay(r *Rule, permits float64) {
	for i := range r.N {
		l := &ls[i]
		l.Permits = max(min(l.Permits, 0), l.Permits-permits)
	}
}

func (ls *Levels) refund(r *Rule, share, permits float64, out int64) {
	for i := range r.N {
		l := &ls[i]
		l.Permits = max(l.Permits, min(l.Permits+permits, r.Rate(i, share).Cap-float64(out)))
	}
}

func (ls *Levels) least(r *Rule) float64 {
	least := ls[0].Permits
	for i := 1; i < r.N; i++ {
		least = min(least, ls[i].Permits)
	}
	return least
}

func (ls *Levels) wait(r *Rule, share float64, now int64, want float64) int64 {
	var wait int64
	for i := range r.N {
		wait = max(wait, ls[i].Wait(r.Rate(i, share), now, want))
	}
	return wait
}

// full returns the microseconds until every level is at the capacity of its share,
// less what is out.
func (ls *Levels) full(r *Rule, share float64, now, out int64) int64 {
	var wait int64
	for i := range r.N {
		rate := r.Rate(i, share)
		wait = max(wait, ls[i].Wait(rate, now, rate.Cap-float64(out)))
	}
	return wait
}

// life returns the microseconds until the first window ends; without windows it
// is LeaseLife.
func (ls *Levels) life(r *Rule, now int64) int64 {
	life := int64(LeaseLife)
	if r.Algorithm == FixedWindow {
		for i := range r.N {
			life = min(life, ls[i].At+r.Limits[i].Period.Microseconds()-now)
		}
	}
	return life
}

// reshape carries levels over to a rule that may have changed since they were
// last used, so that a change is never a free refill: a level keeps its place in
// the list and is cut to its new burst less what is out; debt stays. When the
// number of limits changed, each starts with the most permits used of any.
func (ls *Levels) reshape(r *Rule, had int, out int64) {
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
		ls[i].Permits = min(ls[i].Permits, float64(ls[i].Burst-out))
	}
}
