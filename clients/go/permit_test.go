// Permits: held over a connection of their own, and never kept by mistake.

package rlsidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rlsidecar/protocol"
)

// desk is an agent that gives out permits: 1, 2, 3 and so on.
type desk struct {
	*agent
	mu   sync.Mutex // mu guards the fields that follow
	last uint64
	held map[uint64]int32 // permits, by the connection that took them
	said []string         // "method connection", in order
	gone []int32          // connections that ended
}

// openDesk starts an agent that grants what is asked, unless decide says otherwise.
func openDesk(t *testing.T, decide func(d *desk, p *peer, r *protocol.Request) (handled bool)) *desk {
	d := &desk{held: map[uint64]int32{}}
	d.agent = startAgent(t, func(p *peer) {
		for r, ok := p.next(); ok; r, ok = p.next() {
			d.note(p, string(r.Name))
			if decide == nil || !decide(d, p, &r) {
				d.answer(p, &r)
			}
		}
		d.mu.Lock()
		d.gone = append(d.gone, p.n)
		d.mu.Unlock()
	})
	return d
}

func (d *desk) note(p *peer, method string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, fmt.Sprint(method, " ", p.n))
}

func (d *desk) answer(p *peer, r *protocol.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r.Method {
	case protocol.Acquire:
		d.last++
		d.held[d.last] = p.n
		p.send(protocol.AppendDecision(nil, r.ID, &protocol.Decision{Allowed: true, Limit: 3, Permit: d.last}))
	case protocol.Release:
		permit, _ := r.Permit()
		_, held := d.held[permit]
		delete(d.held, permit)
		if !r.Notification {
			p.send(protocol.AppendBool(nil, r.ID, held))
		}
	default:
		p.send(protocol.AppendPong(nil, r.ID))
	}
}

func (d *desk) heldNow() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.held)
}

func (d *desk) ended(n int32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.gone, n)
}

func (d *desk) wantSaid(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.said, want) {
		t.Errorf("the agent was asked %q, want %q", d.said, want)
	}
}

func hold(t *testing.T, c *Client, opts ...CallOption) *Permit {
	t.Helper()
	p, d, err := c.Hold(ctx, Policy("exports"), "u1", opts...)
	if err != nil || !d.Allowed || d.Permit == 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	return p
}

func wantReleased(t *testing.T, p *Permit, want bool) {
	t.Helper()
	if held, err := p.Release(); held != want || err != nil {
		t.Errorf("released %v, %v; want %v", held, err, want)
	}
}

func ping(t *testing.T, c *Client) {
	t.Helper()
	if err := c.Ping(ctx); err != nil {
		t.Error(err)
	}
}

func TestHoldHasAConnectionToItself(t *testing.T) {
	d := openDesk(t, nil)
	client := newClient(t, d.path, WithTimeout(long))
	ping(t, client)
	first := hold(t, client)
	ping(t, client)
	second := hold(t, client)
	wantReleased(t, first, true)
	wantReleased(t, second, true)
	wantReleased(t, second, false)
	third := hold(t, client)
	wantReleased(t, third, true)
	d.wantSaid(t, "ping 1", "acquire 2", "ping 1", "acquire 3", "release 2", "release 3", "acquire 3", "release 3")
	if n := d.heldNow(); n != 0 {
		t.Errorf("%d permits held", n)
	}
}

func TestHoldIsReleasedOverAFreshConnection(t *testing.T) {
	kill := func(at string) func(*desk, *peer, *protocol.Request) bool {
		return func(d *desk, p *peer, r *protocol.Request) bool {
			if p.n == 1 && string(r.Name) == at {
				if at == "acquire" {
					d.answer(p, r)
				}
				p.Close()
				return true
			}
			return false
		}
	}
	for name, at := range map[string]string{"killed while held": "acquire", "killed by the release": "release"} {
		t.Run(name, func(t *testing.T) {
			d := openDesk(t, kill(at))
			client := newClient(t, d.path, WithTimeout(long))
			p := hold(t, client)
			if at == "acquire" {
				eventually(t, "noticed", func() bool { return p.conn.broken() })
			}
			wantReleased(t, p, true)
			if n := d.accepted.Load(); n != 2 || d.heldNow() != 0 {
				t.Errorf("%d connections, %d permits held; want 2, 0", n, d.heldNow())
			}
		})
	}
}

