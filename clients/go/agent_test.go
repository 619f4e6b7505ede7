// A scripted agent on a real socket, for the tests of this package.

package rlsidecar

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rlsidecar/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long is a budget that no test is meant to use up.
const long = 10 * time.Second

var ctx = context.Background()

// agent accepts connections and runs its script on each.
type agent struct {
	path     string
	accepted atomic.Int32
	requests atomic.Int32
	stop     func()
}

// peer is the agent's end of the n-th connection, n counting from 1.
type peer struct {
	net.Conn
	t     *testing.T
	agent *agent
	n     int32
	buf   []byte
	scan  protocol.Scanner
}

func socketName(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func startAgent(t *testing.T, script func(p *peer)) *agent {
	t.Helper()
	return startAgentAt(t, socketName(t), script)
}

func startAgentAt(t *testing.T, path string, script func(p *peer)) *agent {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{path: path}
	var (
		open sync.WaitGroup
		mu   sync.Mutex // mu guards peers
	)
	peers := map[net.Conn]bool{}
	open.Go(func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			peers[nc] = true
			mu.Unlock()
			p := &peer{Conn: nc, t: t, agent: a, n: a.accepted.Add(1)}
			open.Go(func() {
				defer nc.Close()
				script(p)
			})
		}
	})
	a.stop = sync.OnceFunc(func() {
		listener.Close()
		mu.Lock()
		for nc := range peers {
			nc.Close()
		}
		mu.Unlock()
		open.Wait()
	})
	t.Cleanup(a.stop)
	return a
}

// next returns the next request, and false when the client is gone. The request
// is good until the next call.
func (p *peer) next() (protocol.Request, bool) {
	for {
		if n, err := p.scan.Next(p.buf); err != nil {
			p.t.Errorf("client sent %x: %v", p.buf, err)
			return protocol.Request{}, false
		} else if n > 0 {
			r, _, perr := protocol.ParseRequest(p.buf[:n:n])
			if perr != nil {
				p.t.Errorf("client sent %x: %v", p.buf[:n], perr)
			}
			p.buf = p.buf[n:]
			p.agent.requests.Add(1)
			return r, true
		}
		more := make([]byte, 32<<10)
		n, err := p.Read(more)
		if err != nil {
			return protocol.Request{}, false
		}
		p.buf = append(p.buf, more[:n]...)
	}
}

func (p *peer) send(b []byte) { p.Write(b) }

// untilGone reads until the client closes the connection.
func (p *peer) untilGone() { io.Copy(io.Discard, p) }

// allow answers with an allowed decision whose limit is limit.
func (p *peer) allow(id uint32, limit int64) {
	p.send(protocol.AppendDecision(nil, id, &protocol.Decision{Allowed: true, Limit: limit}))
}

// allowAll is the script of an agent in good health.
func allowAll(p *peer) {
	for r, ok := p.next(); ok; r, ok = p.next() {
		p.allow(r.ID, 1)
	}
}

// newClient returns a client that raises, unless opts say otherwise.
func newClient(t *testing.T, path string, opts ...Option) *Client {
	t.Helper()
	c, err := New(path, append([]Option{WithOnUnavailable(Raise), WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func wantUnavailable(t *testing.T, err error, cause error) {
	t.Helper()
	if !errors.Is(err, ErrUnavailable) || cause != nil && !errors.Is(err, cause) {
		t.Errorf("got %v, want ErrUnavailable for %v", err, cause)
	}
}

// eventually polls until ok, and fails the test when that takes too long.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(long); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, long)
		}
	}
}
