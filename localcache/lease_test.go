// What a lease must never do: hold more than is recorded of it, or lose count.

package localcache

import (
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

// leased is a bucket that has been granted permits, some of them direct.
func leased(t *testing.T, permits, direct int64) *Bucket {
	t.Helper()
	rule, err := bucket.NewRule(bucket.Limit{Count: 100, Period: time.Second, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	b := &Bucket{Rule: &rule, shard: New(64, func(*Bucket) {}).Shard(nil)}
	ask(b, time.Second, bucket.Grant{Permits: permits, Direct: direct, Epoch: 1, Slot: 1, Life: 2})
	return b
}

func ask(b *Bucket, now time.Duration, g bucket.Grant) {
	q := &bucket.Question{Rule: b.Rule, Ask: b.Ask(now, Want{Queued: g.Direct, First: 1, Unit: 1, Lease: true})}
	b.Granted(now, now, q, &g, 0.5)
}

func TestDirectPermitsAreNotPutBackIntoTheLease(t *testing.T) {
	b := leased(t, 12, 2)
	now := time.Second
	if !b.Take(now, 2) {
		t.Fatal("nothing to take")
	}
	if b.PutBack(now, 1, b.Asks()) {
		t.Error("a direct permit went into the lease: 11 are held, 10 are recorded")
	}
	if !b.Take(now, 3) || !b.PutBack(now, 3, b.Asks()) {
		t.Error("permits of the lease could not be put back")
	}
	if b.PutBack(now, 1, b.Asks()-1) {
		t.Error("permits of an earlier lease were put back")
	}
	if b.PutBack(now+leaseLife, 1, b.Asks()) {
		t.Error("permits were put back into a lease that has ended")
	}
}

func TestEveryPermitIsCountedOnce(t *testing.T) {
	for name, end := range map[string]func(*Bucket, time.Duration){
		"expired": func(b *Bucket, now time.Duration) { b.Permits(now + leaseLife) },
		"given back": func(b *Bucket, now time.Duration) {
			q := &bucket.Question{Rule: b.Rule, Ask: b.Ask(now, Want{Quit: true})}
			b.Granted(now, now, q, &bucket.Grant{}, 0.5)
		},
		"void": func(b *Bucket, now time.Duration) { ask(b, now, bucket.Grant{Void: true}) },
		"lost": func(b *Bucket, now time.Duration) {
			a := b.Ask(now, Want{Quit: true})
			b.Lost(&a)
		},
		"orphaned": func(b *Bucket, now time.Duration) {
			b.Lost(&bucket.Ask{})
			ask(b, now, bucket.Grant{})
		},
		"direct and unused": func(b *Bucket, now time.Duration) { b.Settle(2); b.Permits(now + leaseLife) },
	} {
		b := leased(t, 12, 2)
		b.Take(time.Second, 5)
		end(b, time.Second)
		if c := b.shard.counts; b.permits != 0 || c.Granted != c.Spent+c.Returned+c.Expired {
			t.Errorf("%s: %d permits held, %+v", name, b.permits, c)
		}
	}
}
