// Permits of concurrency limits: taken, held, and given back.

package rlsidecar

import (
	"context"
	"sync"
	"time"

	"rlsidecar/protocol"
)

// Permit is what Hold took, until Release. It may be passed between goroutines.
//
// The agent takes permits back by itself: from a process without a connection
// after a second, and from anybody after the longest hold that the limit allows.
// A Permit therefore keeps a connection open that nobody else uses. Should that
// break, the permit may be lost, which Release will tell.
type Permit struct {
	client  *Client
	timeout time.Duration
	number  uint64

	mu   sync.Mutex // mu guards the field that follows
	conn *conn      // nil once released, or when there is nothing to release
}

// Hold takes a permit of a concurrency limit and keeps it until Release:
//
//	permit, d, err := client.Hold(ctx, rlsidecar.Policy("exports"), user, rlsidecar.Wait(2*time.Second))
//	if err != nil || !d.Allowed {
//		...
//	}
//	defer permit.Release()
//
// ctx ends the wait for the permit, not the hold. After a denial or an error the
// permit is nil, and may be released all the same. A call may be allowed without
// taking a permit, by a list of exempt keys or without an agent; its Release does
// nothing either.
func (c *Client) Hold(ctx context.Context, l Limit, key string, opts ...CallOption) (*Permit, Decision, error) {
	s := c.settings(opts)
	encode, err := s.encoder(protocol.Acquire, l, key)
	if err != nil {
		return nil, Decision{}, err
	}
	if c.disabled {
		return nil, substitute(true, l, s.cost), nil
	}
	var d protocol.Decision
	cn, err := c.ask(ctx, &s, c.own, encode, decisionInto(&d))
	if err != nil || !d.Allowed || d.Permit == 0 {
		c.giveBack(cn)
		cn = nil
	}
	if err != nil {
		d, err := c.undecided(err, l, key, s.cost, true)
		return nil, d, err
	}
	if !d.Allowed {
		return nil, decision(&d), nil
	}
	return &Permit{client: c, timeout: s.timeout, number: d.Permit, conn: cn}, decision(&d), nil
}

// Release gives the permit back, within the time-out of the Hold. held is false
// when there was none any more: it was released before, or the agent had taken it
// back, or the agent gave no answer: then it takes it back by itself.
func (p *Permit) Release() (held bool, err error) {
	if p == nil {
		return false, nil
	}
	p.mu.Lock()
	mine := p.conn
	p.conn = nil
	p.mu.Unlock()
	if mine == nil {
		return false, nil
	}
	defer p.client.giveBack(mine)
	s := settings{timeout: p.timeout}
	cn, err := p.client.ask(context.Background(), &s, p.client.over(mine), releasing(p.number), boolInto(&held))
	if cn != mine {
		p.client.giveBack(cn)
	}
	if err != nil {
		_, err = p.client.otherwise(err)
	}
	return held, err
}

// over is mine, and a fresh connection when that is broken.
func (c *Client) over(mine *conn) lane {
	return func(ctx context.Context, _ bool) (*conn, bool, error) {
		if mine.broken() {
			return c.own(ctx, true)
		}
		return mine, false, nil
	}
}

// Release gives back the permit of a Decision, from this process. held is false
// when there is none any more, or when the permit is 0. A Hold needs no Release
// but its own.
func (c *Client) Release(ctx context.Context, permit uint64, opts ...CallOption) (held bool, err error) {
	if permit == 0 {
		return false, nil
	}
	s := c.settings(opts)
	if err = c.do(ctx, &s, releasing(permit), boolInto(&held)); err != nil {
		_, err = c.otherwise(err)
	}
	return held, err
}

func releasing(permit uint64) encoder {
	return func(dst []byte, id uint32) []byte {
		return protocol.AppendRequest(dst, id, protocol.Release.String(), permit)
	}
}

func boolInto(v *bool) decoder {
	return func(result []byte) (err error) {
		*v, err = protocol.ParseBool(result)
		return err
	}
}
