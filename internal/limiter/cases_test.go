// The cases of scripts/hosts in simulated time: what the table shows beside the
// figures of real hosts.

package limiter

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rlsidecar/internal/arrivals"
	"rlsidecar/internal/bucket"
)

var (
	casesFile    = flag.String("cases", "", "write the simulated figures of all cases to this `file`")
	casesSeed    = flag.Uint64("cases-seed", 1, "of the arrivals")
	casesSeconds = flag.Int("cases-seconds", 10, "how long calls come in each case")
)

// TestCases simulates a few of the cases, or with -cases all of them.
func TestCases(t *testing.T) {
	var file strings.Builder
	for i, c := range arrivals.Cases() {
		if *casesFile == "" && i%8 != 2 {
			continue
		}
		s := newSimulated(t, c)
		s.come(c.Arrivals(*casesSeed), time.Duration(*casesSeconds)*time.Second)
		if s.excess() > 1e-3 {
			t.Errorf("%v: %g permits more than the rule allows", c, s.excess())
		}
		if s.used() < 0.96 {
			t.Errorf("%v: %.4f of the limit used: want 0.96 at least", c, s.used())
		}
		fmt.Fprintf(&file, "%v\t%g\t%g\t%g\t%g\t%g\n", c, 100*s.used(), s.per1000(), s.perSecond(s.asks), s.perSecond(s.busiest()), s.waited())
	}
	if *casesFile == "" {
		return
	}
	if err := os.WriteFile(*casesFile, []byte(file.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// simulated is a world that counts what the table shows.
type simulated struct {
	*world
	asked []int // by agent
	waits int
}

func newSimulated(t *testing.T, c arrivals.Case) *simulated {
	s := &simulated{world: newWorld(t, fmt.Sprintf("limit: %d/second, burst: %d", c.Count, c.Burst), arrivals.Hosts, *casesSeed)}
	s.asked = make([]int, arrivals.Hosts)
	s.world.asked = func(a *agent, _ *bucket.Ask) { s.asked[slices.Index(s.agents, a)]++ }
	s.decided = func(_ *agent, _ int64, d Decision) {
		if d.Source == FromRedis {
			s.waits++
		}
	}
	return s
}

func (s *simulated) come(calls *arrivals.Arrivals, length time.Duration) {
	s.world.come(calls, length, func(a *agent) {
		s.admitCentrally(1)
		a.call(1)
	})
}

func (s *simulated) busiest() int            { return slices.Max(s.asked) }
func (s *simulated) per1000() float64        { return 1000 * float64(s.asks) / float64(s.calls) }
func (s *simulated) waited() float64         { return 100 * float64(s.waits) / float64(s.calls) }
func (s *simulated) perSecond(n int) float64 { return float64(n) / float64(*casesSeconds) }
