// A debit is on its way or still owed, never both: whatever happens to the bucket
// meanwhile, the next debit is whole.

package localcache

import (
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

func TestDebitOnItsWayIsNotOwedTwice(t *testing.T) {
	rule, err := bucket.NewRule(bucket.Limit{Count: 100, Period: time.Hour, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Second
	for _, meanwhile := range []struct {
		name   string
		do     func(*Bucket)
		owed   int64 // after an ask that was lost or granted
		refund int64
	}{
		{"nothing", func(*Bucket) {}, 0, 0},
		{"more admitted", func(b *Bucket) { b.TakeLocal(now, 3, 1, true) }, 3, 0},
		{"reset", func(b *Bucket) { b.ResetLocal() }, 0, 0},
		{"refunded", func(b *Bucket) { b.Refund(4 - b.RefundLocal(now, 4, 1)) }, 0, 4},
	} {
		for _, outcome := range []string{"granted", "lost", "refused"} {
			b := New(64, func(*Bucket) {}).Shard(nil).Get(Key{}.Policy, []byte("k"))
			b.Adopt(&rule)
			b.TakeLocal(now, 10, 1, true)
			q := bucket.Question{Rule: &rule, Ask: b.Ask(now, Want{})}
			meanwhile.do(b)
			want := meanwhile.owed
			switch outcome {
			case "granted":
				b.Granted(now, now, &q, &bucket.Grant{}, 0.5)
			case "lost":
				b.Lost(&bucket.Ask{})
			default:
				b.Refused(&q.Ask)
				want += 10
			}
			next := b.Ask(now, Want{})
			if q.Ask.Debit != 10 || next.Debit != want || next.Refund != meanwhile.refund {
				t.Errorf("%s, then %s: debits %d and %d, refund %d; want 10 and %d, refund %d",
					meanwhile.name, outcome, q.Ask.Debit, next.Debit, next.Refund, want, meanwhile.refund)
			}
		}
	}
}

// What an outage let through is paid as far as it would still be missing if it had been
// taken from the bucket at once.
func TestOnlyWhatIsStillUsedIsPaid(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  bucket.Rule
		every time.Duration // a permit, for 6 s
		paid  int64
	}{
		{"less than refills", bucket.Rule{}, 100 * time.Millisecond, 1},
		{"as much as there is", bucket.Rule{}, 10 * time.Millisecond, 20},
		{"of a window, in this one", bucket.Rule{Algorithm: bucket.FixedWindow}, 100 * time.Millisecond, 10},
		{"of the last period of a log", bucket.Rule{Algorithm: bucket.SlidingLog}, 100 * time.Millisecond, 10},
		{"of the last period and part of a window", bucket.Rule{Algorithm: bucket.SlidingWindow}, 100 * time.Millisecond, 10},
	} {
		rule, err := c.rule.With(bucket.Limit{Count: 20, Period: time.Second, Burst: 20})
		if err != nil {
			t.Fatal(err)
		}
		b := New(64, func(*Bucket) {}).Shard(nil).Get(Key{}.Policy, []byte("k"))
		b.Adopt(&rule)
		now := time.Second
		for ; now < 7*time.Second; now += c.every {
			b.TakeLocal(now, 1, 1, true)
		}
		now -= c.every
		if a := b.Ask(now, Want{}); a.Debit < c.paid || a.Debit > c.paid+1 {
			t.Errorf("%s: %d permits paid, want %d or one more", c.name, a.Debit, c.paid)
		}
	}
}
