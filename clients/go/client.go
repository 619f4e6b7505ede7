// Package rlsidecar asks the rate-limiting agent on this host whether a call may
// go through.
//
//	client, err := rlsidecar.New("")
//	...
//	d, err := client.Acquire(ctx, rlsidecar.Policy("login"), userID)
//	if err == nil && !d.Allowed {
//		// too many; d.RetryAfter says when to come back
//	}
//
// Of a concurrency limit a permit is held, and released in the end:
//
//	permit, d, err := client.Hold(ctx, rlsidecar.Policy("exports"), userID, rlsidecar.Wait(2*time.Second))
//	defer permit.Release()
//
// A denial is a Decision, never an error. When nobody decided, because the agent is
// not there, did not answer in time or could not, the call is allowed and its
// Decision is Degraded, unless WithOnUnavailable says otherwise. So an error is a
// mistake of the caller, or the end of its context.
package rlsidecar

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"rlsidecar/protocol"
)

// Client asks one agent. It is safe for use by many goroutines, which share one
// connection; that is made by the first call and made again when it broke. A call
// that is to Wait has a connection to itself meanwhile, and so has a Hold.
type Client struct {
	path     string
	timeout  time.Duration
	app      []byte
	mode     OnUnavailable
	disabled bool // by RLSIDECAR_DISABLE
	log      *slog.Logger

	complaints complaints
	backoff    backoff
	buckets    buckets       // of mode Local
	dialing    chan struct{} // held while connecting; a channel, because those who wait for it have a budget

	mu     sync.Mutex     // mu guards the fields that follow
	conn   *conn          // nil before the first call
	aside  map[*conn]bool // all others, idle or not
	idle   []*conn        // the last one used at the end
	closed bool
}

// Option changes a Client under construction.
type Option func(*Client)

// WithTimeout sets how long a call may take: connecting, asking and the reply
// together, but not the time it was told to Wait. It must be above 0, up to an hour.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithApp names the calling application, where the operator lets callers say so: 1
// to 128 bytes. Without it the environment variable RLSIDECAR_APP does, if set.
func WithApp(name string) Option { return func(c *Client) { c.app = []byte(name) } }

// WithOnUnavailable sets what a call does that gets no decision. Without it the
// environment variable RLSIDECAR_ON_UNAVAILABLE does, else Allow.
func WithOnUnavailable(mode OnUnavailable) Option { return func(c *Client) { c.mode = mode } }

// WithLogger sets where the client warns, at most every ten seconds, that calls
// got no decision. Without it that is slog.Default().
func WithLogger(log *slog.Logger) Option { return func(c *Client) { c.log = log } }

// New returns a client of the agent at address: "unix:///path" or a path of at
// most 107 bytes. When address is empty, the environment variable
// RLSIDECAR_ADDRESS is taken, else unix:///run/rlsidecar/rlsidecar.sock. New
// fails for an address, option or environment variable that cannot be; it does not
// connect. With RLSIDECAR_DISABLE=1 the client asks nobody and allows everything.
func New(address string, opts ...Option) (*Client, error) {
	path, err := SocketPath(address)
	if err != nil {
		return nil, err
	}
	c := &Client{
		path: path, timeout: DefaultTimeout, mode: Allow, log: slog.Default(),
		dialing: make(chan struct{}, 1), aside: map[*conn]bool{},
	}
	if err := c.readEnvironment(); err != nil {
		return nil, err
	}
	for _, o := range opts {
		o(c)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, nil
}

// Close closes all connections, so that the agent takes back what is held. Calls
// under way, and later ones, get no decision for ErrClosed.
func (c *Client) Close() error {
	for _, cn := range c.shut() {
		cn.fail(ErrClosed)
		<-cn.readerDone
	}
	return nil
}

// shut lets no connection be opened any more and returns those that are.
func (c *Client) shut() []*conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	open := slices.Collect(maps.Keys(c.aside))
	if c.conn != nil {
		open = append(open, c.conn)
	}
	return open
}

// CallOption changes one call.
type CallOption func(*settings)

type settings struct {
	cost    int64
	wait    time.Duration
	timeout time.Duration
	app     []byte
}

// Cost sets how many permits the call takes: 1 to 2^53-1, 1 unless set. Peek
// allows 0.
func Cost(n int64) CallOption { return func(s *settings) { s.cost = n } }

// Wait lets the agent hold the answer back for up to d, at most a minute, until
// the permits are there. It comes on top of the time-out. A caller whose context
// ends first gives up its place in the queue. Acquire, AcquireAll and Hold wait.
func Wait(d time.Duration) CallOption { return func(s *settings) { s.wait = d } }

// Timeout sets the time-out of this call, see WithTimeout.
func Timeout(d time.Duration) CallOption { return func(s *settings) { s.timeout = d } }

