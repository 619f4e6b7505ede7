// Tests of the end: nobody goes unanswered, nothing is left.

package server

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rlsidecar/internal/limiter"
)

func TestShutdownAnswersPending(t *testing.T) {
	leak := goleak.IgnoreCurrent()
	f := &fake{}
	ln, err := Listen(ListenConfig{Path: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	s := New(f, Config{})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(context.Background(), ln) }()
	var clients []*client
	for range 20 {
		c := dial(t, ln.path)
		c.send(request(1, "acquire", "api", "pending"), request(2, "acquire", "api", "pending"), request(3, "ping"))
		c.reply()
		clients = append(clients, c)
	}
	start := time.Now()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > DrainTimeout/2 {
		t.Errorf("took %v", d)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, c := range clients {
		for range 2 {
			if got := show(c.reply()); !strings.Contains(got, "[7 bye]") {
				t.Errorf("got %s", got)
			}
		}
		c.wantClosed()
	}
	if _, err := os.Lstat(ln.path); !os.IsNotExist(err) {
		t.Errorf("the socket file: %v", err)
	}
	goleak.VerifyNone(t, leak)
}

// drainGate lets a test look around while the Decider drains.
type drainGate struct {
	*fake
	entered, leave chan struct{}
}

func (g *drainGate) Drain(ctx context.Context) error {
	close(g.entered)
	<-g.leave
	return g.fake.Drain(ctx)
}

// While draining the place is free for a new agent, and old connections are served.
func TestSuccessorDuringDrain(t *testing.T) {
	g := &drainGate{&fake{}, make(chan struct{}), make(chan struct{})}
	path := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	s := New(g, Config{})
	go s.Serve(context.Background(), ln)
	old := dial(t, path)
	old.send(request(1, "ping"))
	old.reply()
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	<-g.entered
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("connected to an agent that drains")
	}
	next, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	old.send(request(2, "acquire", "api", "k"))
	old.reply()
	close(g.leave)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	old.wantClosed()
	dial(t, path)
}

// slow takes its time over every Acquire.
type slow struct {
	*fake
	entered, leave chan struct{}
}

func (d *slow) Acquire(now time.Duration, c *limiter.Call, to limiter.Replier, ref uint32) (limiter.Decision, bool, *limiter.Error) {
	d.entered <- struct{}{}
	<-d.leave
	return d.fake.Acquire(now, c, to, ref)
}

// What a connection has begun to answer when it is to be closed is answered.
func TestShutdownLetsFinish(t *testing.T) {
	d := &slow{&fake{}, make(chan struct{}), make(chan struct{})}
	ln, err := Listen(ListenConfig{Path: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	s := New(d, Config{})
	go s.Serve(context.Background(), ln)
	c := dial(t, ln.path)
	c.send(request(1, "acquire", "api", "k"))
	<-d.entered
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	<-s.stop
	close(d.leave)
	if got := show(c.reply()); got != "[1 1 <nil> [true 100 99 1000 0 0 0]]" {
		t.Errorf("got %s", got)
	}
	c.wantClosed()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// deaf never answers what waits.
type deaf struct{ *fake }

func (deaf) Drain(context.Context) error { return nil }

func TestShutdownIsBounded(t *testing.T) {
	f := deaf{&fake{}}
	ln, err := Listen(ListenConfig{Path: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	s := New(f, Config{})
	go s.Serve(context.Background(), ln)
	c, stuck := dial(t, ln.path), dial(t, ln.path)
	c.send(request(1, "acquire", "api", "pending"), request(2, "ping"))
	c.reply()
	go func() { // never reads: the agent sticks in a write
		for {
			if _, err := stuck.Write(request(1, "ping")); err != nil {
				return
			}
		}
	}()
	eventually(t, "the agent sticks", func() bool {
		sticks := false
		s.each(func(c *conn) { sticks = sticks || c.out.reader.overdue(c.d.Now(), 20*time.Millisecond) })
		return sticks
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := s.Shutdown(ctx); err == nil || err.Error() != "not every waiting call was answered" {
		t.Errorf("error %v", err)
	}
	if d := time.Since(start); d > 3*closePatience {
		t.Errorf("took %v", d)
	}
	c.wantClosed()
	for _, w := range f.take() {
		w.answer(limiter.Decision{}, nil)
	}
}

func TestContextStopsAccepting(t *testing.T) {
	ln, err := Listen(ListenConfig{Path: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	s := New(&fake{}, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	c := dial(t, ln.path)
	c.send(request(1, "ping"))
	c.reply()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	c.send(request(2, "ping"))
	c.reply()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	c.wantClosed()
}

func TestServeAfterShutdown(t *testing.T) {
	s := New(&fake{}, Config{})
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(ListenConfig{Path: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(context.Background(), ln); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(ln.path); !os.IsNotExist(err) {
		t.Errorf("the socket file: %v", err)
	}
}
