// This file accepts connections, and keeps account of those that are open.

package server

import (
	"context"
	"errors"
	"net"
	"time"
)

const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// Serve accepts connections from ln, which it closes, until ctx is done or
// Shutdown is called; then it returns nil. Connections live on until Shutdown.
// It is to be called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if !s.adopt(ln) {
		return ln.Close()
	}
	go s.sweep()
	defer context.AfterFunc(ctx, s.stopAccepting)()
	return s.accept(ctx, ln)
}

func (s *Server) adopt(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.ln = ln
	s.ended.Add(1)
	return true
}

// accept goes on after errors, which are mostly a lack of descriptors that passes.
func (s *Server) accept(ctx context.Context, ln net.Listener) error {
	pause := acceptPauseMin
	for {
		nc, err := ln.Accept()
		if err == nil {
			pause = acceptPauseMin
			s.start(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if s.failing.due(s.decider.Now()) {
			s.log.Error("cannot accept connections; trying on", "error", err, "pause", pause)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		case <-s.stop:
			return nil
		}
		pause = min(2*pause, acceptPauseMax)
	}
}

// start serves nc, unless the server is full or closing.
func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc)
	crowded, closing := s.add(c)
	if !crowded && !closing {
		s.accepted.Add(1)
		go c.run()
		return
	}
	nc.Close()
	if closing {
		return
	}
	s.refused.Add(1)
	if s.crowded.due(s.decider.Now()) {
		s.log.Warn("connection refused: as many are open as may be", "max", s.cfg.MaxConnections, "refused so far", s.refused.Load())
	}
}

func (s *Server) add(c *conn) (crowded, closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	crowded, closing = len(s.conns) >= s.cfg.MaxConnections, s.closing
	if !crowded && !closing {
		s.conns[c] = struct{}{}
		s.ended.Add(1)
	}
	return crowded, closing
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.bytesIn += c.bytes.Load()
	s.bytesOut += c.out.bytes.Load()
}
