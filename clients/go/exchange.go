// One call from its budget to its reply: connect if need be, ask, and once more
// when a connection turned out to be dead.

package rlsidecar

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"rlsidecar/protocol"
)

// encoder appends a request with the given id.
type encoder func(dst []byte, id uint32) []byte

// decoder takes what it wants from an encoded result.
type decoder func(result []byte) error

// lane finds the connection for a call: again after the first one proved dead.
// fresh says that no call was made on it before.
type lane func(ctx context.Context, again bool) (cn *conn, fresh bool, err error)

// do makes one call, on a connection of its own if the agent may let it wait.
func (c *Client) do(caller context.Context, s *settings, encode encoder, decode decoder) error {
	if c.disabled {
		return errDisabled
	}
	from := c.shared
	if s.wait > 0 {
		from = c.own
	}
	cn, err := c.ask(caller, s, from, encode, decode)
	c.giveBack(cn)
	return err
}

// ask makes one call and returns the connection with it, nil when there was none.
// A result that decode does not accept costs the connection.
//
// What was sent is sent again in one case only: on a connection that had served
// before, that ended before any byte of a reply came. An agent that restarted
// looks like that. After a time-out nothing is sent again, for the permits may
// have been taken.
func (c *Client) ask(caller context.Context, s *settings, from lane, encode encoder, decode decoder) (*conn, error) {
	ctx, cancel := context.WithTimeout(caller, s.timeout+max(s.wait, 0))
	defer cancel()
	for again := false; ; again = true {
		cn, fresh, err := from(ctx, again)
		if err != nil {
			return nil, failure(caller, err)
		}
		reads := cn.reads.Load()
		result, err := cn.exchange(ctx, encode)
		if err == nil {
			if err = decode(result); err == nil {
				return cn, nil
			}
			return cn, failure(caller, cn.fail(unavailable(ErrProtocol, err)))
		}
		if e := (*Error)(nil); errors.As(err, &e) {
			if e.Code == protocol.InvalidRequest {
				cn.fail(err) // the agent closes it
			}
			return cn, err
		}
		if again || fresh || !ended(err) || cn.reads.Load() != reads {
			return cn, failure(caller, err)
		}
		c.giveBack(cn)
	}
}

// ended tells whether a connection failed because the other end is gone.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// shared returns the connection that calls share, a fresh one if it is broken.
func (c *Client) shared(ctx context.Context, _ bool) (cn *conn, fresh bool, err error) {
	if cn, err := c.current(); cn != nil || err != nil {
		return cn, false, err
	}
	select {
	case c.dialing <- struct{}{}:
		defer func() { <-c.dialing }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if cn, err := c.current(); cn != nil || err != nil {
		return cn, false, err
	}
	nc, err := c.connect(ctx)
	if err != nil {
		return nil, false, err
	}
	return c.adopt(nc)
}

// current returns the connection if it is usable, nil if there is none.
func (c *Client) current() (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.conn == nil || c.conn.broken() {
		return nil, nil
	}
	return c.conn, nil
}

func (c *Client) adopt(nc net.Conn) (*conn, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		nc.Close()
		return nil, false, ErrClosed
	}
	c.conn = newConn(nc)
	return c.conn, true, nil
}

// connect fails at once while it is too early to try again.
func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	if err := c.backoff.pause(time.Now()); err != nil {
		return nil, err
	}
	nc, err := dial(ctx, c.path)
	err = unreachable(err)
	c.backoff.note(time.Now(), err)
	return nc, err
}

// dial connects within ctx. EAGAIN says that the agent is there and its backlog
// is full.
func dial(ctx context.Context, path string) (net.Conn, error) {
	var (
		d    net.Dialer
		full error
	)
	for pause := time.Millisecond; ; pause = min(2*pause, 8*time.Millisecond) {
		nc, err := d.DialContext(ctx, "unix", path)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			full = err
		case full != nil && errors.Is(err, context.DeadlineExceeded):
			return nil, full
		default:
			return nc, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, full
		}
	}
}
