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

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits []Limit
		share  float64
		visits []visit
	}{
		{"5/minute", []Limit{{Count: 5, Period: time.Minute, Burst: 5}}, 1, []visit{
			{0, 5, true, 0, 60}, {11.999, 1, false, 0, 0.001}, {12, 1, true, 0, 12}, {60, 4, true, 0, 48}, {3600, 5, true, 0, 60},
		}},
		{"10/second burst 20", []Limit{{Count: 10, Period: time.Second, Burst: 20}}, 1, []visit{
			{0, 20, true, 0, 2}, {0.5, 6, false, 5, 0.1}, {0.6, 6, true, 0, 0.6}, {0.6, 1, false, 0, 0.1},
		}},
		{"3 at once every 10 s", []Limit{{Count: 3, Period: 10 * time.Second, Burst: 3, Interval: true}}, 1, []visit{
			{5, 1, true, 2, 0}, {14.999, 3, false, 2, 0.001}, {15, 3, true, 0, 10}, {24, 1, false, 0, 1}, {35, 2, true, 1, 10},
		}},
		{"3/second and 10/minute", []Limit{{Count: 3, Period: time.Second, Burst: 3}, {Count: 10, Period: time.Minute, Burst: 10}}, 1, []visit{
			{0, 3, true, 0, 1}, {1, 3, true, 0, 1}, {2, 3, true, 0, 10}, {3, 3, false, 1, 9},
		}},
		{"a quarter of 8/second", []Limit{{Count: 8, Period: time.Second, Burst: 8}}, 0.25, []visit{
			{0, 2, true, 0, 1}, {0.5, 1, true, 0, 0.5}, {9, 3, false, 2, 0.5},
		}},
		{"time running backwards", []Limit{{Count: 10, Period: time.Second, Burst: 10}}, 1, []visit{
			{100, 10, true, 0, 1}, {50, 1, false, 0, 50.1}, {100, 1, false, 0, 0.1}, {100.1, 1, true, 0, 0.1},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mustRule(t, c.limits...)
			var ls Levels
			ls.Fill(r, 0)
			for i := range r.N {
				ls[i].Permits = r.Limits[i].Rate(c.share).Cap
			}
			for _, v := range c.visits {
				now := int64(math.Round(v.at * float64(second)))
				ls.Refill(r, c.share, now)
				ok := ls.Cover(r, v.cost)
				if ok {
					ls.Add(r, -float64(v.cost))
				}
				left := ls.Whole(r)
				wait := float64(ls.Wait(r, c.share, now, float64(v.cost))) / float64(second)
				if ok != v.ok || left != v.left || math.Abs(wait-v.wait) > 1e-5 {
					t.Errorf("at %g s, cost %d: %v, %d left, again in %g s; want %v, %d, %g", v.at, v.cost, ok, left, wait, v.ok, v.left, v.wait)
				}
			}
		})
	}
}

func TestAChangedRuleIsNoFreeRefill(t *testing.T) {
	five := Limit{Count: 5, Period: time.Minute, Burst: 5}
	for _, c := range []struct {
		name    string
		before  []Limit
		used    float64
		after   []Limit
		permits []float64
	}{
		{"raised", []Limit{five}, 5, []Limit{{Count: 50, Period: time.Minute, Burst: 50}}, []float64{0}},
		{"lowered", []Limit{five}, 1, []Limit{{Count: 2, Period: time.Minute, Burst: 2}}, []float64{2}},
		{"in debt", []Limit{five}, 9, []Limit{{Count: 50, Period: time.Minute, Burst: 50}}, []float64{-4}},
		{"one more limit", []Limit{five}, 4, []Limit{five, {Count: 100, Period: time.Hour, Burst: 100}}, []float64{1, 96}},
		{"one limit less", []Limit{five, {Count: 100, Period: time.Hour, Burst: 100}}, 4, []Limit{five}, []float64{1}},
	} {
		before, after := mustRule(t, c.before...), mustRule(t, c.after...)
		var ls Levels
		ls.Fill(before, 0)
		ls.Add(before, -c.used)
		ls.Reshape(after, before.N, 0)
		for i, want := range c.permits {
			if ls[i].Permits != want {
				t.Errorf("%s: limit %d has %g permits, want %g", c.name, i, ls[i].Permits, want)
			}
		}
	}
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
	if g.Permits != 40 || g.Direct != 0 || s.Outstanding != 40 || s.Levels[0].Permits != 60 {
		t.Fatalf("a lease: %+v, %+v", g, s)
	}
	s.Apply(r, second+10*second/10, &Ask{}) // refill stops at B less what is outstanding
	if s.Levels[0].Permits != 60 {
		t.Errorf("refilled to %g beside 40 outstanding", s.Levels[0].Permits)
	}
	back := Ask{Epoch: g.Epoch, Slot: g.Slot, Recorded: 40, Return: 15}
	if g = s.Apply(r, 2*second, &back); g.Void || s.Outstanding != 0 || s.Levels[0].Permits != 75 {
		t.Errorf("25 were spent and 15 given back: %+v, %+v", g, s)
	}
	if g = s.Apply(r, 2*second, &back); !g.Void || s.Levels[0].Permits != 75 {
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
