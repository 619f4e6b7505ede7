// The token bucket by the clock: what is there when, and how long until there is more.

package bucket

import (
	"math"
	"testing"
	"time"
)

const second = int64(1e6)

func mustRule(t testing.TB, limits ...Limit) *Rule {
	t.Helper()
	r, err := NewRule(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

// visit is one call at a time, in seconds from the start.
type visit struct {
	at   float64
	cost int64
	ok   bool
	left int64
	wait float64 // s until the same call could be allowed again
}

func TestGauges(t *testing.T) {
	day := 86400.0
	for _, c := range []struct {
		name   string
		rule   Rule
		limits []Limit
		share  float64
		visits []visit
	}{
		{"5/minute", Rule{}, []Limit{{Count: 5, Period: time.Minute, Burst: 5}}, 1, []visit{
			{0, 5, true, 0, 60}, {11.999, 1, false, 0, 0.001}, {12, 1, true, 0, 12}, {60, 4, true, 0, 48}, {3600, 5, true, 0, 60},
		}},
		{"10/second burst 20", Rule{}, []Limit{{Count: 10, Period: time.Second, Burst: 20}}, 1, []visit{
			{0, 20, true, 0, 2}, {0.5, 6, false, 5, 0.1}, {0.6, 6, true, 0, 0.6}, {0.6, 1, false, 0, 0.1},
		}},
		{"3 at once every 10 s", Rule{Interval: true}, []Limit{{Count: 3, Period: 10 * time.Second, Burst: 3}}, 1, []visit{
			{5, 1, true, 2, 0}, {14.999, 3, false, 2, 0.001}, {15, 3, true, 0, 10}, {24, 1, false, 0, 1}, {35, 2, true, 1, 10},
		}},
		{"3/second and 10/minute", Rule{}, []Limit{{Count: 3, Period: time.Second, Burst: 3}, {Count: 10, Period: time.Minute, Burst: 10}}, 1, []visit{
			{0, 3, true, 0, 1}, {1, 3, true, 0, 1}, {2, 3, true, 0, 10}, {3, 3, false, 1, 9},
		}},
		{"a quarter of 8/second", Rule{}, []Limit{{Count: 8, Period: time.Second, Burst: 8}}, 0.25, []visit{
			{0, 2, true, 0, 1}, {0.5, 1, true, 0, 0.5}, {9, 3, false, 2, 0.5},
		}},
		{"time running backwards", Rule{}, []Limit{{Count: 10, Period: time.Second, Burst: 10}}, 1, []visit{
			{100, 10, true, 0, 1}, {50, 1, false, 0, 50.1}, {100, 1, false, 0, 0.1}, {100.1, 1, true, 0, 0.1},
		}},
		{"10/second that may borrow 20", Rule{Borrow: 20}, []Limit{{Count: 10, Period: time.Second, Burst: 10}}, 1, []visit{
			{0, 31, false, 10, 0.1}, {0, 30, true, 0, 3}, {1.999, 1, false, 0, 0.001}, {2, 1, true, 0, 0.1}, {3, 5, true, 4, 0},
		}},
		{"5 a day by the clock", Rule{Algorithm: FixedWindow}, []Limit{{Count: 5, Period: 24 * time.Hour, Burst: 5}}, 1, []visit{
			{day - 1, 5, true, 0, 1}, {day, 5, true, 0, day}, {1.5 * day, 1, false, 0, day / 2}, {2 * day, 1, true, 4, 0},
		}},
		{"5 a day from the first", Rule{Algorithm: FixedWindow, FirstUse: true}, []Limit{{Count: 5, Period: 24 * time.Hour, Burst: 5}}, 1, []visit{
			{day - 1, 5, true, 0, day}, {day, 5, false, 0, day - 1}, {2*day - 1, 5, true, 0, day}, {5 * day, 1, true, 4, 0},
		}},
		{"10 in any 10 s, logged", Rule{Algorithm: SlidingLog}, []Limit{{Count: 10, Period: 10 * time.Second, Burst: 10}}, 1, []visit{
			{1, 4, true, 6, 0}, {2, 6, true, 0, 10}, {10.999, 1, false, 0, 0.001}, {11, 4, true, 0, 1}, {12, 2, true, 4, 0}, {12, 5, false, 4, 9},
		}},
		{"10 in 10 s by parts of 1 s", Rule{Algorithm: SlidingWindow}, []Limit{{Count: 10, Period: 10 * time.Second, Burst: 10}}, 1, []visit{
			{1.7, 4, true, 6, 0}, {2, 6, true, 0, 10 + 1.0/3}, {11.5, 2, true, 0, 0.5}, {12.5, 5, true, 0, 9.5},
		}},
		{"two logs", Rule{Algorithm: SlidingLog}, []Limit{{Count: 2, Period: time.Second, Burst: 2}, {Count: 3, Period: time.Minute, Burst: 3}}, 1, []visit{
			{0, 2, true, 0, 60}, {1, 2, false, 1, 59}, {1, 1, true, 0, 59}, {60, 2, true, 0, 60},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := c.rule.With(c.limits...)
			if err != nil {
				t.Fatal(err)
			}
			var g Gauge
			g.Fill(&r, c.share, 0)
			for _, v := range c.visits {
				now := int64(math.Round(v.at * float64(second)))
				g.Refill(&r, c.share, now, 0)
				ok := r.Covers(g.Free(&r, c.share, now, 0), v.cost)
				if ok {
					g.Use(&r, now, float64(v.cost))
				}
				left := int64(max(0, g.Free(&r, c.share, now, 0)+slack))
				wait := float64(g.Wait(&r, c.share, now, 0, float64(r.Lack(v.cost)))) / float64(second)
				if ok != v.ok || left != v.left || math.Abs(wait-v.wait) > 1e-5 {
					t.Errorf("at %g s, cost %d: %v, %d left, again in %g s; want %v, %d, %g", v.at, v.cost, ok, left, wait, v.ok, v.left, v.wait)
				}
			}
		})
	}
}

func TestAChangedRuleIsNoFreeRefill(t *testing.T) {
	five := Limit{Count: 5, Period: time.Minute, Burst: 5}
	hundred := Limit{Count: 100, Period: time.Hour, Burst: 100}
	for _, c := range []struct {
		name   string
		before []Limit
		used   float64
		after  []Limit
		free   float64
	}{
		{"raised", []Limit{five}, 5, []Limit{{Count: 50, Period: time.Minute, Burst: 50}}, 0},
		{"lowered", []Limit{five}, 1, []Limit{{Count: 2, Period: time.Minute, Burst: 2}}, 2},
		{"in debt", []Limit{five}, 9, []Limit{{Count: 50, Period: time.Minute, Burst: 50}}, -4},
		{"one more limit", []Limit{five}, 4, []Limit{five, hundred}, 1},
		{"one limit less", []Limit{five, hundred}, 4, []Limit{five}, 1},
	} {
		for _, a := range []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog} {
			before, after := mustRuleOf(t, a, c.before), mustRuleOf(t, a, c.after)
			var g Gauge
			g.Fill(before, 1, 0)
			g.Use(before, 0, c.used)
			g.Reshape(after, before.N, 0)
			want := c.free
			if a.logs() { // what was used still is, of whatever the limit is now
				want = float64(after.Capacity()) - c.used
			}
			if free := g.Free(after, 1, 0, 0); free != want {
				t.Errorf("%s, %s: %g permits free, want %g", a, c.name, free, want)
			}
		}
	}
}

func mustRuleOf(t testing.TB, a Algorithm, limits []Limit) *Rule {
	t.Helper()
	r, err := Rule{Algorithm: a}.With(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestRuleRanges(t *testing.T) {
	good := Limit{Count: 1, Period: time.Second, Burst: 1}
	for _, limits := range [][]Limit{
		{},
		{good, good, good, good, good},
		{{Count: 0, Period: time.Second, Burst: 1}},
		{{Count: MaxCount + 1, Period: time.Second, Burst: 1}},
		{{Count: 1, Period: time.Second, Burst: 0}},
		{{Count: 1, Period: time.Microsecond, Burst: 1}},
		{{Count: 1, Period: MaxPeriod + 1, Burst: 1}},
	} {
		if _, err := NewRule(limits...); err == nil {
			t.Errorf("%v was accepted", limits)
		}
	}
}

// A lease is asked for, kept, given back, lost and voided.
func TestStateKeepsTheBooks(t *testing.T) {
	r := mustRule(t, Limit{Count: 100, Period: time.Second, Burst: 100})
	var s State
	lease := Ask{Lease: true, Rate: 2000, Seen: 40, Lead: 0.005}
	g := s.Apply(r, second, &lease)
	if g.Permits != 40 || g.Direct != 0 || s.Outstanding != 40 || s.Gauge.levels[0].Permits != 60 {
		t.Fatalf("a lease: %+v, %+v", g, s)
	}
	s.Apply(r, second+10*second/10, &Ask{}) // refill stops at B less what is outstanding
	if s.Gauge.levels[0].Permits != 60 {
		t.Errorf("refilled to %g beside 40 outstanding", s.Gauge.levels[0].Permits)
	}
	back := Ask{Epoch: g.Epoch, Slot: g.Slot, Recorded: 40, Return: 15}
	if g = s.Apply(r, 2*second, &back); g.Void || s.Outstanding != 0 || s.Gauge.levels[0].Permits != 75 {
		t.Errorf("25 were spent and 15 given back: %+v, %+v", g, s)
	}
	if g = s.Apply(r, 2*second, &back); !g.Void || s.Gauge.levels[0].Permits != 75 {
		t.Errorf("the same report again: %+v, %+v", g, s)
	}
	g = s.Apply(r, 3*second, &lease)
	if s.Apply(r, 5*second+second/2, &Ask{}); s.Outstanding != 0 {
		t.Errorf("a lease outlived its slot: %+v", s)
	}
	stale := Ask{Epoch: g.Epoch, Slot: g.Slot, Recorded: g.Permits, Return: 1}
	s.Apply(r, 6*second, &Ask{Reset: true})
	s.Apply(r, 6*second, &lease)
	if g = s.Apply(r, 6*second, &stale); !g.Void {
		t.Errorf("a lease from before a reset was credited: %+v", g)
	}
}

func BenchmarkApply(b *testing.B) {
	r := mustRule(b, Limit{Count: 1e9, Period: time.Second, Burst: 1e9})
	var s State
	a := Ask{Queued: 1, Need: 1, Unit: 1}
	now := second
	for b.Loop() {
		now++
		s.Apply(r, now, &a)
	}
}
