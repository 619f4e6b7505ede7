// Several agents, processes of their own, that share a concurrency limit over one
// Redis, while they are killed, ended, cut off and started again.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/internal/redistest"
)

const (
	longestHold = time.Second
	leaseTime   = 2 * time.Second
)

// host is an agent that can be ended and started again, and a client of it.
type host struct {
	t              *testing.T
	socket, config string
	agent          *exec.Cmd
	client         *rlsidecar.Client
	ledger         *ledger
}

// newHost starts an agent that shares policy held with the others at this Redis.
func newHost(t *testing.T, redis, held string, l *ledger) *host {
	t.Helper()
	yaml := fmt.Sprintf("redis: {url: %q, timeout: 500ms}\npolicies:\n  held: {algorithm: concurrency, max_hold: %v, %s}\n", redis, longestHold, held)
	h := &host{t: t, socket: shortPath(t), config: written(t, yaml), ledger: l}
	var err error
	if h.client, err = rlsidecar.New(h.socket, rlsidecar.WithTimeout(2*time.Second), rlsidecar.WithOnUnavailable(rlsidecar.Raise)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.client.Close() })
	h.start()
	return h
}

func (h *host) start() {
	h.t.Helper()
	h.agent = process(h.t, h.socket, "--config", h.config, "--log-level", "error")
}

func (h *host) end(s syscall.Signal) {
	h.t.Helper()
	if err := h.agent.Process.Signal(s); err != nil {
		h.t.Fatal(err)
	}
	_ = h.agent.Wait()
}

// ledger is when permits were held, at the least: from the answer until before the
// release, or until the longest hold has passed since before the question. A holder
// whose agent has died goes on holding: it does not know.
type ledger struct {
	mu    sync.Mutex
	spans []span
}

func (l *ledger) add(asked, from, to time.Time) {
	if end := asked.Add(longestHold); end.Before(to) {
		to = end
	}
	l.mu.Lock()
	l.spans = append(l.spans, span{from, to})
	l.mu.Unlock()
}

func (l *ledger) most() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return most(l.spans)
}

// work takes permits, holds them for mostly some milliseconds and now and then for
// most of the longest hold, and releases them, until ctx ends. It notes each
// permit, and reports how many there were.
func (h *host) work(ctx context.Context, rng *rand.Rand) (taken int) {
	for ctx.Err() == nil {
		asked := time.Now()
		d, err := h.client.Acquire(ctx, rlsidecar.Policy("held"), "k", rlsidecar.Wait(20*time.Millisecond))
		from := time.Now()
		if err != nil || !d.Allowed {
			time.Sleep(time.Duration(rng.IntN(10_000)) * time.Microsecond)
			continue
		}
		taken++
		length := time.Duration(rng.IntN(20)) * time.Millisecond
		if rng.IntN(8) == 0 {
			length = time.Duration(rng.IntN(900)) * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(length):
		}
		h.ledger.add(asked, from, time.Now())
		if rng.IntN(50) > 0 { // some never release
			_, _ = h.client.Release(context.Background(), d.Permit)
		}
	}
	return taken
}

