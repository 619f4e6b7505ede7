// The real agent, for what only it can show.

package conformance

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// realAgent starts an agent without Redis, built from this tree, and returns its
// socket. RLSIDECAR_AGENT names a binary that is there already.
func realAgent(t *testing.T) string {
	t.Helper()
	binary := os.Getenv("RLSIDECAR_AGENT")
	if binary == "" {
		binary = build(t, "rlsidecar/cmd/rlsidecar", "rlsidecar")
	}
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	cmd := exec.Command(binary, "serve", "--config", "testdata/agent.yaml", "--socket", path, "--log-level", "warn")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("agent: %v", err)
		}
		os.RemoveAll(dir)
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if nc, err := net.Dial("unix", path); err == nil {
			nc.Close()
			return path
		}
		if time.Now().After(deadline) {
			t.Fatalf("no agent at %s within %v", path, patience)
		}
	}
}