// App names the calling application for this call, see WithApp.
func App(name string) CallOption { return func(s *settings) { s.app = []byte(name) } }

func (c *Client) settings(opts []CallOption) settings {
	s := settings{cost: 1, timeout: c.timeout, app: c.app}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// check refuses what the agent would refuse, so that it is refused without one, too.
func (s *settings) check() error {
	switch {
	case s.timeout <= 0 || s.timeout > longestTimeout:
		return invalidf("timeout %v: allowed are those above 0, to %v", s.timeout, longestTimeout)
	case s.wait < 0 || s.wait > protocol.MaxWaitMS*time.Millisecond:
		return invalidf("wait %v: allowed are 0 to %v", s.wait, protocol.MaxWaitMS*time.Millisecond)
	case s.app != nil && (len(s.app) < 1 || len(s.app) > protocol.MaxPolicy):
		return invalidf("app of %d bytes: allowed are 1 to %d", len(s.app), protocol.MaxPolicy)
	}
	return nil
}

func (s *settings) options() *protocol.Options {
	return &protocol.Options{WaitMS: ceil(s.wait, time.Millisecond), App: s.app}
}

// Acquire takes permits for key, or tells that there are none.
func (c *Client) Acquire(ctx context.Context, l Limit, key string, opts ...CallOption) (Decision, error) {
	return c.decide(ctx, protocol.Acquire, l, key, opts)
}

// Peek tells what Acquire would, and takes nothing.
func (c *Client) Peek(ctx context.Context, l Limit, key string, opts ...CallOption) (Decision, error) {
	return c.decide(ctx, protocol.Peek, l, key, opts)
}

// Refund gives back the permits of an Acquire of the same limit, key and cost. It
// returns false, without an error, when the agent gave no answer.
func (c *Client) Refund(ctx context.Context, l Limit, key string, opts ...CallOption) (done bool, err error) {
	return c.tell(ctx, protocol.Refund, l, key, opts)
}

// Reset makes the bucket start afresh, on all hosts. It returns false, without an
// error, when the agent gave no answer.
func (c *Client) Reset(ctx context.Context, l Limit, key string, opts ...CallOption) (done bool, err error) {
	return c.tell(ctx, protocol.Reset, l, key, opts)
}

func (c *Client) tell(ctx context.Context, m protocol.Method, l Limit, key string, opts []CallOption) (done bool, err error) {
	s := c.settings(opts)
	if err := c.call(ctx, m, l, key, &s, boolInto(&done)); err != nil {
		_, err = c.otherwise(err)
		return false, err
	}
	return done, nil
}

func (c *Client) decide(ctx context.Context, m protocol.Method, l Limit, key string, opts []CallOption) (Decision, error) {
	var d protocol.Decision
	s := c.settings(opts)
	if err := c.call(ctx, m, l, key, &s, decisionInto(&d)); err != nil {
		return c.undecided(err, l, key, s.cost, m != protocol.Peek)
	}
	return decision(&d), nil
}

// undecided is the outcome of a call that ended in err.
func (c *Client) undecided(err error, l Limit, key string, cost int64, take bool) (Decision, error) {
	allowed, err := c.otherwise(err)
	if err != nil {
		return Decision{}, err
	}
	return c.instead(allowed, l, key, cost, take), nil
}

func decisionInto(d *protocol.Decision) decoder {
	return func(result []byte) error { return protocol.ParseDecision(result, d) }
}

func (c *Client) call(ctx context.Context, m protocol.Method, l Limit, key string, s *settings, decode decoder) error {
	encode, err := s.encoder(m, l, key)
	if err != nil {
		return err
	}
	return c.do(ctx, s, encode, decode)
}

// encoder writes a call about one key. Only acquire waits.
func (s *settings) encoder(m protocol.Method, l Limit, key string) (encoder, error) {
	least := int64(1)
	if m == protocol.Peek {
		least = 0
	}
	call, err := l.call(key, s.cost, least)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, err
	}
	o := s.options()
	if m != protocol.Acquire {
		o.WaitMS = 0
	}
	return func(dst []byte, id uint32) []byte { return protocol.AppendCall(dst, id, m, &call, o) }, nil
}

// Ask is one of the calls of AcquireAll. A Cost of 0 stands for 1.
type Ask struct {
	Limit Limit
	Key   string
	Cost  int64
}

func (a *Ask) cost() int64 {
	if a.Cost == 0 {
		return 1
	}
	return a.Cost
}

