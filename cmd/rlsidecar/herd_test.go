// Herds: many agents that lose Redis at the same moment and find it again at the same
// moment must not fall upon it. What they do to it is read off its own counters.

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/internal/bucket"
	"rlsidecar/internal/redistest"
)

var herdTable = flag.String("herd-table", "", "measure 50 agents and write the table to this `file`")

const (
	poolSize  = 8               // connections of one agent to one Redis at most, with those that knock, also while it stands still
	watchTime = 4 * time.Second // after Redis is back
	lookEvery = 100 * time.Millisecond
)

// counters are what Redis has counted since it started, less what watching it added.
type counters struct {
	run                      string        // of Redis; it counts from 0 in each
	at                       time.Duration // since the watch began
	connects, loads, scripts int
}

// witness reads the counters of Redis until it is stopped.
type witness struct {
	redis *redistest.Server
	began time.Time
	done  chan struct{}
	ended sync.WaitGroup
	run   string // the last that was seen
	looks int    // at it
	seen  []counters
}

func startWitness(redis *redistest.Server) *witness {
	w := &witness{redis: redis, began: time.Now(), done: make(chan struct{})}
	w.ended.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			w.look()
			select {
			case <-w.done:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

// stop ends the watch and returns all it saw.
func (w *witness) stop() []counters {
	close(w.done)
	w.ended.Wait()
	return w.seen
}

// look notes the counters, if Redis answers.
func (w *witness) look() {
	info, err := w.redis.DoErr("INFO", "everything")
	if err != nil {
		return
	}
	if run := field(info, "run_id"); run != w.run { // it is asked for a PING before it counts as started
		w.run, w.looks = run, 1
	}
	w.looks++
	w.seen = append(w.seen, counters{
		run:      w.run,
		at:       time.Since(w.began),
		connects: number(field(info, "total_connections_received")) - w.looks,
		loads:    number(field(info, "cmdstat_script|load")),
		scripts:  number(field(info, "cmdstat_evalsha")),
	})
}

var ofInfo = regexp.MustCompile(`(?m)^([a-z_|]+):(?:calls=)?([0-9a-f]+)`)

func field(info, name string) string {
	for _, m := range ofInfo.FindAllStringSubmatch(info, -1) {
		if m[1] == name {
			return m[2]
		}
	}
	return "0"
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// herd is a fleet whose agents are all asked all the time.
type herd struct {
	*fleet
	stop   context.CancelFunc
	asking sync.WaitGroup

	mu    sync.Mutex  // mu guards since
	since []time.Time // when each agent last began to answer with Redis; zero: it does not
}

func startHerd(t testing.TB, agents int) *herd {
	redis := redistest.Start(t)
	h := &herd{fleet: startFleet(t, redis, agents, fmt.Sprintf("redis: {url: %q, timeout: 250ms}\npolicies: {p: {limit: 1000/s}}\n", redis.URL()))}
	h.since = make([]time.Time, agents)
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	for i := range agents {
		h.asking.Go(func() { h.ask(ctx, i) })
	}
	t.Cleanup(func() { h.stop(); h.asking.Wait() })
	return h
}

// ask asks one agent 25 times a second for one of ten keys.
func (h *herd) ask(ctx context.Context, i int) {
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for n := i; ; n++ {
		d, err := h.clients[i].Acquire(context.Background(), rlsidecar.Policy("p"), strconv.Itoa(n%10))
		h.note(i, err == nil && !d.Degraded)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (h *herd) note(i int, withRedis bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !withRedis:
		h.since[i] = time.Time{}
	case h.since[i].IsZero():
		h.since[i] = time.Now()
	}
}

// backAfter returns how long after a moment each agent began to answer with Redis, and
// has since; those that do not are left out.
func (h *herd) backAfter(moment time.Time) (all []time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, since := range h.since {
		if !since.IsZero() {
			all = append(all, since.Sub(moment))
		}
	}
	return all
}

// outages take Redis away from all at once.
var outages = map[string]struct{ begin, end func(*herd) }{
	"killed and restarted":  {func(h *herd) { h.redis.Kill() }, func(h *herd) { h.redis.Restart(h.t) }},
	"stopped and continued": {func(h *herd) { h.redis.Pause() }, func(h *herd) { h.redis.Resume() }},
}

// aftermath is what Redis saw of an outage: in the second before it, and from its end
// on.
type aftermath struct {
	name   string
	agents int
	before counters
	after  []counters      // at counts from the end of the outage
	back   []time.Duration // each agent, after the end
}

// suffer lets the herd run for a while, has an outage of some length, and watches what
// comes of it.
func (h *herd) suffer(name string, length time.Duration) aftermath {
	o, w := outages[name], startWitness(h.redis)
	time.Sleep(2 * time.Second) // the load is the test: it has to last
	began := time.Now()
	o.begin(h)
	time.Sleep(length)
	o.end(h)
	back := time.Now()
	time.Sleep(watchTime)
	a := aftermath{name: name, agents: len(h.clients), back: h.backAfter(back)}
	a.split(w.stop(), began.Sub(w.began), back.Sub(w.began))
	return a
}

// split sorts what was seen into the last second before an outage and what came after
// it.
func (a *aftermath) split(seen []counters, began, back time.Duration) {
	var last counters
	for _, c := range seen {
		switch {
		case c.at < began-time.Second:
			a.before = c
		case c.at < began:
			last = c
		case c.at >= back:
			d := c.less(last)
			d.at = c.at - back
			a.after = append(a.after, d)
		}
	}
	a.before = last.less(a.before)
}

// less returns what was counted between o and c.
func (c counters) less(o counters) counters {
	if c.run != o.run && o.run != "" {
		o = counters{at: o.at}
	}
	return counters{"", c.at - o.at, c.connects - o.connects, c.loads - o.loads, c.scripts - o.scripts}
}

// upTo returns what was counted within d of the end of the outage.
func (a *aftermath) upTo(d time.Duration) (c counters) {
	for _, seen := range a.after {
		if seen.at <= d {
			c = seen
		}
	}
	return c
}

// most returns the most of each that any second after the outage brought.
func (a *aftermath) most() (most counters) {
	for i, from := range append([]counters{{}}, a.after...) {
		for _, to := range a.after[min(i, len(a.after)):] {
			if to.at-from.at <= time.Second {
				d := to.less(from)
				most.connects, most.loads, most.scripts = max(most.connects, d.connects), max(most.loads, d.loads), max(most.scripts, d.scripts)
			}
		}
	}
	return most
}

// check fails the test where Redis had to suffer, or the agents stayed away.
func (a *aftermath) check(t *testing.T, recovery time.Duration) {
	t.Helper()
	if len(a.back) < a.agents || slices.Max(a.back) > recovery {
		t.Errorf("%s: %d of %d agents answered with Redis again, after %v: want all within %v", a.name, len(a.back), a.agents, a.back, recovery)
	}
	most, loads := a.most(), a.agents*len(bucket.Algorithms())
	if most.connects > a.agents*poolSize || most.loads > 2*loads {
		t.Errorf("%s: %d connects and %d SCRIPT LOADs in one second: want %d and %d at most", a.name, most.connects, most.loads, a.agents*poolSize, 2*loads)
	}
	if normal := max(a.before.scripts, a.agents); most.scripts > 2*normal {
		t.Errorf("%s: %d scripts in one second, %d in the one before the outage: want twice as many at most", a.name, most.scripts, normal)
	}
	late := a.upTo(watchTime).less(a.upTo(watchTime - 2*time.Second))
	if late.connects > a.agents/5 || late.loads > a.agents/5 {
		t.Errorf("%s: %d connects and %d SCRIPT LOADs in the last two seconds: they go on", a.name, late.connects, late.loads)
	}
}

func TestAHerdThatLosesRedis(t *testing.T) {
	t.Parallel()
	h := startHerd(t, 12)
	for name := range outages {
		a := h.suffer(name, 1500*time.Millisecond)
		t.Logf("%s: a second before %+v; half a second after %+v; at last %+v; agents after %v", name, a.before, a.upTo(time.Second/2), a.upTo(watchTime), a.back)
		a.check(t, 4*time.Second)
	}
}

// TestHerdTable measures 50 agents, for scripts/hosts.
func TestHerdTable(t *testing.T) {
	if *herdTable == "" {
		return // TestAHerdThatLosesRedis is the short form
	}
	h := startHerd(t, 50)
	var table strings.Builder
	table.WriteString("| Redis, under 50 agents | time | connects | SCRIPT LOADs | lease scripts | agents back |\n|---|---|--:|--:|--:|--:|\n")
	for _, name := range []string{"killed and restarted", "stopped and continued"} {
		a := h.suffer(name, 3*time.Second)
		a.write(&table)
		a.check(t, 2*time.Second)
	}
	if err := os.WriteFile(*herdTable, []byte(table.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// write adds the lines of a to the table.
func (a *aftermath) write(table *strings.Builder) {
	row := func(when string, c counters, back int) {
		fmt.Fprintf(table, "| %s | %s | %d | %d | %d | %d |\n", a.name, when, c.connects, c.loads, c.scripts, back)
	}
	row("the second before", a.before, a.agents)
	from := time.Duration(0)
	for _, to := range []time.Duration{100, 200, 300, 500, 1000, 2000, 3000, 4000} {
		to *= time.Millisecond
		row(fmt.Sprintf("%v to %v after", from, to), a.upTo(to).less(a.upTo(from)), a.backBy(to))
		from = to
	}
}

func (a *aftermath) backBy(d time.Duration) (n int) {
	for _, after := range a.back {
		if after <= d {
			n++
		}
	}
	return n
}
