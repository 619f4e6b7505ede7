// Package redistest gives tests real Redis servers, alone, behind Sentinel or as a
// Cluster, a TCP proxy that misbehaves on demand, and a scripted server that counts
// what it is asked.
//
// Everything listens on 127.0.0.1 or a Unix socket only, and is gone, processes and
// goroutines, when the test's cleanups have run. Nothing is ever skipped: without a
// redis-server binary the test fails.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = 15 * time.Second
	stopTimeout  = 5 * time.Second
	doTimeout    = 10 * time.Second
	pollEvery    = 2 * time.Millisecond

	// A Unix socket's path has room for 107 bytes on Linux, 103 on others.
	maxDir = 90
)

// Server is a redis-server process of its own. It keeps nothing on disk unless
// WithConf says so. Stop, Kill, Restart, Pause and Resume are for one goroutine at a
// time; the other methods may be called from any.
type Server struct {
	Addr   string // 127.0.0.1:port, the same after Restart; with WithTLS, of TLS
	Socket string // path of its Unix socket, always on too, without TLS
	PID    int    // changes with Restart
	Proxy  *Proxy // in front of Addr; nil without WithProxy

	bin, dir, password string
	args, conf, env    []string
	face               func() []string // conf that depends on the addresses
	tls                *TLS
	proxied            bool
	proc               *os.Process
	exited             chan struct{} // closed once proc has been waited for
}

// Option changes how Start sets a server up.
type Option func(*Server)

// WithConf adds a line of redis.conf; value is written as it stands, so quote it the
// way redis.conf wants. What would move the server off loopback has no effect.
func WithConf(name, value string) Option {
	return func(s *Server) { s.conf = append(s.conf, name+" "+value) }
}

// WithPassword makes the server demand a password, which Do and URL know.
func WithPassword(password string) Option {
	return func(s *Server) { s.password = password }
}

// WithDir has the server keep its files in dir, which must exist, not be in use by
// another server, and be at most 90 bytes long. The default is a fresh directory.
func WithDir(dir string) Option {
	return func(s *Server) { s.dir = dir }
}

// WithUser adds a user with the rules of ACL SETUSER ("on", ">secret", "~limits:*",
// "+evalsha"); a user has no right that its rules don't give. Do goes on as the
// default user, so leave that one its rights and keep others out by WithPassword.
func WithUser(name string, rules ...string) Option {
	return WithConf("user", name+" "+strings.Join(rules, " "))
}

// WithTLS has the server speak only TLS on its port, with peers too, and demand a
// certificate of clients.
func WithTLS(files *TLS) Option {
	return func(s *Server) { s.tls = files }
}

// WithProxy puts a Proxy in front of the server, which then tells everybody the
// proxy's address as its own. The faults of a proxy do not touch what other servers
// of a Sentinel or Cluster send through it: they come from 127.0.0.2, of which only
// Linux has one. See Proxy.SetPeersBlackHole.
func WithProxy() Option {
	return func(s *Server) { s.proxied = true }
}

// Start runs a redis-server and returns when it answers PING. It is killed when the
// test ends, and its log is shown if the test failed.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal("redis-server not found: scripts/test installs it")
	}
	s := &Server{bin: bin}
	for _, opt := range opts {
		opt(s)
	}
	s.pickDir(t)
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("log of redis-server %s:\n%s", s.Addr, s.logTail())
		}
	})
	// The port is free when it is picked; another process may be quicker to take it.
	for range 3 {
		s.Addr = pickAddr(t)
		if s.proxied {
			s.Proxy = startProxy(t, s.Addr, peerIP)
		}
		if err = s.launch(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

func (s *Server) pickDir(t testing.TB) {
	t.Helper()
	if s.dir == "" {
		s.dir = t.TempDir()
		if len(s.dir) > maxDir {
			s.dir = shortDir(t)
		}
	}
	if len(s.dir) > maxDir {
		t.Fatalf("directory %q is %d bytes long: at most %d leave room for a socket's path", s.dir, len(s.dir), maxDir)
	}
	s.Socket = filepath.Join(s.dir, "redis.sock")
}

func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rls")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// launch starts the process on s.Addr and waits for its first PONG, asked over the
// Unix socket: the port might answer with the voice of somebody else's server.
func (s *Server) launch() error {
	confPath := filepath.Join(s.dir, "redis.conf")
	if err := os.WriteFile(confPath, []byte(s.confText()), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.bin, append([]string{confPath}, s.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	s.proc, s.PID, s.exited = cmd.Process, cmd.Process.Pid, exited
	return s.awaitPong()
}

// confText puts what must hold after what the test asked for: the last line wins.
func (s *Server) confText() string {
	lines := append([]string{`save ""`, "appendonly no"}, s.conf...)
	lines = append(lines, "bind 127.0.0.1", "daemonize no", `logfile ""`,
		"dir "+strconv.Quote(s.dir), "unixsocket "+strconv.Quote(s.Socket))
	if s.tls == nil {
		lines = append(lines, "port "+portOf(s.Addr))
	} else {
		lines = append(lines, s.tls.conf(portOf(s.Addr))...)
	}
	if s.password != "" {
		lines = append(lines, "requirepass "+strconv.Quote(s.password), "masterauth "+strconv.Quote(s.password))
	}
	if s.proxied {
		lines = append(lines, "bind-source-addr "+peerIP.String())
	}
	if s.face != nil {
		lines = append(lines, s.face()...)
	}
	return strings.Join(lines, "\n") + "\n"
}

func (s *Server) awaitPong() error {
	deadline := time.Now().Add(startTimeout)
	for {
		reply, err := s.DoErr("PING")
		if err == nil && reply == "PONG" {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("redis-server %s exited before it answered PING", s.Addr)
		case <-time.After(pollEvery):
		}
		if time.Now().After(deadline) {
			s.Kill()
			return fmt.Errorf("redis-server %s did not answer PING within %v: %q, %v", s.Addr, startTimeout, reply, err)
		}
	}
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "redis.log") }

func (s *Server) logTail() string {
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-8<<10):])
}

