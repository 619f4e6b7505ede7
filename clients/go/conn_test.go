// What can happen to a connection, and that no call ever sees another's reply.

package rlsidecar

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rlsidecar/protocol"
)

// keyOf returns the key of an acquire, which these tests make a number.
func keyOf(t *testing.T, r *protocol.Request) int64 {
	var c protocol.Call
	if err := r.Call(&c, nil); err != nil {
		t.Error(err)
	}
	n, err := strconv.ParseInt(string(c.Key), 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}

// acquire asks for the key n and checks that the answer is the one for n.
func acquire(t *testing.T, c *Client, n int, opts ...CallOption) error {
	t.Helper()
	d, err := c.Acquire(ctx, Policy("api"), strconv.Itoa(n), opts...)
	if err == nil && d.Limit != int64(n) {
		t.Errorf("key %d got the answer to %d", n, d.Limit)
	}
	return err
}

// answer answers an acquire with its key as the limit.
func answer(p *peer, r *protocol.Request) { p.allow(r.ID, keyOf(p.t, r)) }

func answerAll(p *peer) {
	for r, ok := p.next(); ok; r, ok = p.next() {
		answer(p, &r)
	}
}

func TestManyCallersRepliesReordered(t *testing.T) {
	const callers, each = 64, 1000
	a := startAgent(t, func(p *peer) {
		type owed struct {
			id    uint32
			limit int64
		}
		var held []owed
		for r, ok := p.next(); ok; r, ok = p.next() {
			held = append(held, owed{r.ID, keyOf(p.t, &r)})
			if n, _ := p.scan.Next(p.buf); n > 0 && len(held) < 40 {
				continue
			}
			rand.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for _, o := range held {
				p.allow(o.id, o.limit)
			}
			held = held[:0]
		}
	})
	client := newClient(t, a.path, WithTimeout(6*long))
	var callersDone sync.WaitGroup
	for g := range callers {
		callersDone.Go(func() {
			for i := range each {
				if err := acquire(t, client, g*each+i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callersDone.Wait()
	if n := a.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	if n := a.requests.Load(); n != callers*each {
		t.Errorf("%d requests, want %d", n, callers*each)
	}
}

func TestRepliesInReverse(t *testing.T) {
	a := startAgent(t, func(p *peer) {
		type owed struct {
			id    uint32
			limit int64
		}
		var held []owed
		for len(held) < 3 {
			r, ok := p.next()
			if !ok {
				return
			}
			held = append(held, owed{r.ID, keyOf(p.t, &r)})
		}
		for i := range held {
			o := held[len(held)-1-i]
			p.allow(o.id, o.limit)
		}
		p.untilGone()
	})
	client := newClient(t, a.path, WithTimeout(long))
	var callers sync.WaitGroup
	for i := range 3 {
		callers.Go(func() {
			if err := acquire(t, client, i); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
}

func TestLateReplyIsThrownAway(t *testing.T) {
	a := startAgent(t, func(p *peer) {
		first, ok := p.next()
		if !ok {
			return
		}
		late, limit := first.ID, keyOf(p.t, &first)
		second, ok := p.next()
		if !ok {
			return
		}
		p.allow(late, limit)
		answer(p, &second)
		answerAll(p)
	})
	client := newClient(t, a.path, WithTimeout(long))
	wantUnavailable(t, acquire(t, client, 1, Timeout(20*time.Millisecond)), context.DeadlineExceeded)
	for n := 2; n < 5; n++ {
		if err := acquire(t, client, n); err != nil {
			t.Error(err)
		}
	}
	if n := a.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	client.conn.mu.Lock()
	defer client.conn.mu.Unlock()
	if client.conn.late != 0 || len(client.conn.due) != 0 {
		t.Errorf("%d late of %d due, after all came", client.conn.late, len(client.conn.due))
	}
}

func TestDoubtDropsTheConnection(t *testing.T) {
	tests := map[string]func(id uint32) []byte{
		"msgid that is not due":  func(id uint32) []byte { return protocol.AppendPong(nil, id^1) },
		"reply twice":            func(id uint32) []byte { return protocol.AppendTrue(protocol.AppendTrue(nil, id^1), id) },
		"a request":              func(id uint32) []byte { return protocol.AppendRequest(nil, id, "ping") },
		"type 9":                 func(uint32) []byte { return unhex("940907c0c3") },
		"garbage":                func(uint32) []byte { return []byte("garbage") },
		"0xc1":                   func(uint32) []byte { return []byte{0xc1} },
		"array of 2^31":          func(uint32) []byte { return unhex("940107c0dd80000000") },
		"str of 1 GiB":           func(uint32) []byte { return unhex("940107c0db40000000") },
		"nesting of 9":           func(uint32) []byte { return unhex("940107c0919191919191919190") },
		"error that is a str":    func(id uint32) []byte { return withID(id, "a46f6f7073c0") },
		"true for a decision":    func(id uint32) []byte { return protocol.AppendTrue(nil, id) },
		"decision of 6 items":    func(id uint32) []byte { return withID(id, "c096c36463000000") },
		"reply without a result": func(id uint32) []byte { return withID(id, "c0")[:7] },
	}
	for name, reply := range tests {
		t.Run(name, func(t *testing.T) {
			dropped := make(chan bool, 1)
			a := startAgent(t, func(p *peer) {
				if p.n > 1 {
					answerAll(p)
					return
				}
				if r, ok := p.next(); ok {
					p.send(reply(r.ID))
				}
				if name == "reply without a result" {
					return
				}
				p.untilGone()
				dropped <- true
			})
			client := newClient(t, a.path, WithTimeout(long))
			wantUnavailable(t, acquire(t, client, 1), nil)
			if name != "reply without a result" {
				<-dropped
			}
			if err := acquire(t, client, 2); err != nil {
				t.Errorf("the next call: %v", err)
			}
			if n, r := a.accepted.Load(), a.requests.Load(); n != 2 || r != 2 {
				t.Errorf("%d connections, %d requests; want 2, 2", n, r)
			}
		})
	}
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// withID is a reply that goes on with rest after its id.
func withID(id uint32, rest string) []byte {
	return append([]byte{0x94, 1, 0xce, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}, unhex(rest)...)
}

func TestRepliesInPieces(t *testing.T) {
	a := startAgent(t, func(p *peer) {
		for r, ok := p.next(); ok; r, ok = p.next() {
			p.send(protocol.AppendNotification(nil, "hello", strings.Repeat("x", 5000)))
			for _, b := range protocol.AppendDecision(nil, r.ID, &protocol.Decision{Limit: keyOf(p.t, &r)}) {
				p.send([]byte{b})
			}
		}
	})
	client := newClient(t, a.path, WithTimeout(long))
	for n := range 20 {
		if err := acquire(t, client, n); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLargestReply(t *testing.T) {
	info := map[string]any{"filler": strings.Repeat("x", protocol.MaxMessage-30)}
	a := startAgent(t, func(p *peer) {
		for r, ok := p.next(); ok; r, ok = p.next() {
			p.send(protocol.AppendInfo(nil, r.ID, info))
		}
	})
	client := newClient(t, a.path, WithTimeout(long))
	for range 3 {
		if got, err := client.Info(ctx); err != nil || got["filler"] != info["filler"] {
			t.Fatalf("%d bytes, %v", len(fmt.Sprint(got["filler"])), err)
		}
	}
}

func TestConnectionEnds(t *testing.T) {
	whole := protocol.AppendDecision(nil, 0, &protocol.Decision{})
	tests := []struct {
		name             string
		served           bool // the connection has answered one call before it ends
		bytes            int  // of the reply that still come
		reset            bool // it ends by a reset
		ok               bool // the call succeeds all the same
		connections, got int32
	}{
		{"fresh, before the reply", false, 0, false, false, 1, 1},
		{"fresh, amid the reply", false, 5, false, false, 1, 1},
		{"reused, before the reply", true, 0, false, true, 2, 3},
		{"reused, amid the reply", true, 5, false, false, 1, 2},
		{"fresh, reset", false, 0, true, false, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := startAgent(t, func(p *peer) {
				if p.n > 1 {
					answerAll(p)
					return
				}
				if tt.served {
					r, _ := p.next()
					answer(p, &r)
				}
				if tt.reset {
					p.Read(make([]byte, 1)) // the rest stays unread: closing resets
					return
				}
				p.next()
				p.send(whole[:tt.bytes])
			})
			client := newClient(t, a.path, WithTimeout(long))
			if tt.served {
				if err := acquire(t, client, 1); err != nil {
					t.Fatal(err)
				}
			}
			err := acquire(t, client, 2)
			if tt.ok && err != nil {
				t.Error(err)
			}
			if !tt.ok {
				wantUnavailable(t, err, nil)
			}
			if n, r := a.accepted.Load(), a.requests.Load(); n != tt.connections || r != tt.got {
				t.Errorf("%d connections, %d requests; want %d, %d", n, r, tt.connections, tt.got)
			}
		})
	}
}

func TestRetriesOnceOnly(t *testing.T) {
	a := startAgent(t, func(p *peer) {
		if p.n == 1 {
			r, _ := p.next()
			answer(p, &r)
		}
		p.next()
	})
	client := newClient(t, a.path, WithTimeout(long))
	if err := acquire(t, client, 1); err != nil {
		t.Fatal(err)
	}
	wantUnavailable(t, acquire(t, client, 2), io.EOF)
	if n := a.requests.Load(); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

func TestAgentRestarts(t *testing.T) {
	a := startAgent(t, answerAll)
	client := newClient(t, a.path, WithTimeout(long))
	for n := range 5 {
		if err := acquire(t, client, n); err != nil {
			t.Fatalf("after %d restarts: %v", n, err)
		}
		a.stop()
		a = startAgentAt(t, a.path, answerAll)
	}
}

func TestNoAgent(t *testing.T) {
	missing, file, stale := socketName(t), socketName(t), socketName(t)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	for path, cause := range map[string]error{missing: syscall.ENOENT, file: syscall.ECONNREFUSED, stale: syscall.ECONNREFUSED} {
		client := newClient(t, path, WithTimeout(long))
		start := time.Now()
		wantUnavailable(t, acquire(t, client, 1), cause)
		if took := time.Since(start); took > long/2 {
			t.Errorf("%v: %v", cause, took)
		}
	}
}

func TestAgentComesLater(t *testing.T) {
	path := socketName(t)
	client := newClient(t, path, WithTimeout(long))
	wantUnavailable(t, acquire(t, client, 1), syscall.ENOENT)
	startAgentAt(t, path, answerAll)
	eventually(t, "the agent is found", func() bool { return acquire(t, client, 2) == nil })
}

func TestTimeouts(t *testing.T) {
	a := startAgent(t, func(p *peer) { p.untilGone() })
	client := newClient(t, a.path)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	tests := []struct {
		name   string
		ctx    context.Context
		opts   []CallOption
		budget time.Duration
	}{
		{"the context is shorter", short, nil, 0},
		{"default", ctx, nil, DefaultTimeout},
		{"set for the call", ctx, []CallOption{Timeout(5 * time.Millisecond)}, 5 * time.Millisecond},
		{"wait on top", ctx, []CallOption{Wait(70 * time.Millisecond)}, DefaultTimeout + 70*time.Millisecond},
	}
	for _, tt := range tests {
		start := time.Now()
		_, err := client.Acquire(tt.ctx, Policy("api"), "k", tt.opts...)
		took := time.Since(start)
		wantUnavailable(t, err, context.DeadlineExceeded)
		if took < tt.budget || took > tt.budget+200*time.Millisecond {
			t.Errorf("%s: took %v of %v", tt.name, took, tt.budget)
		}
	}
	if n := a.accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2: one is shared, one was of the call that waited", n)
	}
}

func TestCallerGivesUp(t *testing.T) {
	a := startAgent(t, func(p *peer) { p.untilGone() })
	client := newClient(t, a.path, WithTimeout(long))
	gone, cancel := context.WithCancel(ctx)
	go func() {
		eventually(t, "connected", func() bool { return a.accepted.Load() == 1 })
		cancel()
	}()
	_, err := client.Acquire(gone, Policy("api"), "k")
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want the caller's own cancellation", err)
	}
}

// TestBacklogFull has a listener that does not accept until the client has been
// refused with EAGAIN.
func TestBacklogFull(t *testing.T) {
	path := socketName(t)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	listener, err := net.FileListener(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var fillers []net.Conn
	defer func() {
		for _, nc := range fillers {
			nc.Close()
		}
	}()
	for {
		nc, err := net.Dial("unix", path)
		if err != nil {
			if !errors.Is(err, syscall.EAGAIN) {
				t.Fatal(err)
			}
			break
		}
		fillers = append(fillers, nc)
	}

	client := newClient(t, path)
	start := time.Now()
	wantUnavailable(t, acquire(t, client, 1), syscall.EAGAIN)
	if took := time.Since(start); took < DefaultTimeout || took > DefaultTimeout+200*time.Millisecond {
		t.Errorf("took %v of %v", took, DefaultTimeout)
	}

	var accepting sync.WaitGroup
	defer accepting.Wait()
	result := make(chan error)
	go func() { result <- acquire(t, client, 1, Timeout(long)) }()
	for range len(fillers) {
		nc, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}
	nc, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	accepting.Go(func() { answerAll(&peer{Conn: nc, t: t, agent: &agent{}}) })
	if err := <-result; err != nil {
		t.Errorf("once there is room: %v", err)
	}
	client.Close()
}

func TestAgentThatDoesNotRead(t *testing.T) {
	a := startAgent(t, func(p *peer) {
		if p.n > 1 {
			for r, ok := p.next(); ok; r, ok = p.next() {
				if r.Method == protocol.AcquireAll {
					p.send(protocol.AppendAll(nil, r.ID, true, make([]protocol.Decision, protocol.MaxItems)))
				} else {
					p.allow(r.ID, 5)
				}
			}
			return
		}
		for p.agent.accepted.Load() == 1 {
			time.Sleep(time.Millisecond)
		}
	})
	client := newClient(t, a.path, WithTimeout(20*time.Millisecond))
	asks := slices.Repeat([]Ask{{Limit: Policy("api"), Key: strings.Repeat("k", protocol.MaxKey)}}, protocol.MaxItems)
	start := time.Now()
	var (
		callers sync.WaitGroup
		stuck   atomic.Int32
	)
	for range 40 { // far more than the socket's buffers hold
		callers.Go(func() {
			_, _, err := client.AcquireAll(ctx, asks)
			if errors.Is(err, ErrUnavailable) && errors.Is(err, os.ErrDeadlineExceeded) {
				stuck.Add(1)
			}
		})
	}
	callers.Wait()
	if stuck.Load() == 0 {
		t.Error("no call was told of the write that got stuck")
	}
	if took := time.Since(start); took > long/2 {
		t.Errorf("a write that got stuck took %v", took)
	}
	if err := acquire(t, client, 5, Timeout(long)); err != nil {
		t.Errorf("after the connection was dropped: %v", err)
	}
	if n := a.accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestTooManyRepliesOwed(t *testing.T) {
	a := startAgent(t, func(p *peer) {
		if p.n > 1 {
			answerAll(p)
			return
		}
		p.untilGone()
	})
	client := newClient(t, a.path, WithTimeout(long))
	var callers sync.WaitGroup
	for n := range protocol.MaxInFlight {
		callers.Go(func() { wantUnavailable(t, acquire(t, client, n, Timeout(2*time.Second)), nil) })
	}
	callers.Wait()
	if err := acquire(t, client, 1); err != nil || a.accepted.Load() != 2 {
		t.Errorf("%v after %d connections, want 2", err, a.accepted.Load())
	}
}

func TestMsgIDs(t *testing.T) {
	firsts := map[uint32]bool{}
	for range 1000 {
		ours, theirs := net.Pipe()
		c := newConn(ours)
		id, _, err := c.expect()
		if err != nil || id > math.MaxInt32 {
			t.Fatalf("%d, %v", id, err)
		}
		firsts[id] = true
		c.next = math.MaxInt32
		c.due[0] = nil
		last, _, _ := c.expect()
		wrapped, _, _ := c.expect()
		if last != math.MaxInt32 || wrapped != 1 && id > 1 {
			t.Fatalf("%d, %d; want 2147483647, then 1 as 0 is still due", last, wrapped)
		}
		theirs.Close()
		<-c.readerDone
	}
	if len(firsts) < 990 {
		t.Errorf("%d different first ids of 1000 connections", len(firsts))
	}
}

func TestClose(t *testing.T) {
	a := startAgent(t, func(p *peer) { p.untilGone() })
	client := newClient(t, a.path, WithTimeout(long))
	result := make(chan error)
	go func() { result <- acquire(t, client, 1) }()
	eventually(t, "connected", func() bool { return a.accepted.Load() == 1 })
	client.Close()
	wantUnavailable(t, <-result, ErrClosed)
	wantUnavailable(t, acquire(t, client, 2), ErrClosed)
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if n := a.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestFailuresLeakNoDescriptors(t *testing.T) {
	a := startAgent(t, func(p *peer) {
		if r, ok := p.next(); ok {
			p.send(protocol.AppendPong(nil, r.ID^1))
		}
	})
	client := newClient(t, a.path, WithTimeout(long))
	wantUnavailable(t, acquire(t, client, 0), nil)
	before := descriptors(t)
	for n := range 500 {
		wantUnavailable(t, acquire(t, client, n), nil)
	}
	eventually(t, "descriptors closed", func() bool { return descriptors(t) <= before+2 })
}

func descriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
