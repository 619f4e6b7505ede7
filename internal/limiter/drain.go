// Giving back: what the agent owes when a bucket is forgotten, and when it ends.

package limiter

import (
	"context"
	"fmt"
	"time"

	"rlsidecar/localcache"
)

// evicted gives back the lease of a bucket that the cache forgets. The shard is
// locked. A bucket with an ask on its way, or calls waiting, settles when these
// are answered.
func (l *Limiter) evicted(b *localcache.Bucket) {
	if l.redis != nil && b.Rule != nil {
		l.next(l.clock(), b)
	}
}

// Drain ends the limiter's work: new calls get ShuttingDown, those that wait are
// answered, leases go back to Redis. It returns when that is done, or, with an
// error that says what was left, after three quarters of the time that ctx has: what
// waits for Redis is then answered without it. Run must go on meanwhile.
func (l *Limiter) Drain(ctx context.Context) error {
	l.draining.Store(true)
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)*3/4)
		defer cancel()
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		calls, leases := l.drainOnce()
		if calls+leases == 0 && l.asking.Load() == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			l.answerAll()
			return fmt.Errorf("%d leases not given back: they end by themselves in 2 s; %d calls answered without Redis", leases, calls)
		case <-tick.C:
		}
	}
}

// answerAll answers every call that waits from the fallback.
func (l *Limiter) answerAll() {
	now := l.clock()
	var out replies
	l.cache.Each(func(b *localcache.Bucket) {
		if q := queueOf(b); q != nil {
			l.withoutRedis(now, b, q, func(*call) bool { return true }, &out)
		}
	})
	out.deliver(l)
}

// Draining reports that Drain was called.
func (l *Limiter) Draining() bool { return l.draining.Load() }

// drainOnce asks every bucket to settle, and returns how many calls still wait and how
// many buckets still have something to give back.
func (l *Limiter) drainOnce() (calls, leases int) {
	now := l.clock()
	var out replies
	l.cache.Each(func(b *localcache.Bucket) {
		if q := queueOf(b); q != nil {
			l.depart(now, b, q, &out)
			if q.parked() && !b.Asking {
				d := l.deskFor(now, b, q.calls[0].policy)
				l.serve(&d, q, true, &out)
			}
			calls += len(q.calls)
		}
		if l.redis == nil || !b.Owes(now) {
			return
		}
		l.next(now, b)
		if b.Asking || l.reachable(now, b) {
			leases++
		}
	})
	out.deliver(l)
	return calls, leases
}