func TestHoldWithoutAPermit(t *testing.T) {
	never := protocol.Decision{Limit: 3, RetryAfterMS: -1}
	tests := []struct {
		name    string
		reply   func(id uint32) []byte
		permit  bool // there is one, if only to be released without effect
		allowed bool
		err     error
	}{
		{"denied", func(id uint32) []byte { return protocol.AppendDecision(nil, id, &never) }, false, false, nil},
		{"exempt", func(id uint32) []byte {
			return protocol.AppendDecision(nil, id, &protocol.Decision{Allowed: true, Source: 5})
		}, true, true, nil},
		{"overloaded", func(id uint32) []byte { return protocol.AppendError(nil, id, protocol.Overloaded, "x") }, false, false, ErrUnavailable},
		{"garbage", func(uint32) []byte { return []byte{0xc1} }, false, false, ErrUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := openDesk(t, func(_ *desk, p *peer, r *protocol.Request) bool {
				p.send(tt.reply(r.ID))
				return true
			})
			client := newClient(t, d.path, WithTimeout(long))
			p, got, err := client.Hold(ctx, Policy("exports"), "u1")
			if got.Allowed != tt.allowed || (p != nil) != tt.permit || !errors.Is(err, tt.err) {
				t.Errorf("%v, %+v, %v", p, got, err)
			}
			wantReleased(t, p, false)
			d.wantSaid(t, "acquire 1")
			wantIdle(t, client, tt.name != "garbage")
		})
	}
}

// wantIdle checks that all connections of calls and holds are idle, or there is none.
func wantIdle(t *testing.T, c *Client, any bool) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.aside) != len(c.idle) || len(c.idle) > 0 != any {
		t.Errorf("%d connections of their own, %d idle", len(c.aside), len(c.idle))
	}
}

func TestHoldWithoutAnAgent(t *testing.T) {
	client := newClient(t, socketName(t))
	p, d, err := client.Hold(ctx, Policy("exports"), "u1", Wait(time.Second))
	wantUnavailable(t, err, nil)
	if p != nil || d != (Decision{}) {
		t.Errorf("%v, %+v", p, d)
	}
	wantReleased(t, p, false)
	if _, _, err := client.Hold(ctx, Concurrency(0, time.Minute), "u1"); errors.Is(err, ErrUnavailable) || err == nil {
		t.Errorf("count 0: %v", err)
	}
}

func TestReleaseOfAnAgentThatHangs(t *testing.T) {
	d := openDesk(t, func(_ *desk, _ *peer, r *protocol.Request) bool { return r.Method == protocol.Release })
	client := newClient(t, d.path, WithTimeout(long))
	p := hold(t, client, Timeout(100*time.Millisecond))
	_, err := p.Release()
	wantUnavailable(t, err, context.DeadlineExceeded)
	eventually(t, "closed", func() bool { return d.ended(1) })
	d.wantSaid(t, "acquire 1", "release 1")
	wantReleased(t, p, false)
}

func TestManyHolds(t *testing.T) {
	d := openDesk(t, nil)
	client := newClient(t, d.path, WithTimeout(long))
	permits := make([]*Permit, 3*maxIdle)
	for i := range permits {
		permits[i] = hold(t, client)
	}
	var all sync.WaitGroup
	for _, p := range permits {
		for range 2 { // one of them comes too late
			all.Go(func() { p.Release() })
		}
	}
	all.Wait()
	if n := d.heldNow(); n != 0 {
		t.Errorf("%d permits held", n)
	}
	wantIdle(t, client, true)
	if n := len(client.idle); n != maxIdle {
		t.Errorf("%d idle connections, want %d", n, maxIdle)
	}
}

func TestCloseEndsHolds(t *testing.T) {
	d := openDesk(t, nil)
	client := newClient(t, d.path, WithTimeout(long))
	p := hold(t, client)
	idle := hold(t, client)
	wantReleased(t, idle, true)
	client.Close()
	eventually(t, "closed", func() bool { return d.ended(1) && d.ended(2) })
	_, err := p.Release()
	wantUnavailable(t, err, ErrClosed)
	_, _, err = client.Hold(ctx, Policy("exports"), "u1")
	wantUnavailable(t, err, ErrClosed)
}

