// Permits of concurrency limits: who holds which, and until when.

package limiter

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"rlsidecar/localcache"
)

// mourning is how long the permits of a process outlive its last connection: time
// to open another.
const mourning = time.Second

// maxHeld bounds the permits held on a host, and the memory they take.
const maxHeld = 1_000_000

var errTooManyHeld = &Error{Overloaded, fmt.Sprintf("%d permits are held on this host", maxHeld)}

// permits is all permits that are held on this host.
//
// A permit ends in one of four ways, whichever comes first: released; at its
// deadline; a while after the last connection of the process that acquired it has
// closed; when its bucket is reset. The kernel closes the connections of a process
// that is killed, so it leaks nothing. What a fork inherits counts for its parent,
// who connected.
//
// Lock order: a shard's, then mu. A permit is out of the tables before its bucket
// is told, so it is released once, whoever comes first.
type permits struct {
	wake func()

	// mu guards the fields that follow, and every permit and owner.
	mu        sync.Mutex
	byID      map[uint64]*permit
	owners    map[int32]*owner // by pid
	deadlines deadlines
}

// permit is one that is held.
type permit struct {
	id    uint64
	b     *localcache.Bucket
	name  localcache.Held
	owner *owner // nil: of nobody known
	deadline
}

// owner is a process with connections, or lately without.
type owner struct {
	pid         int32
	connections int
	held        map[*permit]struct{}
	deadline    // set while there are no connections
}

// deadline is when something ends by itself.
type deadline struct {
	at    time.Duration
	place int // in the heap, from 1; 0: not there
}

func (d *deadline) when() *deadline { return d }

type ending interface{ when() *deadline }

type deadlines []ending

func (h deadlines) Len() int           { return len(h) }
func (h deadlines) Less(i, j int) bool { return h[i].when().at < h[j].when().at }
func (h deadlines) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].when().place, h[j].when().place = i+1, j+1
}
func (h *deadlines) Push(x any) {
	*h = append(*h, x.(ending))
	x.(ending).when().place = len(*h)
}
func (h *deadlines) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	x.when().place = 0
	return x
}

func (p *permits) init(wake func()) {
	p.wake, p.byID, p.owners = wake, map[uint64]*permit{}, map[int32]*owner{}
}

// connect counts a connection of a process. Processes of other pid namespaces look
// alike: each of their connections stands for itself.
func (p *permits) connect(pid int32) *owner {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.owners[pid]
	if o == nil {
		o = &owner{pid: pid, held: map[*permit]struct{}{}}
		if pid != 0 {
			p.owners[pid] = o
		}
	}
	o.connections++
	p.cancel(o)
	return o
}

func (p *permits) disconnect(now time.Duration, o *owner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.connections--; o.connections > 0 {
		return
	}
	if len(o.held) == 0 {
		delete(p.owners, o.pid)
		return
	}
	p.schedule(o, now+mourning)
}

func (p *permits) schedule(e ending, at time.Duration) {
	e.when().at = at
	heap.Push(&p.deadlines, e)
	if p.deadlines[0] == e {
		p.wake()
	}
}

func (p *permits) cancel(e ending) {
	if i := e.when().place; i > 0 {
		heap.Remove(&p.deadlines, i-1)
	}
}

// add registers a permit that is held from now on, and returns its id, 1..2^53-1:
// a number that every language's msgpack holds, and that nobody guesses.
func (p *permits) add(b *localcache.Bucket, name localcache.Held, c *Caller, until time.Duration) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := &permit{id: 1 + rand.Uint64N(1<<53-1), b: b, name: name}
	for p.byID[held.id] != nil {
		held.id = 1 + rand.Uint64N(1<<53-1)
	}
	p.byID[held.id] = held
	if c != nil {
		held.owner = c.owner
		held.owner.held[held] = struct{}{}
	}
	p.schedule(held, until)
	return held.id
}

// take takes a permit out of the tables; nil: it is not there.
func (p *permits) take(id uint64) *permit {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.byID[id]
	if held != nil {
		p.drop(held)
	}
	return held
}

func (p *permits) drop(held *permit) {
	delete(p.byID, held.id)
	p.cancel(held)
	if held.owner != nil {
		delete(held.owner.held, held)
	}
}

// due takes out the permits that end by now, and returns when the next does; 0:
// never.
func (p *permits) due(now time.Duration) (ended []*permit, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.deadlines) > 0 {
		first := p.deadlines[0]
		if at := first.when().at; at > now {
			return ended, at
		}
		switch e := first.(type) {
		case *permit:
			p.drop(e)
			ended = append(ended, e)
		case *owner:
			p.cancel(e)
			delete(p.owners, e.pid)
			for held := range e.held {
				p.drop(held)
				ended = append(ended, held)
			}
		}
	}
	return ended, 0
}

// full reports that no more can be held.
func (p *permits) full() bool { return p.count() >= maxHeld }

// count returns how many permits are held.
func (p *permits) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byID)
}

// Release gives up a permit, and reports whether it was held. Any caller may: who
// knows the number has it from its holder.
func (l *Limiter) Release(now time.Duration, id uint64) bool {
	held := l.permits.take(id)
	return held != nil && l.release(now, held)
}

func (l *Limiter) release(now time.Duration, held *permit) bool {
	var out replies
	b := held.b
	b.Shard().Lock()
	was := b.Release(now, held.name)
	if q := queueOf(b); q != nil && len(q.calls) > 0 {
		d := l.deskFor(now, b, q.calls[0].policy)
		l.serve(&d, q, false, &out)
	}
	l.next(now, b)
	b.Shard().Unlock()
	out.deliver(l)
	return was
}
