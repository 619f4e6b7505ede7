// Shared by the tests of this package, which use what it offers the way other
// packages do: a real server, real connections, and a deadline on everything.

package redistest

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain also proves that no goroutine of a server, proxy or fake outlives its test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is one connection that stays open over several commands.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{conn, bufio.NewReader(conn)}
}

// do gives up after wait.
func (c *client) do(wait time.Duration, args ...string) (string, error) {
	c.conn.SetDeadline(time.Now().Add(wait))
	return roundTrip(c.conn, c.r, args)
}

func (c *client) mustDo(t *testing.T, want string, args ...string) {
	t.Helper()
	if got, err := c.do(5*time.Second, args...); err != nil || got != want {
		t.Fatalf("%q: got %q, %v; want %q", args, got, err, want)
	}
}

// waitFor polls until ok, at most 5 s.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 5 s for %s", what)
		}
	}
}

// failing stands in for a test that is expected to fail, and keeps what it says.
type failing struct {
	testing.TB
	said chan string
}

func expectFailure(t *testing.T) *failing {
	return &failing{TB: t, said: make(chan string, 16)}
}

func (f *failing) Errorf(format string, args ...any) { f.said <- fmt.Sprintf(format, args...) }
func (f *failing) Fatalf(format string, args ...any) { f.fatal(fmt.Sprintf(format, args...)) }
func (f *failing) Fatal(args ...any)                 { f.fatal(fmt.Sprint(args...)) }

func (f *failing) fatal(s string) {
	f.said <- s
	runtime.Goexit()
}

// run calls fn where a Fatal ends only fn, and returns the first thing it said.
func (f *failing) run(fn func()) string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
	select {
	case s := <-f.said:
		return s
	default:
		return ""
	}
}
