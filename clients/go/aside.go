// Connections that one call or one hold has to itself.

package rlsidecar

import (
	"context"
	"errors"
	"net"
)

// maxIdle is how many connections of their own stay open between calls.
const maxIdle = 16

var errGivenUp = errors.New("the caller gave up")

// own returns a connection that nobody else uses, to be given back. A call that
// may wait needs one: the agent knows by the connection's end that the caller
// gave up, and frees its place in the queue. So does a hold: the agent takes the
// permits of a process that has no connection any more.
func (c *Client) own(ctx context.Context, again bool) (cn *conn, fresh bool, err error) {
	if !again {
		if cn, err := c.takeIdle(); cn != nil || err != nil {
			return cn, false, err
		}
	}
	nc, err := c.connect(ctx)
	if err != nil {
		return nil, false, err
	}
	return c.setAside(nc)
}

// takeIdle returns the idle connection used last, nil if there is none.
func (c *Client) takeIdle() (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	for len(c.idle) > 0 {
		cn := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		if !cn.broken() {
			return cn, nil
		}
		delete(c.aside, cn)
	}
	return nil, nil
}

func (c *Client) setAside(nc net.Conn) (*conn, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		nc.Close()
		return nil, false, ErrClosed
	}
	cn := newConn(nc)
	c.aside[cn] = true
	return cn, true, nil
}

// giveBack ends the use of a connection. One that is its user's own is closed when
// a reply is still due on it; the shared one stays as it is.
func (c *Client) giveBack(cn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.aside[cn]:
	case len(c.idle) < maxIdle && cn.quiet():
		c.idle = append(c.idle, cn)
	default:
		delete(c.aside, cn)
		cn.fail(errGivenUp)
	}
}
