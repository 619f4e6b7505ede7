// What the tests of this package share: no goroutine outlives them, a fake
// authority, questions whose answers are kept, and waiting with a deadline.

package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/redistest"
)

// TestMain waits for the goroutines to end: go-redis lets one sleep up to a second
// after its client was closed.
func TestMain(m *testing.M) {
	before := goleak.IgnoreCurrent()
	status := m.Run()
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := goleak.Find(before)
		if err == nil || status != 0 {
			os.Exit(status)
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
			os.Exit(1)
		}
	}
}

// await polls until ok, and fails the test when that takes too long.
func await(t *testing.T, within time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	started := time.Now()
	for !ok() {
		if time.Since(started) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(started)
}

// answer is what the fake authority says when a key is asked the nth time.
type answer func(key string, nth int) (reply string, action redistest.Action)

// fakeAuthority grants the probe, and has asks answered by a; all else is Redis as
// usual.
func fakeAuthority(a answer) redistest.Handle {
	var mu sync.Mutex
	asked := map[string]int{}
	return func(conn int, args []string) (string, redistest.Action) {
		if !strings.EqualFold(args[0], "evalsha") {
			return redistest.DefaultHandle(conn, args)
		}
		key := keyOf(args)
		if strings.HasPrefix(key, "~probe:") {
			return granted(0), redistest.Reply
		}
		mu.Lock()
		asked[key]++
		nth := asked[key]
		mu.Unlock()
		return a(key, nth)
	}
}

// keyOf returns the policy and key that an EVALSHA is about.
func keyOf(args []string) string {
	return strings.TrimSuffix(strings.TrimPrefix(args[3], "{test:v2:"), "}")
}

// timesSent counts the EVALSHAs about a key that arrived.
func timesSent(f *redistest.Fake, key string) int {
	n := 0
	for _, args := range f.Commands() {
		if strings.EqualFold(args[0], "evalsha") && keyOf(args) == key {
			n++
		}
	}
	return n
}

// granted is the script's reply for a rule of one limit.
func granted(permits int64) string {
	var reply [8 * (grantHead + grantLevel)]byte
	binary.LittleEndian.PutUint64(reply[:], math.Float64bits(float64(permits)))
	return redistest.Bulk(string(reply[:]))
}

func nowhere() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// open returns a Redis at url that is closed when the test ends.
func open(t *testing.T, url string, timeout time.Duration) *Redis {
	t.Helper()
	r, err := Open(Options{URL: url, Timeout: timeout, Prefix: "test", Log: nowhere()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// reached is open, and reaches for the server once.
func reached(t *testing.T, url string, timeout time.Duration) *Redis {
	t.Helper()
	r := open(t, url, timeout)
	r.reach(context.Background())
	if !r.Reachable() {
		t.Fatalf("not reached: %+v", r.Status())
	}
	return r
}

// asked is a question and what came of it.
type asked struct {
	bucket.Question
	done  chan struct{} // closed by the answer
	grant bucket.Grant
	err   error
}

// question asks about key for one permit. A second answer panics.
func question(key string) *asked {
	rule, err := bucket.NewRule(bucket.Limit{Count: 100, Period: time.Second, Burst: 100})
	if err != nil {
		panic(err)
	}
	a := &asked{done: make(chan struct{})}
	a.Question = bucket.Question{Policy: "p", Key: key, Rule: &rule, Ask: bucket.Ask{Queued: 1, Need: 1, Unit: 1}}
	a.Answer = func(_ *bucket.Question, g bucket.Grant, err error) {
		a.grant, a.err = g, err
		close(a.done)
	}
	return a
}

func (a *asked) wait(t *testing.T) {
	t.Helper()
	select {
	case <-a.done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s was not answered", a.Key)
	}
}

// outcome names what the limiter makes of the answer.
func (a *asked) outcome() string {
	lost, refused := errors.Is(a.err, bucket.ErrLost), errors.Is(a.err, bucket.ErrRefused)
	switch {
	case a.err == nil:
		return "granted"
	case lost && !refused:
		return "lost"
	case refused && !lost:
		return "refused"
	}
	return fmt.Sprintf("neither lost nor refused: %v", a.err)
}
