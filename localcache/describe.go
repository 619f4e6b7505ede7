// A bucket in words, for operators.

package localcache

import (
	"fmt"
	"time"
)

// Describe returns what this host knows of b: names and values in the order they
// are to be shown. REQUIRES: b's shard is locked.
func (b *Bucket) Describe(now time.Duration) [][2]string {
	out := [][2]string{{"demand here", fmt.Sprintf("%.1f permits/s at least", b.demand.rate)}}
	if b.concurrent() {
		out = append(out, [2]string{"held here", fmt.Sprintf("%d permits", b.held.inUse)})
	}
	if b.known == 0 {
		return append(out, [2]string{"last answer", "none"})
	}
	left, full := b.Remaining(now)
	return append(out,
		[2]string{"lease", b.describeLease(now)},
		[2]string{"level", fmt.Sprintf("%d of %d permits with the lease, full in %v, if nobody else asks", left, b.Rule.Capacity(), full.Round(time.Millisecond))},
		[2]string{"denial", b.describeDenial(now)},
		[2]string{"last answer", fmt.Sprintf("%v ago", (now - b.known).Round(time.Millisecond))},
		[2]string{"owed to redis", fmt.Sprintf("%d permits admitted without it, %d refunded", b.debit, b.refund)})
}

func (b *Bucket) describeLease(now time.Duration) string {
	if b.Permits(now) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d permits, for %v more", b.permits, (b.end - now).Round(time.Millisecond))
}

func (b *Bucket) describeDenial(now time.Duration) string {
	switch {
	case !b.scarce:
		return "none"
	case now < b.NextAsk:
		return fmt.Sprintf("cost %d and more, not asked again for %v", max(1, b.denied), (b.NextAsk - now).Round(time.Millisecond))
	}
	return "costs that refill cannot have brought yet"
}
