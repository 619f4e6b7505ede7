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
	"slices"
	"strconv"
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
// usual. What a says of one key in place of a reply becomes of the whole call.
func fakeAuthority(a answer) redistest.Handle {
	var mu sync.Mutex
	asked := map[string]int{}
	return func(conn int, args []string) (string, redistest.Action) {
		if !strings.EqualFold(args[0], "evalsha") {
			return redistest.DefaultHandle(conn, args)
		}
		keys := keysOf(args)
		if strings.HasPrefix(keys[0], "~probe:") {
			return redistest.Array(granted(0)), redistest.Reply
		}
		var replies []string
		for _, key := range keys {
			mu.Lock()
			asked[key]++
			nth := asked[key]
			mu.Unlock()
			reply, action := a(key, nth)
			if action != redistest.Reply || strings.HasPrefix(reply, "+") || strings.HasPrefix(reply, "-") {
				return reply, action
			}
			replies = append(replies, reply)
		}
		return redistest.Array(replies...), redistest.Reply
	}
}

// failed is the script's reply for a key that cannot be used.
func failed(text string) string { return redistest.Array(redistest.Bulk(text)) }

// keysOf returns the policies and keys that an EVALSHA is about.
func keysOf(args []string) (keys []string) {
	n, _ := strconv.Atoi(args[2])
	for _, key := range args[3 : 3+n] {
		keys = append(keys, strings.TrimSuffix(strings.TrimPrefix(key, "{test:"+format+":"), "}"))
	}
	return keys
}

// timesSent counts the EVALSHAs about a key that arrived.
func timesSent(f *redistest.Fake, key string) int {
	n := 0
	for _, args := range f.Commands() {
		if strings.EqualFold(args[0], "evalsha") && slices.Contains(keysOf(args), key) {
			n++
		}
	}
	return n
}

// granted is the script's reply for a key whose rule has one limit.
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
	r.node().reach(context.Background())
	if !r.Reachable(0) {
		t.Fatalf("not reached: %+v", r.Status())
	}
	return r
}

// node returns the one node there is.
func (r *Redis) node() *node { return r.topology.Load().nodes[0] }

// send sends a batch in one pipeline.
func (r *Redis) send(batch []*bucket.Question) {
	ctx, cancel := context.WithTimeout(context.Background(), r.o.Timeout)
	defer cancel()
	r.node().send(ctx, batch, false, resends)
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
