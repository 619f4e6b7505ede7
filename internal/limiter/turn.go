// Turns: the calls of a leaky bucket that may wait leave it evenly. A call takes its
// permits at once, and with them a time to leave: when all that is in the bucket
// before it has drained. What is not taken by then is room for others to queue.

package limiter

import (
	"slices"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/localcache"
)

// wantTurns is want for the paced calls at the head of the queue that cost the same.
func (q *queue) wantTurns(now time.Duration) (w localcache.Want, paced bool) {
	first := &q.calls[0]
	if !first.paced {
		return w, false
	}
	w = localcache.Want{Paced: true, First: first.cost, Unit: first.cost, Patience: max(0, first.until-now)}
	for i := range q.calls {
		c := &q.calls[i]
		paced = c.paced && c.cost == first.cost && (i == 0 || q.calls[i-1].asked)
		if c.asked = paced; paced {
			w.Queued += c.cost
			w.Patience = min(w.Patience, max(0, c.until-now))
		}
	}
	return w, true
}

// takeTurn is fromMemory for a call that may wait for its turn.
func (l *Limiter) takeTurn(now time.Duration, b *localcache.Bucket, c *call, wait time.Duration, out *Decision) (pending bool, err *Error) {
	switch {
	case !l.reachable(now, b):
		return l.fallback(now, b, c, wait, out)
	case !c.policy.Exact && b.Lacks(now, c.cost):
		d := desk{b: b, now: now, source: FromDenial}
		d.look(c.cost, false, out)
		return false, nil
	}
	return l.join(now, b, c, wait)
}

// serveTurn gives c its part of the permits that Redis granted for it, or denies it
// when its time or the bucket's room will not do. It is false when c may have to ask
// again, having more patience than others it was asked with.
func (l *Limiter) serveTurn(d *desk, c *call, out *replies) (done bool) {
	leaves := d.now + d.turn + pace(d.b.Rule, d.taken)
	if d.taken+c.cost <= d.direct && d.take(c.cost) {
		l.leave(d, c, leaves)
		return true
	}
	switch {
	case !d.b.Covers(d.now-d.ago, c.cost):
		out.deny(c, d, d.wait(0, c.cost))
		d.b.Refuse(c.cost)
	case leaves > c.until || l.draining.Load():
		out.deny(c, d, max(time.Millisecond, leaves-c.until))
	default:
		return false
	}
	return true
}

// pace returns the time in which permits drain from a bucket of rule.
func pace(rule *bucket.Rule, permits int64) time.Duration {
	return time.Duration(rule.Pace() * float64(permits) * 1e9)
}

// takeLocalTurn is takeTurn without Redis.
func (l *Limiter) takeLocalTurn(d *desk, c *call, wait time.Duration, out *Decision) (pending bool, err *Error) {
	c.began, c.until = d.now, d.now+wait
	if q := queueOf(d.b); q != nil && len(q.leaving) >= maxWaiting {
		return false, errTooMany
	}
	switch late, ok := l.localTurn(d, c); {
	case !ok:
		d.look(c.cost, false, out)
		out.RetryAfter = late
		return false, nil
	case c.leaves > d.now:
		l.arm(d.b)
		return true, nil
	}
	l.allow(d, c, out)
	return false, nil
}

// serveLocalTurn is takeLocalTurn for a call that waited for Redis.
func (l *Limiter) serveLocalTurn(d *desk, c *call, out *replies) (done bool) {
	switch late, ok := l.localTurn(d, c); {
	case !ok:
		out.deny(c, d, late)
	case c.leaves == d.now:
		l.allow(d, c, out.add(c, Decision{}, nil))
	}
	return true
}

// localTurn takes c's permits, and has it leave when its turn comes if that is not
// now; or it returns how much later c should have come.
func (l *Limiter) localTurn(d *desk, c *call) (late time.Duration, ok bool) {
	c.leaves = d.now + d.b.LocalTurn(d.now, d.share)
	switch {
	case !d.covers(c.cost):
		return d.wait(0, c.cost), false
	case c.leaves > c.until:
		return c.leaves - c.until, false
	}
	d.take(c.cost)
	if c.leaves > d.now {
		l.leave(d, c, c.leaves)
	}
	return 0, true
}

// leave has c, which has its permits, answered at a time.
func (l *Limiter) leave(d *desk, c *call, at time.Duration) {
	q := queueFor(d.b)
	c.source, c.leaves = d.source, at
	i := len(q.leaving)
	for i > 0 && q.leaving[i-1].leaves > at {
		i--
	}
	q.leaving = slices.Insert(q.leaving, i, *c)
}

// leaves returns when the next call does; 0: none waits for that.
func (q *queue) leaves() time.Duration {
	if len(q.leaving) == 0 {
		return 0
	}
	return q.leaving[0].leaves
}

// depart answers the calls whose turn it is, and all when the agent ends. The places of
// those that do not go on, or that nobody waits for any more, are free again.
func (l *Limiter) depart(now time.Duration, b *localcache.Bucket, q *queue, out *replies) {
	var gone []call
	q.leaving = slices.DeleteFunc(q.leaving, func(c call) bool {
		switch {
		case out.drop(&c):
			gone = append(gone, c)
		case c.leaves <= now:
			d := l.localDesk(now, b, c.policy)
			d.source = c.source
			l.allow(&d, &c, out.add(&c, Decision{}, nil))
		case l.draining.Load():
			d := l.localDesk(now, b, c.policy)
			out.deny(&c, &d, c.leaves-now)
			gone = append(gone, c)
		default:
			return false
		}
		return true
	})
	for i := range gone {
		l.refund(now, b, gone[i].policy, gone[i].cost)
	}
}
