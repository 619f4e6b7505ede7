// queue is the calls that wait for one bucket: for an answer of Redis, or for
// permits to come.

package limiter

import (
	"fmt"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/policy"
	"rlsidecar/localcache"
)

const (
	maxWaiting = 10_000 // calls for one bucket
	refusedFor = 250 * time.Millisecond
)

type kind uint8

const (
	acquiring kind = iota
	peeking
	resetting
)

// call is a Call that waits.
type call struct {
	kind   kind
	parked bool // waits for permits to come, not for an answer
	asked  bool // the ask on its way carries it
	paced  bool // leaves when its turn comes
	policy *policy.Policy
	app    int
	caller *Caller
	cost   int64
	to     Replier
	ref    uint32
	began  time.Duration
	until  time.Duration // the end of its wait
	budget time.Duration // when the fallback answers it at the latest
	source Source        // of the permits of a paced call that waits for its turn
	leaves time.Duration // and when that is
}

// queue holds calls in the order they came. It lives in its bucket and is guarded
// by the same lock. A nil queue is empty.
type queue struct {
	calls   []call
	waiters int           // of calls, those that are parked
	retry   time.Duration // when parked calls try again; 0: not set
	due     time.Duration // the earliest budget of all; 0: no calls
	leaving []call        // paced calls that have their permits, in the order they leave
}

func queueOf(b *localcache.Bucket) *queue {
	q, _ := b.Waiting.(*queue)
	return q
}

// queueFor is queueOf for somebody who has a call to put in.
func queueFor(b *localcache.Bucket) *queue {
	q := queueOf(b)
	if q == nil {
		q = &queue{}
		b.Waiting = q
	}
	return q
}

// parked reports that a call waits for permits: no later one may go before it.
func (q *queue) parked() bool { return q != nil && q.waiters > 0 }

// unasked reports that a call waits for an answer.
func (q *queue) unasked() bool { return q.waiters < len(q.calls) }

// cost is what all calls that want permits want together.
func (q *queue) cost() int64 {
	var sum int64
	for i := range q.calls {
		if c := &q.calls[i]; c.kind == acquiring {
			sum += c.cost
		}
	}
	return sum
}

// sweep passes every call to f, in order, and keeps those for which it is false.
func (q *queue) sweep(f func(*call) bool) {
	all := q.calls
	q.calls, q.waiters, q.due = all[:0], 0, 0
	for i := range all {
		if c := &all[i]; !f(c) {
			q.push(c)
		}
	}
	clear(all[len(q.calls):])
}

func (q *queue) push(c *call) {
	q.calls = append(q.calls, *c)
	if c.parked {
		q.waiters++
	}
	q.due = sooner(q.due, c.budget)
}

// want is what an ask for these calls, of which there is one at least, is for.
func (q *queue) want(now time.Duration) localcache.Want {
	if w, paced := q.wantTurns(now); paced {
		return w
	}
	w := localcache.Want{Lease: !q.calls[0].policy.Exact}
	for i := range q.calls {
		c := &q.calls[i]
		if c.asked = !c.paced; c.paced {
			continue
		}
		switch c.kind {
		case resetting:
			w.Reset = true
		case acquiring:
			if w.Queued == 0 {
				w.First, w.Unit, w.Waited = c.cost, c.cost, now-c.began
			}
			w.Queued += c.cost
			if c.cost != w.Unit {
				w.Unit = 0
			}
		}
	}
	return w
}

var errTooMany = &Error{Overloaded, fmt.Sprintf("%d calls wait for this key already", maxWaiting)}

// enqueue adds c to b's queue. It fails when too many wait already.
func (l *Limiter) enqueue(b *localcache.Bucket, c *call) (*queue, *Error) {
	q := queueFor(b)
	if len(q.calls)+len(q.leaving) >= maxWaiting {
		return nil, errTooMany
	}
	q.push(c)
	return q, nil
}

