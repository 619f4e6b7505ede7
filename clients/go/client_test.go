// What is asked, what is answered, and what errors mean.

package rlsidecar

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"rlsidecar/protocol"
)

// asked starts an agent that reports each request, encoded, and answers with reply.
func asked(t *testing.T, reply func(id uint32) []byte) (*Client, <-chan []byte) {
	t.Helper()
	seen := make(chan []byte, 1)
	a := startAgent(t, func(p *peer) {
		for r, ok := p.next(); ok; r, ok = p.next() {
			seen <- append([]byte(r.Name), r.Params...)
			p.send(reply(r.ID))
		}
	})
	return newClient(t, a.path, WithTimeout(long)), seen
}

func TestCallsOnTheWire(t *testing.T) {
	d := protocol.Decision{Allowed: true, Limit: 10, Remaining: 9, ResetAfterMS: 1500}
	decided := func(id uint32) []byte { return protocol.AppendDecision(nil, id, &d) }
	all := func(id uint32) []byte { return protocol.AppendAll(nil, id, true, []protocol.Decision{d, d}) }
	throttle := func(id uint32) []byte { return protocol.AppendThrottle(nil, id, [5]int64{0, 16, 15, -1, 2}) }
	info := func(id uint32) []byte { return protocol.AppendInfo(nil, id, map[string]any{"mode": "redis"}) }
	opts := func(m map[string]any) map[string]any { return m }
	tests := []struct {
		name   string
		reply  func(id uint32) []byte
		call   func(c *Client) (any, error)
		want   any
		method string
		params []any
	}{
		{"acquire", decided, func(c *Client) (any, error) { return c.Acquire(ctx, Policy("api"), "k") },
			Decision{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: 1500 * time.Millisecond},
			"acquire", []any{"api", "k", 1}},
		{"acquire with options", decided, func(c *Client) (any, error) {
			return c.Acquire(ctx, Policy("api"), "k", Cost(5), Wait(1500*time.Microsecond), App("shop"))
		}, decision(&d), "acquire", []any{"api", "k", 5, opts(map[string]any{"app": "shop", "wait_ms": 2})}},
		{"inline", decided, func(c *Client) (any, error) { return c.Acquire(ctx, PerMinute(60), "k") },
			decision(&d), "acquire", []any{[]any{60, 60000}, "k", 1}},
		{"inline with burst", decided, func(c *Client) (any, error) { return c.Acquire(ctx, PerSecond(60).Burst(10), "k") },
			decision(&d), "acquire", []any{[]any{60, 1000, 10}, "k", 1}},
		{"inline with algorithm", decided, func(c *Client) (any, error) {
			return c.Acquire(ctx, PerHour(60).Algorithm("sliding_log"), "k")
		}, decision(&d), "acquire", []any{[]any{60, 3600000, 0, "sliding_log"}, "k", 1}},
		{"inline with algorithm and burst", decided, func(c *Client) (any, error) {
			return c.Acquire(ctx, PerHour(60).Algorithm(LeakyBucket).Burst(5), "k")
		}, decision(&d), "acquire", []any{[]any{60, 3600000, 5, "leaky_bucket"}, "k", 1}},
		{"inline concurrency", decided, func(c *Client) (any, error) {
			return c.Acquire(ctx, Concurrency(3, time.Minute), "k")
		}, decision(&d), "acquire", []any{[]any{3, 60000, 0, "concurrency"}, "k", 1}},
		{"hold", decided, func(c *Client) (any, error) {
			_, d, err := c.Hold(ctx, Policy("exports"), "k", Cost(2), Wait(time.Second))
			return d, err
		}, decision(&d), "acquire", []any{"exports", "k", 2, opts(map[string]any{"wait_ms": 1000})}},
		{"release", trueReply, func(c *Client) (any, error) { return c.Release(ctx, 1<<53-1) },
			true, "release", []any{uint64(1<<53 - 1)}},
		{"peek", decided, func(c *Client) (any, error) { return c.Peek(ctx, Policy("api"), "k", Cost(0)) },
			decision(&d), "peek", []any{"api", "k", 0}},
		{"refund", trueReply, func(c *Client) (any, error) { return c.Refund(ctx, Policy("api"), "k", Cost(3)) },
			true, "refund", []any{"api", "k", 3}},
		{"reset", trueReply, func(c *Client) (any, error) { return c.Reset(ctx, Policy("api"), "k") },
			true, "reset", []any{"api", "k"}},
		{"acquire_all", all, func(c *Client) (any, error) {
			_, ds, err := c.AcquireAll(ctx, []Ask{{Policy("api"), "k", 0}, {Policy("login"), "j", 2}}, Wait(time.Second))
			return ds[1], err
		}, decision(&d), "acquire_all", []any{[]any{[]any{"api", "k", 1}, []any{"login", "j", 2}}, opts(map[string]any{"wait_ms": 1000})}},
		{"throttle", throttle, func(c *Client) (any, error) { return c.Throttle(ctx, "k", 15, 30, time.Minute, Cost(2)) },
			Throttled{Limit: 16, Remaining: 15, ResetAfter: 2 * time.Second}, "throttle", []any{"k", 15, 30, 60, 2}},
		{"info", info, func(c *Client) (any, error) {
			m, err := c.Info(ctx)
			return m["mode"], err
		}, "redis", "info", nil},
		{"ping", func(id uint32) []byte { return protocol.AppendPong(nil, id) },
			func(c *Client) (any, error) { return nil, c.Ping(ctx) }, nil, "ping", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, seen := asked(t, tt.reply)
			got, err := tt.call(client)
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
			r, _, _ := protocol.ParseRequest(protocol.AppendRequest(nil, 7, tt.method, tt.params...))
			if b, want := <-seen, append([]byte(tt.method), r.Params...); !bytes.Equal(b, want) {
				t.Errorf("sent %q, want %q", b, want)
			}
		})
	}
}

