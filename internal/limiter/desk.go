// desk hands out a bucket's permits: from the lease, or from the local limit.

package limiter

import (
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/localcache"
)

// desk serves one bucket at one moment. REQUIRES: the bucket's shard is locked.
type desk struct {
	b      *localcache.Bucket
	now    time.Duration
	ago    time.Duration // how long before now the authority was asked, whose answer this is
	source Source
	share  float64 // of the limit, for the local one
	owed   bool    // what the local limit admits is owed to Redis
	taken  int64
	turn   time.Duration // of a paced answer: how long until the first call leaves
	direct int64         // and the permits that are for such calls
}

func (d *desk) local() bool { return d.source == FromStandalone || d.source == FromFallback }

func (d *desk) take(cost int64) bool {
	ok := false
	if d.local() {
		ok = d.b.TakeLocal(d.now, cost, d.share, d.owed)
	} else {
		ok = d.b.Take(d.now, cost)
	}
	if ok {
		d.taken += cost
	}
	return ok
}

func (d *desk) covers(cost int64) bool {
	if d.local() {
		return d.b.LocalCovers(d.now, cost, d.share)
	}
	return d.b.Covers(d.now-d.ago, cost)
}

// wait returns how long until a call of cost could be allowed behind others that
// cost ahead, as far as that can be known.
func (d *desk) wait(ahead, cost int64) time.Duration {
	switch {
	case d.concurrent():
		return time.Millisecond
	case d.local():
		return d.b.LocalWait(d.now, ahead, cost, d.share)
	}
	return d.b.Wait(d.now-d.ago, ahead, cost)
}

// concurrent reports that permits come when holders release them: any moment.
func (d *desk) concurrent() bool { return d.b.Rule.Algorithm == bucket.Concurrency }

// retryHeld is the retry-after of a concurrency limit, where nobody can know it, and
// how often waiting calls ask for permits released on other hosts.
const (
	retryHeld = 100 * time.Millisecond
	pollHeld  = 20 * time.Millisecond
)

// advise returns the retry-after of a call that would have to wait for so long.
func (d *desk) advise(wait time.Duration) time.Duration {
	if d.concurrent() {
		return retryHeld
	}
	return wait
}

// again returns when waiting calls of which the first costs cost are tried again.
func (d *desk) again(cost int64) time.Duration {
	switch {
	case !d.concurrent():
		return d.now + max(time.Millisecond, d.wait(0, cost))
	case d.local():
		return d.now + retryHeld // a release wakes them; this is for those who left
	}
	return max(d.b.NextAsk, d.now+pollHeld)
}

// look puts into out how the bucket looks to a call of cost that was allowed or not.
func (d *desk) look(cost int64, allowed bool, out *Decision) {
	out.Allowed, out.Limit, out.Source = allowed, d.b.Rule.Capacity(), d.source
	if d.local() {
		out.Remaining, out.ResetAfter = d.b.LocalRemaining(d.now, d.share)
	} else {
		out.Remaining, out.ResetAfter = d.b.Remaining(d.now - d.ago)
	}
	if !allowed {
		out.RetryAfter = d.advise(d.wait(0, cost))
	}
}

// seen is look as a value, for a call that consumes nothing.
func (d *desk) seen(cost int64) (out Decision) {
	d.look(cost, d.covers(cost), &out)
	return out
}
