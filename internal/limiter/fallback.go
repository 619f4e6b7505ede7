// The answers without Redis: the whole limit standalone, and what the policy says
// while Redis cannot be reached.

package limiter

import (
	"errors"
	"fmt"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/policy"
	"rlsidecar/localcache"
)

// retryDown is the retry-after of calls denied because Redis cannot be reached:
// about when it is tried again.
const retryDown = 500 * time.Millisecond

func isLost(err error) bool { return errors.Is(err, bucket.ErrLost) }

func (l *Limiter) localDesk(now time.Duration, b *localcache.Bucket, p *policy.Policy) desk {
	source := FromFallback
	if l.redis == nil {
		source = FromStandalone
	}
	return desk{b: b, now: now, source: source, share: l.share(b, p), owed: l.redis != nil}
}

// fallback decides c without Redis. REQUIRES: b's shard is locked.
func (l *Limiter) fallback(now time.Duration, b *localcache.Bucket, c *call, wait time.Duration, out *Decision) (pending bool, err *Error) {
	if l.redis != nil && c.policy.Down.Mode != policy.DownLocal {
		*out, err = refuse(b, c)
		return false, err
	}
	d := l.localDesk(now, b, c.policy)
	if c.paced {
		return l.takeLocalTurn(&d, c, wait, out)
	}
	if !queueOf(b).parked() && d.take(c.cost) {
		l.allow(&d, c, out)
		return false, nil
	}
	return l.park(&d, c, wait, out)
}

// refuse is the answer of a policy that has no local limit.
func refuse(b *localcache.Bucket, c *call) (Decision, *Error) {
	d := Decision{Limit: b.Rule.Capacity(), Source: FromFallback}
	switch c.policy.Down.Mode {
	case policy.DownAllow:
		d.Allowed, d.Remaining = true, d.Limit
		return d, nil
	case policy.DownDeny:
		d.RetryAfter = retryDown
		return d, nil
	}
	return d, &Error{Unavailable, fmt.Sprintf("Redis cannot be asked, and policy %q says error", c.policy.Name)}
}

// failed answers all calls of b after an ask that brought no grant.
func (l *Limiter) failed(now time.Duration, b *localcache.Bucket, out *replies) {
	if q := queueOf(b); q != nil {
		l.withoutRedis(now, b, q, func(*call) bool { return true }, out)
	}
}

// withoutRedis answers those calls of q that are due from the fallback.
func (l *Limiter) withoutRedis(now time.Duration, b *localcache.Bucket, q *queue, due func(*call) bool, out *replies) {
	ahead := int64(0)
	q.sweep(func(c *call) bool {
		switch {
		case !due(c):
			return false
		case out.drop(c):
		case c.kind == resetting:
			b.ResetLocal()
			out.add(c, Decision{}, errResetHere)
		case c.kind == acquiring && c.policy.Down.Mode != policy.DownLocal:
			d, err := refuse(b, c)
			out.add(c, d, err)
		default:
			d := l.localDesk(now, b, c.policy)
			return l.serveCall(&d, c, true, &ahead, out)
		}
		return true
	})
}
