// The twins: the scripts on a real Redis and internal/bucket must answer the same
// asks at the same times with the same bits.

package remote

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"rlsidecar/internal/bucket"
)

const (
	twinRuns  = 1300
	twinCalls = 240 // about one bucket to three
)

// timed is a script with its clock made an argument: for these tests alone.
func timed(t *testing.T, s *script) string {
	const clock = "redis.call('TIME')"
	if strings.Count(s.text, clock) != 1 {
		t.Fatalf("a script must read the clock once, by %s", clock)
	}
	return strings.Replace(s.text, clock, "{ARGV[#ARGV - 1], ARGV[#ARGV]}", 1)
}

// twin is the Go side.
type twin interface {
	Apply(r *bucket.Rule, now int64, a *bucket.Ask) bucket.Grant
}

func TestScriptsAndStatesAreTwins(t *testing.T) {
	if err := flag.Set("rapid.checks", fmt.Sprint(twinRuns)); err != nil {
		t.Fatal(err)
	}
	client := clientOf(t)
	for _, name := range bucket.Algorithms() {
		t.Run(name, func(t *testing.T) { compareTwins(t, client, name) })
	}
}

func compareTwins(t *testing.T, client *redis.Client, name string) {
	algorithm, _ := bucket.ParseAlgorithm(name)
	script := redis.NewScript(timed(t, scriptOf(algorithm)))
	if err := script.Load(t.Context(), client).Err(); err != nil {
		t.Fatal(err)
	}
	var sum tally
	rapid.Check(t, func(rt *rapid.T) {
		twins := drawTwins(rt, algorithm, sum.runs.Add(1))
		now := rapid.Int64Range(1, 1e15).Draw(rt, "start")
		pipe := client.Pipeline()
		var calls []*twinCall
		for range rapid.IntRange(1, twinCalls).Draw(rt, "calls") {
			now = max(1, now+drawStep(rt))
			c := drawCall(rt, twins, now)
			c.replies = script.EvalSha(context.Background(), pipe, c.keys, append(c.words, now/1e6, now%1e6)...)
			calls = append(calls, c)
		}
		if _, err := pipe.Exec(context.Background()); err != nil {
			rt.Fatalf("the script failed: %v", err)
		}
		for _, c := range calls {
			c.compare(rt, &sum)
		}
		for _, w := range twins {
			w.checkInvariant(rt)
		}
	})
	sum.check(t)
}

// tally is what the random asks came to.
type tally struct{ runs, asked, granted, void, scarce, ahead atomic.Int64 }

func (s *tally) check(t *testing.T) {
	t.Logf("%d asks, %d with the clock set back, %d permits granted, %d leases void, %d answers scarce",
		s.asked.Load(), s.ahead.Load(), s.granted.Load(), s.void.Load(), s.scarce.Load())
	if s.asked.Load() < 100_000 || s.granted.Load() < 100_000 || s.void.Load() == 0 || s.scarce.Load() == 0 || s.ahead.Load() < 10_000 {
		t.Error("too few: want 100000 asks and permits, 10000 with the clock set back, and some void and scarce")
	}
}

// twinCall is one call about some buckets, perhaps more than once about one.
type twinCall struct {
	keys    []string
	words   []any
	rules   []bucket.Rule
	asks    []bucket.Ask
	want    []bucket.Grant
	ahead   int64 // buckets whose time is ahead
	replies *redis.Cmd
}

func drawCall(rt *rapid.T, twins []*world, now int64) *twinCall {
	c := &twinCall{}
	for range rapid.IntRange(1, len(twins)).Draw(rt, "asks") {
		w := rapid.SampledFrom(twins).Draw(rt, "bucket")
		rule, ask := w.ask(rt)
		g := w.twin.Apply(&rule, now, &ask)
		w.answered(&ask, &g)
		c.keys, c.words = append(c.keys, w.key), append(c.words, AppendAsk(nil, &rule, &ask))
		c.rules, c.asks, c.want = append(c.rules, rule), append(c.asks, ask), append(c.want, g)
		if w.ahead() > 0 {
			c.ahead++
		}
	}
	return c
}

