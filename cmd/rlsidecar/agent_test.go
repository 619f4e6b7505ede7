// Whole agents in this process, on real sockets, over a real Redis.

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/internal/policy"
	"rlsidecar/internal/redistest"
)

// running is an agent and a client of it.
type running struct {
	configFile string
	*agent
	client *rlsidecar.Client
	socket string
	stop   func() error
}

// startAgent runs an agent with this configuration until the test ends.
func startAgent(t *testing.T, yaml string) *running {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rlsidecar.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := policy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	config.Socket.Path = filepath.Join(t.TempDir(), "s")
	a, err := newAgent(config, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	a.follow(file, config)
	client, err := rlsidecar.New(config.Socket.Path, rlsidecar.WithTimeout(5*time.Second), rlsidecar.WithOnUnavailable(rlsidecar.Raise))
	if err != nil {
		t.Fatal(err)
	}
	signals, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- a.run(signals) }()
	stop := sync.OnceValue(func() error {
		signals <- syscall.SIGTERM
		defer client.Close()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return &running{configFile: file, agent: a, client: client, socket: config.Socket.Path, stop: stop}
}

// load calls at a steady rate until the time is up, and returns how many calls
// were made and allowed.
func (r *running) load(t *testing.T, key string, perSecond int, length time.Duration) (calls, allowed int64) {
	var made, passed atomic.Int64
	var all sync.WaitGroup
	const callers = 8
	for i := range callers {
		all.Go(func() {
			pause := time.Duration(callers) * time.Second / time.Duration(perSecond)
			next := time.Now().Add(pause * time.Duration(i) / callers)
			for end := next.Add(length); next.Before(end); next = next.Add(pause) {
				time.Sleep(time.Until(next))
				d, err := r.client.Acquire(t.Context(), rlsidecar.Policy("api"), key)
				if err != nil {
					t.Error(err)
					return
				}
				made.Add(1)
				if d.Allowed {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	return made.Load(), passed.Load()
}

func TestTwoAgentsShareOneLimit(t *testing.T) {
	const (
		rate, burst = 500, 500
		length      = 5 * time.Second
	)
	redis := redistest.Start(t)
	yaml := fmt.Sprintf("redis: {url: %q, timeout: 500ms}\npolicies: {api: {limit: %d/second}}\n", redis.URL(), rate)
	agents := []*running{startAgent(t, yaml), startAgent(t, yaml)}

	before := redis.CommandCalls(t, "evalsha")
	var calls, allowed atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for _, a := range agents {
		all.Go(func() {
			c, ok := a.load(t, "hot", 10*rate/len(agents), length)
			calls.Add(c)
			allowed.Add(ok)
		})
	}
	all.Wait()
	took := time.Since(began).Seconds()
	scripts := redis.CommandCalls(t, "evalsha") - before

	most := burst + rate*took
	per1000 := 1000 * float64(scripts) / float64(calls.Load())
	t.Logf("%d calls in %.2f s, %d allowed of at most %.0f (%.1f %%), %.1f scripts per 1,000 decisions", calls.Load(), took, allowed.Load(), most, 100*float64(allowed.Load())/most, per1000)
	if float64(allowed.Load()) > most {
		t.Errorf("%d calls were allowed, %.0f is the limit", allowed.Load(), most)
	}
	if float64(allowed.Load()) < 0.97*most {
		t.Errorf("%d calls were allowed of %.0f: less than 97 %%", allowed.Load(), most)
	}
	if per1000 > 50 {
		t.Errorf("%.1f scripts per 1,000 decisions: more than 50", per1000)
	}
}

func TestAgentEndsInOrder(t *testing.T) {
	redis := redistest.Start(t)
	a := startAgent(t, fmt.Sprintf("redis: {url: %q}\npolicies: {api: {limit: 1000/second}}\n", redis.URL()))
	a.load(t, "k", 1000, time.Second)
	began := time.Now()
	waiting := make(chan error, 1)
	go func() {
		_, err := a.client.Acquire(context.Background(), rlsidecar.Policy("api"), "other", rlsidecar.Cost(1000))
		if err == nil {
			_, err = a.client.Acquire(context.Background(), rlsidecar.Policy("api"), "other", rlsidecar.Cost(1000), rlsidecar.Wait(30*time.Second))
		}
		waiting <- err
	}()
	time.Sleep(100 * time.Millisecond)
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("ending took %v", took)
	}
	if err := <-waiting; err != nil {
		t.Errorf("the waiting call was not answered: %v", err)
	}
	if _, err := os.Lstat(a.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if c := a.limiter.Leases(); c.Granted != c.Spent+c.Returned+c.Expired {
		t.Errorf("permits are missing: %+v", c)
	}
}

func TestReloadThroughTheFile(t *testing.T) {
	a := startAgent(t, "policies: {api: {limit: 1/hour}}\n")
	d, err := a.client.Acquire(t.Context(), rlsidecar.Policy("api"), "k", rlsidecar.Cost(2))
	if err != nil || d.RetryAfter != rlsidecar.Never {
		t.Fatal(d, err)
	}
	file := a.configFile
	if err := os.WriteFile(file+".new", []byte("policies: {api: {limit: 100/hour}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); d.Limit != 100; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the file was not read again: %+v", d)
		}
		if d, err = a.client.Peek(t.Context(), rlsidecar.Policy("api"), "k"); err != nil {
			t.Fatal(err)
		}
	}
}
