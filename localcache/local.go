// local is a bucket without its authority: the whole limit standalone, or this
// host's share of it while Redis cannot be reached.

package localcache

import (
	"math"
	"time"

	"rlsidecar/internal/bucket"
)

type local struct {
	gauge bucket.Gauge
	share float64
}

// TakeLocal spends cost permits of the local limit at share of the rule, 0 < share
// <= 1, or nothing when it has fewer. What is spent is owed to the authority when
// owed. The local limit starts at its share of what was last known to be free.
func (b *Bucket) TakeLocal(now time.Duration, cost int64, share float64, owed bool) bool {
	if !b.LocalCovers(now, cost, share) {
		return false
	}
	if b.concurrent() {
		b.hold(now, cost)
		return true
	}
	b.local.gauge.Use(b.Rule, now.Microseconds(), float64(cost))
	if owed {
		b.debit += cost
	}
	return true
}

// RefundLocal gives permits back to the local limit, up to its capacity, and takes
// them off what is owed. It returns how many were owed.
func (b *Bucket) RefundLocal(now time.Duration, cost int64, share float64) int64 {
	l := b.refillLocal(now, share)
	l.gauge.Refund(b.Rule, l.share, now.Microseconds(), float64(cost), 0)
	owed := min(cost, b.debit)
	b.debit -= owed
	return owed
}

// owed is the debit, or what of it still counts. A bucket that is asked for less than it
// refills is full again after an outage, however much it let through: to have all of that
// paid would empty it.
func (b *Bucket) owed(now time.Duration) int64 {
	if b.debit == 0 || b.local == nil {
		return b.debit
	}
	l := b.refillLocal(now, b.local.share)
	used := int64(math.Ceil(l.gauge.Used(b.Rule, l.share, now.Microseconds()) - 1e-6))
	return min(b.debit, used+b.refund) // a refund that is told by itself is not used any more
}

// ResetLocal makes the local limit start afresh.
func (b *Bucket) ResetLocal() {
	b.local, b.known, b.debit, b.refund = nil, 0, 0, 0
	b.held.forget()
}

// LocalRemaining is Remaining for the local limit.
func (b *Bucket) LocalRemaining(now time.Duration, share float64) (int64, time.Duration) {
	left := min(int64(max(0, b.localFree(now, share)+1e-6)), b.Rule.Capacity())
	if b.concurrent() {
		return left, max(0, b.held.until-now)
	}
	full := b.local.gauge.Full(b.Rule, b.local.share, now.Microseconds(), 0)
	return left, time.Duration(full) * time.Microsecond
}

// LocalWait is Wait for the local limit.
func (b *Bucket) LocalWait(now time.Duration, ahead, cost int64, share float64) time.Duration {
	l := b.refillLocal(now, share)
	wait := l.gauge.Wait(b.Rule, l.share, now.Microseconds(), 0, float64(ahead+b.Rule.Lack(cost)))
	return time.Duration(wait) * time.Microsecond
}

// LocalTurn returns how long a paced call that takes its permits now has to wait
// for its turn to leave.
func (b *Bucket) LocalTurn(now time.Duration, share float64) time.Duration {
	l := b.refillLocal(now, share)
	return time.Duration(l.gauge.Full(b.Rule, l.share, now.Microseconds(), 0)) * time.Microsecond
}

// LocalCovers reports whether the local limit has cost permits.
func (b *Bucket) LocalCovers(now time.Duration, cost int64, share float64) bool {
	return b.Rule.Covers(b.localFree(now, share), cost)
}

func (b *Bucket) localFree(now time.Duration, share float64) float64 {
	if b.concurrent() {
		return b.Rule.Rate(0, share).Cap - float64(b.held.inUse)
	}
	l := b.refillLocal(now, share)
	return l.gauge.Free(b.Rule, l.share, now.Microseconds(), 0)
}

func (b *Bucket) refillLocal(now time.Duration, share float64) *local {
	if b.local == nil {
		b.local = &local{share: share}
		b.local.gauge.Fill(b.Rule, share, now.Microseconds())
		if b.known > 0 {
			b.local.gauge.Resume(b.Rule, share, now.Microseconds(), &b.outlook)
		}
	}
	b.local.gauge.Refill(b.Rule, b.local.share, now.Microseconds(), 0)
	return b.local
}

// full reports whether nothing of the limit is used.
func (l *local) full(r *bucket.Rule, now time.Duration) bool {
	l.gauge.Refill(r, l.share, now.Microseconds(), 0)
	return l.share == 1 && l.gauge.Full(r, 1, now.Microseconds(), 0) == 0
}

// share follows which part of the bucket's grants went to this host lately, and
// how many hosts asked for it.
type share struct {
	own, total, hosts float32
	last              float64
	at                time.Duration
}

// granted counts own of the total that the authority has ever granted. hosts is how many
// it sees: rather too few, as those that ask seldom count little, so that a fall is
// believed slowly. The total falls a little when hosts give back more than they get;
// when it falls at the birth of another bucket, what was counted is of the old one.
func (s *share) granted(now time.Duration, own, total, hosts float64, born bool) {
	w := float32(math.Exp(-(now - s.at).Seconds() / shareWindow))
	if s.at == 0 || born && total < s.last {
		s.own, s.total, s.hosts = 0, 0, 0
	} else {
		s.own = s.own*w + float32(own)
		s.total = s.total*w + float32(total-s.last)
	}
	s.hosts = max(float32(hosts), s.hosts*w+float32(hosts)*(1-w))
	s.last, s.at = total, now
}

// Hosts returns how many hosts ask for the bucket, 1 at least, as a mean; those of all
// buckets as long as nothing is known of this one.
func (b *Bucket) Hosts(all float64) float64 {
	if b.share.total > 0 {
		all = float64(b.share.hosts)
	}
	return max(1, all)
}

// Share returns the part of the limit that is this host's when each host is on
// its own: mostly its part of recent grants, and some of an even part of hosts. all
// is as in Hosts.
func (b *Bucket) Share(all float64) float64 {
	even := 1 / b.Hosts(all)
	if b.share.total <= 0 {
		return even
	}
	recent := min(1, max(0, float64(b.share.own/b.share.total)))
	return 0.8*recent + 0.2*even
}
