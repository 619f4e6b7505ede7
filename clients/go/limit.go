// What a call is measured against, in Go's own types.

package rlsidecar

import (
	"fmt"
	"slices"
	"time"

	"rlsidecar/protocol"
)

// Algorithm is how the permits of a limit come back.
type Algorithm string

const (
	TokenBucket   Algorithm = "token_bucket"   // evenly, up to the burst; what a limit is unless it says otherwise
	LeakyBucket   Algorithm = "leaky_bucket"   // as TokenBucket, and calls that wait are let go at an even pace
	FixedWindow   Algorithm = "fixed_window"   // all at once, when the period ends
	SlidingWindow Algorithm = "sliding_window" // a period after their use, to a tenth of the period
	SlidingLog    Algorithm = "sliding_log"    // a period after their use, each; for counts up to 10,000
	concurrency   Algorithm = "concurrency"    // when they are released; see Concurrency
)

var algorithms = []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog, concurrency}

// maxLogged is the largest count of a SlidingLog, which remembers each permit.
const maxLogged = 10_000

// Limit is what a call is measured against: a policy of the agent, or a limit
// that the caller brings along, which the operator may have switched off. A limit
// that cannot be is refused by the call that uses it, before anything is sent.
type Limit struct {
	policy    string
	inline    bool
	count     int64
	period    time.Duration
	burst     int64 // 0: the count
	algorithm Algorithm
}

// Policy is the limit that the agent knows by this name.
func Policy(name string) Limit { return Limit{policy: name} }

// Per is a limit of count permits per period: 1 to 10^9, and whole milliseconds
// up to 366 days.
func Per(count int64, period time.Duration) Limit {
	return Limit{inline: true, count: count, period: period}
}

// PerSecond, PerMinute and PerHour are Per for the usual periods.
func PerSecond(count int64) Limit { return Per(count, time.Second) }
func PerMinute(count int64) Limit { return Per(count, time.Minute) }
func PerHour(count int64) Limit   { return Per(count, time.Hour) }

// Concurrency is a limit of count permits held at the same time. One that was not
// released after maxHold, whole milliseconds up to 366 days, is taken back.
func Concurrency(count int64, maxHold time.Duration) Limit {
	return Per(count, maxHold).Algorithm(concurrency)
}

// Burst returns the limit with another capacity than its count, up to 10^9; 0
// stands for the count. Only a TokenBucket and a LeakyBucket have one. It has no
// meaning for a Policy.
func (l Limit) Burst(n int64) Limit {
	l.burst = n
	return l
}

// Algorithm returns the limit with another algorithm than TokenBucket. It has no
// meaning for a Policy.
func (l Limit) Algorithm(a Algorithm) Limit {
	l.algorithm = a
	return l
}

// String is the name of the policy, or what ParseLimit reads, such as "10/60000ms".
func (l Limit) String() string {
	if !l.inline {
		return l.policy
	}
	return fmt.Sprintf("%d/%dms", l.count, l.period.Milliseconds())
}

// Window is the period of a limit that the caller brings along; 0 for a policy, whose
// period the agent knows.
func (l Limit) Window() time.Duration { return l.period }

// capacity is the most that can be taken at once, 0 when only the agent knows.
func (l Limit) capacity() int64 {
	if l.burst != 0 {
		return l.burst
	}
	return l.count
}

// call is the limit as it is sent, with a key and a cost of least and more.
func (l Limit) call(key string, cost, least int64) (protocol.Call, error) {
	c := protocol.Call{Key: []byte(key), Cost: cost}
	switch {
	case len(key) < 1 || len(key) > protocol.MaxKey:
		return c, invalidf("key of %d bytes: allowed are 1 to %d", len(key), protocol.MaxKey)
	case cost < least || cost > protocol.MaxCost:
		return c, invalidf("cost %d: allowed are %d to %d", cost, least, protocol.MaxCost)
	}
	if !l.inline {
		if len(l.policy) < 1 || len(l.policy) > protocol.MaxPolicy {
			return c, invalidf("policy of %d bytes: allowed are 1 to %d", len(l.policy), protocol.MaxPolicy)
		}
		c.Policy = []byte(l.policy)
		return c, nil
	}
	if err := l.check(); err != nil {
		return c, err
	}
	c.Inline = protocol.Inline{Count: l.count, PeriodMS: l.period.Milliseconds(), Burst: l.burst}
	if l.algorithm != "" {
		c.Inline.Algorithm = []byte(l.algorithm)
	}
	return c, nil
}

// check refuses a limit that every agent would refuse, in the caller's own words.
func (l Limit) check() error {
	period := "period"
	if l.algorithm == concurrency {
		period = "maxHold"
	}
	switch {
	case l.count < 1 || l.count > protocol.MaxCount:
		return invalidf("count %d: allowed are 1 to %d", l.count, protocol.MaxCount)
	case l.period%time.Millisecond != 0:
		return invalidf("%s %v: allowed are whole milliseconds", period, l.period)
	case l.period <= 0 || l.period.Milliseconds() > protocol.MaxPeriodMS:
		return invalidf("%s %v: allowed are 1ms to %v", period, l.period, protocol.MaxPeriodMS*time.Millisecond)
	case l.burst < 0 || l.burst > protocol.MaxCount:
		return invalidf("burst %d: allowed are 0 to %d", l.burst, protocol.MaxCount)
	}
	return l.checkAlgorithm()
}

func (l Limit) checkAlgorithm() error {
	switch l.algorithm {
	case "", TokenBucket, LeakyBucket:
		return nil
	case SlidingLog:
		if l.count > maxLogged {
			return invalidf("count %d: a sliding_log allows 1 to %d; a sliding_window has no such bound", l.count, maxLogged)
		}
	}
	if !slices.Contains(algorithms, l.algorithm) {
		return invalidf("algorithm %q: there are %q", l.algorithm, algorithms)
	}
	if l.burst != 0 {
		return invalidf("burst %d: a %s has none, leave it out", l.burst, l.algorithm)
	}
	return nil
}
