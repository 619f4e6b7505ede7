// Many agents without their authority, in the worlds of world_test.go: where demand
// stays as it was, their shares admit together what one limiter would, and what they
// let through is paid when the authority is back.

package limiter

import (
	"fmt"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

const (
	outage     = 20 * time.Second
	mostExcess = 0.15 // of the capacity, over outage and recovery
)

// cutOff has load come before, in and after an outage, and returns how much of what
// one limiter would have admitted was admitted in it and after it.
func (w *world) cutOff(kind string, load float64) (in, after float64) {
	w.run(kind, load, outage)
	w.away = true
	in = w.part(kind, load)
	w.away = false
	return in, w.part(kind, load)
}

// part is used for another stretch of load.
func (w *world) part(kind string, load float64) float64 {
	granted, central := w.granted, w.central
	w.run(kind, load, outage)
	return float64(w.granted-granted) / float64(w.central-central)
}

func TestSharesOfAnOutage(t *testing.T) {
	for _, agents := range []int{2, 10} {
		for _, kind := range []string{"even", "zipf"} {
			for _, load := range []float64{0.5, 0.9, 1.5, 5} {
				t.Run(fmt.Sprintf("%d agents, %s, %gx", agents, kind, load), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, "limit: 1000/second", agents, 5)
					in, after := w.cutOff(kind, load)
					excess := w.excess() / float64(w.rule.Limits[0].Burst)
					t.Logf("%.1f %% of what a central limiter would have admitted in the outage, %.1f %% after it; excess %.1f %% of the capacity", 100*in, 100*after, 100*excess)
					if in < 0.95 || in > 1.01 || after < 0.95 || after > 1.01 {
						t.Errorf("%.3f in the outage and %.3f after it: want 0.95 to 1.01", in, after)
					}
					if excess > mostExcess {
						t.Errorf("excess %.3f of the capacity: want %g at most", excess, mostExcess)
					}
				})
			}
		}
	}
}

func TestOversubscribedShares(t *testing.T) {
	for _, c := range []struct {
		down        string
		agents      int
		least, most float64
	}{
		{"share: auto, oversubscribe: 1.5", 10, 1.47, 1.53},
		{"share: 0.1, oversubscribe: 2", 10, 1.97, 2.03},
		{"share: 0.5, oversubscribe: 10", 2, 1.97, 2.03}, // each the whole, not five times
		{"share: auto, oversubscribe: 10", 2, 1.97, 2.03},
		{"share: auto, oversubscribe: 1", 10, 0.98, 1.02},
	} {
		t.Run(c.down, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "limit: 1000/second, when_redis_is_down: {mode: local, "+c.down+"}", c.agents, 5)
			if in, _ := w.cutOff("even", 4); in < c.least || in > c.most {
				t.Errorf("%.3f of the limit in the outage: want %g to %g", in, c.least, c.most)
			}
		})
	}
}

// The first ask that an agent makes when the authority is back pays what it let through
// meanwhile, as far as the bucket has not refilled since: all of it after an outage in
// which there was too little, next to nothing after one in which there was plenty.
func TestTheFirstAskPaysForTheOutage(t *testing.T) {
	for _, c := range []struct {
		load        float64
		least, most int64 // paid by all together, of a burst of 1000
	}{{1.5, 850, 1000}, {0.5, 0, 50}} {
		w := newWorld(t, "limit: 1000/second", 10, 5)
		let, paid := map[*agent]int64{}, map[*agent]int64{}
		w.decided = func(a *agent, cost int64, d Decision) {
			if d.Allowed && d.Source == FromFallback {
				let[a] += cost
			}
		}
		w.run("zipf", c.load, 5*time.Second)
		w.away = true
		w.run("zipf", c.load, 5*time.Second)
		w.away = false
		w.asked = func(a *agent, ask *bucket.Ask) {
			if _, asked := paid[a]; !asked {
				paid[a] = ask.Debit
			}
		}
		w.run("zipf", c.load, 5*time.Second)
		var sum int64
		for i, a := range w.agents {
			if let[a] == 0 || paid[a] > let[a] {
				t.Errorf("load %g: agent %d let %d permits through, and its first ask afterwards pays %d", c.load, i, let[a], paid[a])
			}
			sum += paid[a]
		}
		if sum < c.least || sum > c.most {
			t.Errorf("load %g: %d permits paid by all, want %d to %d", c.load, sum, c.least, c.most)
		}
	}
}
