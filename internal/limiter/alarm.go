// Alarms wake buckets: for calls whose budget ends, for calls that wait, and for
// leases that lie idle. One heap, one goroutine.

package limiter

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"rlsidecar/localcache"
)

// sweepEvery is how often buckets that tell nothing are forgotten.
const sweepEvery = time.Second

// alarms is the heap of what is to happen. Lock order: a shard's, then mu.
type alarms struct {
	wake chan struct{} // capacity 1: the first alarm is earlier than it was

	// mu guards heap.
	mu   sync.Mutex
	heap alarmHeap
}

type alarm struct {
	at time.Duration
	b  *localcache.Bucket
}

type alarmHeap []alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h alarmHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *alarmHeap) Push(x any)        { *h = append(*h, x.(alarm)) }
func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = alarm{}
	*h = (*h)[:last]
	return x
}

func (a *alarms) push(at time.Duration, b *localcache.Bucket) {
	a.mu.Lock()
	heap.Push(&a.heap, alarm{at, b})
	first := a.heap[0].at == at
	a.mu.Unlock()
	if first {
		a.awake()
	}
}

// awake has Run look again.
func (a *alarms) awake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// pop returns the next alarm if it is due, else when it will be; 0: there is none.
func (a *alarms) pop(now time.Duration) (due alarm, next time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.heap) == 0 {
		return alarm{}, 0
	}
	if a.heap[0].at > now {
		return alarm{}, a.heap[0].at
	}
	return heap.Pop(&a.heap).(alarm), 0
}

// arm sees to it that b is woken when something is due. REQUIRES: b's shard is
// locked.
func (l *Limiter) arm(b *localcache.Bucket) {
	at := b.Idle
	if q := queueOf(b); q != nil {
		at = sooner(sooner(at, q.due), q.leaves())
		if !b.Asking && len(q.calls) > 0 {
			at = sooner(at, q.retry)
		}
	}
	if at == 0 || b.Alarm != 0 && b.Alarm <= at {
		return
	}
	b.Alarm = at
	l.alarms.push(at, b)
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Advance does everything that is due at now and returns when the next is; 0: never.
func (l *Limiter) Advance(now time.Duration) (next time.Duration) {
	ended, expiry := l.permits.due(now)
	for _, held := range ended {
		l.release(now, held)
	}
	for {
		due, next := l.alarms.pop(now)
		if due.b == nil {
			return sooner(next, expiry)
		}
		var out replies
		due.b.Shard().Lock()
		if due.b.Alarm == due.at {
			due.b.Alarm = 0
			l.woken(now, due.b, &out)
		}
		due.b.Shard().Unlock()
		out.deliver(l)
	}
}

// woken does what is due for b. REQUIRES: b's shard is locked.
func (l *Limiter) woken(now time.Duration, b *localcache.Bucket, out *replies) {
	if q := queueOf(b); q != nil {
		l.depart(now, b, q, out)
		if len(q.calls) > 0 {
			l.retry(now, b, q, out)
		}
	}
	if b.Idle != 0 && b.Idle <= now {
		b.Idle = 0
		switch {
		case b.Asking || l.redis == nil || !b.Returns(now):
		case l.reachable(now, b):
			l.ask(now, b, localcache.Want{})
		case b.Owes(now):
			b.Idle = now + retryDown
		}
	}
	l.next(now, b)
}

func (l *Limiter) retry(now time.Duration, b *localcache.Bucket, q *queue, out *replies) {
	if q.retry != 0 && q.retry <= now && !b.Asking {
		q.retry = 0
		if d := l.deskFor(now, b, q.calls[0].policy); d.local() {
			l.serve(&d, q, true, out)
		} else {
			l.ask(now, b, q.want(now))
		}
	}
	if q.due != 0 && q.due <= now {
		l.withoutRedis(now, b, q, func(c *call) bool { return c.budget <= now }, out)
	}
}

// Run advances the limiter with its clock until ctx ends.
func (l *Limiter) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	swept := l.clock()
	for {
		now := l.clock()
		if now >= swept+sweepEvery {
			l.cache.Sweep(now)
			swept = now
		}
		sleep := swept + sweepEvery - now
		if next := l.Advance(now); next != 0 {
			sleep = min(sleep, max(0, next-now))
		}
		timer.Reset(sleep)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.alarms.wake:
		}
	}
}
