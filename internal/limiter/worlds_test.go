// Every algorithm over many agents, in the worlds of world_test.go: none lets more
// through than it promises, and none much less than one limiter asked for every call.

package limiter

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/meter"
)

func TestEveryAlgorithmIsKeptAndUsed(t *testing.T) {
	for _, fields := range []string{
		"limit: 300/second",
		"limit: 600/second, burst: 60",
		"limit: 1500/10s",
		"limit: 100/second, burst: 200, borrow: 50",
		"limit: [300/second, 1000/10s]",
		"limit: 300/second, refill: interval",
		"limit: 1500/10s, refill: interval",
		"limit: 300/second, algorithm: leaky_bucket",
		"limit: 300/second, algorithm: fixed_window",
		"limit: 1500/10s, algorithm: fixed_window",
		"limit: 300/second, algorithm: fixed_window, align: first_use",
		"limit: [300/second, 1000/10s], algorithm: fixed_window",
		"limit: 300/second, algorithm: sliding_window",
		"limit: 1500/10s, algorithm: sliding_window",
		"limit: 300/second, algorithm: sliding_log",
		"limit: 1500/10s, algorithm: sliding_log",
	} {
		t.Run(fields, func(t *testing.T) {
			t.Parallel()
			var used []float64
			for _, kind := range []string{"even", "zipf", "onoff"} {
				for _, load := range []float64{0.9, 1.5, 10} {
					w := newWorld(t, fields, 10, 7)
					w.run(kind, load, max(5*time.Second, 2*w.rule.Limits[w.rule.N-1].Period))
					w.check(t, fmt.Sprintf("%s, %gx", kind, load))
					used = append(used, w.used())
				}
			}
			mean := mean(used)
			t.Logf("mean %.2f %%, worst %.2f %%", 100*mean, 100*slices.Min(used))
			if mean < 0.97 {
				t.Errorf("%.4f of the limit used: want 0.97 at least", mean)
			}
		})
	}
}

// Limits too low to lease from are used as if every call were asked for.
func TestLowLimitsAreUsedToTheLastPermit(t *testing.T) {
	const runs, within = 25, 0.001
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window", "sliding_log"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			for _, load := range []float64{0.5, 1, 3, 10} {
				var granted, central, asks, calls float64
				for seed := range uint64(runs) {
					w := newWorld(t, "limit: 5/minute, algorithm: "+algorithm, 50, seed)
					w.run("even", load, 600*time.Second)
					if over := w.excess(); over > 1e-3 {
						t.Errorf("%gx, seed %d: %g permits more than the rule allows", load, seed, over)
					}
					granted, central = granted+float64(w.granted), central+float64(w.central)
					asks, calls = asks+float64(w.asks), calls+float64(w.calls)
				}
				t.Logf("%4gx: %.1f a run, %+.3f %% of what was admitted by one limiter, %.0f asks per 1,000 calls", load, granted/runs, 100*(granted/central-1), 1000*asks/calls)
				if granted < central*(1-within) || granted > central*(1+within) {
					t.Errorf("%gx: %.0f admitted, %.0f by one limiter", load, granted, central)
				}
			}
		})
	}
}

// Paced calls leave one after the other over all agents. A turn is counted from the
// answer, so that calls come closer than the pace by what one answer travels longer
// than another, and no more; and as many as the burst wait, besides those whose turn
// has come while the answer travels.
func TestPacedCallsLeaveEvenlyOverAllAgents(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{"limit: 100/second, burst: 20", "limit: 100/second, burst: 100", "limit: 5/second"} {
		for _, load := range []float64{0.9, 1.5, 10} {
			w := newWorld(t, fields+", algorithm: leaky_bucket", 10, 5)
			w.wait = 5 * time.Second
			rate, burst := w.rate(), float64(w.rule.Limits[0].Burst)
			leaving := &meter.Level{Capacity: 1 + rate*longest.Seconds(), Rate: rate / 1e6}
			inside, most := int64(0), int64(0)
			w.taken = func(permits int64) { inside += permits; most = max(most, inside) }
			w.decided = func(_ *agent, cost int64, d Decision) {
				if d.Allowed {
					inside -= cost
					leaving.Use(w.now.Microseconds(), cost)
				}
			}
			w.run("even", load, 20*time.Second)
			w.advance(w.now + w.wait)
			w.check(t, fmt.Sprintf("%s, %gx", fields, load))
			t.Logf("closest %.3f, most inside %d", leaving.Excess(), most)
			if leaving.Excess() > 1e-3 {
				t.Errorf("%s, %gx: %g calls left too early", fields, load, leaving.Excess())
			}
			if float64(most) > burst+1+rate*longest.Seconds() || inside != 0 {
				t.Errorf("%s, %gx: %d waited at once, %d still do", fields, load, most, inside)
			}
			if w.used() < 0.97 {
				t.Errorf("%s, %gx: %.3f of the limit used", fields, load, w.used())
			}
		}
	}
}

// shop is a world of a concurrency limit: callers hold what they get for a while.
type shop struct {
	*world
	mean    time.Duration // of a hold
	held    map[*agent]int64
	all     meter.Held
	inside  int64 // held in a shop of one limiter
	capped  int64 // it admitted
	longest time.Duration
}

func newShop(t *testing.T, fields string, mean time.Duration, seed uint64) *shop {
	s := &shop{world: newWorld(t, fields+", algorithm: concurrency", 10, seed), mean: mean, held: map[*agent]int64{}}
	s.longest = s.rule.Limits[0].Period
	s.all.Capacity = s.rule.Limits[0].Count
	s.decided = s.got
	return s
}

