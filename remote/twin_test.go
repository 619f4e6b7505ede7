// The twins: lease.lua on a real Redis and bucket.State must answer the same asks
// at the same times with the same bits.

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
	"rlsidecar/internal/redistest"
)

const (
	twinRuns = 2000
	twinAsks = 150
)

// timed is the script with its clock made an argument: for this test alone.
func timed(t *testing.T) string {
	const clock = "redis.call('TIME')"
	if strings.Count(leaseScript, clock) != 1 {
		t.Fatalf("lease.lua must read the clock once, by %s", clock)
	}
	return strings.Replace(leaseScript, clock, "{ARGV[2], ARGV[3]}", 1)
}

func TestScriptAndStateAreTwins(t *testing.T) {
	if err := flag.Set("rapid.checks", fmt.Sprint(twinRuns)); err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	script := redis.NewScript(timed(t))
	if err := script.Load(t.Context(), client).Err(); err != nil {
		t.Fatal(err)
	}
	var asked, granted, void, scarce, keys atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		key := fmt.Sprintf("{k%d\x00 {}ü}", keys.Add(1))
		var s bucket.State
		w := &world{now: rapid.Int64Range(1, 1e15).Draw(rt, "start")}
		pipe := client.Pipeline()
		var want []bucket.Grant
		var rules []bucket.Rule
		var replies []*redis.Cmd
		for range rapid.IntRange(1, 2*twinAsks-1).Draw(rt, "asks") {
			rule, ask := w.ask(rt)
			g := s.Apply(&rule, w.now, &ask)
			w.answered(&ask, &g)
			want, rules = append(want, g), append(rules, rule)
			replies = append(replies, script.EvalSha(context.Background(), pipe, []string{key},
				AppendAsk(nil, &rule, &ask), w.now/1e6, w.now%1e6))
		}
		if _, err := pipe.Exec(context.Background()); err != nil {
			rt.Fatalf("the script failed: %v", err)
		}
		for i := range want {
			text, _ := replies[i].Text()
			got, err := parseGrant(text, &rules[i])
			if err != nil {
				rt.Fatal(err)
			}
			if got != want[i] {
				rt.Fatalf("ask %d of %d:\nscript %+v\nstate  %+v", i, len(want), got, want[i])
			}
			asked.Add(1)
			granted.Add(got.Permits)
			if got.Void {
				void.Add(1)
			}
			if got.Scarce {
				scarce.Add(1)
			}
		}
		checkInvariant(rt, &s)
	})
	t.Logf("%d asks, %d permits granted, %d leases void, %d answers scarce", asked.Load(), granted.Load(), void.Load(), scarce.Load())
	if asked.Load() < 100_000 || void.Load() == 0 || scarce.Load() == 0 {
		t.Errorf("only %d asks (%d void, %d scarce): want 100000 with some of each", asked.Load(), void.Load(), scarce.Load())
	}
}

func checkInvariant(rt *rapid.T, s *bucket.State) {
	for i := range s.N {
		if over := s.Levels[i].Permits + float64(s.Outstanding) - float64(s.Levels[i].Burst); over > 1e-5 {
			rt.Fatalf("l + o exceeds B by %g: %+v", over, s)
		}
	}
}

// world is a few agents that ask one bucket as time goes on, by leaps and not at all.
type world struct {
	now   int64
	rule  bucket.Rule
	lease [3]struct{ epoch, slot, recorded, keep int64 }
	agent int
}

func (w *world) ask(rt *rapid.T) (bucket.Rule, bucket.Ask) {
	if w.rule.N == 0 || rapid.IntRange(0, 60).Draw(rt, "change") == 0 {
		w.rule = drawRule(rt)
	}
	w.now = max(1, w.now+drawStep(rt))
	w.agent = rapid.IntRange(0, len(w.lease)-1).Draw(rt, "agent")
	held := &w.lease[w.agent]
	a := bucket.Ask{Epoch: held.epoch, Slot: held.slot, Recorded: held.recorded, Lead: 0.005}
	if held.recorded > 0 {
		left := rapid.Int64Range(0, held.recorded).Draw(rt, "left")
		a.Return = rapid.Int64Range(0, left).Draw(rt, "return")
		a.Keep = left - a.Return
	}
	w.demand(rt, &a)
	switch rapid.IntRange(0, 40).Draw(rt, "special") {
	case 0:
		a.Reset = true
	case 1:
		a.Debit = drawCost(rt)
	case 2:
		a.Refund = drawCost(rt)
	case 3:
		a.Slot += 7
	}
	return w.rule, a
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

// drawStep is mostly short, sometimes nothing, back in time, or hours.
func drawStep(rt *rapid.T) int64 {
	switch rapid.IntRange(0, 9).Draw(rt, "step") {
	case 0:
		return 0
	case 1:
		return -rapid.Int64Range(0, 3600e6).Draw(rt, "back")
	case 2:
		return rapid.Int64Range(0, 50*3600e6).Draw(rt, "leap")
	}
	return rapid.Int64Range(0, 700e3).Draw(rt, "on")
}

func drawRule(rt *rapid.T) bucket.Rule {
	var limits []bucket.Limit
	for range rapid.IntRange(1, bucket.MaxLimits).Draw(rt, "limits") {
		top := rapid.SampledFrom([]int64{5, 100, 10_000, bucket.MaxCount}).Draw(rt, "top")
		limits = append(limits, bucket.Limit{
			Count:    rapid.Int64Range(1, top).Draw(rt, "count"),
			Burst:    rapid.Int64Range(1, top).Draw(rt, "burst"),
			Period:   rapid.SampledFrom([]time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, time.Minute, 24 * time.Hour, bucket.MaxPeriod}).Draw(rt, "period"),
			Interval: rapid.Bool().Draw(rt, "interval"),
		})
	}
	rule, err := bucket.NewRule(limits...)
	if err != nil {
		rt.Fatal(err)
	}
	return rule
}
