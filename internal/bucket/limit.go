// Package bucket holds the algorithms as pure functions: a state, a time and an
// ask give a new state and a grant. No clock, no lock, no I/O.
package bucket

import (
	"fmt"
	"slices"
	"time"
)

// The ranges every limit keeps, whoever wrote it. Levels are float64: up to
// MaxCount permits they are exact to a millionth of a permit.
const (
	MaxCount  = 1_000_000_000
	MinPeriod = time.Millisecond
	MaxPeriod = 366 * 24 * time.Hour
	MaxLimits = 4
	MaxLogged = 10_000 // Count of a SlidingLog: each permit used is remembered
	MinParts  = 2
	MaxParts  = 60
)

// Algorithm is how permits come back.
type Algorithm int

const (
	TokenBucket   Algorithm = iota // evenly, Count per Period, up to Burst
	LeakyBucket                    // as TokenBucket; calls that wait leave evenly
	FixedWindow                    // all at the end of each Period
	SlidingWindow                  // a Period after their use, by parts of the Period
	SlidingLog                     // a Period after their use, each
	Concurrency                    // when their holder gives them up, or after Period
)

var algorithms = []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "concurrency"}

// Algorithms returns the names of all algorithms, in the order of their numbers.
func Algorithms() []string { return slices.Clone(algorithms) }

// String returns the name that policies and callers use.
func (a Algorithm) String() string { return algorithms[a] }

// ParseAlgorithm returns the algorithm of a name.
func ParseAlgorithm(name string) (a Algorithm, ok bool) {
	i := slices.Index(algorithms, name)
	return Algorithm(max(0, i)), i >= 0
}

// Bursts reports whether a limit of this algorithm has a burst apart from its count.
func (a Algorithm) Bursts() bool { return a == TokenBucket || a == LeakyBucket }

// logs reports whether uses are remembered one by one, or by parts of the period.
func (a Algorithm) logs() bool { return a == SlidingWindow || a == SlidingLog }

// Limit is Count permits per Period. Of a Concurrency limit Count may be held at
// once, each for Period at most.
type Limit struct {
	Count  int64         // permits, 1..MaxCount
	Period time.Duration // MinPeriod..MaxPeriod, whole microseconds
	Burst  int64         // capacity in permits, 1..MaxCount; Count unless the algorithm Bursts
}

// Rule is what one bucket enforces: limits that must all have room for a call.
// Only the first N entries of Limits count. Rules are compared with ==.
type Rule struct {
	Algorithm Algorithm
	Interval  bool  // TokenBucket: Count permits come at once at the end of each Period, counted from the first use
	FirstUse  bool  // FixedWindow: a window begins with its first use, not with the clock
	Parts     uint8 // SlidingWindow: how many make a Period, MinParts..MaxParts
	Borrow    int64 // TokenBucket: how far below zero a call may take the bucket, 0..MaxCount
	N         int
	Limits    [MaxLimits]Limit
}

// DefaultParts is the Parts of a SlidingWindow that names none.
const DefaultParts = 10

// NewRule returns the token bucket of one to MaxLimits limits, in the order given.
// It fails when a limit is out of range.
func NewRule(limits ...Limit) (Rule, error) { return Rule{}.With(limits...) }

// With returns r with these limits, one to MaxLimits, in the order given. It fails
// when something is out of range, or does not fit the algorithm.
func (r Rule) With(limits ...Limit) (Rule, error) {
	if len(limits) < 1 || len(limits) > MaxLimits {
		return Rule{}, fmt.Errorf("%d limits: allowed are 1 to %d", len(limits), MaxLimits)
	}
	if r.Algorithm == SlidingWindow && r.Parts == 0 {
		r.Parts = DefaultParts
	}
	r.N = copy(r.Limits[:], limits)
	if err := r.check(); err != nil {
		return Rule{}, err
	}
	return r, nil
}

func (r *Rule) check() error {
	for _, l := range r.Limits[:r.N] {
		if err := l.check(r.Algorithm); err != nil {
			return err
		}
	}
	sliding := r.Algorithm == SlidingWindow
	switch {
	case r.Algorithm == Concurrency && r.N > 1:
		return fmt.Errorf("%d limits: a concurrency limit stands alone", r.N)
	case r.Borrow < 0 || r.Borrow > MaxCount:
		return fmt.Errorf("borrow %d: allowed are 0 to %d", r.Borrow, MaxCount)
	case sliding && (r.Parts < MinParts || r.Parts > MaxParts):
		return fmt.Errorf("buckets %d: allowed are %d to %d", r.Parts, MinParts, MaxParts)
	case !sliding && r.Parts != 0, r.Algorithm != TokenBucket && (r.Interval || r.Borrow != 0), r.Algorithm != FixedWindow && r.FirstUse:
		return fmt.Errorf("a setting of another algorithm on a %s", r.Algorithm)
	}
	return nil
}

func (l Limit) check(a Algorithm) error {
	switch {
	case l.Count < 1 || l.Count > MaxCount:
		return fmt.Errorf("count %d: allowed are 1 to %d", l.Count, MaxCount)
	case a == SlidingLog && l.Count > MaxLogged:
		return fmt.Errorf("count %d: a sliding_log allows 1 to %d; a sliding_window has no such bound", l.Count, MaxLogged)
	case l.Burst < 1 || l.Burst > MaxCount:
		return fmt.Errorf("burst %d: allowed are 1 to %d", l.Burst, MaxCount)
	case !a.Bursts() && l.Burst != l.Count:
		return fmt.Errorf("burst %d: a %s has none", l.Burst, a)
	case l.Period < MinPeriod || l.Period > MaxPeriod:
		return fmt.Errorf("period %v: allowed are %v to %v", l.Period, MinPeriod, MaxPeriod)
	}
	return nil
}

// Kin reports whether buckets of r and o are the same, under another rule: token and
// leaky buckets are, whatever the algorithm is called.
func (r *Rule) Kin(o *Rule) bool {
	return r.Algorithm == o.Algorithm || r.Algorithm.Bursts() && o.Algorithm.Bursts()
}

// Capacity returns how many permits a bucket holds that nobody has used.
func (r *Rule) Capacity() int64 {
	c := r.Limits[0].Burst
	for _, l := range r.Limits[1:r.N] {
		c = min(c, l.Burst)
	}
	return c
}

// MaxCost returns the largest cost the rule can ever allow.
func (r *Rule) MaxCost() int64 { return r.Capacity() + r.Borrow }

// Part returns the width of a sliding window's parts for a period, both in µs.
func (r *Rule) part(period int64) int64 {
	if r.Algorithm == SlidingLog {
		return 0
	}
	return (period + int64(r.Parts) - 1) / int64(r.Parts)
}
