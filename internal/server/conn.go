// This file is one connection's loop: read what is there, answer every whole
// message, write once.

package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"rlsidecar/internal/limiter"
)

type conn struct {
	session
	nc     net.Conn
	server *Server
	peer   limiter.Peer
	in     inbox
	bytes  atomic.Uint64 // read
	writes outbox        // session.out

	// The peer closed the connection, and had no reply to read then: else the kernel
	// would have reset it.
	hungUp bool
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{nc: nc, server: s}
	c.writes.nc, c.writes.now = nc, s.decider.Now
	c.writes.ended, c.writes.slow = &s.ended, &s.slow
	c.session = session{d: s.decider, out: &c.writes, info: s.info, answered: true}
	return c
}

// run serves the connection until it ends, whichever side ends it. A peer that
// has ended its sending side counts as gone: it gets the replies to what could be
// answered at once, not those to calls in flight.
func (c *conn) run() {
	defer c.end()
	c.peer = PeerOf(c.nc)
	c.caller = c.d.Connect(c.peer)
	err := ReadAll(c.nc, c.in.room, c.took)
	c.hungUp = err == io.EOF
	c.logRead(err)
}

// took answers n bytes more; done says that the connection is to be closed, and
// silent that nothing was written: a write finds out that the peer has gone.
func (c *conn) took(n int) (done, silent bool) {
	c.bytes.Add(uint64(n))
	c.unread.take() // who asks again has read what was said
	c.in.n += n
	sent := c.out.bytes.Load()
	done = !c.chunk()
	return done, sent == c.out.bytes.Load()
}

// chunk answers what has been read; it returns false when the connection is to
// be closed.
func (c *conn) chunk() bool {
	now := c.d.Now()
	for {
		used, p := c.answer(now, c.in.filled())
		c.observe(now)
		if c.in.drop(used) {
			c.forget()
		}
		if p == isBroken {
			c.blame()
		}
		if len(c.reply) > 0 && !c.flushReplies(now) {
			return false
		}
		if p != hasEnough {
			return p == needsMore
		}
		now = c.d.Now()
	}
}

// observe passes on how many decisions were made since the clock said now.
func (c *conn) observe(now time.Duration) {
	if c.made > 0 && c.server.cfg.Observe != nil {
		c.server.cfg.Observe(c.made, c.d.Now()-now)
	}
	c.made = 0
}

func (c *conn) flushReplies(now time.Duration) bool {
	ok := c.out.write(&c.out.reader, now, c.reply)
	c.reply = c.reply[:0]
	if cap(c.reply) > keepBuffer {
		c.reply = nil
	}
	return ok
}

// end is the one way out of run, also when a message made it panic.
func (c *conn) end() {
	if r := recover(); r != nil {
		c.server.panics.Add(1)
		c.server.log.Error("a call made the agent panic; its connection is closed",
			"panic", r, "peer", c.peer, "stack", string(debug.Stack()))
		c.abandon()
		c.flushReplies(c.d.Now())
	}
	if quiet := c.out.close(); !quiet || !c.hungUp {
		for _, permit := range c.unread.take() {
			c.d.Release(c.d.Now(), permit)
		}
	}
	if c.caller != nil {
		c.d.Disconnect(c.caller)
	}
	c.server.remove(c)
	c.server.ended.Done()
}

func (c *conn) blame() {
	c.server.protocolErrors.Add(1)
	if c.server.blamed.due(c.d.Now()) {
		c.server.log.Warn("a client sent what is not MessagePack-RPC, or is over a bound; its connection is closed",
			"peer", c.peer, "so far", c.server.protocolErrors.Load())
	}
}

// logRead says nothing of the ways in which connections usually end.
func (c *conn) logRead(err error) {
	if err == nil {
		return
	}
	for _, usual := range []error{io.EOF, io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET} {
		if errors.Is(err, usual) {
			return
		}
	}
	c.server.log.Warn("cannot read from a client; its connection is closed", "peer", c.peer, slog.Any("error", err))
}