func trueReply(id uint32) []byte { return protocol.AppendTrue(nil, id) }

func TestDecisionsInGoTypes(t *testing.T) {
	tests := []struct {
		wire protocol.Decision
		want Decision
	}{
		{protocol.Decision{Limit: 5, RetryAfterMS: 250, ResetAfterMS: 1000, Source: 2},
			Decision{Limit: 5, RetryAfter: 250 * time.Millisecond, ResetAfter: time.Second, Source: FromDenial}},
		{protocol.Decision{Limit: 5, Remaining: 5, RetryAfterMS: -1, Source: 1},
			Decision{Limit: 5, Remaining: 5, RetryAfter: Never, Source: FromRedis}},
		{protocol.Decision{Allowed: true, Source: 4, Flags: 1},
			Decision{Allowed: true, Source: FromFallback, Degraded: true, Shadow: true}},
		{protocol.Decision{Allowed: true, Limit: 3, Permit: 1<<53 - 1}, Decision{Allowed: true, Limit: 3, Permit: 1<<53 - 1}},
		{protocol.Decision{Source: 200, Flags: 254, ResetAfterMS: math.MaxInt64},
			Decision{Source: 200, ResetAfter: math.MaxInt64}},
	}
	for _, tt := range tests {
		if got := decision(&tt.wire); got != tt.want {
			t.Errorf("%+v: got %+v, want %+v", tt.wire, got, tt.want)
		}
	}
	limited := Throttled{Limited: true, Limit: 5, RetryAfter: 3 * time.Second, ResetAfter: 9 * time.Second}
	if got := throttled([5]int64{1, 5, 0, 3, 9}); got != limited {
		t.Errorf("%+v", got)
	}
	if got := throttled([5]int64{1, 5, 5, -1, 0}); got.RetryAfter != Never {
		t.Errorf("%+v, want Never", got)
	}
}

