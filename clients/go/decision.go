// What is answered, in Go's own types.

package rlsidecar

import (
	"fmt"
	"math"
	"time"

	"rlsidecar/protocol"
)

// Never is the RetryAfter of a call that can never be allowed, because its cost
// is above the capacity.
const Never time.Duration = -1

// Source says where a decision came from. There may be others than those below.
type Source int

const (
	FromLease      Source = iota // permits that the agent holds
	FromRedis                    // asked for this call
	FromDenial                   // a denial that the agent remembers
	FromStandalone               // an agent without Redis
	FromFallback                 // Redis is out of reach: this host's share
	FromList                     // exempt or blocked

	FromClient Source = -1 // the agent gave no decision: OnUnavailable did
)

// Decision is the answer to one call.
type Decision struct {
	Allowed    bool
	Limit      int64         // capacity in permits; 0 when nobody said
	Remaining  int64         // 0..Limit, as far as this host knows
	ResetAfter time.Duration // until the bucket is full again
	RetryAfter time.Duration // until this call could be allowed; 0 when it was, or Never
	Source     Source
	Degraded   bool // decided without Redis, because it is out of reach, or without the agent
	Shadow     bool // the policy only observes, and would have denied

	// Permit is what to Release, of a concurrency limit; 0: there is nothing to
	// release. Hold sees to that by itself.
	Permit uint64
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
		Permit:     d.Permit,
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
	if s == FromClient {
		return "client"
	}
	if s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("source %d", int(s))
}