// AcquireAll takes the permits of 1 to 32 asks, or none at all. The decisions are
// in the order of the asks.
func (c *Client) AcquireAll(ctx context.Context, asks []Ask, opts ...CallOption) (allowed bool, ds []Decision, err error) {
	s := c.settings(opts)
	calls, err := s.calls(asks)
	if err != nil {
		return false, nil, err
	}
	var wire []protocol.Decision
	err = c.do(ctx, &s, func(dst []byte, id uint32) []byte {
		return protocol.AppendAcquireAll(dst, id, calls, s.options())
	}, func(result []byte) (err error) {
		allowed, wire, err = protocol.ParseAll(result)
		if err == nil && len(wire) != len(asks) {
			err = fmt.Errorf("%d decisions for %d asks", len(wire), len(asks))
		}
		return err
	})
	if err == nil {
		return allowed, decisions(wire), nil
	}
	if allowed, err = c.otherwise(err); err != nil {
		return false, nil, err
	}
	allowed, ds = c.insteadOfAll(allowed, asks)
	return allowed, ds, nil
}

func (s *settings) calls(asks []Ask) ([]protocol.Call, error) {
	if len(asks) < 1 || len(asks) > protocol.MaxItems {
		return nil, invalidf("%d asks: allowed are 1 to %d", len(asks), protocol.MaxItems)
	}
	calls := make([]protocol.Call, len(asks))
	for i, a := range asks {
		var err error
		if calls[i], err = a.Limit.call(a.Key, a.cost(), 1); err != nil {
			return nil, fmt.Errorf("asks[%d]: %w", i, err)
		}
	}
	return calls, s.check()
}

// Throttled is the answer of Throttle.
type Throttled struct {
	Limited    bool
	Limit      int64
	Remaining  int64
	RetryAfter time.Duration // 0 when not limited; Never when the quantity is above the limit
	ResetAfter time.Duration
	Degraded   bool // the agent gave no decision: OnUnavailable did
}

func throttled(v [5]int64) Throttled {
	t := Throttled{Limited: v[0] != 0, Limit: v[1], Remaining: v[2], ResetAfter: duration(v[4], time.Second)}
	if t.Limited {
		t.RetryAfter = duration(v[3], time.Second)
	}
	return t
}

// Throttle is redis-cell's CL.THROTTLE: count permits per period, which is in
// whole seconds, and maxBurst besides. Cost sets the quantity.
func (c *Client) Throttle(ctx context.Context, key string, maxBurst, count int64, period time.Duration, opts ...CallOption) (Throttled, error) {
	if period%time.Second != 0 {
		return Throttled{}, invalidf("period %v: allowed are whole seconds", period)
	}
	s := c.settings(opts)
	capacity := Per(maxBurst+1, period)
	for _, l := range []Limit{capacity, Per(count, period)} {
		if _, err := l.call(key, s.cost, 0); err != nil {
			return Throttled{}, err
		}
	}
	var v [5]int64
	err := c.do(ctx, &s, func(dst []byte, id uint32) []byte {
		return protocol.AppendRequest(dst, id, protocol.Throttle.String(), key, maxBurst, count, int64(period/time.Second), s.cost)
	}, func(result []byte) (err error) {
		v, err = protocol.ParseThrottle(result)
		return err
	})
	if err == nil {
		return throttled(v), nil
	}
	allowed, err := c.otherwise(err)
	if err != nil {
		return Throttled{}, err
	}
	d := substitute(allowed, capacity, s.cost)
	return Throttled{Limited: !d.Allowed, Limit: d.Limit, RetryAfter: d.RetryAfter, Degraded: true}, nil
}

// Info tells what the agent is: version, methods, mode, counters. Like Explain and
// Ping it fails without an agent, in every mode.
func (c *Client) Info(ctx context.Context, opts ...CallOption) (info map[string]any, err error) {
	err = c.plain(ctx, protocol.Info, opts, func(result []byte) (err error) {
		info, err = protocol.ParseInfo(result)
		return err
	})
	return info, err
}

// Explain returns what the agent knows of a key: names and values, for people. It
// changes nothing.
func (c *Client) Explain(ctx context.Context, l Limit, key string, opts ...CallOption) (pairs [][2]string, err error) {
	s := c.settings(opts)
	err = c.call(ctx, protocol.Explain, l, key, &s, func(result []byte) (err error) {
		pairs, err = protocol.ParseExplain(result)
		return err
	})
	return pairs, err
}

// Ping returns nil when the agent answers.
func (c *Client) Ping(ctx context.Context, opts ...CallOption) error {
	return c.plain(ctx, protocol.Ping, opts, func([]byte) error { return nil })
}

func (c *Client) plain(ctx context.Context, m protocol.Method, opts []CallOption, decode decoder) error {
	s := c.settings(opts)
	return c.do(ctx, &s, func(dst []byte, id uint32) []byte {
		return protocol.AppendRequest(dst, id, m.String())
	}, decode)
}
