// A clock that steps back, as Redis's does when NTP mends it or a replica takes over
// whose clock is behind: nothing is added, and no bucket waits for it to catch up.

package remote

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/redistest"
)

func TestClockThatStepsBack(t *testing.T) {
	client := clientOf(t)
	ten := bucket.Limit{Count: 10, Period: time.Second, Burst: 10}
	for _, c := range []struct {
		name string
		rule bucket.Rule
		all  time.Duration // until all of what was used is there again
	}{
		{"token bucket", bucket.Rule{}, time.Second},
		{"token bucket by ticks", bucket.Rule{Interval: true}, time.Second},
		{"leaky bucket", bucket.Rule{Algorithm: bucket.LeakyBucket}, time.Second},
		{"windows by the clock", bucket.Rule{Algorithm: bucket.FixedWindow}, time.Second},
		{"windows from the first use", bucket.Rule{Algorithm: bucket.FixedWindow, FirstUse: true}, time.Second},
		{"sliding window", bucket.Rule{Algorithm: bucket.SlidingWindow}, 1100 * time.Millisecond},
		{"sliding log", bucket.Rule{Algorithm: bucket.SlidingLog}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule, err := c.rule.With(ten)
			if err != nil {
				t.Fatal(err)
			}
			b := newStepped(t, client, &rule)
			b.get(10, 10)
			b.pass(-time.Hour)
			b.get(1, 0)
			b.pass(c.all)
			b.get(20, 10)
			b.pass(-50 * time.Hour)
			b.get(1, 0)
			b.pass(c.all)
			b.get(20, 10)
		})
	}
}

// Permits of a host that is gone are free when nobody can hold them any more.
func TestHoldersEndThoughTheClockStepsBack(t *testing.T) {
	client := clientOf(t)
	rule, err := bucket.Rule{Algorithm: bucket.Concurrency}.With(bucket.Limit{Count: 10, Period: time.Second, Burst: 10})
	if err != nil {
		t.Fatal(err)
	}
	b := newStepped(t, client, &rule)
	b.get(10, 10)
	b.agent = 2
	b.pass(-time.Hour)
	b.get(10, 0)
	b.pass(bucket.LeaseLife*time.Microsecond + rule.Limits[0].Period - time.Microsecond)
	b.get(10, 0)
	b.pass(time.Microsecond)
	b.get(10, 10)
}

// Windows by the clock are that again as soon as no time is repeated by it.
func TestWindowsFindTheClockAgain(t *testing.T) {
	client := clientOf(t)
	rule, err := bucket.Rule{Algorithm: bucket.FixedWindow}.With(bucket.Limit{Count: 10, Period: time.Second, Burst: 10})
	if err != nil {
		t.Fatal(err)
	}
	b := newStepped(t, client, &rule)
	b.get(10, 10)
	b.pass(-300 * time.Millisecond)
	for range 5 {
		b.get(1, 0)
		b.pass(200 * time.Millisecond)
	}
	b.get(20, 10) // a second has ended for the bucket, 300 ms before the clock's does
	b.pass(300 * time.Millisecond)
	b.get(1, 0) // here it takes the clock's time, at the beginning of a second
	b.pass(999 * time.Millisecond)
	b.get(1, 0)
	b.pass(time.Millisecond)
	b.get(20, 10)
}

func clientOf(t *testing.T) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(redistest.Start(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

// stepped is one bucket, of the script and of its twin, with a clock of the test's.
type stepped struct {
	t      *testing.T
	client *redis.Client
	rule   *bucket.Rule
	script *redis.Script
	twin   twin
	clock  time.Duration
	agent  int64
	seq    int64
}

func newStepped(t *testing.T, client *redis.Client, r *bucket.Rule) *stepped {
	s := &stepped{t: t, client: client, rule: r, script: redis.NewScript(timed(t, scriptOf(r.Algorithm))),
		twin: &bucket.State{}, clock: 1_000_000 * time.Second, agent: 1}
	if r.Algorithm == bucket.Concurrency {
		s.twin = &bucket.Holders{}
	}
	if err := s.script.Load(t.Context(), client).Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stepped) pass(d time.Duration) { s.clock += d }

// get asks for so many permits, one a call, and wants some of them.
func (s *stepped) get(permits, want int64) {
	s.t.Helper()
	s.seq++
	ask := bucket.Ask{Queued: permits, Need: 1, Unit: 1, Agent: s.agent, Seq: s.seq}
	now := s.clock.Microseconds()
	ofTwin := s.twin.Apply(s.rule, now, &ask)
	texts, err := s.script.EvalSha(s.t.Context(), s.client, []string{s.t.Name()}, AppendAsk(nil, s.rule, &ask), now/1e6, now%1e6).StringSlice()
	if err != nil {
		s.t.Fatal(err)
	}
	ofScript, err := parseGrant(texts[0], s.rule)
	if err != nil || ofScript.Permits != want || ofTwin.Permits != want {
		s.t.Errorf("at %v: the script grants %d permits (%v), its twin %d, want %d", s.clock, ofScript.Permits, err, ofTwin.Permits, want)
	}
}
