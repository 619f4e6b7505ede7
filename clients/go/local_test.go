// The buckets of mode Local, at times given by the tests.

package rlsidecar

import (
	"strconv"
	"testing"
	"time"
)

func TestLocalBucket(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	limit := Per(10, time.Second).Burst(5)
	var b buckets
	steps := []struct {
		after     time.Duration // since the start
		cost      int64
		take      bool
		allowed   bool
		remaining int64
		retry     time.Duration
	}{
		{0, 3, true, true, 2, 0},
		{0, 2, false, true, 2, 0},
		{0, 2, true, true, 0, 0},
		{0, 1, true, false, 0, 100 * time.Millisecond},
		{50 * time.Millisecond, 2, true, false, 0, 150 * time.Millisecond},
		{200 * time.Millisecond, 2, true, true, 0, 0},
		{time.Hour, 5, true, true, 0, 0},
		{time.Hour, 6, true, false, 0, Never},
	}
	for i, s := range steps {
		d := b.ask(limit, "k", s.cost, start.Add(s.after), s.take)
		if d.Allowed != s.allowed || d.Remaining != s.remaining || d.RetryAfter != s.retry || !d.Degraded || d.Limit != 5 {
			t.Errorf("%d: %+v, want %+v", i, d, s)
		}
	}
	if d := b.ask(limit, "another", 5, start, true); !d.Allowed {
		t.Errorf("another key: %+v", d)
	}
	for range 3 {
		if d := b.ask(Concurrency(1, time.Minute), "k", 1, start, true); !d.Allowed {
			t.Errorf("concurrency: %+v", d)
		}
	}
}

func TestLocalPeekShowsWhatIsThere(t *testing.T) {
	var b buckets
	now := time.Now()
	b.ask(PerMinute(10), "k", 4, now, true)
	if d := b.ask(PerMinute(10), "k", 5, now, false); !d.Allowed || d.Remaining != 6 || d.ResetAfter != 24*time.Second {
		t.Errorf("%+v, want 6 left, and all in 24 s", d)
	}
	if d := b.ask(PerMinute(10), "k", 7, now, false); d.Allowed || d.RetryAfter != 6*time.Second {
		t.Errorf("%+v, want a denial for 6 s", d)
	}
}

func TestLocalBucketsAreBounded(t *testing.T) {
	var b buckets
	now := time.Now()
	for i := range 3 * maxBuckets {
		b.ask(PerHour(1), strconv.Itoa(i), 1, now, true)
	}
	if n := len(b.recent) + len(b.older); n > maxBuckets {
		t.Errorf("%d buckets, allowed are %d", n, maxBuckets)
	}
	if d := b.ask(PerHour(1), strconv.Itoa(3*maxBuckets-1), 1, now, true); d.Allowed {
		t.Errorf("%+v: the last one was forgotten", d)
	}
}

func TestLocalMode(t *testing.T) {
	c := newClient(t, socketName(t), WithOnUnavailable(Local))
	limit := PerHour(2)
	for i, want := range []bool{true, true, false} {
		if d, err := c.Acquire(ctx, limit, "k"); err != nil || d.Allowed != want || d.Source != FromClient {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
	}
	allowed, ds, err := c.AcquireAll(ctx, []Ask{{Limit: limit, Key: "j"}, {Limit: limit, Key: "k"}})
	if allowed || len(ds) != 2 || err != nil {
		t.Errorf("%v, %+v, %v", allowed, ds, err)
	}
	if d, err := c.Peek(ctx, limit, "j", Cost(2)); err != nil || !d.Allowed {
		t.Errorf("a denied AcquireAll took permits: %+v, %v", d, err)
	}
}
