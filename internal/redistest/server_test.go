// A real server started, stopped, killed, paused and restarted.

package redistest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestServerAnswersOnBothAddresses(t *testing.T) {
	s := Start(t)
	if host, _, _ := net.SplitHostPort(s.Addr); host != "127.0.0.1" {
		t.Errorf("Addr is %s", s.Addr)
	}
	dial(t, s.Addr).mustDo(t, "OK", "SET", "k", "tcp")
	if got := s.Do(t, "GET", "k"); got != "tcp" {
		t.Errorf("GET over the Unix socket: %q", got)
	}
	if want := "redis://" + s.Addr + "/0"; s.URL() != want {
		t.Errorf("URL %s, want %s", s.URL(), want)
	}
}

func TestDoRendersReplies(t *testing.T) {
	s := Start(t)
	for _, c := range []struct {
		script, want string
	}{
		{`return redis.status_reply("FINE")`, "FINE"},
		{`return -7`, "-7"},
		{`return "two\r\nlines"`, "two\r\nlines"},
		{`return ""`, ""},
		{`return false`, "(nil)"},
		{`return {}`, ""},
		{`return {1, "b", {false, 3}, redis.error_reply("BAD thing")}`, "1\nb\n(nil)\n3\nBAD thing"},
	} {
		if got := s.Do(t, "EVAL", c.script, "0"); got != c.want {
			t.Errorf("%s: got %q, want %q", c.script, got, c.want)
		}
	}
	_, err := s.DoErr("EVAL", `return redis.error_reply("BAD thing")`, "0")
	var refused ReplyError
	if !errors.As(err, &refused) || refused != "BAD thing" {
		t.Errorf("an error reply came as %T %v", err, err)
	}
	f := expectFailure(t)
	if said := f.run(func() { s.Do(f, "NOSUCH") }); !strings.Contains(said, "unknown command") {
		t.Errorf("Do of an unknown command said %q", said)
	}
}

func TestServerPassword(t *testing.T) {
	s := Start(t, WithPassword(`p "w\`))
	_, err := dial(t, s.Addr).do(5*time.Second, "GET", "k")
	if err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without the password: %v", err)
	}
	if want := "redis://:p%20%22w%5C@" + s.Addr + "/0"; s.URL() != want {
		t.Errorf("URL %s, want %s", s.URL(), want)
	}
}

func TestServerConf(t *testing.T) {
	dir, err := os.MkdirTemp("", "rls")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := Start(t, WithDir(dir), WithConf("maxmemory", "10mb"), WithConf("bind", "0.0.0.0"), WithConf("daemonize", "yes"))
	for name, want := range map[string]string{
		"maxmemory": "10485760", "bind": "127.0.0.1", "daemonize": "no", "save": "", "appendonly": "no", "dir": dir,
	} {
		if got := s.Do(t, "CONFIG", "GET", name); got != name+"\n"+want {
			t.Errorf("CONFIG GET %s: %q", name, got)
		}
	}
}

func TestServerInLongDirectory(t *testing.T) {
	t.Run(strings.Repeat("a-name-that-makes-the-path-long-", 4), func(t *testing.T) {
		if s := Start(t); len(s.Socket) > maxDir+len("/redis.sock") {
			t.Errorf("socket path of %d bytes: %s", len(s.Socket), s.Socket)
		}
	})
	f := expectFailure(t)
	said := f.run(func() { Start(f, WithDir("/tmp/"+strings.Repeat("d", maxDir))) })
	if !strings.Contains(said, "at most 90") {
		t.Errorf("a long WithDir said %q", said)
	}
}

func TestServerMissingOrBroken(t *testing.T) {
	f := expectFailure(t)
	said := f.run(func() { Start(f, WithConf("no-such-setting", "1")) })
	if !strings.Contains(said, "exited before it answered") {
		t.Errorf("a wrong redis.conf said %q", said)
	}
	t.Setenv("PATH", t.TempDir())
	if said := f.run(func() { Start(f) }); said != "redis-server not found: scripts/test installs it" {
		t.Errorf("without the binary: %q", said)
	}
}

func TestServerEndsWithItsTest(t *testing.T) {
	var pids []int
	t.Run("inner", func(t *testing.T) {
		s := Start(t)
		pids = append(pids, s.PID)
		s.Restart(t)
		pids = append(pids, s.PID)
		s.Pause()
	})
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
}

func TestServerDownAndUpAgain(t *testing.T) {
	for name, down := range map[string]func(*Server){
		"stop":           (*Server).Stop,
		"kill":           (*Server).Kill,
		"paused, stop":   func(s *Server) { s.Pause(); s.Stop() },
		"paused, kill":   func(s *Server) { s.Pause(); s.Kill() },
		"twice":          func(s *Server) { s.Stop(); s.Kill(); s.Stop() },
		"running":        func(s *Server) {},
		"its own choice": func(s *Server) { s.DoErr("SHUTDOWN") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			addr, pid := s.Addr, s.PID
			s.Do(t, "SET", "k", "v")
			down(s)
			if name != "running" {
				if _, err := s.DoErr("PING"); err == nil {
					t.Error("PING is answered")
				}
			}
			s.Restart(t)
			if s.Addr != addr || s.PID == pid {
				t.Errorf("was %s pid %d, is %s pid %d", addr, pid, s.Addr, s.PID)
			}
			dial(t, addr).mustDo(t, "(nil)", "GET", "k")
		})
	}
}

func TestServerPause(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr)
	c.mustDo(t, "PONG", "PING")
	s.Pause()
	if got, err := c.do(30*time.Millisecond, "INCR", "k"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("paused: got %q, %v; want a time-out", got, err)
	}
	if _, err := dial(t, s.Addr).do(30*time.Millisecond, "PING"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("paused, new connection: %v; want a time-out", err)
	}
	s.Resume()
	waitFor(t, "the INCR that came while paused", func() bool { return s.Do(t, "GET", "k") == "1" })
}

func TestCommandStats(t *testing.T) {
	s := Start(t)
	sha := s.Do(t, "SCRIPT", "LOAD", "return redis.call('INCR', KEYS[1])")
	s.Do(t, "SET", "text", "x")
	s.Do(t, "EVALSHA", sha, "1", "n")
	s.DoErr("EVALSHA", sha, "1", "text")
	s.DoErr("EVALSHA")
	for _, c := range []struct {
		cmd                       string
		calls, failures, rejected int
	}{
		{"evalsha", 2, 1, 1},
		{"EVALSHA", 2, 1, 1},
		{"script load", 1, 0, 0},
		{"incr", 2, 1, 0},
		{"set", 1, 0, 0},
		{"eval", 0, 0, 0},
	} {
		calls, failures, rejected := s.CommandCalls(t, c.cmd), s.CommandFailures(t, c.cmd), s.CommandRejections(t, c.cmd)
		if calls != c.calls || failures != c.failures || rejected != c.rejected {
			t.Errorf("%s: %d calls, %d failures, %d rejections; want %d, %d, %d",
				c.cmd, calls, failures, rejected, c.calls, c.failures, c.rejected)
		}
	}
}

func TestServerLogIsKept(t *testing.T) {
	s := Start(t)
	if !strings.Contains(s.logTail(), "Ready to accept connections") {
		t.Errorf("log:\n%s", s.logTail())
	}
	if _, err := os.Stat(filepath.Join(s.dir, "dump.rdb")); err == nil {
		t.Error("a dump was written")
	}
}
