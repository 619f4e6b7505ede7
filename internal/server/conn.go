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

	"golang.org/x/sys/unix"
)

type conn struct {
	session
	nc     net.Conn
	server *Server
	peer   peer
	in     inbox
	failed error         // of readable
	bytes  atomic.Uint64 // read
	writes outbox        // session.out
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
	c.peer = peerOf(c.nc)
	if err := c.readAll(); err != nil {
		c.logRead(err)
	}
}

// readAll reads and answers until the peer ends or the connection is to be closed.
func (c *conn) readAll() error {
	if socket, ok := c.nc.(syscall.Conn); ok {
		raw, err := socket.SyscallConn()
		if err != nil {
			return err
		}
		return errors.Join(raw.Read(c.readable), c.failed)
	}
	for {
		n, err := c.nc.Read(c.in.room())
		if n > 0 && !c.took(n) || err != nil {
			return err
		}
	}
}

// readable reads what there is and answers it; it is false when there may be more
// later. A read that does not fill its buffer has emptied the socket, and what
// comes after it wakes the connection anew: so the read that would find nothing,
// one in three system calls of a connection that is asked one call at a time, is
// left out.
func (c *conn) readable(fd uintptr) (done bool) {
	for {
		room := c.in.room()
		n, err := unix.Read(int(fd), room)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return false
		case err != nil:
			c.failed = os.NewSyscallError("read", err)
			return true
		case n == 0 || !c.took(n):
			return true
		case n < len(room):
			return false
		}
	}
}

// took answers n bytes more; it is false when the connection is to be closed.
func (c *conn) took(n int) bool {
	c.bytes.Add(uint64(n))
	c.in.n += n
	return c.chunk()
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
	c.out.close()
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
	for _, usual := range []error{io.EOF, io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET} {
		if errors.Is(err, usual) {
			return
		}
	}
	c.server.log.Warn("cannot read from a client; its connection is closed", "peer", c.peer, slog.Any("error", err))
}
