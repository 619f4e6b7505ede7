// Each fault of the proxy, between a plain connection and a real server.

package redistest

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const brief = 40 * time.Millisecond // long enough for loopback, short enough to wait out

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

func proxied(t *testing.T) (*Server, *Proxy, *client) {
	t.Helper()
	s := Start(t)
	p := StartProxy(t, s.Addr)
	c := dial(t, p.Addr)
	c.mustDo(t, "PONG", "PING")
	return s, p, c
}

func TestProxyPassesEverything(t *testing.T) {
	_, p, c := proxied(t)
	long := strings.Repeat("0123456789abcdef", 1<<16)
	c.mustDo(t, "OK", "SET", "long", long)
	c.mustDo(t, long, "GET", "long")
	dial(t, p.Addr).mustDo(t, "PONG", "PING")
	if got := p.Accepted(); got != 2 {
		t.Errorf("Accepted %d, want 2", got)
	}
}

func TestProxyDelay(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   func(*Proxy)
		least time.Duration
	}{
		{"both ways", func(p *Proxy) { p.Delay(30*time.Millisecond, 0) }, 60 * time.Millisecond},
		{"requests", func(p *Proxy) { p.SetDelay(Requests, 50*time.Millisecond, 0) }, 50 * time.Millisecond},
		{"replies", func(p *Proxy) { p.SetDelay(Replies, 50*time.Millisecond, time.Millisecond) }, 50 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, p, conn := proxied(t)
			c.set(p)
			start := time.Now()
			conn.mustDo(t, "PONG", "PING")
			if took := time.Since(start); took < c.least {
				t.Errorf("took %v, want at least %v", took, c.least)
			}
			p.Delay(0, 0)
			if _, err := conn.do(time.Second, "PING"); err != nil {
				t.Errorf("delay off again: %v", err)
			}
		})
	}
}

func TestProxyJitter(t *testing.T) {
	_, p, c := proxied(t)
	p.SetDelay(Replies, 0, 30*time.Millisecond)
	var took [20]time.Duration
	for i := range took {
		start := time.Now()
		c.mustDo(t, "PONG", "PING")
		took[i] = time.Since(start)
	}
	if spread := slices.Max(took[:]) - slices.Min(took[:]); spread < 5*time.Millisecond {
		t.Errorf("0 to 30 ms of delay spread over %v only: %v", spread, took)
	}
}

// Forty requests sent 2 ms apart through 100 ms of delay: were the delays added up,
// the last reply would come after 4 s.
func TestProxyDelayIsLatency(t *testing.T) {
	_, p, c := proxied(t)
	p.Delay(100*time.Millisecond, 10*time.Millisecond)
	start := time.Now()
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range 40 {
			io.WriteString(c.conn, Array(Bulk("ECHO"), Bulk(strconv.Itoa(i))))
			time.Sleep(2 * time.Millisecond)
		}
	})
	defer sender.Wait()
	c.conn.SetDeadline(start.Add(10 * time.Second))
	for i := range 40 {
		if v, err := readValue(c.r); err != nil || v.text != strconv.Itoa(i) {
			t.Fatalf("reply %d: %q, %v", i, v.text, err)
		}
	}
	if took := time.Since(start); took < 200*time.Millisecond || took > 3*time.Second {
		t.Errorf("took %v, want little more than 200 ms", took)
	}
}

func TestProxyBlackHole(t *testing.T) {
	s, p, c := proxied(t)
	p.BlackHole(true)
	if got, err := c.do(brief, "INCR", "k"); !isTimeout(err) {
		t.Errorf("open connection: got %q, %v; want a time-out", got, err)
	}
	if got, err := dial(t, p.Addr).do(brief, "INCR", "k"); !isTimeout(err) {
		t.Errorf("new connection: got %q, %v; want a time-out", got, err)
	}
	p.BlackHole(false)
	c.mustDo(t, "1", "INCR", "k")

	p.SetBlackHole(Replies, true)
	if got, err := c.do(brief, "INCR", "k"); !isTimeout(err) {
		t.Errorf("replies only: got %q, %v; want a time-out", got, err)
	}
	waitFor(t, "the command whose reply is lost", func() bool { return s.Do(t, "GET", "k") == "2" })
}

