// Every algorithm over the wire, through the program and its configuration: without
// Redis, with it, when it dies, and when it is back.

package main

import (
	"fmt"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/internal/redistest"
	"rlsidecar/protocol"
)

// algorithms has a policy for each, of three permits that do not come back while the
// test runs.
const algorithms = `
policies:
  token:       {limit: 3/300d}
  interval:    {limit: 3/300d, refill: interval}
  several:     {limit: [5/10d, 3/300d]}
  exact:       {limit: 3/300d, consistency: exact}
  leaky:       {limit: 3/300d, algorithm: leaky_bucket}
  fixed:       {limit: 3/366d, algorithm: fixed_window}
  fixed_first: {limit: 3/300d, algorithm: fixed_window, align: first_use}
  sliding:     {limit: 3/300d, algorithm: sliding_window}
  log:         {limit: 3/300d, algorithm: sliding_log}
  held:        {limit: 3, algorithm: concurrency, max_hold: 1h}
`

var algorithmNames = []string{"token", "interval", "several", "exact", "leaky", "fixed", "fixed_first", "sliding", "log", "held"}

// where is the sources that may answer.
type where []rlsidecar.Source

var (
	alone    = where{rlsidecar.FromStandalone}
	leased   = where{rlsidecar.FromLease, rlsidecar.FromRedis, rlsidecar.FromDenial}
	fallback = where{rlsidecar.FromFallback}
)

func (w where) has(s uint8) bool {
	for _, source := range w {
		if uint8(source) == s {
			return true
		}
	}
	return false
}

// spends makes calls of cost 1 to 3 permits of each policy: all allowed, and the
// next denied.
func spends(t *testing.T, w *wire, key string, from where) {
	t.Helper()
	for _, name := range algorithmNames {
		for left := int64(2); left >= -1; left-- {
			d, err := w.acquire(name, key, 0)
			if d.Allowed != (left >= 0) || d.Remaining != max(0, left) || d.Limit != 3 || !from.has(d.Source) || err != nil {
				t.Errorf("%s %s, %d to be left: %+v, %v", name, key, left, d, err)
			}
			if (d.Permit != 0) != (name == "held" && d.Allowed) {
				t.Errorf("%s %s: permit %d of %+v", name, key, d.Permit, d)
			}
			if (d.RetryAfterMS > 0) == d.Allowed {
				t.Errorf("%s %s: retry after %d ms of %+v", name, key, d.RetryAfterMS, d)
			}
		}
	}
}

// denies fails when a policy has a permit left.
func denies(t *testing.T, w *wire, key string, from where) {
	t.Helper()
	for _, name := range algorithmNames {
		if d, err := w.acquire(name, key, 0); d.Allowed || !from.has(d.Source) || err != nil {
			t.Errorf("%s %s: %+v, %v", name, key, d, err)
		}
	}
}

func TestAlgorithmsStandalone(t *testing.T) {
	t.Parallel()
	w := open(t, startProcess(t, algorithms))
	spends(t, w, "k", alone)
	denies(t, w, "k", alone)
}

func TestAlgorithmsWithRedisThatDiesAndComesBack(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := open(t, startProcess(t, fmt.Sprintf("redis: {url: %q, timeout: 1s}\n", redis.URL())+algorithms))
	spends(t, w, "before", leased)
	denies(t, w, "before", leased)

	redis.Kill()
	eventually(t, "the outage is noticed", soon, func() bool {
		_, _ = w.acquire("exact", "notice", 0)
		return w.info(t, "degraded") == true
	})
	denies(t, w, "before", fallback)
	spends(t, w, "meanwhile", fallback)

	redis.Restart(t)
	eventually(t, "it answers again", soon, func() bool { return w.info(t, "degraded") == false })
	denies(t, w, "meanwhile", leased) // what was used meanwhile is paid, held permits included
	spends(t, w, "after", leased)
}

// TestQuickCallsGetAllThereIs: the lease rule rations what many hosts ask for, but a
// burst of calls from one host is not denied while there are permits.
func TestQuickCallsGetAllThereIs(t *testing.T) {
	t.Parallel()
	const yaml = `
policies:
  token:   {limit: 20/300d}
  leaky:   {limit: 20/300d, algorithm: leaky_bucket}
  fixed:   {limit: 20/366d, algorithm: fixed_window}
  sliding: {limit: 20/300d, algorithm: sliding_window}
  log:     {limit: 20/300d, algorithm: sliding_log}
  held:    {limit: 20, algorithm: concurrency, max_hold: 1h}
`
	redis := fmt.Sprintf("redis: {url: %q, timeout: 1s}\n", redistest.Start(t).URL())
	for where, config := range map[string]string{"standalone": yaml, "redis": redis + yaml} {
		w := open(t, startProcess(t, config))
		for _, name := range []string{"token", "leaky", "fixed", "sliding", "log", "held"} {
			for i := range 20 {
				if d, err := w.acquire(name, "k", 0); !d.Allowed || err != nil {
					t.Errorf("%s, %s: call %d of 20: %+v, %v", where, name, i+1, d, err)
					break
				}
			}
		}
	}
}

// TestResetReachesTheOtherHost within the life of a lease, and gives what the limit
// says, to both hosts together.
func TestResetReachesTheOtherHost(t *testing.T) {
	t.Parallel()
	const limit = 20
	yaml := fmt.Sprintf(`
redis: {url: %q, timeout: 1s}
policies:
  token:   {limit: %[2]d/300d}
  exact:   {limit: %[2]d/300d, consistency: exact}
  leaky:   {limit: %[2]d/300d, algorithm: leaky_bucket}
  fixed:   {limit: %[2]d/366d, algorithm: fixed_window}
  sliding: {limit: %[2]d/300d, algorithm: sliding_window}
  log:     {limit: %[2]d/300d, algorithm: sliding_log}
  held:    {limit: %[2]d, algorithm: concurrency, max_hold: 1h}
`, redistest.Start(t).URL(), limit)
	here, there := startProcess(t, yaml), startProcess(t, yaml)
	tests := map[string]bool{"token": false, "exact": false, "leaky": false, "fixed": false, "sliding": false, "log": false, "held": true}
	atOnce(t, tests, func(t *testing.T, name string, held bool) {
		near, far := open(t, here), open(t, there)
		old := exhaust(t, far, name, limit)
		if d, err := near.acquire(name, "k", 0); d.Allowed || err != nil {
			t.Fatalf("all is used on the other host: %+v, %v", d, err)
		}
		if _, err := near.call("reset", name, "k"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other host allows again", leaseTime+500*time.Millisecond, func() bool {
			d, err := far.acquire(name, "k", 0)
			return d.Allowed && err == nil
		})
		exhaust(t, near, name, limit-1)
		for _, w := range []*wire{near, far} {
			if d, err := w.acquire(name, "k", 0); d.Allowed || err != nil {
				t.Errorf("one more than the limit after a reset: %+v, %v", d, err)
			}
		}
		if ok, err := far.release(old.Permit); held && (ok || err != nil) {
			t.Errorf("a permit from before the reset was released: %v, %v", ok, err)
		}
	})
}

// exhaust takes n permits, some of which may be leased to the other host as yet, and
// returns the last decision.
func exhaust(t *testing.T, w *wire, policy string, n int) (last protocol.Decision) {
	t.Helper()
	for i := range n {
		eventually(t, fmt.Sprintf("permit %d of %d", i+1, n), leaseTime+500*time.Millisecond, func() bool {
			var err error
			last, err = w.acquire(policy, "k", 0)
			return last.Allowed && err == nil
		})
	}
	return last
}
