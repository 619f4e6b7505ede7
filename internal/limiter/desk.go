// desk hands out a bucket's permits: from the lease, or from the local limit.

package limiter

import (
	"time"

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
	return d.b.Covers(d.now, cost)
}

func (d *desk) wait(cost int64) time.Duration {
	if d.local() {
		return d.b.LocalWait(d.now, cost, d.share)
	}
	return d.b.Wait(d.now-d.ago, cost)
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
		out.RetryAfter = d.wait(cost)
	}
}

// seen is look as a value, for a call that consumes nothing.
func (d *desk) seen(cost int64) (out Decision) {
	d.look(cost, d.covers(cost), &out)
	return out
}
