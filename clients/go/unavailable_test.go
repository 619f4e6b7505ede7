// What calls do without a decision of the agent, and what is said about it.

package rlsidecar

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestEveryCallWithoutAgent(t *testing.T) {
	gone := func(mode OnUnavailable) *Client {
		return newClient(t, socketName(t), WithOnUnavailable(mode), WithTimeout(long), WithLogger(slog.New(slog.DiscardHandler)))
	}
	policy, own := Policy("api"), PerMinute(5)
	for mode, want := range map[OnUnavailable]Decision{
		Allow: {Allowed: true, Degraded: true, Source: FromClient},
		Deny:  {RetryAfter: time.Second, Degraded: true, Source: FromClient},
		Local: {Allowed: true, Degraded: true, Source: FromClient},
	} {
		c := gone(mode)
		acquired, err1 := c.Acquire(ctx, policy, "k")
		peeked, err2 := c.Peek(ctx, policy, "k")
		permit, held, err3 := c.Hold(ctx, policy, "k")
		allowed, all, err4 := c.AcquireAll(ctx, []Ask{{Limit: policy, Key: "k"}, {Limit: policy, Key: "j"}})
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		for _, d := range append(all, acquired, peeked, held) {
			if d != want {
				t.Errorf("%s: %+v, want %+v", mode, d, want)
			}
		}
		if allowed != want.Allowed || permit != nil {
			t.Errorf("%s: all %v, permit %v", mode, allowed, permit)
		}
		throttled, err := c.Throttle(ctx, "k", 4, 5, time.Minute)
		if err != nil || throttled.Limited == want.Allowed || !throttled.Degraded {
			t.Errorf("%s: %+v, %v", mode, throttled, err)
		}
		refunded, err1 := c.Refund(ctx, policy, "k")
		reset, err2 := c.Reset(ctx, policy, "k")
		released, err3 := c.Release(ctx, 9)
		if refunded || reset || released || errors.Join(err1, err2, err3) != nil {
			t.Errorf("%s: %v %v %v, %v", mode, refunded, reset, released, errors.Join(err1, err2, err3))
		}
		if d, err := c.Acquire(ctx, own, "k", Cost(6)); err != nil || d.Allowed || d.RetryAfter != Never {
			t.Errorf("%s: above the capacity: %+v, %v", mode, d, err)
		}
		wantUnavailable(t, c.Ping(ctx), ErrNotRunning)
		left, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := c.Acquire(left, policy, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a caller that gave up got %v", mode, err)
		}
	}
	_, err := gone(Raise).Acquire(ctx, policy, "k")
	wantUnavailable(t, err, ErrNotRunning)
}

func TestKindsOfUnavailable(t *testing.T) {
	silent := startAgent(t, func(p *peer) { p.untilGone() })
	garbage := startAgent(t, func(p *peer) {
		p.next()
		p.send([]byte("garbage"))
		p.untilGone()
	})
	tests := []struct {
		path string
		want error
	}{{silent.path, ErrTimeout}, {garbage.path, ErrProtocol}, {socketName(t), ErrNotRunning}}
	for _, tt := range tests {
		_, err := newClient(t, tt.path, WithTimeout(100*time.Millisecond)).Acquire(ctx, Policy("api"), "k")
		for _, kind := range []error{ErrTimeout, ErrProtocol, ErrNotRunning} {
			if errors.Is(err, kind) != (kind == tt.want) || !errors.Is(err, ErrUnavailable) {
				t.Errorf("%v: is %v: %v", err, kind, errors.Is(err, kind))
			}
		}
	}
}

