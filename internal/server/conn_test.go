// Tests of connections over real sockets.

package server

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rlsidecar/internal/limiter"
	"rlsidecar/protocol"
)

func TestGoldenBytes(t *testing.T) {
	_, path := serve(t, &fake{}, Config{})
	c := dial(t, path)
	tests := []struct{ request, reply string }{
		{"940007a76163717569726593a3617069a7757365723a343201", "940107c097c36463cd03e8000000"},
		{"940007a76163717569726593c403617069c407757365723a343201", "940107c097c36463cd03e8000000"},
		{"9302a6726566756e6493a3617069a7757365723a343201" + "9400ce7fffffffa470696e6790", "9401ce7fffffffc0a4706f6e67"},
	}
	for _, tt := range tests {
		c.send(unhex(tt.request))
		if got := c.reply(); !bytes.Equal(got, unhex(tt.reply)) {
			t.Errorf("%s: got %x, want %s", tt.request, got, tt.reply)
		}
	}
}

func TestPipelineInOneWrite(t *testing.T) {
	s, path := serve(t, &fake{}, Config{})
	c := dial(t, path)
	var in []byte
	for id := range uint32(1000) {
		in = append(in, request(id, "acquire", "api", "k")...)
	}
	c.send(in)
	out := 0
	for id := range uint32(1000) {
		got := c.reply()
		if r, err := protocol.ParseResponse(got); err != nil || r.ID != id || r.Err != nil {
			t.Fatalf("reply %d is %s", id, show(got))
		}
		out += len(got)
	}
	eventually(t, "the bytes are counted", func() bool {
		st := s.Stats()
		return st.BytesIn == uint64(len(in)) && st.BytesOut == uint64(out) && st.Accepted == 1
	})
}

func TestOneByteWrites(t *testing.T) {
	_, path := serve(t, &fake{}, Config{})
	c := dial(t, path)
	for _, b := range bytes.Repeat(request(7, "acquire", "api", "user:42"), 3) {
		c.send([]byte{b})
	}
	for range 3 {
		if got := show(c.reply()); got != "[1 7 <nil> [true 100 99 1000 0 0 0]]" {
			t.Errorf("got %s", got)
		}
	}
}

func TestHalfMessageAndSilence(t *testing.T) {
	s, path := serve(t, &fake{}, Config{})
	half, other := dial(t, path), dial(t, path)
	frame := request(7, "ping")
	half.send(frame, frame[:4])
	half.reply()
	other.send(frame)
	other.reply()
	half.send(frame[4:])
	half.reply()
	if n := s.Stats().Connections; n != 2 {
		t.Errorf("%d connections", n)
	}
}

// A message of the largest size is answered, its buffer is not kept.
func TestLargeMessages(t *testing.T) {
	_, path := serve(t, &fake{}, Config{})
	c := dial(t, path)
	fill := protocol.MaxMessage - len(request(7, "ping", strings.Repeat("x", 60_000))) + 60_000
	frame := request(7, "ping", strings.Repeat("x", fill))
	if len(frame) != protocol.MaxMessage {
		t.Fatalf("frame of %d bytes", len(frame))
	}
	for range 3 {
		c.send(frame, request(8, "ping"))
		c.reply()
		c.reply()
	}
	c.send(request(9, "ping", strings.Repeat("x", fill+1)))
	if got := show(c.reply()); !strings.HasPrefix(got, "[1 9 [1 ") {
		t.Errorf("one byte more: got %s", got)
	}
	c.wantClosed()
}

func TestInboxShrinks(t *testing.T) {
	var b inbox
	for b.n < protocol.MaxMessage {
		b.n += len(b.room())
	}
	if len(b.buf) != protocol.MaxMessage {
		t.Errorf("grown to %d bytes", len(b.buf))
	}
	copy(b.buf[protocol.MaxMessage-3:], "end")
	b.drop(protocol.MaxMessage - 3)
	if len(b.buf) != readBuffer || string(b.filled()) != "end" {
		t.Errorf("shrunk to %d bytes, holding %q", len(b.buf), b.filled())
	}
}

