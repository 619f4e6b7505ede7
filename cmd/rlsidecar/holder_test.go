// A process that holds permits, and does with its connections what it is told: it
// is the test binary again, so that the kernel has a pid of its own to tell.

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asHolder makes the test binary a holder of permits of the agent on this socket,
// and asKeeper one that only keeps open what it has inherited.
const (
	asHolder = "RLSIDECAR_TEST_AS_HOLDER"
	asKeeper = "RLSIDECAR_TEST_AS_KEEPER"
)

func init() {
	switch {
	case os.Getenv(asKeeper) != "":
		_, _ = io.Copy(io.Discard, os.Stdin)
	case os.Getenv(asHolder) != "":
		(&holding{socket: os.Getenv(asHolder)}).obey(os.Stdin, os.Stdout)
	default:
		return
	}
	os.Exit(exitOK)
}

// holding is the holder's side.
type holding struct {
	socket string
	conns  []*wire
}

// obey answers each line with a line, until there are no more.
func (h *holding) obey(in io.Reader, out io.Writer) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		fmt.Fprintln(out, h.do(strings.Fields(lines.Text())))
	}
}

func (h *holding) do(words []string) string {
	switch words[0] {
	case "dial":
		w, err := dial(h.socket)
		h.conns = append(h.conns, w)
		return said("ok", err)
	case "hold": // over the last connection; 0: denied
		d, err := h.last().acquire(words[1], words[2], time.Second)
		return said(d.Permit, err)
	case "wait": // for a permit, or for two together
		return said("ok", h.last().send("acquire", words[1], words[2], 1, waiting(time.Minute)))
	case "both":
		calls := []any{[]any{words[1], words[2]}, []any{words[1], words[3]}}
		return said("ok", h.last().send("acquire_all", calls, waiting(time.Minute)))
	case "close":
		w := h.last()
		h.conns = h.conns[:len(h.conns)-1]
		return said("ok", w.Close())
	case "lend":
		return said("ok", h.lend())
	}
	return "what is " + words[0]
}

func (h *holding) last() *wire { return h.conns[len(h.conns)-1] }

func said(v any, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(v)
}

// lend has a child process inherit the last connection, for as long as the test
// keeps its lifeline.
func (h *holding) lend() error {
	conn, err := h.last().Conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return err
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), asKeeper+"=1")
	c.Stdin, c.ExtraFiles = os.NewFile(3, "lifeline"), []*os.File{conn}
	return c.Start()
}

// holder is the test's side.
type holder struct {
	t        *testing.T
	process  *exec.Cmd
	in       io.Writer
	out      *bufio.Reader
	lifeline *os.File // when closed, what was lent comes to an end
}

func startHolder(t *testing.T, socket string) *holder {
	t.Helper()
	keep, lifeline, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	c := exec.Command(os.Args[0])
	c.Env, c.ExtraFiles = append(os.Environ(), asHolder+"="+socket), []*os.File{keep}
	c.Stderr = &lines{t: t}
	in, errIn := c.StdinPipe()
	out, errOut := c.StdoutPipe()
	if errIn != nil || errOut != nil {
		t.Fatal(errIn, errOut)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	h := &holder{t, c, in, bufio.NewReader(out), lifeline}
	t.Cleanup(h.kill)
	t.Cleanup(func() { lifeline.Close() })
	h.ok("dial")
	return h
}

// do has the holder do something, and returns what it says.
func (h *holder) do(words ...string) string {
	h.t.Helper()
	fmt.Fprintln(h.in, strings.Join(words, " "))
	answer, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("%q: %v", words, err)
	}
	return strings.TrimSpace(answer)
}

func (h *holder) ok(words ...string) {
	h.t.Helper()
	if got := h.do(words...); got != "ok" {
		h.t.Fatalf("%q: %s", words, got)
	}
}

// hold takes a permit, which there must be, and returns its number.
func (h *holder) hold(policy, key string) (permit uint64) {
	h.t.Helper()
	answer := h.do("hold", policy, key)
	if _, err := fmt.Sscan(answer, &permit); err != nil || permit == 0 {
		h.t.Fatalf("hold %s %s: %s", policy, key, answer)
	}
	return permit
}

// kill ends the process without its knowledge. It may be called again.
func (h *holder) kill() {
	_ = h.process.Process.Signal(syscall.SIGKILL)
	_ = h.process.Wait()
}
