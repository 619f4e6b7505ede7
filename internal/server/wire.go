// This file translates between the limiter's values and the wire's.

package server

import (
	"fmt"
	"strings"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/limiter"
	"rlsidecar/internal/policy"
	"rlsidecar/protocol"
)

var tooMany = &protocol.Error{
	Code:    protocol.Overloaded,
	Message: fmt.Sprintf("%d calls are in flight on this connection: wait for replies", protocol.MaxInFlight),
}

var codes = [...]protocol.Code{
	limiter.UnknownPolicy:   protocol.UnknownPolicy,
	limiter.InvalidArgument: protocol.InvalidArgument,
	limiter.Unavailable:     protocol.Unavailable,
	limiter.Overloaded:      protocol.Overloaded,
	limiter.ShuttingDown:    protocol.ShuttingDown,
	limiter.NotPermitted:    protocol.NotPermitted,
}

func wireError(err *limiter.Error) *protocol.Error {
	code := protocol.Internal
	if int(err.Kind) < len(codes) && codes[err.Kind] != 0 {
		code = codes[err.Kind]
	}
	return &protocol.Error{Code: code, Message: err.Message}
}

func wireDecision(d *limiter.Decision) protocol.Decision {
	w := protocol.Decision{
		Allowed:      d.Allowed,
		Limit:        d.Limit,
		Remaining:    d.Remaining,
		ResetAfterMS: millis(max(d.ResetAfter, 0)),
		RetryAfterMS: millis(d.RetryAfter),
		Source:       uint8(d.Source),
		Permit:       d.Permit,
	}
	if d.Shadow {
		w.Flags = protocol.FlagShadow
	}
	return w
}

func (s *session) appendWire(dst []protocol.Decision, ds []limiter.Decision) []protocol.Decision {
	for i := range ds {
		s.unread.add(ds[i].Permit)
		dst = append(dst, wireDecision(&ds[i]))
	}
	return dst
}

// millis rounds up, so that nobody comes back too early; limiter.Never is -1.
func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond != 0 {
		ms++
	}
	return ms
}

// toCall relies on the ranges that protocol has checked.
func toCall(c *limiter.Call, p *protocol.Call, o *protocol.Options) *protocol.Error {
	c.Policy, c.Key, c.Cost = p.Policy, p.Key, p.Cost
	c.Wait = time.Duration(o.WaitMS) * time.Millisecond
	c.App, c.Inline = o.App, policy.Inline{}
	if p.Policy != nil {
		return nil
	}
	c.Inline.Limit = bucket.Limit{
		Count:  p.Inline.Count,
		Period: time.Duration(p.Inline.PeriodMS) * time.Millisecond,
		Burst:  p.Inline.Burst,
	}
	if c.Inline.Limit.Burst == 0 {
		c.Inline.Limit.Burst = p.Inline.Count
	}
	if name := p.Inline.Algorithm; name != nil {
		var known bool
		if c.Inline.Algorithm, known = bucket.ParseAlgorithm(string(name)); !known {
			return unknownAlgorithm(name)
		}
	}
	return nil
}

func unknownAlgorithm(name []byte) *protocol.Error {
	return &protocol.Error{
		Code:    protocol.InvalidArgument,
		Message: fmt.Sprintf("algorithm %.64q of an inline limit: allowed are %s", name, strings.Join(bucket.Algorithms(), ", ")),
	}
}