func (c *twinCall) compare(rt *rapid.T, sum *tally) {
	texts, err := c.replies.StringSlice()
	if err != nil || len(texts) != len(c.want) {
		rt.Fatalf("%d replies of %d: %v", len(texts), len(c.want), err)
	}
	sum.ahead.Add(c.ahead)
	for i, text := range texts {
		got, err := parseGrant(text, &c.rules[i])
		if err != nil {
			rt.Fatal(err)
		}
		if got != c.want[i] {
			rt.Fatalf("ask %+v\nof %+v\nscript %+v\nstate  %+v", c.asks[i], c.rules[i], got, c.want[i])
		}
		sum.asked.Add(1)
		sum.granted.Add(got.Permits)
		if got.Void {
			sum.void.Add(1)
		}
		if got.Scarce {
			sum.scarce.Add(1)
		}
	}
}

func (w *world) checkInvariant(rt *rapid.T) {
	s, is := w.twin.(*bucket.State)
	if !is || s.N == 0 {
		return
	}
	r := &w.rule
	free := s.Gauge.Free(r, 1, s.At, s.Outstanding)
	if r.Levelled() {
		free += float64(s.Outstanding)
	}
	if over := free - float64(r.Capacity()); over > 1e-5 {
		rt.Fatalf("l + o exceeds B by %g: %+v", over, s)
	}
}

// drawKey is any bytes a key may have, up to the longest.
func drawKey(rt *rapid.T, unique string) string {
	rest := rapid.SampledFrom([]string{"", "{}", "}{", " a b\r\n", "\x00\xff", "ü€😀", strings.Repeat("k", 1024)}).Draw(rt, "key")
	return unique + rest
}

// drawTwins is up to three buckets of an algorithm.
func drawTwins(rt *rapid.T, a bucket.Algorithm, run int64) (all []*world) {
	for i := range rapid.IntRange(1, 3).Draw(rt, "buckets") {
		w := &world{algorithm: a, key: drawKey(rt, fmt.Sprint(a, run, "/", i)), twin: &bucket.State{}}
		if a == bucket.Concurrency {
			w.twin = &bucket.Holders{}
		}
		all = append(all, w)
	}
	return all
}

// world is a few agents that ask one bucket.
type world struct {
	algorithm bucket.Algorithm
	key       string
	twin      twin
	rule      bucket.Rule
	lease     [3]struct{ epoch, slot, recorded, keep int64 }
	agent     int
	seq       int64
}

// ahead is how far the bucket's own time is ahead of the clock.
func (w *world) ahead() int64 {
	if s, is := w.twin.(*bucket.State); is {
		return s.Ahead
	}
	return w.twin.(*bucket.Holders).Ahead
}

func (w *world) ask(rt *rapid.T) (bucket.Rule, bucket.Ask) {
	if w.rule.N == 0 || rapid.IntRange(0, 60).Draw(rt, "change") == 0 {
		w.rule = drawRule(rt, w.algorithm)
	}
	w.agent = rapid.IntRange(0, len(w.lease)-1).Draw(rt, "agent")
	held := &w.lease[w.agent]
	a := bucket.Ask{Epoch: held.epoch, Slot: held.slot, Recorded: held.recorded, Lead: 0.005}
	if held.recorded > 0 {
		left := rapid.Int64Range(0, held.recorded).Draw(rt, "left")
		a.Return = rapid.Int64Range(0, left).Draw(rt, "return")
		a.Keep = left - a.Return
	}
	a.Age = rapid.Float64Range(0, 3).Draw(rt, "age")
	if w.algorithm == bucket.Concurrency {
		w.hold(rt, &a)
	}
	w.demand(rt, &a)
	if w.algorithm == bucket.LeakyBucket && rapid.Bool().Draw(rt, "paced") {
		a.Paced, a.Patience = true, rapid.Float64Range(0, 5).Draw(rt, "patience")
	}
	switch rapid.IntRange(0, 40).Draw(rt, "special") {
	case 0:
		a.Reset = true
	case 1:
		a.Debit = drawCost(rt)
	case 2:
		a.Refund = drawCost(rt)
	case 3:
		a.Slot += 7
		a.Epoch -= 7
	case 4:
		a.Seq -= 5
	}
	return w.rule, a
}

