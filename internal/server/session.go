// This file turns the messages of one connection into calls and their answers
// into replies. It does no I/O: any loop that has bytes can run it.

package server

import (
	"errors"
	"sync/atomic"
	"time"

	"rlsidecar/internal/limiter"
	"rlsidecar/protocol"
)

// enoughReplies is how many bytes of replies are gathered before they are
// written: short requests with long replies stay bounded by it.
const enoughReplies = 64 << 10

// session is the protocol state of one connection. All but the methods of the
// late repliers belongs to the connection's reader; what it decodes into and
// appends to is kept from message to message, so that a call answered at once
// allocates nothing.
type session struct {
	d      Decider
	out    *outbox
	info   func() map[string]any
	caller *limiter.Caller

	scan  protocol.Scanner
	reply []byte // replies not yet written
	made  int    // decisions not yet observed

	// The message being answered: what is left to say if answering it panics.
	id       uint32
	answered bool // nothing to say: no request is being answered

	one     protocol.Call
	many    []protocol.Call
	options protocol.Options
	cell    protocol.ThrottleCall
	call    limiter.Call
	calls   []limiter.Call
	wire    []protocol.Decision
	unread  unread

	// A call is in flight from started to finished. Only the reader counts up
	// started, after the Decider said pending; finished may be ahead of it then.
	started, finished atomic.Uint32
}

// progress is how far answer came.
type progress uint8

const (
	needsMore progress = iota // all whole messages are answered
	hasEnough                 // enough replies to be written first
	isBroken                  // not MessagePack-RPC: the connection is to be closed
)

// answer takes the whole messages at the start of in, one after the other, and
// appends their replies to s.reply. used is how many bytes it took.
func (s *session) answer(now time.Duration, in []byte) (used int, p progress) {
	for len(s.reply) < enoughReplies {
		rest := in[used:]
		n, err := s.scan.Next(rest)
		if err != nil {
			s.refuse(rest, message(err))
			return used, isBroken
		}
		if n == 0 {
			return used, needsMore
		}
		if !s.frame(now, rest[:n]) {
			return used + n, isBroken
		}
		used += n
	}
	return used, hasEnough
}

