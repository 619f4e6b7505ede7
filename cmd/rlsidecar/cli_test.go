// The commands as a shell sees them: output, exit status, signals.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asMain makes the test binary behave as rlsidecar, for tests that need a process.
const asMain = "RLSIDECAR_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

func run(args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = dispatch(args, &o, &e)
	return status, o.String(), e.String()
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for file, text := range map[string]string{good: "policies: {api: {limit: 10/minute}}\n", bad: "policies:\n  api: {limt: 10/minute}\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args   string
		status int
		out    string // in standard output
		errs   string // in standard error
	}{
		{"", exitError, "", "Usage: rlsidecar COMMAND"},
		{"help", exitOK, "check FILE", ""},
		{"frobnicate", exitError, "", `unknown command "frobnicate"`},
		{"version", exitOK, "rlsidecar ", ""},
		{"--version", exitOK, "rlsidecar ", ""},
		{"serve --help", exitOK, "-config file", ""},
		{"bench --help", exitOK, "-connections", ""},
		{"acquire --help", exitOK, "Exit status 0: allowed; 1: denied; 2: no decision", ""},
		{"hold --help", exitOK, "75: denied", ""},
		{"hold api k", exitError, "", "no command: write -- COMMAND"},
		{"hold api k --socket " + dir + "/none -- true", exitUnavailable, "", dir + "/none"},
		{"acquire api", exitError, "", "1 arguments: wanted are 2 [POLICY KEY]"},
		{"acquire api k --cost x", exitError, "", `invalid value "x" for flag -cost`},
		{"acquire api k --socket " + dir + "/none", exitError, "", dir + "/none"},
		{"acquire 5/fortnight k", exitError, "", `unknown unit "fortnight"`},
		{"check " + good, exitOK, "10/minute", ""},
		{"check " + bad, exitNo, "", bad + ":2:9: "},
		{"check " + bad, exitNo, "", `did you mean "limit"`},
		{"check " + dir + "/none", exitError, "", "no such file"},
		{"serve --config " + bad, exitError, "", bad + ":2:9: "},
		{"serve --log-level loud", exitError, "", `--log-level "loud": allowed are debug, info, warn, error`},
		{"serve --redis http://x", exitError, "", "--redis: must begin with redis://"},
	} {
		status, out, errs := run(strings.Fields(c.args)...)
		if status != c.status || !strings.Contains(out, c.out) || !strings.Contains(strings.ReplaceAll(errs, "'", `"`), c.errs) {
			t.Errorf("rlsidecar %s: status %d, want %d\nout: %s\nerr: %s\nwant in out %q, in err %q", c.args, status, c.status, out, errs, c.out, c.errs)
		}
	}
}

func TestAcquireAndExplainSpeakToAnAgent(t *testing.T) {
	a := startAgent(t, "policies: {api: {limit: 1/hour}}\n")
	t.Setenv("RLSIDECAR_ADDRESS", "unix://"+a.socket)
	if status, out, errs := run("acquire", "api", "k", "--json"); status != exitOK || !json.Valid([]byte(out)) || !strings.Contains(out, `"allowed":true`) {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	if status, out, _ := run("acquire", "api", "k"); status != exitNo || !strings.Contains(out, "denied, retry after ") {
		t.Errorf("status %d, %s", status, out)
	}
	if status, out, _ := run("acquire", "api", "k", "--cost", "2"); status != exitNo || !strings.Contains(out, "never possible") {
		t.Errorf("status %d, %s", status, out)
	}
	if status, _, errs := run("acquire", "apy", "k"); status != exitError || !strings.Contains(errs, `did you mean "api"`) {
		t.Errorf("status %d, %s", status, errs)
	}
	if status, out, errs := run("explain", "api", "k"); status != exitOK || !strings.Contains(out, "0 of 1 permits") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	began := time.Now()
	if status, out, errs := run("acquire", "1/200ms", "w", "--wait", "1s"); status != exitOK {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	if status, _, _ := run("acquire", "1/200ms", "w", "--wait", "1s"); status != exitOK || time.Since(began) < 190*time.Millisecond {
		t.Errorf("the second permit came after %v", time.Since(began))
	}
}

func TestHoldRunsACommandWhileItHolds(t *testing.T) {
	a := startAgent(t, "policies: {export: {limit: 1, algorithm: concurrency}}\n")
	t.Setenv("RLSIDECAR_ADDRESS", "unix://"+a.socket)
	ended := make(chan int)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		status, _, _ := run("hold", "export", "k", "--", "sh", "-c", "echo held >"+fifo+"; read x <"+fifo+"; exit 7")
		ended <- status
	}()
	if b, err := os.ReadFile(fifo); err != nil || string(b) != "held\n" {
		t.Fatalf("%q, %v", b, err)
	}
	if status, out, errs := run("hold", "export", "k", "--", "echo", "ran"); status != exitTryLater || out != "" || !strings.Contains(errs, "denied, retry after") {
		t.Errorf("while it is held: status %d, %s%s", status, out, errs)
	}
	if err := os.WriteFile(fifo, []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status := <-ended; status != 7 {
		t.Errorf("status %d, want the command's own 7", status)
	}
	for _, c := range []struct {
		command []string
		status  int
	}{{[]string{"true"}, 0}, {[]string{"/none"}, 127}, {[]string{"sh", "-c", "kill -TERM $$"}, 143}} {
		args := append([]string{"hold", "export", "k", "--wait", "5s", "--"}, c.command...)
		if status, _, errs := run(args...); status != c.status {
			t.Errorf("%v: status %d, want %d: %s", c.command, status, c.status, errs)
		}
	}
}

// process starts rlsidecar serve and waits until its socket answers.
func process(t *testing.T, socket string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], append([]string{"serve", "--socket", socket}, args...)...)
	c.Env = append(os.Environ(), asMain+"=1")
	c.Stderr = &lines{t: t}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			return c
		}
		if time.Now().After(deadline) {
			t.Fatal("the agent did not start")
		}
	}
}

// lines logs what a process writes.
type lines struct{ t testing.TB }

func (l *lines) Write(p []byte) (int, error) {
	l.t.Logf("agent: %s", bytes.TrimSpace(p))
	return len(p), nil
}

func TestSignalsEndTheProcess(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		socket := filepath.Join(t.TempDir(), "s")
		c := process(t, socket, "--redis", "redis://127.0.0.1:1/0") // nobody there: it starts degraded
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %v", s, err)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: the socket is still there", s)
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	c := process(t, socket)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	flood(conn) // and read none of the replies: draining must wait for this peer
	for range 2 {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	began := time.Now()
	err = c.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitError {
		t.Errorf("ended with %v, want status %d", err, exitError)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("ending took %v", took)
	}
}

// flood sends pings until the peer stops reading.
func flood(conn net.Conn) {
	ping := bytes.Repeat([]byte{0x94, 0, 7, 0xa4, 'p', 'i', 'n', 'g', 0x90}, 1000)
	_ = conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	for {
		if _, err := conn.Write(ping); err != nil {
			return
		}
	}
}

func TestLiveAgentIsNotReplacedAndDeadOneIs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	c := process(t, socket)
	if status, _, errs := run("serve", "--socket", socket); status != exitError || !strings.Contains(errs, "another agent is serving") {
		t.Errorf("status %d, %s", status, errs)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if _, err := os.Lstat(socket); err != nil {
		t.Fatal("a killed agent leaves its socket: the test tries nothing")
	}
	process(t, socket)
}