// hold makes a the ask of an agent that says what it holds.
func (w *world) hold(rt *rapid.T, a *bucket.Ask) {
	w.seq++
	a.Agent, a.Seq, a.Recorded = int64(w.agent+1), w.seq, 0
	a.InUse = rapid.Int64Range(0, a.Keep).Draw(rt, "in use")
	a.Holding = rapid.Float64Range(0, 100).Draw(rt, "holding")
	a.Waited = rapid.Float64Range(0, 1).Draw(rt, "waited")
}

func (w *world) demand(rt *rapid.T, a *bucket.Ask) {
	if rapid.Bool().Draw(rt, "queue") {
		first := drawCost(rt)
		a.Need = max(0, first-a.Keep)
		a.Queued = first + rapid.Int64Range(0, 50).Draw(rt, "behind")
		if rapid.Bool().Draw(rt, "same") {
			a.Unit, a.Queued = first, first*rapid.Int64Range(1, 20).Draw(rt, "calls")
		}
	} else if rapid.Bool().Draw(rt, "hint") {
		a.Need = drawCost(rt)
	}
	a.Lease = rapid.Bool().Draw(rt, "lease")
	a.Rate = rapid.Float64Range(0, 1e5).Draw(rt, "rate")
	a.Seen = rapid.Float64Range(0, 1e4).Draw(rt, "seen")
	a.Arrived = rapid.Float64Range(0, 1e4).Draw(rt, "arrived")
	a.Since = rapid.Float64Range(0, 3).Draw(rt, "since")
}

func (w *world) answered(a *bucket.Ask, g *bucket.Grant) {
	held := &w.lease[w.agent]
	held.epoch, held.slot, held.recorded = g.Epoch, g.Slot, g.Permits-g.Direct
	if !g.Void {
		held.recorded += a.Keep
	}
}

func drawCost(rt *rapid.T) int64 {
	if rapid.IntRange(0, 30).Draw(rt, "huge") == 0 {
		return 1<<53 - 1
	}
	return rapid.Int64Range(1, 40).Draw(rt, "cost")
}

// drawStep is mostly short, sometimes nothing, and sometimes hours forth or back.
func drawStep(rt *rapid.T) int64 {
	switch rapid.IntRange(0, 9).Draw(rt, "step") {
	case 0:
		return 0
	case 1:
		return -rapid.Int64Range(0, 50*3600e6).Draw(rt, "back")
	case 2:
		return rapid.Int64Range(0, 50*3600e6).Draw(rt, "leap")
	}
	return rapid.Int64Range(0, 700e3).Draw(rt, "on")
}

func drawRule(rt *rapid.T, a bucket.Algorithm) bucket.Rule {
	r := bucket.Rule{Algorithm: a}
	most, tops := bucket.MaxLimits, []int64{5, 100, 10_000, bucket.MaxCount}
	switch a {
	case bucket.TokenBucket:
		r.Interval = rapid.Bool().Draw(rt, "interval")
		r.Borrow = rapid.SampledFrom([]int64{0, 0, 1, 20, 10_000}).Draw(rt, "borrow")
	case bucket.FixedWindow:
		r.FirstUse = rapid.Bool().Draw(rt, "first use")
	case bucket.SlidingWindow:
		r.Parts = uint8(rapid.IntRange(bucket.MinParts, bucket.MaxParts).Draw(rt, "parts"))
	case bucket.SlidingLog:
		tops = tops[:3]
	case bucket.Concurrency:
		most = 1
	}
	var limits []bucket.Limit
	for range rapid.IntRange(1, most).Draw(rt, "limits") {
		top := rapid.SampledFrom(tops).Draw(rt, "top")
		l := bucket.Limit{
			Count:  rapid.Int64Range(1, top).Draw(rt, "count"),
			Period: rapid.SampledFrom([]time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, time.Minute, 24 * time.Hour, bucket.MaxPeriod}).Draw(rt, "period"),
		}
		l.Burst = l.Count
		if a.Bursts() {
			l.Burst = rapid.Int64Range(1, top).Draw(rt, "burst")
		}
		limits = append(limits, l)
	}
	rule, err := r.With(limits...)
	if err != nil {
		rt.Fatal(err)
	}
	return rule
}
