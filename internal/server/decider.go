// Package server is the socket: it accepts connections, turns bytes into calls
// of a Decider and its answers into bytes, and bounds what one connection can
// cost. It takes no decision of its own.
package server

import (
	"context"
	"time"

	"rlsidecar/internal/limiter"
)

// Decider takes the decisions; *limiter.Limiter is one. Its methods are called
// from many goroutines at once. A call it cannot answer at once it reports as
// pending, and answers exactly once through the Replier, from any goroutine and
// possibly before the method has returned.
type Decider interface {
	// Now is the monotonic time since start, read once per chunk of input.
	Now() time.Duration
	Acquire(now time.Duration, c *limiter.Call, to limiter.Replier, ref uint32) (d limiter.Decision, pending bool, err *limiter.Error)
	Peek(now time.Duration, c *limiter.Call, to limiter.Replier, ref uint32) (d limiter.Decision, pending bool, err *limiter.Error)
	Reset(now time.Duration, c *limiter.Call, to limiter.Replier, ref uint32) (pending bool, err *limiter.Error)
	Refund(now time.Duration, c *limiter.Call) *limiter.Error
	AcquireAll(now time.Duration, calls []limiter.Call, to limiter.AllReplier, ref uint32) (allowed bool, ds []limiter.Decision, pending bool, err *limiter.Error)
	// Release gives up a permit, and reports whether it was held.
	Release(now time.Duration, permit uint64) bool
	// Connect returns who asks over a new connection, for limiter.Call, and
	// Disconnect says that it has closed.
	Connect(p limiter.Peer) *limiter.Caller
	Disconnect(c *limiter.Caller)
	// Drain refuses new calls, answers the waiting ones and gives leases back.
	Drain(ctx context.Context) error
	// Info returns what the method info says, but for the server's own fields, in
	// a new map that the server adds them to.
	Info() map[string]any
	// Explain returns what is known of the bucket of c, as names and values.
	Explain(now time.Duration, c *limiter.Call) ([][2]string, *limiter.Error)
}

var _ Decider = (*limiter.Limiter)(nil)
