// The other things one may ask: peek, refund, reset.

package limiter

import (
	"fmt"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/policy"
	"rlsidecar/localcache"
)

// Peek is Acquire that consumes nothing.
func (l *Limiter) Peek(now time.Duration, c *Call, to Replier, ref uint32) (d Decision, pending bool, err *Error) {
	p, _, err := l.policy(c)
	if err != nil {
		return Decision{}, false, err
	}
	rule, verdict := p.Resolve(c.Key)
	if verdict != policy.Limited {
		return listed(rule, verdict), false, nil
	}
	if c.Cost > rule.MaxCost() {
		l.never(now, p, rule, c.Key, &d)
		return d, false, nil
	}
	b := l.lock(p, c.Key)
	defer b.Shard().Unlock()
	b.Adopt(rule)
	look := desk{b: b, now: now, source: FromLease}
	switch {
	case l.redis == nil || !l.reachable(now, b):
		look = l.localDesk(now, b, p)
	case p.Exact:
		pending, err = l.joinAs(peeking, now, b, p, c, to, ref)
		return Decision{}, pending, err
	case c.Cost > 0 && b.Permits(now) >= c.Cost:
	case c.Cost > 0 && b.Denied(now, c.Cost):
		look.source = FromDenial
	default:
		pending, err = l.joinAs(peeking, now, b, p, c, to, ref)
		return Decision{}, pending, err
	}
	return look.seen(c.Cost), false, nil
}

// Reset makes the bucket start afresh, on every host. Pending as in Acquire; a
// zero Decision without an error says it is done.
func (l *Limiter) Reset(now time.Duration, c *Call, to Replier, ref uint32) (pending bool, err *Error) {
	p, _, err := l.policy(c)
	if err != nil {
		return false, err
	}
	rule, verdict := p.Resolve(c.Key)
	if verdict != policy.Limited {
		return false, nil
	}
	b := l.lock(p, c.Key)
	defer b.Shard().Unlock()
	b.Adopt(rule)
	if l.redis == nil {
		b.ResetLocal()
		return false, nil
	}
	if !l.reachable(now, b) {
		b.ResetLocal()
		return false, errResetHere
	}
	return l.joinAs(resetting, now, b, p, c, to, ref)
}

var errResetHere = &Error{Unavailable, "Redis cannot be asked: only this host's limit was reset"}

// Refund gives c.Cost permits back, never above the bucket's capacity.
func (l *Limiter) Refund(now time.Duration, c *Call) *Error {
	p, _, err := l.policy(c)
	if err != nil {
		return err
	}
	rule, verdict := p.Resolve(c.Key)
	switch {
	case verdict != policy.Limited:
		return nil
	case rule.Algorithm == bucket.Concurrency:
		return &Error{InvalidArgument, fmt.Sprintf("policy %q is a concurrency limit: release its permit instead of a refund", p.Name)}
	}
	b := l.lock(p, c.Key)
	defer b.Shard().Unlock()
	b.Adopt(rule)
	l.refund(now, b, p, c.Cost)
	return nil
}

func (l *Limiter) refund(now time.Duration, b *localcache.Bucket, p *policy.Policy, cost int64) {
	if l.redis == nil {
		b.RefundLocal(now, cost, 1)
		return
	}
	if !l.reachable(now, b) {
		cost -= b.RefundLocal(now, cost, l.share(b, p))
	}
	b.Refund(cost)
	l.next(now, b)
}

// lock returns the bucket of a key with its shard locked.
func (l *Limiter) lock(p *policy.Policy, key []byte) *localcache.Bucket {
	s := l.cache.Shard(key)
	s.Lock()
	b := s.Get(p.ID, key)
	if b.Rule == nil && l.redis != nil {
		b.Home = l.redis.Home(b.Key.Policy.Value(), b.Key.Key)
	}
	return b
}

func (l *Limiter) joinAs(k kind, now time.Duration, b *localcache.Bucket, p *policy.Policy, c *Call, to Replier, ref uint32) (pending bool, err *Error) {
	w := &call{kind: k, policy: p, to: to, ref: ref}
	if k == peeking {
		w.cost = c.Cost
	}
	return l.join(now, b, w, 0)
}

// asksOf returns the state of c's lease, for putBack.
func (l *Limiter) asksOf(c *Call) uint32 {
	p, err := l.lookup(l.rules.Load().set, c)
	if err != nil {
		return 0
	}
	s := l.cache.Shard(c.Key)
	s.Lock()
	defer s.Unlock()
	if b := s.Peek(p.ID, c.Key); b != nil {
		return b.Asks()
	}
	return 0
}

// putBack undoes c, which was allowed when its lease was at asks: into the lease if
// it is still that one, else as a refund.
func (l *Limiter) putBack(now time.Duration, c *Call, asks uint32) {
	p, err := l.lookup(l.rules.Load().set, c)
	if err != nil {
		return
	}
	rule, _ := p.Resolve(c.Key)
	b := l.lock(p, c.Key)
	defer b.Shard().Unlock()
	b.Adopt(rule)
	if l.redis == nil || !b.PutBack(now, c.Cost, asks) {
		l.refund(now, b, p, c.Cost)
	}
}