// crowd has so many workers at each host until the returned function is called. That
// returns how many permits each host got, and fails the test when more than limit
// were held at once, or never so many as least.
func crowd(t *testing.T, hosts []*host, workers, least, limit int) (stop func() []int) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	taken := make([]int, len(hosts)*workers)
	for i := range taken {
		all.Go(func() { taken[i] = hosts[i/workers].work(ctx, rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	return func() []int {
		t.Helper()
		cancel()
		all.Wait()
		each := make([]int, len(hosts))
		for i, n := range taken {
			each[i/workers] += n
		}
		got := hosts[0].ledger.most()
		t.Logf("permits by host: %v, at most %d at once of %d", each, got, limit)
		if got > limit {
			t.Errorf("%d permits were held at once, %d is the limit", got, limit)
		}
		if got < least {
			t.Errorf("no more than %d permits were held at once, %d were to be had: the test tries little", got, least)
		}
		return each
	}
}

func TestNeverMoreHeldThanTheLimit(t *testing.T) {
	t.Parallel()
	atOnce(t, map[string]int{"too few to lease": 4, "leased": 40}, func(t *testing.T, _ string, limit int) {
		redis, l := redistest.Start(t), &ledger{}
		var hosts []*host
		for range 3 {
			hosts = append(hosts, newHost(t, redis.URL(), fmt.Sprintf("limit: %d, when_redis_is_down: deny", limit), l))
		}
		stop := crowd(t, hosts, limit, limit/2, limit)
		time.Sleep(time.Second) // the load is the test: it has to last
		hosts[0].end(syscall.SIGKILL)
		hosts[0].start()
		time.Sleep(500 * time.Millisecond)
		hosts[1].end(syscall.SIGTERM)
		hosts[1].start()
		time.Sleep(leaseTime + longestHold)
		stop()
	})
}

// TestEachHostGetsItsTurn though another, with callers that always wait, has taken
// all there is before.
func TestEachHostGetsItsTurn(t *testing.T) {
	t.Parallel()
	atOnce(t, map[string]int{"too few to lease": 4, "leased": 20}, func(t *testing.T, _ string, limit int) {
		redis, l, held := redistest.Start(t), &ledger{}, fmt.Sprintf("limit: %d", limit)
		first, second := newHost(t, redis.URL(), held, l), newHost(t, redis.URL(), held, l)
		stopFirst := crowd(t, []*host{first}, 2*limit, limit/2, limit)
		time.Sleep(500 * time.Millisecond)
		stopSecond := crowd(t, []*host{second}, 2*limit, limit/2, limit)
		time.Sleep(leaseTime + longestHold)
		late, early := stopSecond()[0], stopFirst()[0]
		if late < (late+early)/20 {
			t.Errorf("the host that came second got %d of %d permits in %v", late, late+early, leaseTime+longestHold)
		}
	})
}

// TestCutOffFromRedis: a host that cannot reach Redis for longer than anybody
// remembers it, and comes back. It adds what its policy admits meanwhile, no more.
func TestCutOffFromRedis(t *testing.T) {
	t.Parallel()
	type outage struct {
		down  string
		extra int
	}
	atOnce(t, map[string]outage{
		"deny":  {"deny", 0},
		"local": {"{mode: local, share: 0.25}", 5},
	}, func(t *testing.T, _ string, c outage) {
		const limit = 20
		redis, l := redistest.Start(t), &ledger{}
		proxy := redistest.StartProxy(t, redis.Addr)
		held := fmt.Sprintf("limit: %d, when_redis_is_down: %s", limit, c.down)
		hosts := []*host{newHost(t, "redis://"+proxy.Addr, held, l), newHost(t, redis.URL(), held, l)}
		stop := crowd(t, hosts, limit, limit/2, limit+c.extra)
		time.Sleep(500 * time.Millisecond)
		proxy.BlackHole(true)
		time.Sleep(leaseTime + longestHold + 500*time.Millisecond)
		proxy.BlackHole(false)
		proxy.Cut()
		time.Sleep(1500 * time.Millisecond)
		stop()
	})
}

// take acquires permits one by one, and fails if there are fewer.
func (h *host) take(n int) (permits []uint64) {
	h.t.Helper()
	for i := range n {
		d, err := h.client.Acquire(h.t.Context(), rlsidecar.Policy("held"), "k", rlsidecar.Wait(500*time.Millisecond))
		if err != nil || !d.Allowed {
			h.t.Fatalf("permit %d of %d: %+v, %v", i+1, n, d, err)
		}
		permits = append(permits, d.Permit)
	}
	return permits
}

func (h *host) release(permits ...uint64) {
	h.t.Helper()
	for _, p := range permits {
		if held, err := h.client.Release(h.t.Context(), p); !held || err != nil {
			h.t.Fatalf("release: %v, %v", held, err)
		}
	}
}

// wantAll fails unless so many permits can be had together between two moments.
func (h *host) wantAll(cost int, least, limit time.Time) {
	h.t.Helper()
	d, err := h.client.Acquire(h.t.Context(), rlsidecar.Policy("held"), "k", rlsidecar.Cost(int64(cost)), rlsidecar.Wait(10*time.Second))
	now := time.Now()
	switch {
	case err != nil || !d.Allowed:
		h.t.Fatalf("%d permits together: %+v, %v", cost, d, err)
	case now.Before(least):
		h.t.Errorf("%d permits were free %v too early", cost, least.Sub(now))
	case now.After(limit):
		h.t.Errorf("%d permits were free %v too late", cost, now.Sub(limit))
	}
	h.release(d.Permit)
}

// TestAgentEndsWithPermitsHeld: what its callers hold stays theirs for the longest
// hold, which nobody can end for them. The rest is free: at once when the agent ended
// in order, else when its lease and the longest hold have passed.
func TestAgentEndsWithPermitsHeld(t *testing.T) {
	t.Parallel()
	const limit, margin = 40, time.Second
	type end struct {
		signal  syscall.Signal
		held    int
		free    int // permits, after the end
		allFree time.Duration
	}
	atOnce(t, map[string]end{
		"killed":                 {syscall.SIGKILL, 12, 1, leaseTime + longestHold + margin},
		"ended":                  {syscall.SIGTERM, 12, limit - 12, leaseTime + longestHold + margin},
		"ended, nothing is held": {syscall.SIGTERM, 0, limit, leaseTime + margin},
	}, func(t *testing.T, _ string, c end) {
		redis, policy := redistest.Start(t), fmt.Sprintf("limit: %d, when_redis_is_down: deny", limit)
		first, second := newHost(t, redis.URL(), policy, nil), newHost(t, redis.URL(), policy, nil)
		first.release(first.take(limit / 2)...) // for a lease to be left
		began := time.Now()
		first.take(c.held)
		taken := time.Now()
		first.end(c.signal)
		second.wantAll(c.free, began, time.Now().Add(margin))
		first.start()
		first.release(first.take(1)...)
		least := began
		if c.held > 0 {
			least = began.Add(longestHold)
		}
		second.wantAll(limit, least, taken.Add(c.allFree))
	})
}