// TestCancelledWaitClosesItsConnection: that is how the agent learns of it.
func TestCancelledWaitClosesItsConnection(t *testing.T) {
	waiting := make(chan bool, 1)
	d := openDesk(t, func(_ *desk, _ *peer, r *protocol.Request) bool {
		if r.Method == protocol.Acquire || r.Method == protocol.AcquireAll {
			waiting <- true
			return true
		}
		return false
	})
	client := newClient(t, d.path, WithTimeout(long))
	ping(t, client)
	calls := map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error {
			_, err := client.Acquire(ctx, Policy("api"), "k", Wait(time.Minute))
			return err
		},
		"acquire_all": func(ctx context.Context) error {
			_, _, err := client.AcquireAll(ctx, []Ask{{Policy("api"), "k", 1}}, Wait(time.Minute))
			return err
		},
		"hold": func(ctx context.Context) error {
			_, _, err := client.Hold(ctx, Policy("exports"), "u1", Wait(time.Minute))
			return err
		},
	}
	n := int32(1)
	for name, call := range calls {
		n++
		gone, cancel := context.WithCancel(ctx)
		go func() {
			<-waiting
			cancel()
		}()
		if err := call(gone); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, name+": the connection ended", func() bool { return d.ended(n) })
	}
	ping(t, client)
	if d.ended(1) || d.accepted.Load() != n {
		t.Errorf("the shared connection ended, or %d connections, want %d", d.accepted.Load(), n)
	}
}

