// The fake agent: it reads requests as the real one does, and answers with the
// bytes, pauses and ends that a case gives.

package conformance

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rlsidecar/protocol"
)

// fakeAgent listens on a socket in a folder of its own. Answers belong to the
// requests in the order of their arrival, over all connections, so that a case
// holds for clients with one connection and with many.
type fakeAgent struct {
	t       *testing.T
	path    string
	script  script
	repeats int // how many requests may come that came before, by their key
	open    sync.WaitGroup
	full    []net.Conn // what fills the backlog
	client  *os.Process

	mu          sync.Mutex // mu guards the fields that follow
	listener    net.Listener
	peers       map[net.Conn]bool
	connections int
	requests    []request
	keys        map[string]int
	firstIDs    map[uint32]bool
}

// script is what a fakeAgent answers.
type script struct {
	answers []answer
	cycle   bool // after the last answer comes the first; otherwise the last goes on
	replies map[string]string
}

// answer is what follows one request: actions, one after the other.
type answer []action

// request is one that was read, with its parameters in the words of the cases.
type request struct {
	id    uint32
	keys  []string
	shape map[string]any
}

func newFakeAgent(t *testing.T, s script, repeats int) *fakeAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeAgent{
		t: t, path: filepath.Join(dir, "s"), script: s, repeats: repeats,
		peers: map[net.Conn]bool{}, keys: map[string]int{}, firstIDs: map[uint32]bool{},
	}
	t.Cleanup(func() {
		a.stop()
		a.open.Wait()
		os.RemoveAll(dir)
	})
	return a
}

// put brings the agent's socket into the state that a case begins with.
func (a *fakeAgent) put(socket string) error {
	switch socket {
	case "", "listening":
		return a.start()
	case "missing":
		return nil
	case "stale":
		return errors.Join(a.start(), a.kill())
	case "forbidden":
		return errors.Join(a.start(), os.Chmod(a.path, 0))
	case "file":
		return os.WriteFile(a.path, nil, 0o600)
	case "deaf":
		return a.listen(128)
	case "backlog":
		return errors.Join(a.listen(0), a.fill())
	}
	return fmt.Errorf("socket %q: there are listening, missing, stale, forbidden, file, deaf, backlog, real", socket)
}

func (a *fakeAgent) act(what string) error {
	switch what {
	case "start":
		return a.start()
	case "stop":
		a.stop()
		return nil
	case "kill":
		return a.kill()
	case "restart":
		a.stop()
		return a.start()
	case "drain":
		return a.drain()
	}
	return fmt.Errorf("agent %q: there are start, stop, kill, restart, drain", what)
}

func (a *fakeAgent) start() error {
	if err := a.listen(128); err != nil {
		return err
	}
	a.open.Go(a.accept)
	return nil
}

// listen has the kernel queue so many connections, which nobody accepts yet.
func (a *fakeAgent) listen(backlog int) error {
	os.Remove(a.path)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), a.path)
	defer file.Close()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: a.path}), syscall.Listen(fd, backlog)); err != nil {
		return err
	}
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener = listener
	return nil
}

// fill connects until the kernel says that the backlog is full.
func (a *fakeAgent) fill() error {
	for {
		nc, err := net.Dial("unix", a.path)
		if errors.Is(err, syscall.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
		a.full = append(a.full, nc)
	}
}

// drain accepts what fills the backlog, and then serves.
func (a *fakeAgent) drain() error {
	for _, nc := range a.full {
		accepted, err := a.listener.Accept()
		if err != nil {
			return err
		}
		accepted.Close()
		nc.Close()
	}
	a.full = nil
	a.open.Go(a.accept)
	return nil
}

// kill ends the agent and leaves its socket behind.
func (a *fakeAgent) kill() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listener != nil {
		a.listener.Close()
	}
	for nc := range a.peers {
		nc.Close()
	}
	for _, nc := range a.full {
		nc.Close()
	}
	clear(a.peers)
	return nil
}

func (a *fakeAgent) stop() {
	a.kill()
	os.Remove(a.path)
}

func (a *fakeAgent) accept() {
	a.mu.Lock()
	listener := a.listener
	a.mu.Unlock()
	for {
		nc, err := listener.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		a.connections++
		a.peers[nc] = true
		a.mu.Unlock()
		a.open.Go(func() { a.serve(nc) })
	}
}

// peer is the agent's end of one connection.
type peer struct {
	net.Conn
	agent *fakeAgent
	buf   []byte
	scan  protocol.Scanner
	ids   map[uint32]bool

	writing sync.Mutex // held during one action of an answer
}

func (a *fakeAgent) serve(nc net.Conn) {
	p := &peer{Conn: nc, agent: a, ids: map[uint32]bool{}}
	defer nc.Close()
	var answers sync.WaitGroup
	defer answers.Wait()
	for {
		if a.resetsNext() {
			p.Read(make([]byte, 1)) // the rest stays unread: closing resets
			a.count(nil)
			return
		}
		r, err := p.next()
		if err != nil {
			return
		}
		if r == nil {
			continue
		}
		n := a.count(r)
		answers.Go(func() { p.play(a.script.answer(n), r) })
	}
}

// resetsNext tells whether the next request is not to be read.
func (a *fakeAgent) resetsNext() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.script.answer(len(a.requests))
	return len(next) > 0 && next[0].Send == "rst"
}

func (s *script) answer(n int) answer {
	if s.cycle {
		return s.answers[n%len(s.answers)]
	}
	if len(s.answers) == 0 {
		return nil
	}
	return s.answers[min(n, len(s.answers)-1)]
}

