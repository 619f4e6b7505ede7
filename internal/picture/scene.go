// What happens in a picture: one and the same calls, decided by internal/bucket in
// synthetic time.

package main

import (
	"time"

	"rlsidecar/internal/bucket"
)

const (
	second = int64(1e6) // µs
	length = 44 * second
	count  = 10
	period = 10 * second
	places = 5          // of the leaky bucket, and of the concurrency limit
	hold   = 3 * second // of a concurrency permit
)

// calls returns when calls come, each for one permit, in µs: one alone, a burst,
// twice the limit for a while, and after a pause a burst again.
func calls() []int64 {
	var all []int64
	add := func(from, every int64, n int) {
		for range n {
			all = append(all, from)
			from += every
		}
	}
	add(2*second, 0, 1)
	add(8*second, second/8, 14)
	add(10*second+second/2, second/2, 23)
	add(33*second, second/8, 14)
	return all
}

// answer is what became of a call.
type answer struct {
	at      int64 // when it came
	allowed bool
	left    int64 // when it went on; at, unless it waited
}

// point is a level at a time.
type point struct {
	at    int64
	level float64
}

// scene is a bucket at work.
type scene interface {
	// call decides a call at now, and returns when it goes on if it is allowed.
	call(now int64) (allowed bool, left int64)
	// level returns what is drawn of the bucket at now.
	level(now int64) float64
}

// play runs the calls through s. Levels are taken at every call, before it and
// after, and 50 times a second.
func play(s scene) (answers []answer, levels []point) {
	next := int64(0)
	sample := func(until int64) {
		for ; next < until; next += second / 50 {
			levels = append(levels, point{next, s.level(next)})
		}
	}
	for _, now := range calls() {
		sample(now)
		levels = append(levels, point{now, s.level(now)})
		allowed, left := s.call(now)
		levels = append(levels, point{now, s.level(now)})
		answers = append(answers, answer{now, allowed, left})
	}
	sample(length + 1)
	return answers, levels
}

// metered is a bucket of any algorithm but concurrency.
type metered struct {
	rule  bucket.Rule
	gauge bucket.Gauge
	paced bool // calls wait for their turn
}

func newMetered(a bucket.Algorithm, burst int64) *metered {
	rule, err := bucket.Rule{Algorithm: a}.With(bucket.Limit{Count: count, Period: time.Duration(period) * time.Microsecond, Burst: burst})
	if err != nil {
		panic(err) // a mistake in this file
	}
	m := &metered{rule: rule, paced: a == bucket.LeakyBucket}
	m.gauge.Fill(&m.rule, 1, 0)
	return m
}

func (m *metered) free(now int64) float64 {
	m.gauge.Refill(&m.rule, 1, now, 0)
	return m.gauge.Free(&m.rule, 1, now, 0)
}

func (m *metered) call(now int64) (allowed bool, left int64) {
	if !m.rule.Covers(m.free(now), 1) {
		return false, 0
	}
	left = now
	if m.paced {
		left += m.gauge.Full(&m.rule, 1, now, 0)
	}
	m.gauge.Use(&m.rule, now, 1)
	return true, left
}

func (m *metered) level(now int64) float64 {
	if m.paced {
		return float64(m.rule.Capacity()) - m.free(now)
	}
	return m.free(now)
}

// holding is a concurrency limit whose permits are all released after hold.
type holding struct {
	rule    bucket.Rule
	holders bucket.Holders
	ends    []int64 // of the permits held
	asks    int64
}

func newHolding() *holding {
	rule, err := bucket.Rule{Algorithm: bucket.Concurrency}.With(bucket.Limit{Count: places, Period: time.Minute, Burst: places})
	if err != nil {
		panic(err) // a mistake in this file
	}
	return &holding{rule: rule}
}

func (h *holding) call(now int64) (allowed bool, left int64) {
	held := int64(h.level(now))
	h.asks++
	g := h.holders.Apply(&h.rule, now, &bucket.Ask{
		Agent: 1, Seq: h.asks, Keep: held, InUse: held, Holding: 60, Queued: 1, Need: 1, Unit: 1,
	})
	if g.Permits > 0 {
		h.ends = append(h.ends, now+hold)
	}
	return g.Permits > 0, now
}

func (h *holding) level(now int64) float64 {
	for len(h.ends) > 0 && h.ends[0] <= now {
		h.ends = h.ends[1:]
	}
	return float64(len(h.ends))
}
