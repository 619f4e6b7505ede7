// One connection that many calls share.

package rlsidecar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"rlsidecar/protocol"
)

// conn multiplexes calls by their msgid. Each caller writes its own request; one
// goroutine reads and hands each reply to the caller that waits for it.
//
// A reply can reach only the call it is for:
//  1. an id is given out again only when no reply to it is due any more;
//  2. a caller that stops waiting leaves its id behind, with nil in its place, and
//     the reply is thrown away when it comes, but for its permits: those go back;
//  3. a reply to an id that is not due, a message that is not a reply, half a
//     request written: the connection is dropped, with all calls on it. fail is
//     the only way out, and its first cause is the one that all are told.
type conn struct {
	nc         net.Conn
	writing    chan struct{} // held while writing; a channel, because those who wait for it have a budget
	readerDone chan struct{}
	reads      atomic.Uint64 // how often bytes came
	begun      atomic.Int64  // when the message began that is not whole yet, in Unix nanoseconds; 0: none is due

	mu   sync.Mutex // mu guards the fields that follow
	due  map[uint32]chan reply
	late int    // ids in due that nobody waits for
	next uint32 // 0..2^31-1, which every client language can hold
	err  error  // not nil: dropped
}

// longestMessage is how long a message may be under way before a call that gives up
// takes the connection to be stuck.
const longestMessage = 10 * time.Millisecond

// lastReads is for how many milliseconds at most a call whose time is over waits for
// the reader, which needs microseconds unless the machine has no time for it.
const lastReads = 20

var errHalfReply = errors.New("the rest of a reply does not come")

// reply is what a call was answered with, or why it never will be.
type reply struct {
	result []byte
	err    error
}

func newConn(nc net.Conn) *conn {
	c := &conn{
		nc:         nc,
		writing:    make(chan struct{}, 1),
		readerDone: make(chan struct{}),
		due:        make(map[uint32]chan reply),
		next:       rand.Uint32N(math.MaxInt32 + 1),
	}
	go c.read()
	return c
}

func (c *conn) broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// quiet tells whether the connection is whole and no reply is due on it.
func (c *conn) quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && len(c.due) == 0
}

// exchange sends one request and waits for its reply.
func (c *conn) exchange(ctx context.Context, encode encoder) ([]byte, error) {
	id, answer, err := c.expect()
	if err != nil {
		return nil, err
	}
	if err := c.write(ctx, encode(nil, id)); err != nil {
		c.forget(id)
		return nil, err
	}
	select {
	case r := <-answer:
		return r.result, r.err
	case <-ctx.Done():
	}
	if r, ok := c.lastLook(ctx, answer); ok {
		return r.result, r.err
	}
	c.abandon(id)
	select {
	case r := <-answer: // it came in the same moment
		return r.result, r.err
	default:
		return nil, ctx.Err()
	}
}

// lastLook waits for the reader to hand out a reply that came in time: while bytes
// lie in the socket, and a moment longer where this process itself was late.
func (c *conn) lastLook(ctx context.Context, answer chan reply) (r reply, ok bool) {
	deadline, _ := ctx.Deadline()
	starved := time.Since(deadline) > time.Millisecond
	for n := range lastReads {
		if !unread(c.nc) && (!starved || n >= lastReads/4) {
			break
		}
		select {
		case r := <-answer:
			return r, true
		case <-time.After(time.Millisecond):
		}
	}
	return reply{}, false
}

// unread tells whether bytes came that the reader has not had the time for, on a
// machine that is busy or had this process stopped.
func unread(nc net.Conn) (some bool) {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		some = n > 0 && err == nil
	})
	return some
}

// expect gives out an id and the channel that its reply will come by.
func (c *conn) expect() (uint32, chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	id := c.next
	for _, taken := c.due[id]; taken; _, taken = c.due[id] {
		id = (id + 1) & math.MaxInt32
	}
	c.next = (id + 1) & math.MaxInt32
	answer := make(chan reply, 1)
	c.due[id] = answer
	return id, answer, nil
}

// forget takes back an id of which the agent heard nothing.
func (c *conn) forget(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.due, id)
}

