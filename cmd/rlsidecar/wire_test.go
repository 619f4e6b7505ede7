// Single connections to an agent, without a client around them: for tests to which
// it matters which connection, and which process, a call comes over.

package main

import (
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rlsidecar/protocol"
)

// wire is one connection, used for one call at a time.
type wire struct {
	net.Conn
	id   uint32
	in   []byte
	scan protocol.Scanner
}

func dial(socket string) (*wire, error) {
	nc, err := net.Dial("unix", socket)
	return &wire{Conn: nc}, err
}

// open is dial for a test, until its end.
func open(t *testing.T, socket string) *wire {
	t.Helper()
	w, err := dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// send writes a request and does not wait for the reply.
func (w *wire) send(method string, params ...any) error {
	w.id++
	_, err := w.Write(protocol.AppendRequest(nil, w.id, method, params...))
	return err
}

func (w *wire) notify(method string, params ...any) error {
	_, err := w.Write(protocol.AppendNotification(nil, method, params...))
	return err
}

// call returns the result of a request.
func (w *wire) call(method string, params ...any) ([]byte, error) {
	if err := w.send(method, params...); err != nil {
		return nil, err
	}
	for {
		n, err := w.scan.Next(w.in)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			frame := w.in[:n]
			w.in = w.in[n:]
			return w.result(frame)
		}
		chunk := make([]byte, 4<<10)
		n, err = w.Read(chunk)
		if err != nil {
			return nil, err
		}
		w.in = append(w.in, chunk[:n]...)
	}
}

func (w *wire) result(frame []byte) ([]byte, error) {
	r, err := protocol.ParseResponse(frame)
	switch {
	case err != nil:
		return nil, err
	case r.ID != w.id:
		return nil, fmt.Errorf("a reply to call %d: %d is the last one", r.ID, w.id)
	case r.Err != nil:
		return nil, r.Err
	}
	return r.Result, nil
}

// acquire asks for cost 1 and waits for so long.
func (w *wire) acquire(policy any, key string, wait time.Duration) (d protocol.Decision, err error) {
	result, err := w.call("acquire", policy, key, 1, waiting(wait))
	if err == nil {
		err = protocol.ParseDecision(result, &d)
	}
	return d, err
}

func waiting(d time.Duration) map[string]any { return map[string]any{"wait_ms": d.Milliseconds()} }

func (w *wire) release(permit uint64) (bool, error) {
	result, err := w.call("release", permit)
	if err != nil {
		return false, err
	}
	return protocol.ParseBool(result)
}

// info returns what a path of names leads to in the agent's info.
func (w *wire) info(t *testing.T, path ...string) any {
	t.Helper()
	result, err := w.call("info")
	if err != nil {
		t.Fatal(err)
	}
	at, err := protocol.ParseInfo(result)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range path[:len(path)-1] {
		at = at[name].(map[string]any)
	}
	return at[path[len(path)-1]]
}

// atOnce runs tests at the same time, however few processors there are: they mostly
// wait.
func atOnce[T any](t *testing.T, cases map[string]T, test func(t *testing.T, name string, c T)) {
	t.Helper()
	var all sync.WaitGroup
	for name, c := range cases {
		all.Go(func() { t.Run(name, func(t *testing.T) { test(t, name, c) }) })
	}
	all.Wait()
}

// eventually polls until cond holds, and fails the test after so long.
func eventually(t *testing.T, what string, within time.Duration, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// written puts text into a file of the test's own.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rlsidecar.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// shortPath returns a path for a socket, of which the test's own folder may be too
// long.
func shortPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rls")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// most returns the largest number of spans that have a moment in common.
func most(spans []span) int {
	most := 0
	for _, s := range spans {
		n := 0
		for _, o := range spans {
			if !o.from.After(s.from) && o.to.After(s.from) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// span is a time for which somebody knows to hold a permit.
type span struct{ from, to time.Time }

func TestMostAtOnce(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(0, int64(math.Round(s*1e9))) }
	for _, c := range []struct {
		spans []span
		most  int
	}{
		{nil, 0},
		{[]span{{at(1), at(2)}, {at(2), at(3)}}, 1},
		{[]span{{at(1), at(4)}, {at(2), at(3)}, {at(2), at(5)}, {at(4), at(5)}}, 3},
	} {
		if got := most(c.spans); got != c.most {
			t.Errorf("%v: %d, want %d", c.spans, got, c.most)
		}
	}
}
