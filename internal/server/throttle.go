// This file is the method throttle: the limiter spoken to in the words of
// redis-cell's CL.THROTTLE.

package server

import (
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/limiter"
	"rlsidecar/internal/policy"
	"rlsidecar/protocol"
)

// throttle asks for quantity permits of an inline limit; a quantity of 0 only
// looks, and is never limited.
func (s *session) throttle(now time.Duration, r *protocol.Request) *protocol.Error {
	if err := s.checkRoom(); err != nil {
		return err
	}
	if err := r.Throttle(&s.cell); err != nil {
		return err
	}
	s.call = cellCall(&s.cell)
	s.call.Caller = s.caller
	if s.call.Cost == 0 {
		d, pending, err := s.d.Peek(now, &s.call, (*lateLook)(s), s.id)
		d.Allowed = true
		return s.throttled(&d, pending, err)
	}
	d, pending, err := s.d.Acquire(now, &s.call, (*lateThrottle)(s), s.id)
	return s.throttled(&d, pending, err)
}

func (s *session) throttled(d *limiter.Decision, pending bool, err *limiter.Error) *protocol.Error {
	if pending {
		s.started.Add(1)
		return nil
	}
	if err != nil {
		return wireError(err)
	}
	s.reply = protocol.AppendThrottle(s.reply, s.id, cellReply(d))
	s.made++
	return nil
}

// cellCall relies on the ranges that protocol has checked.
func cellCall(t *protocol.ThrottleCall) limiter.Call {
	return limiter.Call{
		Inline: policy.Inline{Limit: bucket.Limit{
			Count:  t.Count,
			Period: time.Duration(t.PeriodS) * time.Second,
			Burst:  t.MaxBurst + 1,
		}},
		Key:  t.Key,
		Cost: t.Quantity,
	}
}

// cellReply is [limited, limit, remaining, retry_after_s, reset_after_s].
// Seconds are rounded up, a begun millisecond not counting: as redis-cell has it
// since 0.3.1.
func cellReply(d *limiter.Decision) [5]int64 {
	r := [5]int64{0, d.Limit, d.Remaining, -1, cellSeconds(d.ResetAfter)}
	if d.Allowed {
		return r
	}
	r[0] = 1
	if d.RetryAfter != limiter.Never {
		r[3] = cellSeconds(d.RetryAfter)
	}
	return r
}

func cellSeconds(d time.Duration) int64 {
	return int64((d.Truncate(time.Millisecond) + time.Second - time.Millisecond) / time.Second)
}
