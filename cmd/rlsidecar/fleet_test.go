// A fleet is many hosts on one machine: agents that are processes, one Redis, and one
// process, this one, that calls them all and remembers every call.

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/internal/arrivals"
	"rlsidecar/internal/bucket"
	"rlsidecar/internal/meter"
	"rlsidecar/internal/redistest"
)

// agentVariable names the binary that a fleet's agents run; without it they run this
// test's, which is the same code.
const agentVariable = "RLSIDECAR_AGENT"

type fleet struct {
	t       testing.TB
	redis   *redistest.Server
	clients []*rlsidecar.Client
}

// startFleet starts so many agents with this configuration, which must have a policy p
// and name redis, and returns when all have reached it.
func startFleet(t testing.TB, redis *redistest.Server, agents int, yaml string) *fleet {
	t.Helper()
	f := &fleet{t: t, redis: redis}
	dir, err := os.MkdirTemp("", "rls")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "rlsidecar.yaml")
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range agents {
		socket := filepath.Join(dir, strconv.Itoa(i))
		launch(t, "serve", "--socket", socket, "--config", config, "--log-level", "error", "--procs", "1")
		client, err := rlsidecar.New(socket, rlsidecar.WithTimeout(10*time.Second), rlsidecar.WithOnUnavailable(rlsidecar.Raise))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		f.clients = append(f.clients, client)
	}
	for i, c := range f.clients {
		f.await(i, c)
	}
	return f
}

// launch runs an agent until the test ends.
func launch(t testing.TB, args ...string) {
	t.Helper()
	bin := os.Getenv(agentVariable)
	if bin == "" {
		bin = os.Args[0]
	}
	c := exec.Command(bin, args...)
	c.Env = append(os.Environ(), asMain+"=1")
	c.Stderr = &lines{t: t}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

// await returns when the i-th agent answers from Redis.
func (f *fleet) await(i int, c *rlsidecar.Client) {
	f.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		d, err := c.Peek(f.t.Context(), rlsidecar.Policy("p"), "start")
		if err == nil && !d.Degraded {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("agent %d of %d did not reach Redis: %+v, %v", i, len(f.clients), d, err)
		}
	}
}

// call is one that was made: when it was due, sent and answered, in time since the
// beginning, and how.
type call struct {
	host           int
	due            time.Duration
	sent, answered time.Duration
	decision       rlsidecar.Decision
	err            error
}

// calls are in the order in which they were sent.
type calls []call

// load has calls come to the fleet as they arrive, whether earlier ones are answered
// or not, and returns when all are.
func (f *fleet) load(come *arrivals.Arrivals, length time.Duration, limit rlsidecar.Limit, key string) calls {
	due := schedule(come, length)
	made := make(calls, len(due))
	var all sync.WaitGroup
	began := time.Now()
	for i, c := range due {
		if wait := c.due - time.Since(began); wait > 0 {
			time.Sleep(wait)
		}
		all.Go(func() {
			c.sent = time.Since(began)
			c.decision, c.err = f.clients[c.host].Acquire(context.Background(), limit, key)
			c.answered = time.Since(began)
			made[i] = c
		})
	}
	all.Wait()
	slices.SortStableFunc(made, func(a, b call) int { return cmp.Compare(a.sent, b.sent) })
	return made
}

// schedule returns the calls that arrive in this time, not made yet.
func schedule(come *arrivals.Arrivals, length time.Duration) (all calls) {
	for {
		at, host := come.Next()
		if at > length {
			return all
		}
		all = append(all, call{host: host, due: at})
	}
}

func (cs calls) count(is func(*call) bool) (n int) {
	for i := range cs {
		if is(&cs[i]) {
			n++
		}
	}
	return n
}

func (c *call) failed() bool   { return c.err != nil }
func (c *call) allowed() bool  { return c.err == nil && c.decision.Allowed }
func (c *call) waited() bool   { return c.decision.Source == rlsidecar.FromRedis }
func (c *call) degraded() bool { return c.decision.Degraded }

// excess is how far the calls that were allowed surely exceeded rule.
func (cs calls) excess(rule *bucket.Rule) float64 {
	var uses []meter.Span
	for i := range cs {
		if c := &cs[i]; c.allowed() {
			uses = append(uses, meter.Span{From: c.sent.Microseconds(), To: c.answered.Microseconds()})
		}
	}
	return meter.SpansExcess(rule, 0, uses)
}

// central is which of the same calls one limiter would have allowed that is asked for
// every call and answers at once.
func (cs calls) central(rule *bucket.Rule) []bool {
	allows := make([]bool, len(cs))
	var g bucket.Gauge
	g.Fill(rule, 1, 0)
	for i := range cs {
		at := cs[i].sent.Microseconds()
		g.Refill(rule, 1, at, 0)
		if allows[i] = rule.Covers(g.Free(rule, 1, at, 0), 1); allows[i] {
			g.Use(rule, at, 1)
		}
	}
	return allows
}

// used is how many of the calls were allowed, in % of what central allows.
func (cs calls) used(rule *bucket.Rule) float64 {
	return cs.usedIn(0, len(cs), cs.central(rule))
}

// usedIn is used for those calls from one to before another.
func (cs calls) usedIn(from, to int, central []bool) float64 {
	would := 0
	for _, allows := range central[from:to] {
		if allows {
			would++
		}
	}
	return 100 * float64(cs[from:to].count((*call).allowed)) / float64(would)
}

// before is how many calls were sent before a moment.
func (cs calls) before(d time.Duration) int {
	n, _ := slices.BinarySearchFunc(cs, d, func(c call, d time.Duration) int { return cmp.Compare(c.sent, d) })
	return n
}

// slowest is the time that the fraction q of the calls did not exceed.
func (cs calls) slowest(q float64) time.Duration {
	return cs.quantile(q, func(c *call) time.Duration { return c.answered - c.sent })
}

// late is by how much at most the fraction q of the calls were sent late: more than some
// milliseconds say that the machine had other things to do.
func (cs calls) late(q float64) time.Duration {
	return cs.quantile(q, func(c *call) time.Duration { return c.sent - c.due })
}

func (cs calls) quantile(q float64, of func(*call) time.Duration) time.Duration {
	all := make([]time.Duration, len(cs))
	for i := range cs {
		all[i] = of(&cs[i])
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// scripts returns how many scripts each agent has sent to Redis.
func (f *fleet) scripts() (each []int) {
	f.t.Helper()
	for i, c := range f.clients {
		info, err := c.Info(f.t.Context())
		if err != nil {
			f.t.Fatalf("agent %d: %v", i, err)
		}
		stats, _ := info["stats"].(map[string]any)
		n, err := strconv.Atoi(fmt.Sprint(stats["redis_scripts"]))
		if err != nil {
			f.t.Fatalf("agent %d: redis_scripts: %v in %v", i, err, stats)
		}
		each = append(each, n)
	}
	return each
}
