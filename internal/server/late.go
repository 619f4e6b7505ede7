// This file receives the answers of calls that were pending, from whichever
// goroutine has them. A replier's type is the form of the reply.

package server

import (
	"rlsidecar/internal/limiter"
	"rlsidecar/protocol"
)

type (
	lateReset    session // a call of reset: true
	lateThrottle session // a call of throttle
	lateLook     session // a call of throttle that consumes nothing
)

// late queues the reply to a call that was in flight: err, or what result appends.
func (s *session) late(ref uint32, err *limiter.Error, result func(dst []byte) []byte) {
	if buf, ok := s.out.openLate(); ok {
		if err != nil {
			e := wireError(err)
			buf = protocol.AppendError(buf, ref, e.Code, e.Message)
		} else {
			buf = result(buf)
		}
		s.out.closeLate(buf)
	}
	s.finished.Add(1)
}

// Gone implements limiter.Replier and limiter.AllReplier.
func (s *session) Gone() bool { return s.out.gone.Load() }

// Decided implements limiter.Replier for acquire and peek.
func (s *session) Decided(ref uint32, d limiter.Decision, err *limiter.Error) {
	s.unread.add(d.Permit)
	s.late(ref, err, func(dst []byte) []byte {
		w := wireDecision(&d)
		return protocol.AppendDecision(dst, ref, &w)
	})
}

// AllDecided implements limiter.AllReplier.
func (s *session) AllDecided(ref uint32, allowed bool, ds []limiter.Decision, err *limiter.Error) {
	s.late(ref, err, func(dst []byte) []byte {
		return protocol.AppendAll(dst, ref, allowed, s.appendWire(nil, ds))
	})
}

// Gone implements limiter.Replier.
func (s *lateReset) Gone() bool { return (*session)(s).Gone() }

// Decided implements limiter.Replier.
func (s *lateReset) Decided(ref uint32, _ limiter.Decision, err *limiter.Error) {
	(*session)(s).late(ref, err, func(dst []byte) []byte { return protocol.AppendTrue(dst, ref) })
}

// Gone implements limiter.Replier.
func (s *lateThrottle) Gone() bool { return (*session)(s).Gone() }

// Decided implements limiter.Replier.
func (s *lateThrottle) Decided(ref uint32, d limiter.Decision, err *limiter.Error) {
	(*session)(s).late(ref, err, func(dst []byte) []byte {
		return protocol.AppendThrottle(dst, ref, cellReply(&d))
	})
}

// Gone implements limiter.Replier.
func (s *lateLook) Gone() bool { return (*session)(s).Gone() }

// Decided implements limiter.Replier.
func (s *lateLook) Decided(ref uint32, d limiter.Decision, err *limiter.Error) {
	d.Allowed = true
	(*lateThrottle)(s).Decided(ref, d, err)
}
