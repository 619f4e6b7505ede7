// local is a bucket without its authority: the whole limit standalone, or this
// host's share of it while Redis cannot be reached.

package localcache

import (
	"math"
	"time"

	"rlsidecar/internal/bucket"
)

type local struct {
	levels bucket.Levels
	share  float64
}

// TakeLocal spends cost permits of the local limit at share of the rule, 0 < share
// <= 1, or nothing when it has fewer. What is spent is owed to the authority when
// owed. The local limit starts at its share of the level last known.
func (b *Bucket) TakeLocal(now time.Duration, cost int64, share float64, owed bool) bool {
	l := b.refillLocal(now, share)
	if !l.levels.Cover(b.Rule, cost) {
		return false
	}
	l.levels.Add(b.Rule, -float64(cost))
	if owed {
		b.debit += cost
	}
	return true
}

// RefundLocal gives permits back to the local limit, up to its capacity, and takes
// them off what is owed. It returns how many were owed.
func (b *Bucket) RefundLocal(now time.Duration, cost int64, share float64) int64 {
	l := b.refillLocal(now, share)
	for i := range b.Rule.N {
		l.levels[i].Permits = min(l.levels[i].Permits+float64(cost), b.Rule.Limits[i].Rate(l.share).Cap)
	}
	owed := min(cost, b.debit)
	b.debit -= owed
	return owed
}

// ResetLocal makes the local limit start afresh.
func (b *Bucket) ResetLocal() { b.local, b.known, b.debit, b.refund = nil, 0, 0, 0 }

// LocalRemaining is Remaining for the local limit.
func (b *Bucket) LocalRemaining(now time.Duration, share float64) (int64, time.Duration) {
	l := b.refillLocal(now, share)
	full := l.levels.Full(b.Rule, l.share, now.Microseconds())
	return min(l.levels.Whole(b.Rule), b.Rule.Capacity()), time.Duration(full) * time.Microsecond
}

// LocalWait is Wait for the local limit.
func (b *Bucket) LocalWait(now time.Duration, cost int64, share float64) time.Duration {
	l := b.refillLocal(now, share)
	wait := l.levels.Wait(b.Rule, l.share, now.Microseconds(), float64(cost))
	return time.Duration(wait) * time.Microsecond
}

// LocalCovers reports whether the local limit has cost permits.
func (b *Bucket) LocalCovers(now time.Duration, cost int64, share float64) bool {
	return b.refillLocal(now, share).levels.Cover(b.Rule, cost)
}

func (b *Bucket) refillLocal(now time.Duration, share float64) *local {
	if b.local == nil {
		b.local = b.startLocal(now, share)
	}
	b.local.levels.Refill(b.Rule, b.local.share, now.Microseconds())
	return b.local
}

func (b *Bucket) startLocal(now time.Duration, share float64) *local {
	l := &local{share: share}
	l.levels.Fill(b.Rule, now.Microseconds())
	if b.known > 0 {
		l.levels = *b.remembered(now)
	}
	for i := range b.Rule.N {
		at := &l.levels[i]
		at.Permits = min(max(0, at.Permits*share), b.Rule.Limits[i].Rate(share).Cap)
	}
	return l
}

// full reports whether nothing of the limit is used.
func (l *local) full(r *bucket.Rule, now time.Duration) bool {
	l.levels.Refill(r, l.share, now.Microseconds())
	return l.share == 1 && l.levels.Full(r, 1, now.Microseconds()) == 0
}

// share follows which part of the bucket's grants went to this host lately.
type share struct {
	own, total float32
	last       float64
	at         time.Duration
}

// granted counts own of the total that the authority has ever granted.
func (s *share) granted(now time.Duration, own, total float64) {
	w := float32(math.Exp(-(now - s.at).Seconds() / shareWindow))
	if s.at == 0 || total < s.last {
		s.own, s.total = 0, 0
	} else {
		s.own = s.own*w + float32(own)
		s.total = s.total*w + float32(total-s.last)
	}
	s.last, s.at = total, now
}

// Share returns the part of the limit that is this host's when each host is on
// its own: mostly its part of recent grants, and some of an even part of hosts.
func (b *Bucket) Share(hosts float64) float64 {
	even := 1 / max(1, math.Round(hosts))
	if b.share.total <= 0 {
		return even
	}
	recent := min(1, max(0, float64(b.share.own/b.share.total)))
	return 0.8*recent + 0.2*even
}