func (s *shop) length() time.Duration {
	return min(s.longest, time.Duration(s.rng.ExpFloat64()*float64(s.mean)).Truncate(time.Microsecond)+time.Microsecond)
}

// got holds a permit until it is released, or ends by itself.
func (s *shop) got(a *agent, _ int64, d Decision) {
	if !d.Allowed {
		return
	}
	s.hold(a, 1)
	s.after(s.length(), a, func() {
		s.hold(a, -1)
		a.l.Release(s.now, d.Permit)
	})
}

func (s *shop) hold(a *agent, permits int64) {
	s.held[a] += permits
	s.all.Use(0, permits)
}

func (s *shop) open(kind string, load float64, length time.Duration) {
	s.come(s.arrivals(kind, load*float64(s.all.Capacity)/s.mean.Seconds()), length, func(a *agent) {
		if s.inside < s.all.Capacity {
			s.inside++
			s.capped++
			s.after(s.length(), a, func() { s.inside-- })
		}
		a.call(1)
	})
}

func (s *shop) used() float64 { return float64(s.granted) / float64(s.capped) }

func TestPermitsHeldOverManyAgents(t *testing.T) {
	const admitted = 1500 // by one limiter that is always full
	for _, c := range []struct {
		fields string
		mean   time.Duration
	}{
		{"limit: 100, max_hold: 10s", time.Second},
		{"limit: 100, max_hold: 1s", 100 * time.Millisecond},
		{"limit: 20, max_hold: 1m", 5 * time.Second},
		{"limit: 4, max_hold: 10s", time.Second},
	} {
		t.Run(c.fields, func(t *testing.T) {
			t.Parallel()
			var used []float64
			for _, kind := range []string{"even", "zipf", "onoff"} {
				for _, load := range []float64{0.5, 0.9, 1.5, 10} {
					s := newShop(t, c.fields, c.mean, 3)
					s.open(kind, load, c.mean*admitted/time.Duration(s.all.Capacity))
					t.Logf("%-14s used %6.2f %%, %6.1f asks per 1,000 calls", fmt.Sprintf("%s, %gx", kind, load), 100*s.used(), 1000*float64(s.asks)/float64(s.calls))
					if s.all.Most > 0 {
						t.Errorf("%s, %gx: %d held too many", kind, load, s.all.Most)
					}
					used = append(used, s.used())
				}
			}
			t.Logf("mean %.2f %%", 100*mean(used))
			if mean := mean(used); mean < 0.9 {
				t.Errorf("%.4f of the limit used: want 0.9 at least", mean)
			}
		})
	}
}

// Without the authority each agent holds at most its share, or what it already had.
// A lease and a hold after the outage nothing of that is left, however the calls
// moved between the agents, whatever share the operator chose for them, and however
// many calls wait to take what is released.
func TestPermitsHeldInAnOutage(t *testing.T) {
	const half = ", when_redis_is_down: {mode: local, share: 0.5}"
	for _, c := range []struct {
		fields, before string
		load           float64
	}{
		{"limit: 100, max_hold: 3s", "zipf", 0.9},
		{"limit: 100, max_hold: 3s", "jump", 3},
		{"limit: 20, max_hold: 3s", "zipf", 3},
		{"limit: 20, max_hold: 3s", "jump", 0.9},
		{"limit: 4, max_hold: 3s", "zipf", 0.9},
		{"limit: 4, max_hold: 3s", "jump", 3},
		{"limit: 20, max_hold: 3s" + half, "even", 3},
		{"limit: 100, max_hold: 3s" + half, "even", 10},
	} {
		t.Run(fmt.Sprintf("%s, %s, %gx", c.fields, c.before, c.load), func(t *testing.T) {
			t.Parallel()
			newShop(t, c.fields, 500*time.Millisecond, 9).cutOff(t, c.before, c.load)
		})
	}
}

// cutOff has an outage, after which calls come evenly.
func (s *shop) cutOff(t *testing.T, before string, load float64) {
	s.open(before, load, 20*time.Second)
	if s.all.Most > 0 {
		t.Fatalf("%d held too many before the outage", s.all.Most)
	}
	most := s.degraded() - s.all.Capacity
	s.away, s.all.Most = true, -s.all.Capacity
	s.open("even", load, 10*time.Second)
	t.Logf("%+d in the outage, of at most %+d", s.all.Most, most)
	if s.all.Most > most {
		t.Errorf("%+d held in the outage: want %+d at most", s.all.Most, most)
	}
	s.away = false
	s.open("even", load, s.longest+bucket.LeaseLife*time.Microsecond)
	s.all.Most = s.all.Now - s.all.Capacity
	s.open("even", load, 10*time.Second)
	if s.all.Most > 0 {
		t.Errorf("%d held too many after the outage", s.all.Most)
	}
}

// degraded returns how many permits may be held while each agent is on its own: its
// share, or what it has.
func (s *shop) degraded() (most int64) {
	for _, a := range s.agents {
		p := a.l.rules.Load().set.Lookup([]byte("p"))
		b := a.l.lock(p, []byte("k"))
		had := s.held[a] + b.Permits(s.now)
		most += max(had, int64(s.rule.Rate(0, a.l.share(b, p)).Cap))
		b.Shard().Unlock()
	}
	return most
}
