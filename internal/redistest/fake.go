// A server that answers by script, for what no real server does on command: losing
// one reply out of three, saying LOADING once, counting what arrives.

package redistest

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Action is what a Fake does with the reply to a command.
type Action int

const (
	Reply      Action = iota // send it
	Swallow                  // never answer; the connection stays up
	Close                    // close the connection instead; answers to earlier commands are sent
	CloseAfter               // send it, then close the connection
)

// Handle answers one command, whose words it must not change, with RESP (see
// Simple). conn numbers the connections from 1. Calls come in order within a
// connection and concurrently across them; one that blocks must end with the test.
type Handle func(conn int, args []string) (reply string, action Action)

// Fake speaks RESP2 on a loopback port and records the commands it is sent.
type Fake struct {
	Addr string // 127.0.0.1:port

	t      testing.TB
	handle Handle
	wg     sync.WaitGroup // every goroutine of the fake

	mu       sync.Mutex // guards the fields that follow
	closed   bool
	accepted int
	open     map[net.Conn]struct{}
	commands [][]string
}

// StartFake runs a fake whose every command is answered by handle. Bytes that are
// not a command fail the test.
func StartFake(t testing.TB, handle Handle) *Fake {
	t.Helper()
	ln := listenLoopback(t)
	f := &Fake{Addr: ln.Addr().String(), t: t, handle: handle, open: map[net.Conn]struct{}{}}
	f.wg.Go(func() { f.accept(ln) })
	t.Cleanup(func() {
		ln.Close()
		f.closeAll()
		f.wg.Wait()
	})
	return f
}

// URL is the address in the form Redis clients take.
func (f *Fake) URL() string { return "redis://" + f.Addr + "/0" }

// Accepted is the number of connections accepted so far.
func (f *Fake) Accepted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted
}

// Count is how many commands so far began with the words of cmd ("evalsha",
// "script load"), in any case of letters, answered or not.
func (f *Fake) Count(cmd string) int {
	want := strings.Fields(cmd)
	n := 0
	for _, args := range f.Commands() {
		if len(args) >= len(want) && slices.EqualFunc(args[:len(want)], want, strings.EqualFold) {
			n++
		}
	}
	return n
}

// Commands is every command so far, in the order of arrival, over all connections.
func (f *Fake) Commands() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.commands)
}

func (f *Fake) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			f.t.Errorf("fake %s stops accepting: %v", f.Addr, err)
			return
		}
		if id, ok := f.add(conn); ok {
			f.wg.Go(func() { f.serve(id, conn) })
		}
	}
}

// add refuses connections that arrive after closeAll, which would miss them.
func (f *Fake) add(conn net.Conn) (id int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		conn.Close()
		return 0, false
	}
	f.accepted++
	f.open[conn] = struct{}{}
	return f.accepted, true
}

func (f *Fake) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for conn := range f.open {
		conn.Close()
	}
}

func (f *Fake) remove(conn net.Conn) {
	conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, conn)
}

// serve answers all commands it has read with one write, as Redis does.
func (f *Fake) serve(id int, conn net.Conn) {
	defer f.remove(conn)
	r, w := bufio.NewReader(conn), bufio.NewWriter(conn)
	defer w.Flush()
	for {
		args, err := readCommand(r)
		if errors.Is(err, errProtocol) {
			f.t.Errorf("fake %s, connection %d: %v", f.Addr, id, err)
			w.WriteString(Error("ERR Protocol error"))
		}
		if err != nil {
			return
		}
		f.record(args)
		reply, action := f.handle(id, args)
		if action == Reply || action == CloseAfter {
			w.WriteString(reply)
		}
		if action == Close || action == CloseAfter {
			return
		}
		if r.Buffered() == 0 {
			w.Flush()
		}
	}
}

func (f *Fake) record(args []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands = append(f.commands, args)
}

// DefaultHandle answers what clients send on their own account (HELLO, AUTH, SELECT,
// PING, CLIENT, COMMAND, SCRIPT LOAD, QUIT) and calls anything else an unknown
// command. Handles fall through to it.
func DefaultHandle(_ int, args []string) (string, Action) {
	switch strings.ToUpper(args[0]) {
	case "HELLO":
		return hello(args), Reply
	case "AUTH", "SELECT", "CLIENT":
		return Simple("OK"), Reply
	case "PING":
		return Simple("PONG"), Reply
	case "COMMAND":
		return Array(), Reply
	case "QUIT":
		return Simple("OK"), CloseAfter
	case "SCRIPT":
		if len(args) == 3 && strings.EqualFold(args[1], "LOAD") {
			sum := sha1.Sum([]byte(args[2]))
			return Bulk(hex.EncodeToString(sum[:])), Reply
		}
	}
	return Error("ERR unknown command '" + args[0] + "'"), Reply
}

// hello answers in the version asked for: version 3 wants a map.
func hello(args []string) string {
	fields := Bulk("server") + Bulk("redis") + Bulk("version") + Bulk("7.0.15") + Bulk("mode") +
		Bulk("standalone") + Bulk("role") + Bulk("master") + Bulk("proto")
	if len(args) > 1 && args[1] == "3" {
		return "%5\r\n" + fields + Int(3)
	}
	return "*10\r\n" + fields + Int(2)
}
