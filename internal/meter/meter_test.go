// What a sliding window promises is tight, and nearly what a log does.

package meter

import (
	"math/rand/v2"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

// The bound of a sliding window is reached: what came at the end of a part has faded
// by nine tenths when nine tenths of the part have left the period, and is still
// within it to the last permit.
func TestASlidingWindowLetsThroughWhatHasFaded(t *testing.T) {
	rule := mustRule(t, bucket.Rule{Algorithm: bucket.SlidingWindow}, bucket.Limit{Count: 100, Period: time.Second, Burst: 100})
	meters := Of(rule, 0)
	exact := &Log{capacity: 100, period: 1e6}
	var g bucket.Gauge
	g.Fill(rule, 1, 0)
	for _, at := range []int64{5_099_999, 6_090_000} {
		g.Refill(rule, 1, at, 0)
		free := g.Free(rule, 1, at, 0)
		g.Use(rule, at, free)
		for _, m := range append(meters, exact) {
			m.Use(at, int64(free))
		}
	}
	if exact.Excess() != 90 || meters[0].Excess() > 0 || meters[1].Excess() != 0 {
		t.Errorf("%g above the limit in a period, %g in one less a part, %g above the bound; want 90, 0 and 0",
			exact.Excess(), meters[0].Excess(), meters[1].Excess())
	}
}

// Ten parts of a period tell it from an exact log by a few per cent of what is let
// through, at every load that comes evenly.
func TestASlidingWindowIsNearlyALog(t *testing.T) {
	const seconds, most = 200, 0.03
	limit := bucket.Limit{Count: 100, Period: time.Second, Burst: 100}
	log, window := mustRule(t, bucket.Rule{Algorithm: bucket.SlidingLog}, limit), mustRule(t, bucket.Rule{Algorithm: bucket.SlidingWindow}, limit)
	for _, load := range []float64{0.5, 0.9, 1, 1.2, 2, 10} {
		exact, parts := admitted(log, load, seconds), admitted(window, load, seconds)
		t.Logf("%gx: %.0f by the log, %.0f by the window: %+.2f %%", load, exact, parts, 100*(parts/exact-1))
		if parts < exact*(1-most) || parts > exact*(1+most) {
			t.Errorf("%gx: %g by the window, %g by the log", load, parts, exact)
		}
	}
}

// admitted returns how much of so many seconds of even traffic r lets through.
func admitted(r *bucket.Rule, load, seconds float64) (permits float64) {
	var g bucket.Gauge
	rng := rand.New(rand.NewPCG(11, 1))
	g.Fill(r, 1, 0)
	rate := load * float64(r.Limits[0].Count) / r.Limits[0].Period.Seconds()
	for at := 0.0; at < seconds; at += rng.ExpFloat64() / rate {
		now := int64(at * 1e6)
		g.Refill(r, 1, now, 0)
		if r.Covers(g.Free(r, 1, now, 0), 1) {
			g.Use(r, now, 1)
			permits++
		}
	}
	return permits
}

func mustRule(t testing.TB, r bucket.Rule, limits ...bucket.Limit) *bucket.Rule {
	t.Helper()
	r, err := r.With(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}
