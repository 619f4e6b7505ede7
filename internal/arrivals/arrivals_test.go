package arrivals

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// counted returns the calls of each host in so many seconds of 1,000 calls each.
func counted(kind string, seconds int) (each [Hosts]int, all int) {
	s := New(kind, Hosts, 1000, rand.New(rand.NewPCG(1, 0)))
	for {
		at, host := s.Next()
		if at > time.Duration(seconds)*time.Second {
			return each, all
		}
		each[host]++
		all++
	}
}

func TestCallsComeAtTheirRate(t *testing.T) {
	for _, kind := range []string{"even", "zipf", "jump", "onoff", "burst"} {
		const seconds = 20
		if _, all := counted(kind, seconds); math.Abs(float64(all)-1000*seconds) > 600 {
			t.Errorf("%s: %d calls in %d s: want about %d", kind, all, seconds, 1000*seconds)
		}
	}
}

func TestCallsAreSpreadAsTheyShould(t *testing.T) {
	even, all := counted("even", 20)
	for host, n := range even {
		if n < all/Hosts*8/10 || n > all/Hosts*12/10 {
			t.Errorf("even: host %d has %d of %d calls", host, n, all)
		}
	}
	zipf, _ := counted("zipf", 20)
	if ratio := float64(zipf[0]) / float64(zipf[9]); math.Abs(ratio-math.Pow(10, 1.1)) > 3 {
		t.Errorf("zipf: the first host has %.1f times the calls of the tenth: want %.1f", ratio, math.Pow(10, 1.1))
	}
	first, all := counted("jump", 1)
	hot := 0
	for _, n := range first {
		hot = max(hot, n)
	}
	if hot < all*85/100 {
		t.Errorf("jump: the hottest host has %d of %d calls in the first second: want nine of ten", hot, all)
	}
}

func TestTheSameSeedBringsTheSameCalls(t *testing.T) {
	for _, c := range Cases() {
		a, b := c.Arrivals(3), c.Arrivals(3)
		for range 100 {
			at, host := a.Next()
			if at2, host2 := b.Next(); at != at2 || host != host2 {
				t.Fatalf("%v: %v at host %d, and %v at host %d", c, at, host, at2, host2)
			}
		}
	}
}
