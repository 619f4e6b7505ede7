// Package bucket holds the algorithms as pure functions: a state, a time and an
// ask give a new state and a grant. No clock, no lock, no I/O.
package bucket

import (
	"fmt"
	"time"
)

// The ranges every limit keeps, whoever wrote it. Levels are float64: up to
// MaxCount permits they are exact to a millionth of a permit.
const (
	MaxCount  = 1_000_000_000
	MinPeriod = time.Millisecond
	MaxPeriod = 366 * 24 * time.Hour
	MaxLimits = 4
)

// Limit is one token bucket: Count permits are refilled per Period, and at most
// Burst wait in the bucket. With Interval, Count permits arrive at once at the
// end of each Period, counted from the first use, instead of evenly.
type Limit struct {
	Count    int64         // permits per Period, 1..MaxCount
	Period   time.Duration // MinPeriod..MaxPeriod, whole microseconds
	Burst    int64         // capacity in permits, 1..MaxCount
	Interval bool
}

// Rule is what one bucket enforces: limits that must all have room for a call.
// Only the first N entries of Limits count. Rules are compared with ==.
type Rule struct {
	N      int
	Limits [MaxLimits]Limit
}

// NewRule returns the rule of one to MaxLimits limits, in the order given.
// It fails when a limit is out of range.
func NewRule(limits ...Limit) (Rule, error) {
	var r Rule
	if len(limits) < 1 || len(limits) > MaxLimits {
		return r, fmt.Errorf("%d limits: allowed are 1 to %d", len(limits), MaxLimits)
	}
	for _, l := range limits {
		if err := l.check(); err != nil {
			return Rule{}, err
		}
	}
	r.N = copy(r.Limits[:], limits)
	return r, nil
}

func (l Limit) check() error {
	switch {
	case l.Count < 1 || l.Count > MaxCount:
		return fmt.Errorf("count %d: allowed are 1 to %d", l.Count, MaxCount)
	case l.Burst < 1 || l.Burst > MaxCount:
		return fmt.Errorf("burst %d: allowed are 1 to %d", l.Burst, MaxCount)
	case l.Period < MinPeriod || l.Period > MaxPeriod:
		return fmt.Errorf("period %v: allowed are %v to %v", l.Period, MinPeriod, MaxPeriod)
	}
	return nil
}

// Capacity returns the largest cost the rule can ever allow, in permits.
func (r *Rule) Capacity() int64 {
	c := r.Limits[0].Burst
	for _, l := range r.Limits[1:r.N] {
		c = min(c, l.Burst)
	}
	return c
}
