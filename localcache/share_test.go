// What a host takes for its part of a limit, and what its local limit starts from.

package localcache

import (
	"math"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

// hears has b hear once a second for a minute that own of the grants of each second
// were its own, all together, and that so many hosts ask.
func hears(b *Bucket, own, all int64, hosts float64) {
	for i := range 60 {
		now := time.Duration(i+1) * time.Second
		q := &bucket.Question{Rule: b.Rule, Ask: b.Ask(now, Want{Queued: own, First: 1, Unit: 1})}
		b.Granted(now, now, q, &bucket.Grant{Permits: own, Direct: own, Granted: float64(int64(i) * all), Epoch: 1, Hosts: hosts}, 0.5)
		b.Take(now, own)
	}
}

func newBucket(t *testing.T, count int64) *Bucket {
	rule := mustRule(t, bucket.Rule{}, bucket.Limit{Count: count, Period: time.Second, Burst: count})
	b := New(64, func(*Bucket) {}).Shard(nil).Get(Key{}.Policy, []byte("k"))
	b.Adopt(rule)
	return b
}

func TestShareFollowsTheGrantsOfItsOwnBucket(t *testing.T) {
	const ofAll = 50 // hosts, as other buckets tell
	for _, c := range []struct {
		own, all int64
		hosts    float64
		want     float64
	}{
		{25, 100, 4, 0.8*0.25 + 0.2/4},
		{90, 100, 2, 0.8*0.9 + 0.2/2},
		{100, 100, 1, 1},
		{0, 100, 5, 0.2 / 5},
	} {
		b := newBucket(t, 1000)
		if got, want := b.Share(ofAll), 1.0/ofAll; got != want {
			t.Errorf("share of a bucket nothing is known of: %g, want an even part, %g", got, want)
		}
		hears(b, c.own, c.all, c.hosts)
		if got := b.Share(ofAll); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("share %g: want %g, having had %d of %d permits a second beside %g hosts", got, c.want, c.own, c.all, c.hosts)
		}
	}
}

// The grants of the last half minute decide: two of them leave e^-2 of what was before.
func TestShareForgets(t *testing.T) {
	b := newBucket(t, 1000)
	hears(b, 100, 100, 1)
	now := 61 * time.Second
	for i := range 60 {
		b.share.granted(now+time.Duration(i)*time.Second, 0, float64(60+i)*100, 2, false)
	}
	old := math.Exp(-2)
	if got, want := b.Share(1), 0.8*old+0.1; math.Abs(got-want) > 0.02 {
		t.Errorf("share %.3f: want about %.3f", got, want)
	}
}

// Hosts that give back more than they get let the total fall, which is no new bucket.
func TestShareOutlivesWhatIsGivenBack(t *testing.T) {
	for _, c := range []struct {
		name    string
		granted float64
		epoch   int64
		want    float64
	}{
		{"given back", 5880, 1, 0.8*0.9 + 0.1},
		{"born anew", 10, 2, 0.5},
		{"born anew in a window", 5910, 2, 0.8*0.9 + 0.1},
	} {
		b := newBucket(t, 1000)
		hears(b, 90, 100, 2)
		now := 61 * time.Second
		q := &bucket.Question{Rule: b.Rule, Ask: b.Ask(now, Want{})}
		b.Granted(now, now, q, &bucket.Grant{Granted: c.granted, Epoch: c.epoch, Hosts: 2}, 0.5)
		if got := b.Share(2); math.Abs(got-c.want) > 0.02 {
			t.Errorf("%s: share %.3f, want about %.3f", c.name, got, c.want)
		}
	}
}

// The local limit takes up its share of the level last known, as if it had been on
// its own since then.
func TestLocalLimitStartsFromTheLevelLastKnown(t *testing.T) {
	for _, c := range []struct {
		level float64
		since time.Duration
		share float64
		want  int64
	}{
		{80, 0, 0.5, 40},
		{80, 100 * time.Millisecond, 0.5, 45},
		{80, time.Hour, 0.5, 50},
		{0, 0, 0.5, 0},
		{-20, 0, 0.5, 0},
		{30, 0, 1, 30},
	} {
		b, now := newBucket(t, 100), time.Second
		q := &bucket.Question{Rule: b.Rule, Ask: b.Ask(now, Want{})}
		g := bucket.Grant{}
		g.Outlook.Levels[0].Permits = c.level
		b.Granted(now, now, q, &g, 0.5)
		if got, _ := b.LocalRemaining(now+c.since, c.share); got != c.want {
			t.Errorf("level %g, %v later, share %g: the local limit has %d permits, want %d", c.level, c.since, c.share, got, c.want)
		}
	}
}