// Announced sizes cost nothing: the connection is closed, the heap has not moved.
func TestBombs(t *testing.T) {
	tests := []struct {
		name, want string
		in         []byte
	}{
		{"str32 of 4 GiB as the method", "[1 7 [1 ", unhex("940007dbffffffff")},
		{"str32 of 4 GiB as a key", "[1 7 [1 ", unhex("940007a76163717569726593a3617069dbffffffff")},
		{"array32 of 2^32-1 params", "[1 7 [1 ", unhex("940007a770696e67ddffffffff")},
		{"array32 as the message", "", unhex("ddffffffff")},
		{"bin32 as the message", "", unhex("c6ffffffff")},
		{"5 MB of nested arrays", "", bytes.Repeat([]byte{0x91}, 5<<20)},
		{"nested arrays in params", "[1 7 [1 ", append(unhex("940007a470696e6791"), bytes.Repeat([]byte{0x91}, 100)...)},
		{"0xc1", "[1 7 [1 ", unhex("940007c1")},
		{"HTTP", "", []byte("GET / HTTP/1.1\r\n\r\n")},
		{"a response", "", unhex("940107c0c3")},
		{"a msgid over uint32", "", unhex("9400cf0000000100000000a470696e6790")},
		{"params that are no array", "[1 7 [1 ", unhex("940007a470696e6707")},
	}
	s, path := serve(t, &fake{}, Config{})
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, path)
			c.send(request(1, "ping"))
			c.reply()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c.Write(tt.in) // fails when the agent closes meanwhile
			eventually(t, "the agent counted it", func() bool { return s.Stats().ProtocolErrors == uint64(i+1) })
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 256<<10 {
				t.Errorf("%d bytes were allocated", grown)
			}
			if tt.want != "" {
				if got := show(c.reply()); !strings.HasPrefix(got, tt.want) {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			}
			c.wantClosed()
		})
	}
}

// What was asked before the bytes that break the connection is answered.
func TestRepliesBeforeBroken(t *testing.T) {
	_, path := serve(t, &fake{}, Config{})
	c := dial(t, path)
	c.send(request(1, "ping"), request(2, "acquire", "api", "k"), []byte{0xc1})
	c.reply()
	if got := show(c.reply()); !strings.HasPrefix(got, "[1 2 <nil>") {
		t.Errorf("got %s", got)
	}
	c.wantClosed()
}

func TestPendingOutOfOrder(t *testing.T) {
	f := &fake{}
	_, path := serve(t, f, Config{})
	c := dial(t, path)
	calls := list{list{"a", "pending"}, list{"b", "k"}}
	c.send(
		request(1, "acquire", "api", "pending"),
		request(2, "peek", "api", "pending"),
		request(3, "reset", "api", "pending"),
		request(4, "acquire_all", calls),
		request(5, "throttle", "pending", 15, 30, 60),
		request(6, "throttle", "pending", 15, 30, 60, 0),
		request(7, "acquire", "api", "pending"),
		request(8, "acquire_all", calls),
		request(9, "ping"),
	)
	if got := show(c.reply()); got != "[1 9 <nil> pong]" {
		t.Fatalf("got %s", got)
	}
	waiting := f.take()
	want := []string{
		"[1 8 [5 gone] <nil>]", "[1 7 [5 gone] <nil>]",
		"[1 6 <nil> [0 100 0 -1 1]]", "[1 5 <nil> [1 100 0 1 1]]",
		"[1 4 <nil> [false [[false 100 0 1000 250 2 0] [false 100 0 1000 250 2 0]]]]",
		"[1 3 <nil> true]", "[1 2 <nil> [false 100 0 1000 250 2 0]]", "[1 1 <nil> [false 100 0 1000 250 2 0]]",
	}
	for i, w := range want {
		var err *limiter.Error
		if i < 2 {
			err = &limiter.Error{Kind: limiter.Unavailable, Message: "gone"}
		}
		go waiting[len(want)-1-i].answer(g4, err)
		if got := show(c.reply()); got != w {
			t.Errorf("got  %s\nwant %s", got, w)
		}
	}
}