func TestLogsOncePerInterval(t *testing.T) {
	var lines bytes.Buffer
	c := newClient(t, socketName(t), WithOnUnavailable(Allow), WithLogger(slog.New(slog.NewTextHandler(&lines, nil))))
	for range 50 {
		if _, err := c.Acquire(ctx, Policy("api"), "k"); err != nil {
			t.Fatal(err)
		}
	}
	c.complaints.quietUntil = time.Now()
	if _, err := c.Acquire(ctx, Policy("api"), "k"); err != nil {
		t.Fatal(err)
	}
	got := lines.String()
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "more_since_last_line=49") {
		t.Errorf("logged %s", got)
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	now := time.Now()
	bound := firstPause
	for range 10 {
		b.note(now, unavailable(ErrNotRunning, errors.New("no such file")))
		if pause := b.next.Sub(now); pause < 0 || pause > bound {
			t.Errorf("pause of %v, allowed are 0 to %v", pause, bound)
		}
		if b.next.After(now) && !errors.Is(b.pause(now), ErrNotRunning) {
			t.Errorf("%v, want the reason of the pause", b.pause(now))
		}
		if err := b.pause(b.next); err != nil {
			t.Errorf("after the pause: %v", err)
		}
		bound = min(2*bound, longestPause)
	}
	b.note(now, context.DeadlineExceeded)
	if b.bound != longestPause {
		t.Errorf("%v: a slow agent counts as none", b.bound)
	}
	if b.note(now, nil); b.pause(now) != nil || b.bound != 0 {
		t.Errorf("%v, %v after a connect", b.pause(now), b.bound)
	}
}

func TestEnvironment(t *testing.T) {
	for _, name := range []string{timeoutVariable, modeVariable, disableVariable} {
		t.Setenv(name, "")
	}
	tests := []struct {
		name, value string
		opts        []Option
		refusal     string
		ok          func(c *Client) bool
	}{
		{timeoutVariable, "20", nil, "", func(c *Client) bool { return c.timeout == 20*time.Millisecond }},
		{timeoutVariable, "0.5", nil, "", func(c *Client) bool { return c.timeout == 500*time.Microsecond }},
		{timeoutVariable, "20", []Option{WithTimeout(time.Second)}, "", func(c *Client) bool { return c.timeout == time.Second }},
		{timeoutVariable, "0", nil, `RLSIDECAR_TIMEOUT_MS "0": allowed are numbers above 0, to 3600000`, nil},
		{timeoutVariable, "NaN", nil, `"NaN"`, nil},
		{modeVariable, "deny", nil, "", func(c *Client) bool { return c.mode == Deny }},
		{modeVariable, "deny", []Option{WithOnUnavailable(Raise)}, "", func(c *Client) bool { return c.mode == Raise }},
		{modeVariable, "", nil, "", func(c *Client) bool { return c.mode == Allow }},
		{modeVariable, "maybe", nil, `on_unavailable "maybe": there are ["allow" "deny" "local" "raise"]`, nil},
		{disableVariable, "Yes", nil, "", func(c *Client) bool { return c.disabled }},
		{disableVariable, "0", nil, "", func(c *Client) bool { return !c.disabled }},
		{disableVariable, "2", nil, `RLSIDECAR_DISABLE "2": allowed are 1 and 0`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			t.Setenv(tt.name, tt.value)
			c, err := New("/s", tt.opts...)
			switch {
			case tt.refusal != "" && (err == nil || !strings.Contains(err.Error(), tt.refusal)):
				t.Errorf("%v, want %s", err, tt.refusal)
			case tt.refusal == "" && (err != nil || !tt.ok(c)):
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

func TestDisabled(t *testing.T) {
	t.Setenv(disableVariable, "1")
	a := startAgent(t, func(p *peer) { t.Error("was asked") })
	c := newClient(t, a.path)
	for range 2 {
		permit, d, err := c.Hold(ctx, Concurrency(1, time.Minute), "k")
		if err != nil || !d.Allowed || !d.Degraded {
			t.Errorf("%+v, %v", d, err)
		}
		if held, err := permit.Release(); held || err != nil {
			t.Errorf("%v, %v", held, err)
		}
	}
}