func TestAgentErrors(t *testing.T) {
	tests := []struct {
		code        protocol.Code
		unavailable bool
	}{
		{protocol.InvalidRequest, true}, {protocol.UnknownMethod, true}, {protocol.UnknownPolicy, false},
		{protocol.InvalidArgument, false}, {protocol.Unavailable, true}, {protocol.Overloaded, true},
		{protocol.ShuttingDown, true}, {protocol.NotPermitted, false}, {protocol.Internal, true}, {99, true}, {-1, true},
	}
	var code protocol.Code
	client, seen := asked(t, func(id uint32) []byte { return protocol.AppendError(nil, id, code, "because") })
	for _, tt := range tests {
		code = tt.code
		_, err := client.Acquire(ctx, Policy("api"), "k")
		<-seen
		var e *Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Message != "because" || errors.Is(err, ErrUnavailable) != tt.unavailable {
			t.Errorf("%v: got %v, unavailable %v", tt.code, err, errors.Is(err, ErrUnavailable))
		}
	}
	if want := "rlsidecar: code 99: because"; (&Error{99, "because"}).Error() != want {
		t.Errorf("%v, want %s", &Error{99, "because"}, want)
	}
}

func TestRefusedBeforeSending(t *testing.T) {
	a := startAgent(t, allowAll)
	client := newClient(t, a.path, WithTimeout(long))
	_, tooLong := client.Acquire(ctx, Policy("api"), strings.Repeat("k", 70_000))
	_, fraction := client.Acquire(ctx, Per(1, 1500*time.Microsecond), "k")
	_, _, inAll := client.AcquireAll(ctx, []Ask{{Limit: Per(1, time.Nanosecond), Key: "k"}})
	_, seconds := client.Throttle(ctx, "k", 1, 1, 1500*time.Millisecond)
	for i, err := range []error{tooLong, fraction, inAll, seconds} {
		var e *Error
		if !errors.As(err, &e) || e.Code != protocol.InvalidArgument {
			t.Errorf("%d: %v, want invalid_argument", i, err)
		}
	}
	if _, err := client.Acquire(ctx, Policy("api"), "k"); err != nil || a.accepted.Load() != 1 || a.requests.Load() != 1 {
		t.Errorf("%v after %d connections, %d requests", err, a.accepted.Load(), a.requests.Load())
	}
}

func TestAddress(t *testing.T) {
	long := "/" + strings.Repeat("p", 106)
	tests := []struct {
		argument, variable string
		want, refusal      string
	}{
		{"", "", "/run/rlsidecar/rlsidecar.sock", ""},
		{"", "unix:///var/a.sock", "/var/a.sock", ""},
		{"", "/var/a.sock", "/var/a.sock", ""},
		{"unix:///var/b.sock", "/var/a.sock", "/var/b.sock", ""},
		{"b.sock", "", "b.sock", ""},
		{"unix://" + long, "", long, ""},
		{long + "p", "", "", fmt.Sprintf("rlsidecar: socket path of 108 bytes, %q: allowed are up to 107 bytes", long+"p")},
		{"tcp://127.0.0.1:80", "", "", `rlsidecar: address "tcp://127.0.0.1:80": allowed are unix:///path and a plain path`},
		{"unix://var/b.sock", "", "", `rlsidecar: address "unix://var/b.sock": allowed are unix:///path and a plain path`},
		{"", "http://h", "", `rlsidecar: address "http://h": allowed are unix:///path and a plain path`},
		{"a\x00b", "", "", "rlsidecar: socket path with a zero byte: allowed is any other"},
	}
	for _, tt := range tests {
		t.Setenv(addressVariable, tt.variable)
		c, err := New(tt.argument)
		switch {
		case tt.refusal != "":
			if err == nil || err.Error() != tt.refusal {
				t.Errorf("%q: %v, want %s", tt.argument, err, tt.refusal)
			}
		case err != nil || c.path != tt.want:
			t.Errorf("%q, %q: %v, want %s", tt.argument, tt.variable, err, tt.want)
		}
	}
	if _, err := New("/s", WithTimeout(0)); err == nil || err.Error() != "rlsidecar: timeout 0s: allowed are those above 0, to 1h0m0s" {
		t.Errorf("time-out 0: %v", err)
	}
}
