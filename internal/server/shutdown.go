// This file is how the server ends: the place is freed for a new agent first,
// and nobody who waits for an answer goes without.

package server

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	pollPause     = 2 * time.Millisecond
	closePatience = 500 * time.Millisecond
)

// Shutdown takes the socket away, drains the Decider, which answers the waiting
// calls and refuses new ones, lets the replies be written and closes the
// connections. It returns when all has ended, or soon after ctx is done or
// DrainTimeout has passed; the error then says what was cut short. It is to be
// called once.
func (s *Server) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, DrainTimeout-2*closePatience)
	defer cancel()
	s.stopAccepting()
	err := s.decider.Drain(ctx)
	if !await(ctx, s.quiet) {
		err = errors.Join(err, errors.New("not every waiting call was answered"))
	}
	return errors.Join(err, s.closeAll())
}

func (s *Server) stopAccepting() {
	s.mu.Lock()
	s.closing = true
	ln := s.ln
	s.mu.Unlock()
	if ln == nil {
		return
	}
	if err := ln.Close(); err != nil && s.failing.due(s.decider.Now()) {
		s.log.Warn("cannot take the socket away", "error", err)
	}
}

// quiet reports whether no connection has a call in flight or a late reply to
// be written.
func (s *Server) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if !c.out.gone.Load() && !(c.settled() && c.out.quiet()) {
			return false
		}
	}
	return true
}

// closeAll lets each connection finish what it has read, and then ends it. Those
// stuck in a write are broken after closePatience.
func (s *Server) closeAll() error {
	ended := make(chan struct{})
	go func() {
		s.ended.Wait()
		close(ended)
	}()
	s.each(func(c *conn) { c.nc.SetReadDeadline(longAgo) })
	s.once.Do(func() { close(s.stop) })
	if done(ended) {
		return nil
	}
	s.each(func(c *conn) { c.out.kick() })
	if done(ended) {
		return nil
	}
	return fmt.Errorf("%d connections are still busy", s.connections())
}

func (s *Server) each(do func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		do(c)
	}
}

func done(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	case <-time.After(closePatience):
		return false
	}
}

// await polls cond until it holds, or ctx is done.
func await(ctx context.Context, cond func() bool) bool {
	for !cond() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pollPause):
		}
	}
	return true
}