// join has c wait for Redis's answer.
func (l *Limiter) join(now time.Duration, b *localcache.Bucket, c *call, wait time.Duration) (pending bool, err *Error) {
	c.began, c.until = now, now+wait
	c.budget = now + l.timeout
	if _, err := l.enqueue(b, c); err != nil {
		return false, err
	}
	l.next(now, b)
	return true, nil
}

// park has c wait for permits to come if it has the time, and denies it at once
// if it has not.
func (l *Limiter) park(d *desk, c *call, wait time.Duration, out *Decision) (pending bool, err *Error) {
	ahead := int64(0)
	if q := queueOf(d.b); q != nil {
		ahead = q.cost()
	}
	need := d.wait(ahead, c.cost)
	if need > wait {
		d.look(c.cost, false, out)
		out.RetryAfter = d.advise(need)
		return false, nil
	}
	c.parked, c.began = true, d.now
	c.until, c.budget = d.now+wait, d.now+wait+l.timeout
	q, err := l.enqueue(d.b, c)
	if err != nil {
		return false, err
	}
	if q.retry == 0 {
		q.retry = max(d.now+need, d.again(c.cost))
	}
	l.arm(d.b)
	return true, nil
}

// ask sends what b has to say and what is wanted of its authority.
func (l *Limiter) ask(now time.Duration, b *localcache.Bucket, w localcache.Want) {
	a := asking{l, b, now}
	w.Lead = l.lead()
	l.asking.Add(1)
	l.redis.Ask(&bucket.Question{
		Policy: b.Key.Policy.Value(), Key: b.Key.Key, Home: b.Home, Rule: b.Rule,
		Ask: b.Ask(now, w), Answer: a.answer,
	})
	l.arm(b)
}

// asking is an ask on its way.
type asking struct {
	l    *Limiter
	b    *localcache.Bucket
	sent time.Duration
}

func (a asking) answer(q *bucket.Question, g bucket.Grant, err error) {
	l, b, now := a.l, a.b, a.l.clock()
	var out replies
	b.Shard().Lock()
	switch {
	case err == nil:
		b.Granted(a.sent, now, q, &g, l.jitter())
		l.heard(g.Hosts, now-a.sent)
		l.granted(now, a.sent, b, q, &g, &out)
	case isLost(err):
		b.Lost(&q.Ask)
		b.Idle = now + retryDown
		l.failed(now, b, &out)
	default:
		b.Refused(&q.Ask)
		b.Idle = now + retryDown
		if l.redis.Reachable(b.Home) { // it is this bucket that was refused
			b.Cut = now + time.Duration((0.75+0.5*l.jitter())*float64(refusedFor))
		}
		l.failed(now, b, &out)
	}
	l.next(now, b)
	b.Shard().Unlock()
	l.asking.Add(-1)
	out.deliver(l)
}

// granted serves the queue from what Redis gave.
func (l *Limiter) granted(now, sent time.Duration, b *localcache.Bucket, q *bucket.Question, g *bucket.Grant, out *replies) {
	d := desk{b: b, now: now, ago: now - sent, source: FromRedis, turn: time.Duration(g.Delay * 1e9), direct: g.Direct}
	if calls := queueOf(b); calls != nil {
		l.serve(&d, calls, b.Scarce(), out)
	}
	if q.Ask.Queued == 0 && g.Scarce && q.Ask.Need > 0 {
		b.Refuse(q.Ask.Need)
	}
	b.Settle(g.Direct - d.taken)
}

// serve answers the calls that d can, first come, first served. When last, those
// it cannot serve are denied, or parked if they have the time; otherwise they stay
// to be asked for.
func (l *Limiter) serve(d *desk, q *queue, last bool, out *replies) {
	ahead := int64(0)
	q.sweep(func(c *call) bool { return out.drop(c) || l.serveCall(d, c, last, &ahead, out) })
}