// count notes a request and returns its place in the order of arrival.
func (a *fakeAgent) count(r *request) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r == nil {
		r = &request{}
	}
	a.requests = append(a.requests, *r)
	for _, key := range r.keys {
		if a.keys[key]++; a.keys[key] > 1 {
			if a.repeats--; a.repeats < 0 {
				a.t.Errorf("%q was asked twice", key)
			}
		}
	}
	return len(a.requests) - 1
}

// next returns the next request, nil for a notification.
func (p *peer) next() (*request, error) {
	for {
		n, err := p.scan.Next(p.buf)
		if err != nil {
			p.agent.t.Errorf("sent %x: %v", p.buf, err)
			return nil, err
		}
		if n > 0 {
			frame := p.buf[:n:n]
			p.buf = p.buf[n:]
			return p.read(frame)
		}
		more := make([]byte, 32<<10)
		n, err = p.Read(more)
		if err != nil {
			return nil, err
		}
		p.buf = append(p.buf, more[:n]...)
	}
}

func (p *peer) read(frame []byte) (*request, error) {
	a := p.agent
	r, _, perr := protocol.ParseRequest(frame)
	if perr != nil {
		a.t.Errorf("sent %x: %v", frame, perr)
		return nil, perr
	}
	if r.Notification {
		return nil, nil
	}
	if r.ID > math.MaxInt32 {
		a.t.Errorf("msgid %d: allowed are 0 to 2^31-1", r.ID)
	}
	if p.ids[r.ID] {
		a.t.Errorf("msgid %d came twice on a connection", r.ID)
	}
	if len(p.ids) == 0 {
		a.mu.Lock()
		a.firstIDs[r.ID] = true
		a.mu.Unlock()
	}
	p.ids[r.ID] = true
	shaped, perr := shape(&r)
	if perr != nil {
		a.t.Errorf("sent %x: %v", frame, perr)
	}
	return shaped, nil
}

// shape is a request in the words of the cases.
func shape(r *protocol.Request) (*request, *protocol.Error) {
	var (
		o     protocol.Options
		calls = make([]protocol.Call, 1)
		err   *protocol.Error
	)
	switch r.Method {
	case protocol.Acquire, protocol.Peek, protocol.Refund, protocol.Reset:
		err = r.Call(&calls[0], &o)
	case protocol.AcquireAll:
		calls, err = r.Calls(nil, &o)
	default:
		return &request{id: r.ID, shape: map[string]any{"method": r.Method.String()}}, nil
	}
	if err != nil {
		return &request{id: r.ID}, err
	}
	shaped := &request{id: r.ID}
	for i := range calls {
		shaped.keys = append(shaped.keys, fmt.Sprintf("%s %s%v %s", r.Method, calls[i].Policy, calls[i].Inline, calls[i].Key))
	}
	c := &calls[0]
	shaped.shape = map[string]any{
		"method": r.Method.String(), "policy": string(c.Policy), "key": string(c.Key),
		"cost": float64(c.Cost), "wait_ms": float64(o.WaitMS),
		"inline": []any{float64(c.Inline.Count), float64(c.Inline.PeriodMS), float64(c.Inline.Burst), string(c.Inline.Algorithm)},
	}
	return shaped, nil
}

// play answers one request.
func (p *peer) play(actions answer, r *request) {
	for _, act := range actions {
		switch {
		case act.Send == "eof":
			p.Close()
			return
		case act.FreezeMS > 0:
			p.freeze(&act, r)
		case act.Send != "":
			p.send(&act, r)
		case act.WaitUpToMS > 0:
			if rand.IntN(max(act.OneIn, 1)) == 0 {
				time.Sleep(time.Duration(rand.IntN(act.WaitUpToMS*1000)) * time.Microsecond)
			}
		default:
			time.Sleep(time.Duration(act.WaitMS) * time.Millisecond)
		}
	}
}

// freeze sends while the client's process is stopped, as a machine does that has no
// time for it.
func (p *peer) freeze(act *action, r *request) {
	p.agent.client.Signal(syscall.SIGSTOP)
	p.send(act, r)
	time.Sleep(time.Duration(act.FreezeMS) * time.Millisecond)
	p.agent.client.Signal(syscall.SIGCONT)
}

func (p *peer) send(act *action, r *request) {
	frame, err := p.agent.script.bytes(act.Send, r)
	if err != nil {
		p.agent.t.Error(err)
		return
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if act.EveryMS == nil {
		p.Write(frame)
		return
	}
	for i := range frame {
		if _, err := p.Write(frame[i : i+1]); err != nil {
			return
		}
		time.Sleep(time.Duration(*act.EveryMS) * time.Millisecond)
	}
}

// bytes returns what the name of a reply, of a golden message, or hexadecimal
// digits stand for.
func (s *script) bytes(text string, r *request) ([]byte, error) {
	if known, ok := s.replies[text]; ok {
		text = known
	}
	number := func(id uint32) string {
		return hex.EncodeToString(binary.BigEndian.AppendUint32([]byte{0xce}, id))
	}
	text = strings.NewReplacer(
		"{id}", number(r.id), "{next}", number((r.id+1)&math.MaxInt32), "{other}", number(r.id^0x5555),
		"{key}", fmt.Sprintf("cd%04x", keyNumber(r)),
	).Replace(text)
	frame, err := hex.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("send %q: neither a reply of the file nor hexadecimal: %w", text, err)
	}
	return frame, nil
}

// keyNumber is 1000 and the number at the end of the key, as of "k17".
func keyNumber(r *request) int {
	if r.shape == nil {
		return 0
	}
	key, _ := r.shape["key"].(string)
	n, _ := strconv.Atoi(strings.TrimLeft(key, "abcdefghijklmnopqrstuvwxyz"))
	return 1000 + n
}