func TestWaitsShareIdleConnections(t *testing.T) {
	d := openDesk(t, nil)
	client := newClient(t, d.path, WithTimeout(long))
	for range 5 {
		if _, err := client.Acquire(ctx, Policy("api"), "k", Wait(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestAnIdleConnectionThatDied(t *testing.T) {
	a := startAgent(t, func(p *peer) {
		r, _ := p.next()
		p.allow(r.ID, 1)
		if p.n == 1 {
			p.next()
			return
		}
		p.untilGone()
	})
	client := newClient(t, a.path, WithTimeout(long))
	for range 2 {
		if _, err := client.Acquire(ctx, Policy("api"), "k", Wait(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if n, r := a.accepted.Load(), a.requests.Load(); n != 2 || r != 3 {
		t.Errorf("%d connections, %d requests; want 2, 3", n, r)
	}
	wantIdle(t, client, true)
}

func TestAnIdleConnectionInDoubt(t *testing.T) {
	isIdle := make(chan bool)
	a := startAgent(t, func(p *peer) {
		r, _ := p.next()
		p.allow(r.ID, 1)
		if p.n == 1 {
			<-isIdle
			p.send([]byte{0xc1})
		}
		p.untilGone()
	})
	client := newClient(t, a.path, WithTimeout(long))
	wait := func() {
		if _, err := client.Acquire(ctx, Policy("api"), "k", Wait(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	wait()
	close(isIdle)
	eventually(t, "noticed", client.idle[0].broken)
	wait()
	wantIdle(t, client, true)
}

// TestALatePermitGoesBack: its number is known to nobody but the reply.
func TestALatePermitGoesBack(t *testing.T) {
	one := protocol.Decision{Allowed: true, Limit: 3, Permit: 7}
	two := protocol.Decision{Allowed: true, Limit: 3, Permit: 8}
	late := map[string]struct {
		reply func(id uint32) []byte
		want  []uint64
	}{
		"acquire":     {func(id uint32) []byte { return protocol.AppendDecision(nil, id, &one) }, []uint64{7}},
		"acquire_all": {func(id uint32) []byte { return protocol.AppendAll(nil, id, true, []protocol.Decision{one, {}, two}) }, []uint64{7, 8}},
		"no permit":   {func(id uint32) []byte { return protocol.AppendDecision(nil, id, &protocol.Decision{}) }, nil},
		"an error":    {func(id uint32) []byte { return protocol.AppendError(nil, id, 5, "x") }, nil},
	}
	for name, tt := range late {
		t.Run(name, func(t *testing.T) {
			gaveUp := make(chan bool)
			released := make(chan uint64, 3)
			a := startAgent(t, func(p *peer) {
				r, _ := p.next()
				<-gaveUp
				p.send(tt.reply(r.ID))
				for r, ok := p.next(); ok; r, ok = p.next() {
					if permit, err := r.Permit(); r.Notification && err == nil {
						released <- permit
					} else {
						p.send(protocol.AppendPong(nil, r.ID))
					}
				}
			})
			client := newClient(t, a.path, WithTimeout(long))
			_, err := client.Acquire(ctx, Policy("exports"), "u1", Timeout(20*time.Millisecond))
			wantUnavailable(t, err, context.DeadlineExceeded)
			close(gaveUp)
			for _, want := range tt.want {
				if got := <-released; got != want {
					t.Errorf("released %d, want %d", got, want)
				}
			}
			ping(t, client)
			if len(released) != 0 || a.accepted.Load() != 1 {
				t.Errorf("%d more released, %d connections", len(released), a.accepted.Load())
			}
		})
	}
}

func TestReleaseByNumber(t *testing.T) {
	d := openDesk(t, nil)
	client := newClient(t, d.path, WithTimeout(long))
	got, err := client.Acquire(ctx, Policy("exports"), "u1")
	if err != nil || got.Permit != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []bool{true, false} {
		if held, err := client.Release(ctx, got.Permit); held != want || err != nil {
			t.Errorf("%d: %v, %v", i, held, err)
		}
	}
	if held, err := client.Release(ctx, 0); held || err != nil {
		t.Errorf("permit 0: %v, %v", held, err)
	}
	d.wantSaid(t, "acquire 1", "release 1", "release 1")
	d.stop()
	_, err = client.Release(ctx, 1)
	wantUnavailable(t, err, nil)
	if errors.Is(err, io.EOF) {
		t.Error("not tried on a fresh connection")
	}
}

func TestLimitsRefused(t *testing.T) {
	tests := []struct {
		limit Limit
		want  string
	}{
		{PerMinute(0), "count 0: allowed are 1 to 1000000000"},
		{PerMinute(1e9 + 1), "count 1000000001: allowed are 1 to 1000000000"},
		{Per(1, 0), "period 0s: allowed are 1ms to 8784h0m0s"},
		{Per(1, 9000*time.Hour), "period 9000h0m0s: allowed are 1ms to 8784h0m0s"},
		{Per(1, time.Microsecond), "period 1µs: allowed are whole milliseconds"},
		{PerMinute(1).Burst(-1), "burst -1: allowed are 0 to 1000000000"},
		{PerMinute(1).Algorithm("leaky"), `algorithm "leaky": there are ["token_bucket"`},
		{PerMinute(1).Algorithm(SlidingWindow).Burst(2), "burst 2: a sliding_window has none"},
		{PerMinute(10_001).Algorithm(SlidingLog), "count 10001: a sliding_log allows 1 to 10000"},
		{Concurrency(0, time.Minute), "count 0: allowed"},
		{Concurrency(3, 0), "maxHold 0s: allowed"},
		{Concurrency(3, time.Minute).Burst(5), "burst 5: a concurrency has none"},
	}
	client := newClient(t, socketName(t))
	for _, tt := range tests {
		_, err := client.Acquire(ctx, tt.limit, "k")
		var e *Error
		if !errors.As(err, &e) || e.Code != protocol.InvalidArgument || !strings.HasPrefix(e.Message, tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

func TestApp(t *testing.T) {
	tests := []struct {
		variable string
		opts     []Option
		call     []CallOption
		want     string
	}{
		{"", nil, nil, ""},
		{"shop", nil, nil, "shop"},
		{"shop", []Option{WithApp("till")}, nil, "till"},
		{"shop", []Option{WithApp("till")}, []CallOption{App("desk")}, "desk"},
	}
	for _, tt := range tests {
		t.Setenv(appVariable, tt.variable)
		got := make(chan string, 1)
		a := startAgent(t, func(p *peer) {
			for r, ok := p.next(); ok; r, ok = p.next() {
				var c protocol.Call
				var o protocol.Options
				if err := r.Call(&c, &o); err != nil {
					p.t.Error(err)
				}
				got <- string(o.App)
				p.allow(r.ID, 1)
			}
		})
		client := newClient(t, a.path, append(tt.opts, WithTimeout(long))...)
		if _, err := client.Acquire(ctx, Policy("api"), "k", tt.call...); err != nil {
			t.Fatal(err)
		}
		if app := <-got; app != tt.want {
			t.Errorf("app %q, want %q", app, tt.want)
		}
	}
	for _, name := range []string{"", strings.Repeat("a", 129)} {
		if _, err := New("/s", WithApp(name)); err == nil {
			t.Errorf("%q: want an error", name)
		}
	}
}
