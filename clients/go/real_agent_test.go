// Permits and algorithms, asked of a real agent.

package rlsidecar

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var alone = Concurrency(1, 10*time.Minute)

// realAgent is an agent that was built from this tree and runs until the test ends.
type realAgent struct{ binary, path string }

func startRealAgent(t *testing.T) realAgent {
	t.Helper()
	a := realAgent{filepath.Join(t.TempDir(), "rlsidecar"), socketName(t)}
	if out, err := exec.Command("go", "build", "-o", a.binary, "rlsidecar/cmd/rlsidecar").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config := filepath.Join(filepath.Dir(a.path), "c.yaml")
	if err := os.WriteFile(config, []byte("policies:\n  exports: {limit: 1, algorithm: concurrency, max_hold: 10m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(a.binary, "serve", "--config", config, "--socket", a.path, "--log-level", "warn")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("agent: %v", err)
		}
	})
	client := newClient(t, a.path)
	eventually(t, "the agent listens", func() bool { return client.Ping(ctx) == nil })
	client.Close()
	return a
}

// take holds the only permit of alone for key, for as long as it takes to come.
func take(t *testing.T, c *Client, key string) *Permit {
	t.Helper()
	p, d, err := c.Hold(ctx, alone, key, Wait(long))
	if err != nil || !d.Allowed || d.Permit == 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	return p
}

func TestRealAgent(t *testing.T) {
	a := startRealAgent(t)
	for name, test := range map[string]func(*testing.T, *Client){
		"one at a time":       oneAtATime,
		"cancelled wait":      cancelledWaitFreesThePlace,
		"late permit":         latePermitGoesBack,
		"longest hold":        longestHold,
		"hold keeps":          a.holdKeepsThePermit,
		"algorithms":          everyAlgorithm,
		"more than there are": moreThanThereAre,
	} {
		t.Run(name, func(t *testing.T) { test(t, newClient(t, a.path, WithTimeout(long))) })
	}
}

func oneAtATime(t *testing.T, c *Client) {
	first := take(t, c, "one")
	if p, d, err := c.Hold(ctx, alone, "one"); p != nil || d.Allowed || err != nil {
		t.Errorf("%v, %+v, %v", p, d, err)
	}
	wantReleased(t, first, true)
	wantReleased(t, take(t, c, "one"), true)
	if held, err := c.Release(ctx, first.number); held || err != nil {
		t.Errorf("released twice: %v, %v", held, err)
	}
}

// cancelledWaitFreesThePlace: the permit goes to the second in the queue, for the
// first has left.
func cancelledWaitFreesThePlace(t *testing.T, c *Client) {
	holder := take(t, c, "queue")
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, _, err := c.Hold(short, alone, "queue", Wait(time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the end of the caller's time", err)
	}
	wantReleased(t, holder, true)
	wantReleased(t, take(t, c, "queue"), true)
}

// latePermitGoesBack has callers give up at about the moment the permit comes.
func latePermitGoesBack(t *testing.T, c *Client) {
	for budget := 10 * time.Microsecond; budget < 5*time.Millisecond; budget = budget * 5 / 4 {
		d, err := c.Acquire(ctx, alone, "late", Timeout(budget))
		if err == nil && d.Permit != 0 {
			c.Release(ctx, d.Permit)
		}
	}
	wantReleased(t, take(t, c, "late"), true)
}

func longestHold(t *testing.T, c *Client) {
	brief := Concurrency(1, 200*time.Millisecond)
	p, _, err := c.Hold(ctx, brief, "brief")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if d, err := c.Acquire(ctx, brief, "brief", Wait(long)); !d.Allowed || err != nil || time.Since(start) < 150*time.Millisecond {
		t.Errorf("%+v, %v after %v", d, err, time.Since(start))
	}
	wantReleased(t, p, false)
}

// holdKeepsThePermit for longer than the second after which a process without
// connections loses its permits. Another process finds it taken.
func (a realAgent) holdKeepsThePermit(t *testing.T, c *Client) {
	ping(t, c)
	p, d, err := c.Hold(ctx, Policy("exports"), "kept")
	if err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	c.conn.fail(io.EOF)
	out, err := exec.Command(a.binary, "acquire", "--socket", a.path, "--wait", "2s", "exports", "kept").CombinedOutput()
	if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.ExitCode() != 1 {
		t.Errorf("%v, %s; want status 1, denied", err, out)
	}
	wantReleased(t, p, true)
}

func everyAlgorithm(t *testing.T, c *Client) {
	for _, a := range []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog} {
		limit := Per(2, 24*time.Hour).Algorithm(a)
		for i, want := range []bool{true, true, false} {
			d, err := c.Acquire(ctx, limit, string(a))
			if d.Allowed != want || d.Permit != 0 || err != nil {
				t.Errorf("%s, call %d: %+v, %v", a, i, d, err)
			}
		}
	}
}

func moreThanThereAre(t *testing.T, c *Client) {
	d, err := c.Acquire(ctx, alone, "more", Cost(2))
	if d.Allowed || d.RetryAfter != Never || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
}