func TestDecidedBeforeAcquireReturns(t *testing.T) {
	_, path := serve(t, &fake{}, Config{})
	c := dial(t, path)
	for id := range uint32(2000) {
		c.send(request(id, "acquire", "api", "at once"))
		if r, err := protocol.ParseResponse(c.reply()); err != nil || r.ID != id || r.Err != nil {
			t.Fatalf("%+v, %v", r, err)
		}
	}
}

func TestInFlightBound(t *testing.T) {
	f := &fake{}
	_, path := serve(t, f, Config{})
	c := dial(t, path)
	for id := range uint32(protocol.MaxInFlight) {
		c.send(request(id, "acquire", "api", "pending"))
	}
	for _, frame := range [][]byte{
		request(5000, "acquire", "api", "k"), request(5000, "peek", "api", "k"), request(5000, "reset", "api", "k"),
		request(5000, "throttle", "k", 1, 1, 1), request(5000, "acquire_all", list{list{"a", "k"}}),
	} {
		c.send(frame)
		if got := show(c.reply()); !strings.HasPrefix(got, "[1 5000 [6 1024 calls are in flight") {
			t.Fatalf("%s: got %s", show(frame), got)
		}
	}
	c.send(request(5001, "ping"))
	c.reply()
	for _, w := range f.take() {
		w.answer(g3, nil)
	}
	for range protocol.MaxInFlight {
		c.reply()
	}
	c.send(request(5002, "acquire", "api", "k"))
	if got := show(c.reply()); got != "[1 5002 <nil> [true 100 99 1000 0 0 0]]" {
		t.Errorf("after the replies: got %s", got)
	}
}

func TestGone(t *testing.T) {
	f := &fake{}
	s, path := serve(t, f, Config{})
	c := dial(t, path)
	c.send(
		request(1, "acquire", "api", "pending"), request(2, "reset", "api", "pending"),
		request(3, "throttle", "pending", 1, 1, 1), request(4, "throttle", "pending", 1, 1, 1, 0),
		request(5, "ping"))
	c.reply()
	waiting := f.take()
	for _, w := range waiting {
		if w.to.Gone() {
			t.Error("gone while connected")
		}
	}
	c.Close()
	for _, w := range waiting {
		eventually(t, "the call's connection is gone", w.to.Gone)
		w.answer(g3, nil)
	}
	eventually(t, "no connection is left", func() bool { return s.Stats().Connections == 0 })
}

// A peer that never reads is cut off, whether its replies come from its own
// connection's goroutine or are late, and what it costs until then is bounded.
func TestSlowReader(t *testing.T) {
	t.Run("of its own replies", func(t *testing.T) {
		s, path := serve(t, &fake{}, Config{WriteTimeout: 50 * time.Millisecond})
		c := dial(t, path)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		chunk := bytes.Repeat(request(1, "acquire", "api", "k"), 1000)
		for {
			if _, err := c.Write(chunk); err != nil {
				break
			}
		}
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		eventually(t, "it was cut off", func() bool {
			st := s.Stats()
			return st.SlowReaders == 1 && st.Connections == 0
		})
	})
	t.Run("of late replies", func(t *testing.T) {
		f := &fake{}
		s, path := serve(t, f, Config{WriteTimeout: time.Hour})
		c := dial(t, path)
		c.send(request(1, "acquire", "api", "pending"), request(2, "ping"))
		c.reply()
		w := f.take()[0]
		long := &limiter.Error{Kind: limiter.Unavailable, Message: strings.Repeat("x", 900)}
		sent := 0
		for ; !w.to.Gone() && sent < 1<<20; sent++ {
			w.answer(limiter.Decision{}, long)
		}
		if sent < maxLate/1000 || sent > 16*maxLate/900 {
			t.Errorf("cut off after %d late replies", sent)
		}
		eventually(t, "it was cut off", func() bool {
			st := s.Stats()
			return st.SlowReaders == 1 && st.Connections == 0
		})
	})
}

// From the moment it is cut off, a connection takes no more late replies.
func TestLateRepliesAreBounded(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	var slow atomic.Uint64
	var ended sync.WaitGroup
	o := outbox{nc: stuckConn{a}, now: (&fake{}).Now, ended: &ended, slow: &slow}
	added := 0
	for {
		late, ok := o.openLate()
		if !ok {
			break
		}
		o.closeLate(append(late, make([]byte, 1000)...))
		if added += 1000; added > 3*maxLate {
			t.Fatalf("%d bytes were taken", added)
		}
	}
	if !o.gone.Load() || slow.Load() != 1 {
		t.Errorf("gone %v, counted %d times", o.gone.Load(), slow.Load())
	}
	o.close()
	ended.Wait()
}

