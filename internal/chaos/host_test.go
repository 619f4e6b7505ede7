// An agent as a host has it: a process of its own with its socket and its client.

package chaos

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
)

// clientTimeout is so long that no client gives up what the agent still answers.
const clientTimeout = 5 * time.Second

type host struct {
	number int
	client *rlsidecar.Client

	dir, socket, config, admin string
	process                    *exec.Cmd
	lostBefore                 float64 // permits, by the agents that were killed here
}

// built is where the agent is built for these tests, and removed when they end.
var built string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "rls")
	if err != nil {
		panic(err)
	}
	built = filepath.Join(dir, "rlsidecar")
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// binary is the agent: RLSIDECAR_AGENT, or the one built on the first call.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("RLSIDECAR_AGENT"); path != "" {
		return path, nil
	}
	path := built
	if out, err := exec.Command("go", "build", "-o", path, "rlsidecar/cmd/rlsidecar").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// newHost runs an agent until the test ends. redis is the content of its key redis.
func newHost(t *testing.T, number int, redis string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rls")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{number: number, dir: dir, socket: filepath.Join(dir, "s"), config: filepath.Join(dir, "c.yaml"), admin: freeAddr(t)}
	t.Cleanup(func() { os.RemoveAll(dir) })
	yaml := fmt.Sprintf("redis: {%s, timeout: %v, key_prefix: chaos}\nadmin: {listen: %q}\n%s", redis, redisTimeout, h.admin, policies)
	if err := os.WriteFile(h.config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if h.client, err = rlsidecar.New(h.socket, rlsidecar.WithTimeout(clientTimeout), rlsidecar.WithOnUnavailable(rlsidecar.Raise), rlsidecar.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.kill()
		h.client.Close()
		if log, err := os.ReadFile(h.log()); err == nil && t.Failed() {
			t.Logf("log of agent %d:\n%s", number, log[max(0, len(log)-8<<10):])
		}
	})
	h.start(t)
	return h
}

func (h *host) log() string { return filepath.Join(h.dir, "log") }

func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func (h *host) start(t *testing.T) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(h.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h.process = exec.Command(path, "serve", "--config", h.config, "--socket", h.socket)
	h.process.Stdout, h.process.Stderr = log, log
	h.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := h.process.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill ends the agent with SIGKILL; its callers learn it from their sockets.
func (h *host) kill() {
	if h.process == nil || h.process.Process == nil {
		return
	}
	_ = h.process.Process.Kill()
	_ = h.process.Wait()
}

// awaitLeasing waits until the agent decides with Redis.
func (h *host) awaitLeasing(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		d, err := h.client.Acquire(t.Context(), rlsidecar.Policy(calm), "warm-up")
		if err == nil && !d.Degraded {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("agent %d does not decide with Redis after 20 s: %+v, %v", h.number, d, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var expired = regexp.MustCompile(`(?m)^rlsidecar_permits_total\{event="expired"\} (\S+)$`)

// leasesLost is how many leased permits ended unused so far, 0 for an agent that
// cannot be asked.
func (h *host) leasesLost() float64 {
	reply, err := http.Get("http://" + h.admin + "/metrics")
	if err != nil {
		return h.lostBefore
	}
	defer reply.Body.Close()
	page, _ := io.ReadAll(reply.Body)
	if m := expired.FindSubmatch(page); m != nil {
		n, _ := strconv.ParseFloat(string(m[1]), 64)
		return h.lostBefore + n
	}
	return h.lostBefore
}
