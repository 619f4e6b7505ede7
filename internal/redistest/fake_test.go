// The scripted server: what it counts, and each way of not answering.

package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// act has the command itself say what is done with it.
func act(conn int, args []string) (string, Action) {
	switch strings.ToLower(args[0]) {
	case "conn":
		return Int(int64(conn)), Reply
	case "swallow":
		return Simple("never seen"), Swallow
	case "close":
		return Simple("never seen"), Close
	case "closeafter":
		return Array(Bulk("bye"), Nil(), Int(-1), Error("ERR e")), CloseAfter
	}
	return DefaultHandle(conn, args)
}

func TestFakeActions(t *testing.T) {
	f := StartFake(t, act)
	c := dial(t, f.Addr)
	c.mustDo(t, "1", "CONN")
	if got, err := c.do(brief, "SWALLOW"); !isTimeout(err) {
		t.Errorf("Swallow: got %q, %v; want a time-out", got, err)
	}
	c.mustDo(t, "PONG", "PING")
	if got, err := c.do(5*time.Second, "CLOSE"); err != io.EOF {
		t.Errorf("Close: got %q, %v; want EOF", got, err)
	}
	c = dial(t, f.Addr)
	c.mustDo(t, "2", "conn")
	c.mustDo(t, "bye\n(nil)\n-1\nERR e", "closeafter")
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("after CloseAfter: %v, want EOF", err)
	}
}

func TestFakeRecords(t *testing.T) {
	f := StartFake(t, act)
	c := dial(t, f.Addr)
	pipeline := [][]string{
		{"SCRIPT", "LOAD", "return 1"}, {"evalsha", "x", "0"}, {"EVALSHA", "y", "1", "k\r\n\x00"}, {"script", "kill"}, {"close"},
	}
	var sent strings.Builder
	for _, args := range pipeline {
		var words []string
		for _, a := range args {
			words = append(words, Bulk(a))
		}
		sent.WriteString(Array(words...))
	}
	io.WriteString(c.conn, sent.String())
	c.conn.SetDeadline(time.Now().Add(5 * time.Second))
	got, err := io.ReadAll(c.r)
	want := Bulk("e0e1f9fabfc9d4800c877a703b823ac0578ff8db") + Error("ERR unknown command 'evalsha'") +
		Error("ERR unknown command 'EVALSHA'") + Error("ERR unknown command 'script'")
	if err != nil || string(got) != want {
		t.Errorf("replies %q, %v; want %q", got, err, want)
	}
	if got := f.Commands(); !slices.EqualFunc(got, pipeline, slices.Equal) {
		t.Errorf("Commands %q, want %q", got, pipeline)
	}
	for cmd, want := range map[string]int{"EvalSha": 2, "script": 2, "SCRIPT load": 1, "close": 1, "get": 0, "evalsha x 0 1": 0} {
		if got := f.Count(cmd); got != want {
			t.Errorf("Count(%q) = %d, want %d", cmd, got, want)
		}
	}
	if got := f.Accepted(); got != 1 {
		t.Errorf("Accepted %d, want 1", got)
	}
}

func TestFakeRefusesNonsense(t *testing.T) {
	for _, bytes := range []string{
		"PING\r\n", "\r\n", "*1\n$4\r\nPING\r\n", "*0\r\n", "*-1\r\n", "*1\r\n:4\r\n", "*1\r\n*1\r\n$1\r\nx\r\n",
		"*x\r\n", "*99999999999\r\n", "*1\r\n$99999999999\r\n", "+OK\r\n", "$4\r\nPING\r\n",
	} {
		f := expectFailure(t)
		c := dial(t, StartFake(f, DefaultHandle).Addr)
		io.WriteString(c.conn, bytes)
		c.conn.SetDeadline(time.Now().Add(5 * time.Second))
		got, _ := io.ReadAll(c.r)
		if want := Error("ERR Protocol error"); string(got) != want {
			t.Errorf("%q: answered %q, want %q", bytes, got, want)
		}
		select {
		case said := <-f.said:
			if !strings.Contains(said, "not RESP") {
				t.Errorf("%q: the test was told %q", bytes, said)
			}
		default:
			t.Errorf("%q did not fail the test", bytes)
		}
	}
}

// A client that leaves in the middle of a command is no fault.
func TestFakeClientLeaves(t *testing.T) {
	f := StartFake(t, DefaultHandle)
	for _, bytes := range []string{"", "*2\r\n$4\r\nEC", "*2"} {
		c := dial(t, f.Addr)
		io.WriteString(c.conn, bytes)
		c.conn.(*net.TCPConn).CloseWrite()
		c.conn.SetDeadline(time.Now().Add(5 * time.Second))
		if got, err := io.ReadAll(c.r); err != nil || len(got) > 0 {
			t.Errorf("%q: got %q, %v", bytes, got, err)
		}
	}
	if n := len(f.Commands()); n != 0 {
		t.Errorf("%d commands recorded", n)
	}
}

// The default answers satisfy the client library in both protocol versions, with
// everything it may send on its own account switched on.
func TestFakeServesTheClientLibrary(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		f := StartFake(t, act)
		client := redis.NewClient(&redis.Options{
			Addr: f.Addr, Protocol: protocol, Password: "p", DB: 1, ClientName: "n", MaxRetries: -1,
		})
		t.Cleanup(func() { client.Close() })
		if err := client.Ping(context.Background()).Err(); err != nil {
			t.Errorf("protocol %d: PING: %v", protocol, err)
		}
		sha, err := client.ScriptLoad(context.Background(), "return 1").Result()
		if err != nil || sha != redis.NewScript("return 1").Hash() {
			t.Errorf("protocol %d: SCRIPT LOAD: %q, %v", protocol, sha, err)
		}
		err = client.Do(context.Background(), "close").Err()
		if !errors.Is(err, io.EOF) || f.Count("close") != 1 {
			t.Errorf("protocol %d: CLOSE: %v, sent %d times; want EOF, once", protocol, err, f.Count("close"))
		}
		if f.Count("hello") == 0 || f.Count("ping") != 1 {
			t.Errorf("protocol %d: commands %q", protocol, f.Commands())
		}
	}
}

func TestFakeEndsWithItsTest(t *testing.T) {
	var c *client
	t.Run("inner", func(inner *testing.T) {
		c = dial(t, StartFake(inner, act).Addr)
		c.mustDo(t, "1", "conn")
	})
	if got, err := c.do(5*time.Second, "PING"); err == nil {
		t.Errorf("answered %q after its test", got)
	}
}