// message is what an error says, without its code, which travels by itself.
func message(err error) string {
	if e := (*protocol.Error)(nil); errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// refuse answers a message that cannot be read, if it has got as far as its id.
func (s *session) refuse(frame []byte, why string) {
	if id, ok := protocol.MsgID(frame); ok {
		s.reply = protocol.AppendError(s.reply, id, protocol.InvalidRequest, why)
	}
}

// frame answers one message; it returns false when the connection cannot go on.
func (s *session) frame(now time.Duration, frame []byte) bool {
	r, fatal, err := protocol.ParseRequest(frame)
	if fatal {
		s.refuse(frame, err.Message)
		return false
	}
	if r.Notification {
		s.notified(now, &r, err)
		return true
	}
	s.id, s.answered = r.ID, false
	if err == nil {
		err = s.request(now, &r)
	}
	if err != nil {
		s.fail(err)
	}
	s.answered = true
	return true
}

// notified obeys the notifications there are, and ignores all others.
func (s *session) notified(now time.Duration, r *protocol.Request, err *protocol.Error) {
	switch {
	case err != nil:
	case r.Method == protocol.Refund && s.decode(r) == nil:
		s.d.Refund(now, &s.call)
	case r.Method == protocol.Release:
		if permit, err := r.Permit(); err == nil {
			s.d.Release(now, permit)
		}
	}
}

// abandon answers the request that panicked. Replies are appended whole or not
// at all, so there is nothing to take back.
func (s *session) abandon() {
	if s.answered {
		return
	}
	s.answered = true
	s.fail(&protocol.Error{Code: protocol.Internal, Message: "internal error; the agent has logged it"})
}

func (s *session) fail(err *protocol.Error) {
	s.reply = protocol.AppendError(s.reply, s.id, err.Code, err.Message)
}

// forget drops what still points into a read buffer.
func (s *session) forget() {
	s.one, s.options, s.cell, s.call = protocol.Call{}, protocol.Options{}, protocol.ThrottleCall{}, limiter.Call{}
	s.many, s.calls = nil, nil
}

func (s *session) request(now time.Duration, r *protocol.Request) *protocol.Error {
	switch r.Method {
	case protocol.Acquire:
		return s.acquire(now, r)
	case protocol.AcquireAll:
		return s.acquireAll(now, r)
	case protocol.Peek:
		return s.peek(now, r)
	case protocol.Refund:
		return s.refund(now, r)
	case protocol.Reset:
		return s.reset(now, r)
	case protocol.Throttle:
		return s.throttle(now, r)
	case protocol.Release:
		return s.release(now, r)
	case protocol.Info:
		s.reply = protocol.AppendInfo(s.reply, s.id, s.info())
	case protocol.Explain:
		return s.explain(now, r)
	case protocol.Ping:
		s.reply = protocol.AppendPong(s.reply, s.id)
	}
	return nil
}

func (s *session) acquire(now time.Duration, r *protocol.Request) *protocol.Error {
	if err := s.prepare(r); err != nil {
		return err
	}
	d, pending, err := s.d.Acquire(now, &s.call, s, s.id)
	return s.decided(&d, pending, err)
}

func (s *session) peek(now time.Duration, r *protocol.Request) *protocol.Error {
	if err := s.prepare(r); err != nil {
		return err
	}
	d, pending, err := s.d.Peek(now, &s.call, s, s.id)
	return s.decided(&d, pending, err)
}

func (s *session) decided(d *limiter.Decision, pending bool, err *limiter.Error) *protocol.Error {
	if pending {
		s.started.Add(1)
		return nil
	}
	if err != nil {
		return wireError(err)
	}
	s.unread.add(d.Permit)
	w := wireDecision(d)
	s.reply = protocol.AppendDecision(s.reply, s.id, &w)
	s.made++
	return nil
}

func (s *session) acquireAll(now time.Duration, r *protocol.Request) *protocol.Error {
	if err := s.checkRoom(); err != nil {
		return err
	}
	if err := s.decodeAll(r); err != nil {
		return err
	}
	allowed, ds, pending, err := s.d.AcquireAll(now, s.calls, s, s.id)
	if pending {
		s.started.Add(1)
		return nil
	}
	if err != nil {
		return wireError(err)
	}
	s.wire = s.appendWire(s.wire[:0], ds)
	s.reply = protocol.AppendAll(s.reply, s.id, allowed, s.wire)
	s.made++
	return nil
}

func (s *session) refund(now time.Duration, r *protocol.Request) *protocol.Error {
	if err := s.decode(r); err != nil {
		return err
	}
	if err := s.d.Refund(now, &s.call); err != nil {
		return wireError(err)
	}
	s.reply = protocol.AppendTrue(s.reply, s.id)
	return nil
}

func (s *session) explain(now time.Duration, r *protocol.Request) *protocol.Error {
	if err := s.decode(r); err != nil {
		return err
	}
	pairs, err := s.d.Explain(now, &s.call)
	if err != nil {
		return wireError(err)
	}
	s.reply = protocol.AppendInfo(s.reply, s.id, pairs)
	return nil
}

func (s *session) reset(now time.Duration, r *protocol.Request) *protocol.Error {
	if err := s.prepare(r); err != nil {
		return err
	}
	pending, err := s.d.Reset(now, &s.call, (*lateReset)(s), s.id)
	if pending {
		s.started.Add(1)
		return nil
	}
	if err != nil {
		return wireError(err)
	}
	s.reply = protocol.AppendTrue(s.reply, s.id)
	return nil
}

func (s *session) release(now time.Duration, r *protocol.Request) *protocol.Error {
	permit, err := r.Permit()
	if err != nil {
		return err
	}
	s.reply = protocol.AppendBool(s.reply, s.id, s.d.Release(now, permit))
	return nil
}

// prepare decodes a call that may become one in flight.
func (s *session) prepare(r *protocol.Request) *protocol.Error {
	if err := s.checkRoom(); err != nil {
		return err
	}
	return s.decode(r)
}

// checkRoom fails when too many calls are in flight. finished may be one ahead
// of started, which the conversion turns into -1.
func (s *session) checkRoom() *protocol.Error {
	if int32(s.started.Load()-s.finished.Load()) >= protocol.MaxInFlight {
		return tooMany
	}
	return nil
}

func (s *session) decode(r *protocol.Request) *protocol.Error {
	if err := r.Call(&s.one, &s.options); err != nil {
		return err
	}
	s.call.Caller = s.caller
	return toCall(&s.call, &s.one, &s.options)
}

func (s *session) decodeAll(r *protocol.Request) (err *protocol.Error) {
	if s.many, err = r.Calls(s.many[:0], &s.options); err != nil {
		return err
	}
	s.calls = s.calls[:0]
	for i := range s.many {
		c := limiter.Call{Caller: s.caller}
		if err := toCall(&c, &s.many[i], &s.options); err != nil {
			return err
		}
		s.calls = append(s.calls, c)
	}
	return nil
}

// settled reports whether no call is in flight.
func (s *session) settled() bool { return s.started.Load() == s.finished.Load() }
