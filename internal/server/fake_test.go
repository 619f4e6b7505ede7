// What the tests of this package share: a Decider that does as it is told, and
// a client that speaks bytes.

package server

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"

	"rlsidecar/internal/limiter"
	"rlsidecar/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var started = time.Now()

// fake decides by the key: see decide. Pending calls wait in it.
type fake struct {
	mu      sync.Mutex
	waiting []waiting
	seen    []string // every call, written out
	record  bool
}

type waiting struct {
	ref uint32
	to  limiter.Replier
	all limiter.AllReplier
}

var (
	g3 = limiter.Decision{Allowed: true, Limit: 100, Remaining: 99, ResetAfter: time.Second}
	g4 = limiter.Decision{Limit: 100, ResetAfter: time.Second, RetryAfter: 249*time.Millisecond + 1, Source: limiter.FromDenial}
)

func (f *fake) Now() time.Duration { return time.Since(started) }

func (f *fake) decide(what string, c *limiter.Call, w waiting) (limiter.Decision, bool, *limiter.Error) {
	if f.record {
		f.note(what, c)
	}
	switch string(c.Key) {
	case "denied":
		return g4, false, nil
	case "never":
		return limiter.Decision{Limit: 5, RetryAfter: limiter.Never}, false, nil
	case "shadow":
		return limiter.Decision{Allowed: true, Shadow: true, Limit: 5, Source: limiter.FromRedis}, false, nil
	case "panic":
		panic("as the test wants it")
	case "kind 0", "kind 1", "kind 2", "kind 3", "kind 4", "kind 5", "kind 6", "kind 9":
		return limiter.Decision{}, false, &limiter.Error{Kind: limiter.Kind(c.Key[5] - '0'), Message: "told so"}
	case "pending":
		return limiter.Decision{}, f.wait(w), nil
	case "at once":
		w.to.Decided(w.ref, g3, nil)
		return limiter.Decision{}, true, nil
	}
	return g3, false, nil
}

func (f *fake) note(what string, c *limiter.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, fmt.Sprintf("%s policy=%s inline=%s %d %v %d key=%s cost=%d wait=%v app=%s", what, c.Policy, c.Inline.Algorithm, c.Inline.Limit.Count, c.Inline.Limit.Period, c.Inline.Limit.Burst, c.Key, c.Cost, c.Wait, c.App))
}

func (f *fake) Release(_ time.Duration, permit uint64) bool {
	f.note("release", &limiter.Call{Cost: int64(permit)})
	return permit == 7
}

func (f *fake) Connect(p limiter.Peer) *limiter.Caller { return nil }

func (f *fake) Disconnect(*limiter.Caller) {}

func (f *fake) wait(w waiting) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, w)
	return true
}

// take returns the pending calls and forgets them.
func (f *fake) take() []waiting {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.waiting
	f.waiting = nil
	return w
}

func (w waiting) answer(d limiter.Decision, err *limiter.Error) {
	if w.all != nil {
		w.all.AllDecided(w.ref, d.Allowed, []limiter.Decision{d, d}, err)
		return
	}
	w.to.Decided(w.ref, d, err)
}

func (f *fake) Acquire(_ time.Duration, c *limiter.Call, to limiter.Replier, ref uint32) (limiter.Decision, bool, *limiter.Error) {
	return f.decide("acquire", c, waiting{ref: ref, to: to})
}

func (f *fake) Peek(_ time.Duration, c *limiter.Call, to limiter.Replier, ref uint32) (limiter.Decision, bool, *limiter.Error) {
	return f.decide("peek", c, waiting{ref: ref, to: to})
}

func (f *fake) Reset(_ time.Duration, c *limiter.Call, to limiter.Replier, ref uint32) (bool, *limiter.Error) {
	_, pending, err := f.decide("reset", c, waiting{ref: ref, to: to})
	return pending, err
}

func (f *fake) Refund(_ time.Duration, c *limiter.Call) *limiter.Error {
	_, _, err := f.decide("refund", c, waiting{})
	return err
}

func (f *fake) AcquireAll(_ time.Duration, calls []limiter.Call, to limiter.AllReplier, ref uint32) (bool, []limiter.Decision, bool, *limiter.Error) {
	var ds []limiter.Decision
	allowed := true
	for i := range calls {
		d, pending, err := f.decide("all", &calls[i], waiting{ref: ref, all: to})
		if pending || err != nil {
			return false, nil, pending, err
		}
		ds, allowed = append(ds, d), allowed && d.Allowed
	}
	return allowed, ds, false, nil
}

func (f *fake) Drain(context.Context) error {
	for _, w := range f.take() {
		w.answer(limiter.Decision{}, &limiter.Error{Kind: limiter.ShuttingDown, Message: "bye"})
	}
	return nil
}

func (f *fake) Explain(_ time.Duration, c *limiter.Call) ([][2]string, *limiter.Error) {
	return [][2]string{{"key", string(c.Key)}, {"level", "3"}}, nil
}

func (f *fake) Info() map[string]any { return map[string]any{"mode": "standalone"} }

// serve starts a server with d on a socket of the test's own.
func serve(t testing.TB, d Decider, cfg Config) (*Server, string) {
	t.Helper()
	ln, err := Listen(ListenConfig{Path: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, d, cfg, ln), ln.path
}

func serveOn(t testing.TB, d Decider, cfg Config, ln net.Listener) *Server {
	cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	s := New(d, cfg)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(context.Background(), ln) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

// client writes and reads bytes; every step has a deadline far beyond its need.
type client struct {
	t testing.TB
	net.Conn
	scan protocol.Scanner
	buf  []byte
}

func dial(t testing.TB, path string) *client {
	t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { nc.Close() })
	return &client{t: t, Conn: nc}
}

func (c *client) send(frames ...[]byte) {
	c.t.Helper()
	if _, err := c.Write(bytes.Join(frames, nil)); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// next returns the next whole message, or io.EOF.
func (c *client) next() ([]byte, error) {
	for {
		n, err := c.scan.Next(c.buf)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			frame := c.buf[:n:n]
			c.buf = c.buf[n:]
			return frame, nil
		}
		chunk := make([]byte, 64<<10)
		n, err = c.Read(chunk)
		c.buf = append(c.buf, chunk[:n]...)
		if n == 0 {
			return nil, err
		}
	}
}

func (c *client) reply() []byte {
	c.t.Helper()
	frame, err := c.next()
	if err != nil {
		c.t.Fatalf("reply: %v", err)
	}
	return frame
}

func (c *client) wantClosed() {
	c.t.Helper()
	if frame, err := c.next(); err == nil {
		c.t.Fatalf("got %x: want the connection closed", frame)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Fatal("the connection is still open")
	}
}

// eventually polls cond; what the test waits for happens in other goroutines.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not so: %s", what)
		}
	}
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func request(id uint32, method string, params ...any) []byte {
	return protocol.AppendRequest(nil, id, method, params...)
}

// show writes out a message, as the reference library reads it.
func show(frame []byte) string {
	var v any
	if err := msgpack.Unmarshal(frame, &v); err != nil {
		return fmt.Sprintf("%x: %v", frame, err)
	}
	return fmt.Sprint(v)
}