// Stop asks the server to shut down in good order and waits for it; one that does
// not heed within 5 s is killed.
func (s *Server) Stop() {
	s.signal(syscall.SIGTERM)
	s.Resume()
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		s.Kill()
	}
}

// Kill ends the server at once, without a shutdown, and waits for it.
func (s *Server) Kill() {
	if s.proc == nil {
		return
	}
	s.signal(syscall.SIGKILL)
	<-s.exited
}

// Restart ends the server if it still runs and starts it again at the same
// addresses, with empty data unless WithConf turned persistence on.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
}

// Pause freezes the process and returns when it stands still: connections stay up,
// new ones are still accepted by the kernel, nothing is answered.
func (s *Server) Pause() {
	s.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(stopTimeout); !stopped(s.PID) && time.Now().Before(deadline); {
		time.Sleep(pollEvery)
	}
}

// Resume undoes Pause. Requests that came meanwhile are then run.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// signal is harmless on a process that has ended, even when its number is in use
// again: os.Process knows that it was waited for.
func (s *Server) signal(sig os.Signal) { s.proc.Signal(sig) }

// alive tells whether the process runs and is not paused.
func (s *Server) alive() bool {
	select {
	case <-s.exited:
		return false
	default:
		return !stopped(s.PID)
	}
}

// ClientAddr is where clients connect: the proxy's address, or Addr without one.
func (s *Server) ClientAddr() string {
	if s.Proxy != nil {
		return s.Proxy.Addr
	}
	return s.Addr
}

// URL is ClientAddr in the form Redis clients take, with the password if any.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.ClientAddr(), Path: "/0"}
	if s.tls != nil {
		u.Scheme = "rediss"
	}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Do runs one command and returns the reply as text: items of an array on a line
// each, null as "(nil)". Each call has a connection of its own, in database 0.
func (s *Server) Do(t testing.TB, args ...string) string {
	t.Helper()
	reply, err := s.DoErr(args...)
	if err != nil {
		t.Fatalf("redis-server %s: %q: %v", s.Addr, args, err)
	}
	return reply
}

// DoErr is Do for commands that may fail; an error reply comes as a ReplyError. It
// gives up after 10 s.
func (s *Server) DoErr(args ...string) (string, error) {
	if len(args) == 0 {
		return "", errors.New("no command given")
	}
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(doTimeout))
	r := bufio.NewReader(conn)
	if s.password != "" {
		if _, err := roundTrip(conn, r, []string{"AUTH", s.password}); err != nil {
			return "", err
		}
	}
	return roundTrip(conn, r, args)
}

// CommandCalls is how often the server has run cmd ("evalsha", "script load"),
// successfully or not, since it started or CONFIG RESETSTAT. What scripts call
// counts as well.
func (s *Server) CommandCalls(t testing.TB, cmd string) int {
	t.Helper()
	return s.commandStat(t, cmd, "calls")
}

// CommandFailures is how many of those calls ended in an error.
func (s *Server) CommandFailures(t testing.TB, cmd string) int {
	t.Helper()
	return s.commandStat(t, cmd, "failed_calls")
}

// CommandRejections is how often cmd was refused before it ran (OOM, NOPERM, wrong
// number of arguments); CommandCalls does not include those.
func (s *Server) CommandRejections(t testing.TB, cmd string) int {
	t.Helper()
	return s.commandStat(t, cmd, "rejected_calls")
}

// commandStat reads a field of a line such as
// "cmdstat_evalsha:calls=3,usec=90,usec_per_call=30.00,rejected_calls=0,failed_calls=1";
// a command that was never sent has no line.
func (s *Server) commandStat(t testing.TB, cmd, field string) int {
	t.Helper()
	name := strings.ReplaceAll(strings.ToLower(cmd), " ", "|")
	stat := regexp.MustCompile(`(?m)^cmdstat_` + regexp.QuoteMeta(name) + `:.*\b` + field + `=(\d+)`)
	match := stat.FindStringSubmatch(s.Do(t, "INFO", "commandstats"))
	if match == nil {
		return 0
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatalf("INFO commandstats: %s: %v", match[0], err)
	}
	return n
}

// listenLoopback listens on a free port below those the kernel hands to outgoing
// connections, so that a port given up for a while can be had again.
func listenLoopback(t testing.TB) *net.TCPListener {
	t.Helper()
	var err error
	for range 100 {
		addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 16384 + rand.IntN(16000)}
		var ln *net.TCPListener
		if ln, err = net.ListenTCP("tcp4", addr); err == nil {
			return ln
		}
	}
	t.Fatalf("no free port on 127.0.0.1: %v", err)
	return nil
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func pickAddr(t testing.TB) string {
	t.Helper()
	ln := listenLoopback(t)
	defer ln.Close()
	return ln.Addr().String()
}
