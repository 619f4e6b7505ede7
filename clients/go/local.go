// The limits that a client keeps by itself while there is no agent.

package rlsidecar

import (
	"math"
	"sync"
	"time"
)

// maxBuckets is how many buckets a client keeps: the ones used last.
const maxBuckets = 10_000

// buckets are token buckets for the time without an agent, in mode Local. Whatever
// its algorithm, a limit is kept as a token bucket: no more than its capacity at
// once, and its count per period. Of a concurrency limit nothing is kept.
//
// Each process counts for itself, so that n of them may let through n times the
// limit. Who asks for more than maxBuckets keys in turn is not limited.
type buckets struct {
	mu     sync.Mutex // mu guards the fields that follow
	recent map[bucketName]time.Time
	older  map[bucketName]time.Time
}

type bucketName struct {
	limit Limit
	key   string
}

// ask is the decision for one call at now, which takes the permits unless it only peeks.
func (b *buckets) ask(l Limit, key string, cost int64, now time.Time, take bool) Decision {
	if l.algorithm == concurrency {
		return substitute(true, l, cost)
	}
	name := bucketName{l, key}
	b.mu.Lock()
	defer b.mu.Unlock()
	full := b.fullAt(name)
	if full.Before(now) {
		full = now
	}
	d, after := l.draw(cost, full.Sub(now))
	switch {
	case !take && d.Allowed: // what is there, as the agent tells it
		d, _ = l.draw(0, full.Sub(now))
	case d.Allowed:
		b.keep(name, now.Add(after))
	}
	return d
}

// draw takes cost from a bucket that is full again in missing. It returns after how
// long it is full then.
func (l Limit) draw(cost int64, missing time.Duration) (d Decision, after time.Duration) {
	each := float64(l.period) / float64(l.count)
	d = substitute(true, l, cost)
	if !d.Allowed {
		return d, missing
	}
	after = missing + time.Duration(float64(cost)*each)
	if late := after - time.Duration(float64(l.capacity())*each); late > 0 {
		d.Allowed, d.RetryAfter = false, late
		after = missing
	}
	d.ResetAfter = after
	d.Remaining = max(0, l.capacity()-int64(math.Ceil(float64(after)/each-1e-6)))
	return d, after
}

func (b *buckets) fullAt(name bucketName) time.Time {
	if at, ok := b.recent[name]; ok {
		return at
	}
	return b.older[name]
}

// keep notes when a bucket is full again, and forgets those that were not used for long.
func (b *buckets) keep(name bucketName, full time.Time) {
	if b.recent == nil || len(b.recent) >= maxBuckets/2 {
		b.older, b.recent = b.recent, map[bucketName]time.Time{}
	}
	b.recent[name] = full
}
