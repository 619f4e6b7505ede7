// Metrics is what is measured while it happens. What is merely counted elsewhere
// is read at scrape time, in collector.go.

package admin

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics takes in durations as they are measured. Its methods may be called from
// any goroutine.
type Metrics struct {
	decisions       histogram
	pipelineSeconds prometheus.Histogram
	pipelineScripts prometheus.Histogram
}

// NewMetrics returns Metrics that have measured nothing.
func NewMetrics() *Metrics {
	return &Metrics{
		decisions: newHistogram(
			10*time.Microsecond, 25*time.Microsecond, 50*time.Microsecond,
			100*time.Microsecond, 250*time.Microsecond, 500*time.Microsecond,
			time.Millisecond, 2500*time.Microsecond, 5*time.Millisecond,
			10*time.Millisecond, 25*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond),
		pipelineSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    prefix + "redis_pipeline_seconds",
			Help:    "How long Redis took for one pipeline of lease scripts, failed ones included.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		pipelineScripts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    prefix + "redis_pipeline_scripts",
			Help:    "Buckets asked about in one pipeline.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 8),
		}),
	}
}

// Pipeline takes in one pipeline of scripts sent to Redis.
func (m *Metrics) Pipeline(scripts int, took time.Duration) {
	m.pipelineSeconds.Observe(took.Seconds())
	m.pipelineScripts.Observe(float64(scripts))
}

// Decisions takes in n decisions that were ready together, took after their calls
// were read. It costs two atomic additions, whatever n is.
func (m *Metrics) Decisions(n int, took time.Duration) { m.decisions.observe(n, took) }

// histogram counts many equal durations in one step, which a prometheus.Histogram
// cannot. It is no snapshot: a scrape may see the count of a step and not its sum.
type histogram struct {
	bounds []time.Duration // ascending; a duration equal to a bound is within it
	counts []atomic.Uint64 // one for each bound, and one for what is beyond them
	sum    atomic.Uint64   // ns
}

func newHistogram(bounds ...time.Duration) histogram {
	return histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (h *histogram) observe(n int, took time.Duration) {
	if n <= 0 {
		return
	}
	took = max(took, 0)
	i, _ := slices.BinarySearch(h.bounds, took)
	h.counts[i].Add(uint64(n))
	h.sum.Add(uint64(n) * uint64(took))
}

// metric returns what was counted so far, as a metric of d.
func (h *histogram) metric(d *prometheus.Desc) prometheus.Metric {
	within := make(map[float64]uint64, len(h.bounds))
	count := uint64(0)
	for i, bound := range h.bounds {
		count += h.counts[i].Load()
		within[bound.Seconds()] = count
	}
	count += h.counts[len(h.bounds)].Load()
	return prometheus.MustNewConstHistogram(d, count, time.Duration(h.sum.Load()).Seconds(), within)
}