// serveCall is serve for one call, behind the cost ahead of it. It is true when c
// is answered.
func (l *Limiter) serveCall(d *desk, c *call, last bool, ahead *int64, out *replies) bool {
	switch {
	case c.kind != acquiring && !c.asked && !d.local():
		return false
	case c.kind == peeking:
		out.add(c, d.seen(c.cost), nil)
	case c.kind == resetting:
		out.add(c, Decision{}, nil)
	case c.paced && d.local():
		return l.serveLocalTurn(d, c, out)
	case c.paced:
		return c.asked && l.serveTurn(d, c, out)
	case *ahead == 0 && d.take(c.cost):
		l.allow(d, c, out.add(c, Decision{}, nil))
	case !c.parked && (!last || !c.asked && d.covers(c.cost)):
		return false
	default:
		return l.hold(d, c, ahead, out)
	}
	return true
}

// hold keeps c parked behind the cost ahead of it, or denies it when its time will
// not do.
func (l *Limiter) hold(d *desk, c *call, ahead *int64, out *replies) (done bool) {
	need := d.wait(*ahead, c.cost)
	if d.now-d.ago+need > c.until || l.draining.Load() {
		out.deny(c, d, d.advise(need))
		d.b.Refuse(c.cost)
		return true
	}
	c.parked, c.budget = true, c.until+l.timeout
	*ahead += c.cost
	return false
}

// next does what b's queue needs next: an ask, or an alarm.
func (l *Limiter) next(now time.Duration, b *localcache.Bucket) {
	q := queueOf(b)
	if q != nil && len(q.calls)+len(q.leaving) == 0 {
		q, b.Waiting = nil, nil
	}
	switch {
	case b.Asking:
	case q != nil && len(q.calls) > 0:
		l.nextFor(now, b, q)
	case l.redis == nil:
	case b.Refunding() && l.reachable(now, b):
		l.ask(now, b, localcache.Want{})
	case (b.Evicted || l.draining.Load()) && b.Owes(now) && l.reachable(now, b):
		l.ask(now, b, localcache.Want{Quit: true})
	}
	l.arm(b)
}

func (l *Limiter) nextFor(now time.Duration, b *localcache.Bucket, q *queue) {
	first := &q.calls[0]
	if q.unasked() {
		q.retry = 0
		l.ask(now, b, q.want(now))
		return
	}
	d := l.deskFor(now, b, first.policy)
	q.retry = d.again(first.cost)
}

// deskFor returns the desk that serves b's calls now.
func (l *Limiter) deskFor(now time.Duration, b *localcache.Bucket, p *policy.Policy) desk {
	if l.redis == nil || !l.reachable(now, b) {
		return l.localDesk(now, b, p)
	}
	return desk{b: b, now: now, source: FromRedis}
}

// replies are answers to be delivered once the lock is let go.
type replies []reply

type reply struct {
	call
	d   Decision
	err *Error
}

// add adds an answer, and returns its decision to be filled in before the next.
func (r *replies) add(c *call, d Decision, err *Error) *Decision {
	*r = append(*r, reply{*c, d, err})
	return &(*r)[len(*r)-1].d
}

var errGone = &Error{Unavailable, "nobody waits for the answer any more"}

// drop answers c with nothing if nobody waits for it: so that a part of an
// acquire_all has the others put back.
func (r *replies) drop(c *call) bool {
	gone := c.to.Gone()
	if gone {
		r.add(c, Decision{}, errGone)
	}
	return gone
}

func (r *replies) deny(c *call, d *desk, retry time.Duration) {
	out := r.add(c, Decision{}, nil)
	d.look(c.cost, false, out)
	out.RetryAfter = retry
}

func (r replies) deliver(l *Limiter) {
	for i := range r {
		a := &r[i]
		if a.kind == acquiring && a.err == nil {
			l.finish(a.policy, a.app, &a.d)
			l.observe(1, l.clock()-a.began)
		}
		a.to.Decided(a.ref, a.d, a.err)
		if a.d.Permit != 0 && a.to.Gone() { // nobody will ever release it
			l.Release(l.clock(), a.d.Permit)
		}
	}
}
