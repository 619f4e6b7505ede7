// caller is one connection of the load generator. It speaks the protocol itself,
// so that as little as possible of what is measured is the generator.

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sort"
	"strconv"
	"syscall"
	"time"

	"rlsidecar/internal/server"
	"rlsidecar/protocol"
)

// replyRoom is far more than the replies of all calls that are in flight at once
// on most connections; they are read in pieces otherwise.
const replyRoom = 16 << 10

// caller keeps up to len(calls) calls in flight. The msgid of a call is its place
// in calls, so replies may come in any order. Nothing is allocated per call.
//
// Unpaced, one goroutine writes, reads what there is, and writes as many calls as
// it got replies. Paced, a second goroutine writes: a call that is due must not
// wait for the reply to another.
type caller struct {
	tally
	*trial
	nc   net.Conn
	load *load
	rng  *rand.Rand

	calls  []flight
	free   []uint32 // unpaced: places whose reply has come
	out    []byte
	in     []byte
	filled int // in[:filled] is read and not yet taken
	scan   protocol.Scanner
	call   protocol.Call
	key    []byte

	first, every int64         // paced: when the first call is due, and from one to the next
	awake        int64         // paced: when the writer last woke
	idle         chan uint32   // paced: places with no call in flight
	broken       chan struct{} // paced: closed when no more replies come
}

// flight is a place for one call.
type flight struct {
	from  int64  // when the call in flight began; -1: there is none
	frame []byte // nil: made for each call, with its key
}

func newCaller(t *trial, l *load, nc net.Conn, seed uint64) *caller {
	c := &caller{trial: t, nc: nc, load: l, rng: rand.New(rand.NewPCG(seed, 1)), call: l.call}
	c.in = make([]byte, replyRoom)
	c.calls = make([]flight, l.pipeline)
	for id := range c.calls {
		c.calls[id].from = -1
		if l.echo || l.keys == 1 {
			c.calls[id].frame = c.frame(uint32(id))
		}
	}
	return c
}

// pace has the caller make its share of rate calls per second, i-th of callers.
func (c *caller) pace(rate float64, i, callers int) {
	c.first, c.every = int64(float64(i)/rate*1e9), int64(float64(callers)/rate*1e9)
	c.idle, c.broken = make(chan uint32, len(c.calls)), make(chan struct{})
	for id := range c.calls {
		c.idle <- uint32(id)
	}
}

func (c *caller) frame(id uint32) []byte {
	frame := c.appendCall(nil, id)
	if c.load.echo {
		return ownAnswer(id, len(frame))
	}
	return frame
}

// ownAnswer is a reply that allows, of so many bytes: an echo of it costs the
// generator what an agent's reply does.
func ownAnswer(id uint32, size int) []byte {
	b := protocol.AppendDecision(nil, id, &protocol.Decision{Allowed: true, Limit: 100, Remaining: 99, ResetAfterMS: 1000})
	b[0]++ // one more item, to be skipped: a str of what is missing
	pad := max(0, size-len(b)-2)
	return append(append(b, 0xd9, byte(pad)), make([]byte, pad)...)
}

func (c *caller) appendCall(dst []byte, id uint32) []byte {
	c.key = strconv.AppendInt(append(c.key[:0], "user:"...), int64(c.load.pick(c.rng)), 10)
	c.call.Key = c.key
	return protocol.AppendAcquire(dst, id, &c.call, nil)
}

// begin appends a call to what is to be written.
func (c *caller) begin(id uint32, from int64) {
	f := &c.calls[id]
	f.from = from
	if f.frame != nil {
		c.out = append(c.out, f.frame...)
	} else {
		c.out = c.appendCall(c.out, id)
	}
}

func (c *caller) flush() error {
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	return err
}

// read takes replies as they come until then, which is called after each read with
// the time of it, fails; free is told whose the replies are.
func (c *caller) read(free func(id uint32), then func(now int64) error) error {
	var failure error
	err := server.ReadAll(c.nc, func() []byte { return c.in[c.filled:] }, func(n int) (done, silent bool) {
		c.filled += n
		now := c.now()
		if failure = c.replies(now, free); failure == nil {
			failure = then(now)
		}
		return failure != nil, false
	})
	switch failure {
	case nil:
		return err
	case errDone:
		return nil
	}
	return failure
}

// replies takes the whole replies that have been read.
func (c *caller) replies(now int64, free func(id uint32)) error {
	used := 0
	for {
		size, err := c.scan.Next(c.in[used:c.filled])
		if err == nil && size > 0 {
			err = c.took(now, c.in[used:used+size], free)
		}
		if err != nil {
			return fmt.Errorf("unreadable reply: %w", err)
		}
		if size == 0 {
			break
		}
		used += size
	}
	if used == 0 && c.filled == len(c.in) {
		return fmt.Errorf("reply of more than %d bytes", len(c.in))
	}
	c.filled = copy(c.in, c.in[used:c.filled])
	return nil
}

