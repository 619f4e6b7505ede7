// A server whose clock can be stepped, as an operator or a bad time source would.

package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed testdata/clock.c
var clockSource []byte

// Clock is the difference between the machine's clock and those of the servers that
// have it by WithClock.
type Clock struct{ library, file string }

// NewClock builds what a server needs to have another time; it takes a C compiler,
// and Linux.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	dir := t.TempDir()
	c := &Clock{library: filepath.Join(dir, "clock.so"), file: filepath.Join(dir, "offset")}
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", c.library, source).CombinedOutput(); err != nil {
		t.Fatalf("cc, of the package gcc: %v\n%s", err, out)
	}
	c.Set(t, 0)
	return c
}

// Set has the servers' time be the machine's plus d, at once.
func (c *Clock) Set(t testing.TB, d time.Duration) {
	t.Helper()
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), 0); err != nil {
		t.Fatal(err)
	}
}

// WithClock has the server take the time from c.
func WithClock(c *Clock) Option {
	return func(s *Server) { s.env = append(s.env, "LD_PRELOAD="+c.library, "REDISTEST_CLOCK="+c.file) }
}
