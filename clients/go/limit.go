// What is asked and what is answered, in Go's own types.

package rlsidecar

import (
	"fmt"
	"math"
	"time"

	"rlsidecar/protocol"
)

// Limit is what a call is measured against: a policy of the agent, or a limit
// that the caller brings along, which the operator may have switched off.
type Limit struct {
	policy    string
	inline    bool
	count     int64
	period    time.Duration
	burst     int64
	algorithm string
}

// Policy is the limit that the agent knows by this name.
func Policy(name string) Limit { return Limit{policy: name} }

// Per is a limit of count permits per period, which is in whole milliseconds.
func Per(count int64, period time.Duration) Limit {
	return Limit{inline: true, count: count, period: period}
}

// PerSecond, PerMinute and PerHour are Per for the usual periods.
func PerSecond(count int64) Limit { return Per(count, time.Second) }
func PerMinute(count int64) Limit { return Per(count, time.Minute) }
func PerHour(count int64) Limit   { return Per(count, time.Hour) }

// Burst returns the limit with another capacity than its count. It has no
// meaning for a Policy.
func (l Limit) Burst(n int64) Limit {
	l.burst = n
	return l
}

// Algorithm returns the limit with another algorithm than token_bucket. It has no
// meaning for a Policy.
func (l Limit) Algorithm(name string) Limit {
	l.algorithm = name
	return l
}

func (l Limit) call(key string, cost int64) (protocol.Call, error) {
	c := protocol.Call{Key: []byte(key), Cost: cost}
	if !l.inline {
		c.Policy = []byte(l.policy)
		return c, nil
	}
	if l.period%time.Millisecond != 0 {
		return c, invalidf("period %v: allowed are whole milliseconds", l.period)
	}
	c.Inline = protocol.Inline{Count: l.count, PeriodMS: l.period.Milliseconds(), Burst: l.burst}
	if l.algorithm != "" {
		c.Inline.Algorithm = []byte(l.algorithm)
	}
	return c, nil
}

// Never is the RetryAfter of a call that can never be allowed, because its cost
// is above the capacity.
const Never time.Duration = -1

// Source says where a decision came from. There may be others than those below.
type Source uint8

const (
	FromLease      Source = iota // permits that the agent holds
	FromRedis                    // asked for this call
	FromDenial                   // a denial that the agent remembers
	FromStandalone               // an agent without Redis
	FromFallback                 // Redis is out of reach: this host's share
	FromList                     // exempt or blocked
)

// Decision is the answer to one call.
type Decision struct {
	Allowed    bool
	Limit      int64         // capacity in permits
	Remaining  int64         // 0..Limit, as far as this host knows
	ResetAfter time.Duration // until the bucket is full again
	RetryAfter time.Duration // until this call could be allowed; 0 when it was, or Never
	Source     Source
	Degraded   bool // decided without Redis, because it is out of reach
	Shadow     bool // the policy only observes, and would have denied
}

func decision(d *protocol.Decision) Decision {
	return Decision{
		Allowed:    d.Allowed,
		Limit:      d.Limit,
		Remaining:  d.Remaining,
		ResetAfter: duration(d.ResetAfterMS, time.Millisecond),
		RetryAfter: duration(d.RetryAfterMS, time.Millisecond),
		Source:     Source(d.Source),
		Degraded:   Source(d.Source) == FromFallback,
		Shadow:     d.Flags&protocol.FlagShadow != 0,
	}
}

func decisions(wire []protocol.Decision) []Decision {
	ds := make([]Decision, len(wire))
	for i := range wire {
		ds[i] = decision(&wire[i])
	}
	return ds
}

// duration is n units, the longest there is when that is too many, and Never when
// n is negative.
func duration(n int64, unit time.Duration) time.Duration {
	if n < 0 {
		return Never
	}
	if n > math.MaxInt64/int64(unit) {
		return math.MaxInt64
	}
	return time.Duration(n) * unit
}

func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// String returns the source's name, as metrics and logs have it.
func (s Source) String() string {
	names := [...]string{"lease", "redis", "denial", "standalone", "fallback", "list"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("source %d", s)
}
