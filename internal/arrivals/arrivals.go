// Package arrivals says when calls come to which of many hosts, for tests: the
// simulated hosts and the real ones are judged by the same calls.
package arrivals

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Arrivals are calls over hosts, at random times that have a mean rate.
type Arrivals struct {
	kind   string
	hosts  int
	rate   float64
	rng    *rand.Rand
	t      float64
	until  float64 // hot host or phases hold until then
	hot    int
	on     []int
	shares []float64
}

// New returns arrivals of rate calls a second over all hosts together, spread as kind
// says: "even", "zipf" (the i-th host gets 1/i^1.1), "jump" (nine of ten calls come to
// one host, another one each second), "onoff" (a fifth of the hosts at a time, for
// 200 ms) or "burst" (even, and all that a second brings comes in its first fifth).
func New(kind string, hosts int, rate float64, rng *rand.Rand) *Arrivals {
	s := &Arrivals{kind: kind, hosts: hosts, rate: rate, rng: rng}
	sum := 0.0
	for i := range hosts {
		sum += math.Pow(float64(i+1), -1.1)
		s.shares = append(s.shares, sum)
	}
	return s
}

// Next returns when the next call comes, in whole microseconds since the beginning,
// and to which host.
func (s *Arrivals) Next() (time.Duration, int) {
	s.t += s.rng.ExpFloat64() / s.rate
	host, at := s.rng.IntN(s.hosts), s.t
	switch s.kind {
	case "zipf":
		host, _ = slices.BinarySearch(s.shares, s.rng.Float64()*s.shares[s.hosts-1])
	case "jump":
		if s.t >= s.until {
			s.until, s.hot = math.Floor(s.t)+1, s.rng.IntN(s.hosts)
		}
		if s.rng.Float64() < 0.9 {
			host = s.hot
		}
	case "onoff":
		if s.t >= s.until {
			s.until = s.t + 0.2
			s.on = s.rng.Perm(s.hosts)[:max(1, s.hosts/5)]
		}
		host = s.on[s.rng.IntN(len(s.on))]
	case "burst":
		at = math.Floor(s.t) + (s.t-math.Floor(s.t))/5
	}
	return time.Duration(at*1e6) * time.Microsecond, host
}

// Case is one load of scripts/hosts on one limit of Count permits a second and Burst
// permits at once, on one key: calls come at Load times the limit.
type Case struct {
	Kind         string
	Load         float64
	Count, Burst int64
}

// Hosts is how many hosts the cases are for.
const Hosts = 10

// Cases returns what scripts/hosts measures: bursts of a second's and a tenth of a
// second's refill, and a limit so high that each of the hosts has 1,000 calls a second
// at 0.9 times of it.
func Cases() (all []Case) {
	for _, burst := range []int64{1000, 100} {
		for _, kind := range []string{"even", "zipf", "jump", "onoff"} {
			for _, load := range []float64{0.3, 0.9, 1.5, 10} {
				all = append(all, Case{kind, load, 1000, burst})
			}
		}
	}
	return append(all, Case{"even", 0.9, 11_111, 11_111}, Case{"zipf", 0.9, 11_111, 11_111})
}

func (c Case) String() string {
	return fmt.Sprintf("%d/s, burst %d, %s, %gx", c.Count, c.Burst, c.Kind, c.Load)
}

// Arrivals returns the calls of c, the same for the same seed.
func (c Case) Arrivals(seed uint64) *Arrivals {
	return New(c.Kind, Hosts, c.Load*float64(c.Count), rand.New(rand.NewPCG(seed, 0)))
}