// abandon leaves the reply to id to be thrown away. An agent that owes too many
// of them, or the rest of one, will not be asked again on this connection.
func (c *conn) abandon(id uint32) {
	c.mu.Lock()
	if answer, ok := c.due[id]; ok && answer != nil {
		c.due[id] = nil
		c.late++
	}
	tooMany := c.late >= protocol.MaxInFlight
	c.mu.Unlock()
	begun := c.begun.Load()
	switch {
	case tooMany:
		c.fail(fmt.Errorf("%d calls without a reply", protocol.MaxInFlight))
	case begun != 0 && time.Since(time.Unix(0, begun)) > longestMessage:
		c.fail(unavailable(ErrTimeout, errHalfReply))
	}
}

// write sends frame, until the deadline of ctx. A write that fails may have sent half of it: the connection
// is dropped.
func (c *conn) write(ctx context.Context, frame []byte) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	deadline, _ := ctx.Deadline()
	c.nc.SetWriteDeadline(deadline)
	if _, err := c.nc.Write(frame); err != nil {
		return c.fail(err)
	}
	return nil
}

// fail drops the connection and tells all who wait. It returns the first cause.
func (c *conn) fail(cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.err = cause
	c.nc.Close()
	for _, answer := range c.due {
		if answer != nil {
			answer <- reply{err: cause}
		}
	}
	c.due = nil
	return cause
}

// read hands out replies until the connection fails.
func (c *conn) read() {
	defer close(c.readerDone)
	var s protocol.Scanner
	buf := make([]byte, 0, 4<<10)
	for {
		n, err := c.nc.Read(buf[len(buf):cap(buf)])
		if n > 0 {
			c.reads.Add(1)
		}
		buf = buf[:len(buf)+n]
		rest, doubt := c.deliver(&s, buf)
		if doubt != nil {
			err = unavailable(ErrProtocol, doubt)
		}
		if err != nil {
			c.fail(err)
			return
		}
		c.noteRest(len(buf), len(rest))
		buf = buf[:copy(buf[:cap(buf)], rest)]
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
	}
}

// noteRest keeps begun, after a read that left rest of the bytes there were.
func (c *conn) noteRest(bytes, rest int) {
	switch {
	case rest == 0:
		c.begun.Store(0)
	case rest < bytes || c.begun.Load() == 0:
		c.begun.Store(time.Now().UnixNano())
	}
}

// deliver hands out every whole reply in buf and returns what is left of it.
func (c *conn) deliver(s *protocol.Scanner, buf []byte) (rest []byte, err error) {
	for len(buf) > 0 {
		n, err := s.Next(buf)
		if n == 0 || err != nil {
			return buf, err
		}
		r, err := protocol.ParseResponse(buf[:n])
		if err != nil {
			return buf, err
		}
		if err := c.settle(&r); err != nil {
			return buf, err
		}
		buf = buf[n:]
	}
	return buf, nil
}

// settle hands one reply to its caller, if that still waits.
func (c *conn) settle(r *protocol.Response) error {
	if r.Notification {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := c.due[r.ID]
	switch {
	case !ok:
		return fmt.Errorf("reply to msgid %d, which is not due", r.ID)
	case answer == nil:
		c.late--
		c.disown(r.Result)
	case r.Err != nil:
		answer <- reply{err: &Error{r.Err.Code, r.Err.Message}}
	default:
		answer <- reply{result: bytes.Clone(r.Result)}
	}
	delete(c.due, r.ID)
	return nil
}

// disown gives back the permits of a late reply: nobody else knows their numbers.
func (c *conn) disown(result []byte) {
	permits := permitsOf(result)
	if len(permits) == 0 {
		return
	}
	var frames []byte
	for _, p := range permits {
		frames = protocol.AppendNotification(frames, protocol.Release.String(), p)
	}
	go func() { // the reader must not wait for a writer
		ctx, cancel := context.WithTimeout(context.Background(), DefaultTimeout)
		defer cancel()
		c.write(ctx, frames)
	}()
}

// permitsOf returns the permits in a result, if it is of acquire or acquire_all.
func permitsOf(result []byte) (permits []uint64) {
	var one protocol.Decision
	_, ds, err := protocol.ParseAll(result)
	if err != nil && protocol.ParseDecision(result, &one) == nil {
		ds = []protocol.Decision{one}
	}
	for i := range ds {
		if ds[i].Permit != 0 {
			permits = append(permits, ds[i].Permit)
		}
	}
	return permits
}