func TestProxyBlackHoleHidesDeath(t *testing.T) {
	s, p, c := proxied(t)
	p.BlackHole(true)
	s.Kill()
	if got, err := c.do(brief, "PING"); !isTimeout(err) {
		t.Errorf("server dead behind a black hole: got %q, %v; want a time-out", got, err)
	}
	p.BlackHole(false)
	waitFor(t, "the connection to fail", func() bool {
		_, err := c.do(brief, "PING")
		return isReset(err) || err == io.EOF
	})
}

func TestProxyCut(t *testing.T) {
	s, p, c := proxied(t)
	idle := dial(t, p.Addr)
	idle.mustDo(t, "PONG", "PING")
	p.Cut()
	for _, conn := range []*client{c, idle} {
		if got, err := conn.do(5*time.Second, "PING"); !isReset(err) {
			t.Errorf("got %q, %v; want a reset", got, err)
		}
	}
	dial(t, p.Addr).mustDo(t, "PONG", "PING")
	waitFor(t, "the server to lose its side", func() bool {
		// One from the new connection, one for asking.
		return strings.Contains(s.Do(t, "INFO", "clients"), "connected_clients:2\r")
	})
}

func TestProxyRefuse(t *testing.T) {
	_, p, c := proxied(t)
	for range 3 {
		p.Refuse(true)
		p.Refuse(true)
		if _, err := net.Dial("tcp", p.Addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v, want refused", err)
		}
		c.mustDo(t, "PONG", "PING")
		p.Refuse(false)
		p.Refuse(false)
		dial(t, p.Addr).mustDo(t, "PONG", "PING")
	}
}

func TestProxyPortTaken(t *testing.T) {
	f := expectFailure(t)
	p := StartProxy(f, "127.0.0.1:1")
	p.Refuse(true)
	ln, err := net.Listen("tcp4", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if said := f.run(func() { p.Refuse(false) }); !strings.Contains(said, "can't listen on "+p.Addr) {
		t.Errorf("said %q", said)
	}
}

func TestProxyDropReplies(t *testing.T) {
	s, p, c := proxied(t)
	p.DropReplies(1, 1)
	if got, err := c.do(5*time.Second, "INCR", "k"); !isReset(err) {
		t.Errorf("got %q, %v; want a reset", got, err)
	}
	if got := s.Do(t, "GET", "k"); got != "1" {
		t.Errorf("the command whose reply was dropped has run %s times", got)
	}
	p.DropReplies(0, 1)
	dial(t, p.Addr).mustDo(t, "2", "INCR", "k")
}

func TestProxyDropsTheSameReplies(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr)
	pattern := func(seed uint64) string {
		p.DropReplies(0.3, seed)
		var b strings.Builder
		for range 60 {
			if _, err := dial(t, p.Addr).do(5*time.Second, "PING"); err != nil {
				b.WriteByte('x')
			} else {
				b.WriteByte('.')
			}
		}
		return b.String()
	}
	first := pattern(7)
	if n := strings.Count(first, "x"); n < 8 || n > 30 {
		t.Errorf("%d of 60 dropped, want about 18: %s", n, first)
	}
	if again := pattern(7); again != first {
		t.Errorf("seed 7 gave\n%s and then\n%s", first, again)
	}
	if other := pattern(8); other == first {
		t.Error("seed 8 gave the same as seed 7")
	}
}

func TestProxyServerDown(t *testing.T) {
	s, p, c := proxied(t)
	s.Kill()
	if got, err := c.do(5*time.Second, "PING"); !isReset(err) && err != io.EOF {
		t.Errorf("open connection: got %q, %v; want an end", got, err)
	}
	// The reset may come before the dial has returned.
	conn, err := net.Dial("tcp", p.Addr)
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if !isReset(err) {
		t.Errorf("new connection: %v, want a reset", err)
	}
	s.Restart(t)
	dial(t, p.Addr).mustDo(t, "PONG", "PING")
}

func TestProxyEndsWithItsTest(t *testing.T) {
	s := Start(t)
	var c *client
	t.Run("inner", func(inner *testing.T) {
		c = dial(t, StartProxy(inner, s.Addr).Addr)
		c.mustDo(t, "PONG", "PING")
	})
	if got, err := c.do(5*time.Second, "PING"); !isReset(err) {
		t.Errorf("after its test: got %q, %v; want a reset", got, err)
	}
}