func (c *caller) took(now int64, frame []byte, free func(id uint32)) error {
	r, err := protocol.ParseResponse(frame)
	if err != nil || r.Notification {
		return err
	}
	if int(r.ID) >= len(c.calls) || c.calls[r.ID].from < 0 {
		return fmt.Errorf("msgid %d: no such call is in flight", r.ID)
	}
	if r.Err == nil {
		var d protocol.Decision
		if err := protocol.ParseDecision(r.Result, &d); err != nil {
			return err
		}
		c.answer(now, r.ID, &d)
	} else if c.counts(c.calls[r.ID].from) {
		c.failed(r.Err.Code, r.Err.Message)
	}
	c.calls[r.ID].from = -1
	free(r.ID)
	return nil
}

func (c *caller) answer(now int64, id uint32, d *protocol.Decision) {
	if from := c.calls[id].from; c.counts(from) {
		c.latency.add(time.Duration(now - from))
		c.decided(d.Allowed, d.Source)
	}
	c.answered.Add(1)
}

func (c *caller) run() error {
	defer c.nc.Close()
	run := c.unpaced
	if c.every > 0 {
		run = c.paced
	}
	err := run()
	if err == nil {
		return nil
	}
	for i := range c.calls {
		if from := c.calls[i].from; from >= 0 && c.counts(from) {
			c.silent++
		}
	}
	if c.over(c.now()) {
		return nil // they have been counted
	}
	for _, end := range []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return errors.New("the agent closed the connection")
		}
	}
	return err
}

func (c *caller) unpaced() error {
	for id := range c.calls {
		c.free = append(c.free, uint32(id))
	}
	if err := c.again(0); err != nil {
		return err
	}
	return c.read(func(id uint32) { c.free = append(c.free, id) }, c.again)
}

// again makes a call for each that was answered, until the trial is over.
func (c *caller) again(now int64) error {
	if c.over(now) {
		if len(c.free) == len(c.calls) {
			return errDone
		}
		return nil
	}
	from := c.now()
	for _, id := range c.free {
		c.begin(id, from)
	}
	c.free = c.free[:0]
	return c.flush()
}

// errDone ends the reading of an unpaced caller.
var errDone = errors.New("all calls are answered")

func (c *caller) paced() error {
	wrote := make(chan error, 1)
	go func() {
		wrote <- c.write()
		c.nc.Close()
	}()
	err := c.read(func(id uint32) { c.idle <- id }, func(int64) error { return nil })
	close(c.broken)
	if werr := <-wrote; werr != errSilent {
		return werr
	}
	return err
}

var errSilent = errors.New("no more replies come")

// write makes the calls when they are due. A call that could not be made then
// because all places were taken began when it was due all the same: what it waited
// is the agent's doing. What the generator overslept is not.
func (c *caller) write() error {
	for due := c.first; c.sleep(due); due += c.every {
		id, err := c.place()
		if err != nil {
			return err
		}
		c.begin(id, max(due, c.awake))
		if err := c.flush(); err != nil {
			return err
		}
	}
	for range c.calls {
		if _, err := c.place(); err != nil {
			return err
		}
	}
	return nil
}

// sleep reports false when the trial is over before due. It looks up now and then,
// since the end may be brought forward.
func (c *caller) sleep(due int64) bool {
	for now := c.now(); now < due; now = c.awake {
		if c.over(now) {
			return false
		}
		time.Sleep(min(time.Duration(due-now), grace/20))
		c.awake = c.now()
	}
	return !c.over(due)
}

// place waits for a call to be answered if all are in flight.
func (c *caller) place() (uint32, error) {
	select {
	case id := <-c.idle:
		return id, nil
	case <-c.broken:
		return 0, errSilent
	}
}

func (c *caller) expire() { c.nc.SetDeadline(time.Now().Add(grace)) }

func (c *caller) result() *tally { return &c.tally }

// load is what is asked for, by all callers alike.
type load struct {
	pipeline int
	keys     int
	echo     bool
	call     protocol.Call
	heavier  []float64 // by key: the share of calls for it and all before it; nil: all alike
}

// skew gives key i, from 0, a weight of (i+1)^-s.
func (l *load) skew(s float64) {
	sum := 0.0
	l.heavier = make([]float64, l.keys)
	for i := range l.heavier {
		sum += math.Pow(float64(i+1), -s)
		l.heavier[i] = sum
	}
	for i := range l.heavier {
		l.heavier[i] /= sum
	}
}

// pick returns the number of a key.
func (l *load) pick(rng *rand.Rand) int {
	if l.heavier == nil {
		return rng.IntN(l.keys)
	}
	return min(sort.SearchFloat64s(l.heavier, rng.Float64()), l.keys-1)
}
