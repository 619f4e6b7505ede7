// Connections whose end comes together with their last request.

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestConnectionsThatEndWithTheirLastMessage: the agent sees the end, whichever way
// the message and the end arrive, one read or two. Nobody else would ever tell it.
func TestConnectionsThatEndWithTheirLastMessage(t *testing.T) {
	t.Parallel()
	socket := shortPath(t)
	agent := process(t, socket, "--config", written(t, "policies: {one: {limit: 1, algorithm: concurrency, max_hold: 1h}}\n"))
	watch := open(t, socket)
	held, err := watch.acquire("one", "k", 0)
	if !held.Allowed || err != nil {
		t.Fatal(held, err)
	}
	descriptors := func() int {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", agent.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	before := descriptors()
	for what, leave := range map[string]func(*wire) error{
		"a notification":  func(w *wire) error { return w.notify("refund", "one", "other") },
		"half a request":  func(w *wire) error { _, err := w.Write([]byte{0x94, 0x00}); return err },
		"a call to wait":  func(w *wire) error { return w.send("acquire", "one", "k", 1, waiting(time.Minute)) },
		"an answered one": func(w *wire) error { return w.send("ping") },
	} {
		for range 200 {
			w := open(t, socket)
			if err := leave(w); err != nil {
				t.Fatal(what, err)
			}
			w.Close()
		}
		wantAccepted(t, socket)
		for end := time.Now().Add(soon); descriptors() > before && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		}
		if left := descriptors() - before; left > 0 {
			t.Errorf("%s and the end: %d of 200 connections are still open at the agent", what, left)
			before += left
		}
	}
	wantRelease(t, socket, held.Permit, true)
	if d, err := watch.acquire("one", "k", soon); !d.Allowed || err != nil {
		t.Errorf("the permit went to one of those who left: %+v, %v", d, err)
	}
}

// wantAccepted returns when the agent has accepted every connection made so far.
func wantAccepted(t *testing.T, socket string) {
	t.Helper()
	last := open(t, socket)
	defer last.Close()
	if _, err := last.call("ping"); err != nil {
		t.Fatal(err)
	}
}

// TestHalfClosedConnectionsAreClosed: who says that it will ask no more, as a shell
// pipe does, gets its replies, and then the end.
func TestHalfClosedConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	socket := startProcess(t, "policies: {api: {limit: 1/hour}}\n")
	for i := range 100 {
		w := open(t, socket)
		if err := w.send("ping"); err != nil {
			t.Fatal(err)
		}
		if err := w.Conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_ = w.SetReadDeadline(time.Now().Add(soon))
		if reply, err := io.ReadAll(w); err != nil || len(reply) == 0 {
			t.Fatalf("connection %d: reply % x, then %v", i, reply, err)
		}
	}
}
