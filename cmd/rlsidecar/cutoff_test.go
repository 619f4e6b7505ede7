// Real hosts that lose Redis for a while, each with its share of every limit: together
// they admit what one limiter would, as long as demand stays as it was.

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/internal/arrivals"
	"rlsidecar/internal/bucket"
	"rlsidecar/internal/redistest"
)

var cutOffTable = flag.String("cutoff-table", "", "measure a longer outage and write the table to this `file`")

// cutOff is one load on a key of its own, and what came of it.
type cutOff struct {
	kind          string
	load          float64
	in, after     float64 // % of what a central limiter would have admitted, in and after the outage
	local         float64 // % of the calls in the outage that were answered without Redis
	excess        float64 // % of the capacity, over all
	slowest       time.Duration
	calls, failed int
}

const (
	cutOffHosts = 4
	cutOffLimit = 200 // a second, and the burst
)

// outage has all loads come at once, to agents that cannot reach Redis in the second
// of three equal parts of the time.
func outage(t *testing.T, loads []cutOff, part time.Duration) {
	redis := redistest.Start(t)
	f := startFleet(t, redis, cutOffHosts, fmt.Sprintf("redis: {url: %q, timeout: 100ms}\npolicies: {p: {limit: 1/s}}\n", redis.URL()))
	rule, err := bucket.NewRule(bucket.Limit{Count: cutOffLimit, Period: time.Second, Burst: cutOffLimit})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range loads {
		l := &loads[i]
		all.Go(func() {
			come := arrivals.New(l.kind, cutOffHosts, l.load*cutOffLimit, rand.New(rand.NewPCG(1, uint64(i))))
			l.judge(f.load(come, 3*part, rlsidecar.PerSecond(cutOffLimit), l.String()), &rule, part)
		})
	}
	time.Sleep(part)
	redis.Pause()
	time.Sleep(part)
	redis.Resume()
	all.Wait()
}

func (l *cutOff) String() string { return fmt.Sprintf("%s, %gx", l.kind, l.load) }

func (l *cutOff) judge(made calls, rule *bucket.Rule, part time.Duration) {
	central, lost, back := made.central(rule), made.before(part), made.before(2*part)
	l.in, l.after = made.usedIn(lost, back, central), made.usedIn(back, len(made), central)
	inside := made[lost:back]
	l.local = 100 * float64(inside.count((*call).degraded)) / float64(len(inside))
	l.excess = 100 * made.excess(rule) / cutOffLimit
	l.slowest, l.calls, l.failed = made.slowest(1), len(made), made.count((*call).failed)
}

// TestHostsWithoutRedis is the short form: what must hold on a busy machine too.
func TestHostsWithoutRedis(t *testing.T) {
	t.Parallel()
	loads := []cutOff{{kind: "zipf", load: 0.9}, {kind: "zipf", load: 1.5}, {kind: "even", load: 3}}
	outage(t, loads, 4*time.Second)
	for _, l := range loads {
		t.Logf("%+v", l)
		l.check(t, 90)
	}
}

// check fails the test unless least % were used in the outage. With the agents' time-out
// and the clock of this process, which learns of the outage's edges late, some more than
// all may be.
func (l *cutOff) check(t *testing.T, least float64) {
	t.Helper()
	if l.in < least || l.in > 103 || l.after < least {
		t.Errorf("%v: %.1f %% of what a central limiter admits in the outage, %.1f %% after it: want %g at least", l, l.in, l.after, least)
	}
	if l.excess > 15 {
		t.Errorf("%v: excess of %.1f %% of the capacity: want 15 at most", l, l.excess)
	}
	if l.failed > 0 || l.local < 50 {
		t.Errorf("%v: %d calls failed, and %.0f %% of those in the outage were answered without Redis", l, l.failed, l.local)
	}
}

// TestCutOffTable measures an outage of half a minute, for scripts/hosts.
func TestCutOffTable(t *testing.T) {
	if *cutOffTable == "" {
		return // TestHostsWithoutRedis is the short form
	}
	var loads []cutOff
	for _, kind := range []string{"even", "zipf"} {
		for _, load := range []float64{0.5, 0.9, 1.5, 5} {
			loads = append(loads, cutOff{kind: kind, load: load})
		}
	}
	outage(t, loads, 30*time.Second)
	var table strings.Builder
	table.WriteString("| load of 4 hosts | used in the outage, % | used after it, % | answered without Redis, % | excess, % of the capacity | slowest call, ms |\n|---|--:|--:|--:|--:|--:|\n")
	for _, l := range loads {
		fmt.Fprintf(&table, "| %v | %.1f | %.1f | %.0f | %.1f | %.0f |\n", &l, l.in, l.after, l.local, l.excess, l.slowest.Seconds()*1000)
		l.check(t, 95)
	}
	if err := os.WriteFile(*cutOffTable, []byte(table.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