// stuckConn is a connection that only Close can free from a write.
type stuckConn struct{ net.Conn }

func (stuckConn) SetDeadline(time.Time) error { return nil }

func TestPanic(t *testing.T) {
	s, path := serve(t, &fake{}, Config{})
	c, other := dial(t, path), dial(t, path)
	c.send(request(1, "ping"), request(2, "acquire", "api", "panic"), request(3, "ping"))
	c.reply()
	if got := show(c.reply()); !strings.HasPrefix(got, "[1 2 [9 internal error") {
		t.Errorf("got %s", got)
	}
	c.wantClosed()
	note := dial(t, path)
	note.send(request(1, "ping"), protocol.AppendNotification(nil, "refund", "api", "panic"))
	note.reply()
	note.wantClosed()
	other.send(request(4, "ping"))
	other.reply()
	if n := s.Stats().Panics; n != 2 {
		t.Errorf("%d panics counted", n)
	}
}

func TestMaxConnections(t *testing.T) {
	s, path := serve(t, &fake{}, Config{MaxConnections: 2})
	a, b := dial(t, path), dial(t, path)
	for _, c := range []*client{a, b} {
		c.send(request(1, "ping"))
		c.reply()
	}
	dial(t, path).wantClosed()
	dial(t, path).wantClosed()
	a.Close()
	eventually(t, "a place is free", func() bool { return s.Stats().Connections == 1 })
	c := dial(t, path)
	c.send(request(1, "ping"))
	c.reply()
	if st := s.Stats(); st.Refused != 2 || st.Accepted != 3 || st.Connections != 2 {
		t.Errorf("%+v", st)
	}
}

func TestManyConnections(t *testing.T) {
	s, path := serve(t, &fake{}, Config{})
	const n = 2000
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = dial(t, path)
	}
	for i, c := range clients {
		c.send(request(uint32(i), "acquire", "api", fmt.Sprint("user:", i)))
	}
	for i, c := range clients {
		if r, err := protocol.ParseResponse(c.reply()); err != nil || r.ID != uint32(i) || r.Err != nil {
			t.Fatalf("%d: %+v, %v", i, r, err)
		}
	}
	if got := s.Stats().Connections; got != n {
		t.Errorf("%d connections", got)
	}
}

func TestInfo(t *testing.T) {
	_, path := serve(t, &fake{}, Config{Version: "1.2.3"})
	c := dial(t, path)
	c.send(request(7, "info"))
	r, err := protocol.ParseResponse(c.reply())
	if err != nil {
		t.Fatal(err)
	}
	got := show(r.Result)
	for _, want := range []string{"version:1.2.3", "api_level:1", "api_compatible:1", "connections:1", "mode:standalone", "methods:[acquire acquire_all"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}

func TestPeer(t *testing.T) {
	path := t.TempDir() + "/s"
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dial(t, path)
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	want := limiter.Peer{Known: true, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())}
	if got := PeerOf(nc); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if got := PeerOf(a); got.Known || got.LogValue().String() != "unknown" {
		t.Errorf("of a pipe: %v", got)
	}
}

// brokenListener fails to accept a few times, as a process short of descriptors.
type brokenListener struct {
	net.Listener
	mu    sync.Mutex
	fails int
}

func (l *brokenListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails > 0 {
		l.fails--
		return nil, io.ErrUnexpectedEOF
	}
	return l.Listener.Accept()
}

func TestAcceptErrorsPass(t *testing.T) {
	ln, err := Listen(ListenConfig{Path: t.TempDir() + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, &fake{}, Config{}, &brokenListener{Listener: ln, fails: 3})
	c := dial(t, ln.path)
	c.send(request(1, "ping"))
	c.reply()
	if n := s.Stats().Accepted; n != 1 {
		t.Errorf("%d accepted", n)
	}
}
