// Limiter is the life of a call: found in a policy, answered from memory where
// memory will do, and otherwise queued for Redis or answered by the fallback.

package limiter

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/policy"
	"rlsidecar/localcache"
)

// Authority answers questions about many buckets, later. Redis is one; none means
// standalone.
type Authority interface {
	// Ask sends q on its way. It does not block, and never calls q.Answer itself.
	Ask(q *bucket.Question)
	// Home returns the part of the authority that keeps a bucket. It never changes.
	Home(policy, key string) uint16
	// Reachable reports whether asking that part makes sense now.
	Reachable(home uint16) bool
	// Degraded reports that some part cannot be asked.
	Degraded() bool
}

// Options of a Limiter. Zero fields get the defaults.
type Options struct {
	Redis  Authority     // nil: standalone
	Health func() Health // of Redis
	// Node, if set, returns how the server fares that keeps the buckets of a home.
	Node       func(home uint16) NodeHealth
	Timeout    time.Duration        // a call's budget for Redis; default 20 ms
	MaxBuckets int                  // default 250,000
	Clock      func() time.Duration // monotonic; default: since the epoch
	Jitter     func() float64       // 0..1; default random
	// Observe, if set, is told how long each decision took that was not taken at once.
	Observe func(decisions int, took time.Duration)
}

// Limiter decides. Its methods may be called from any goroutine.
type Limiter struct {
	redis    Authority
	health   func() Health
	node     func(home uint16) NodeHealth
	timeout  time.Duration
	clock    func() time.Duration
	jitter   func() float64
	observe  func(int, time.Duration)
	rules    atomic.Pointer[rules]
	cache    *localcache.Cache
	alarms   alarms
	permits  permits
	hosts    atomic.Uint64 // float64 bits: liveHosts
	delay    atomic.Int64  // ns: the largest delay to the authority seen lately, one way
	asking   atomic.Int64  // questions on their way
	draining atomic.Bool
	counts   counts
}

// rules is a policy set and what is counted for each of its policies, in their
// order.
type rules struct {
	set    *policy.Set
	counts [][]*Outcomes // of each policy and application, that of noApp first
	inline []*Outcomes   // the same of callers' own limits
}

// newClock returns the time since the epoch of the clock on the wall, as it was
// when the limiter began: windows of local limits are aligned to it.
func newClock() func() time.Duration {
	start := time.Now()
	began := time.Duration(start.UnixNano())
	return func() time.Duration { return began + time.Since(start) }
}

// New returns a limiter that follows set. It needs Run, or Advance, for whatever
// happens by itself.
func New(set *policy.Set, o Options) *Limiter {
	l := &Limiter{redis: o.Redis, health: o.Health, node: o.Node, timeout: o.Timeout, clock: o.Clock, jitter: o.Jitter, observe: o.Observe}
	if l.timeout == 0 {
		l.timeout = 20 * time.Millisecond
	}
	if l.clock == nil {
		l.clock = newClock()
	}
	if l.jitter == nil {
		l.jitter = rand.Float64
	}
	if l.observe == nil {
		l.observe = func(int, time.Duration) {}
	}
	if o.MaxBuckets == 0 {
		o.MaxBuckets = 250_000
	}
	l.alarms.wake = make(chan struct{}, 1)
	l.permits.init(l.alarms.awake)
	l.cache = localcache.New(o.MaxBuckets, l.evicted)
	l.counts.init()
	l.SetPolicies(set)
	return l
}

// SetPolicies makes the limiter follow set from the next call on. Counters of
// policies that keep their name go on.
func (l *Limiter) SetPolicies(set *policy.Set) {
	next := &rules{set: set, inline: l.counts.row(InlineName, set.Apps())}
	for _, p := range set.Policies() {
		next.counts = append(next.counts, l.counts.row(p.Name, set.Apps()))
	}
	l.rules.Store(next)
}

// Now returns the time on the limiter's clock. Callers read it once for all calls
// they have at hand.
func (l *Limiter) Now() time.Duration { return l.clock() }

// Acquire decides c. When pending, the answer goes to to.Decided with ref, from
// another goroutine and perhaps before Acquire returns.
func (l *Limiter) Acquire(now time.Duration, c *Call, to Replier, ref uint32) (d Decision, pending bool, err *Error) {
	p, app, err := l.policy(c)
	if err != nil {
		return Decision{}, false, err
	}
	rule, verdict := p.Resolve(c.Key)
	switch {
	case verdict != policy.Limited:
		d = listed(rule, verdict)
	case c.Cost > rule.MaxCost():
		l.never(now, p, rule, c.Key, &d)
	case rule.Algorithm == bucket.Concurrency && l.permits.full():
		return d, false, errTooManyHeld
	default:
		asks := &call{policy: p, app: app, caller: c.Caller, cost: c.Cost, to: to, ref: ref}
		asks.paced = rule.Algorithm == bucket.LeakyBucket && c.Wait > 0
		pending, err = l.decide(now, rule, c, asks, &d)
	}
	if !pending && err == nil {
		l.finish(p, app, &d)
	}
	return d, pending, err
}

// decide puts the answer to c into d, or has c wait.
func (l *Limiter) decide(now time.Duration, rule *bucket.Rule, asked *Call, c *call, d *Decision) (pending bool, err *Error) {
	b := l.lock(c.policy, asked.Key)
	defer b.Shard().Unlock()
	b.Adopt(rule)
	if l.redis == nil {
		return l.fallback(now, b, c, asked.Wait, d)
	}
	return l.fromMemory(now, b, c, asked.Wait, d)
}

// fromMemory is decide with Redis. REQUIRES: b's shard is locked.
func (l *Limiter) fromMemory(now time.Duration, b *localcache.Bucket, c *call, wait time.Duration, d *Decision) (pending bool, err *Error) {
	b.Observe(now, c.cost)
	if c.paced {
		return l.takeTurn(now, b, c, wait, d)
	}
	memory := desk{b: b, now: now, source: FromLease}
	first := !queueOf(b).parked()
	if first && !c.policy.Exact && memory.take(c.cost) {
		if b.Low(now, l.lead()) && l.reachable(now, b) {
			l.ask(now, b, localcache.Want{Lease: true})
		}
		l.allow(&memory, c, d)
		return false, nil
	}
	if !l.reachable(now, b) {
		return l.fallback(now, b, c, wait, d)
	}
	memory.source = FromDenial
	switch {
	case !first:
		return l.park(&memory, c, wait, d)
	case c.policy.Exact:
	case b.Denied(now, c.cost):
		return l.park(&memory, c, wait, d)
	case wait == 0 && b.Busy(now, c.cost):
		if !b.Asking {
			l.ask(now, b, localcache.Want{Hint: c.cost, Lease: true})
		}
		memory.look(c.cost, false, d)
		return false, nil
	}
	return l.join(now, b, c, wait)
}

// allow puts into out that c, which d has just taken permits for, is allowed.
func (l *Limiter) allow(d *desk, c *call, out *Decision) {
	d.look(c.cost, true, out)
	if rule := d.b.Rule; rule.Algorithm == bucket.Concurrency {
		out.Permit = l.permits.add(d.b, d.b.Holding(c.cost), c.caller, d.now+rule.Limits[0].Period)
	}
}

// policy finds what c is to be judged by, unless the agent is shutting down or the
// application it is asked for may not use it.
func (l *Limiter) policy(c *Call) (*policy.Policy, int, *Error) {
	if l.draining.Load() {
		return nil, noApp, &Error{ShuttingDown, "the agent is shutting down"}
	}
	set := l.rules.Load().set
	p, err := l.lookup(set, c)
	if err != nil {
		return nil, noApp, err
	}
	app, err := c.app(set)
	if err == nil && !p.Admits(app) {
		err = notAdmitted(set, p, app)
	}
	return p, app, err
}

func (l *Limiter) lookup(set *policy.Set, c *Call) (*policy.Policy, *Error) {
	if c.Policy == nil {
		p, err := set.Inline(c.Inline)
		switch {
		case errors.Is(err, policy.ErrInlineOff):
			return nil, &Error{NotPermitted, err.Error()}
		case err != nil:
			return nil, &Error{InvalidArgument, err.Error()}
		}
		return p, nil
	}
	if p := set.Lookup(c.Policy); p != nil {
		return p, nil
	}
	return nil, unknown(set, string(c.Policy))
}

func unknown(set *policy.Set, name string) *Error {
	message := fmt.Sprintf("unknown policy: %q", name)
	if near := set.Nearest(name); near != "" {
		message += fmt.Sprintf(", did you mean %q?", near)
	} else if len(set.Policies()) == 0 {
		message += ", the agent has no policies: write some in its configuration, or send an inline limit"
	}
	return &Error{UnknownPolicy, message}
}

// finish lets a policy that only observes allow, and counts the decision.
func (l *Limiter) finish(p *policy.Policy, app int, d *Decision) {
	if p.Shadow && !d.Allowed {
		d.Allowed, d.Shadow, d.RetryAfter = true, true, 0
	}
	l.outcomes(p, app).add(d)
}

func (l *Limiter) outcomes(p *policy.Policy, app int) *Outcomes {
	r := l.rules.Load()
	row := r.inline
	if !p.Inline {
		if all := r.set.Policies(); p.Index >= len(all) || all[p.Index] != p {
			return l.counts.of(p.Name, "") // of a set that has just been replaced
		}
		row = r.counts[p.Index]
	}
	if app+1 >= len(row) {
		app = noApp
	}
	return row[app+1]
}

// reachable reports whether b's authority can be asked.
func (l *Limiter) reachable(now time.Duration, b *localcache.Bucket) bool {
	return l.redis.Reachable(b.Home) && now >= b.Cut
}

func listed(rule *bucket.Rule, v policy.Verdict) Decision {
	if v == policy.Exempt {
		return Decision{Allowed: true, Limit: rule.Capacity(), Remaining: rule.Capacity(), Source: FromList}
	}
	return Decision{Limit: rule.Capacity(), RetryAfter: Never, Source: FromList}
}

// never answers a cost above the capacity: with what this host knows of the bucket,
// which is full as long as nobody asked.
func (l *Limiter) never(now time.Duration, p *policy.Policy, rule *bucket.Rule, key []byte, d *Decision) {
	s := l.cache.Shard(key)
	s.Lock()
	defer s.Unlock()
	*d = Decision{Limit: rule.Capacity(), Remaining: rule.Capacity(), Source: FromDenial}
	if l.redis == nil {
		d.Source = FromStandalone
	}
	if b := s.Peek(p.ID, key); b != nil {
		b.Adopt(rule)
		look := l.deskFor(now, b, p)
		if !look.local() {
			look.source = FromDenial
		}
		look.look(0, true, d)
	}
	d.Allowed, d.RetryAfter = false, Never
}

// share returns the part of the limit that is this host's while on its own.
func (l *Limiter) share(b *localcache.Bucket, p *policy.Policy) float64 {
	if l.redis == nil {
		return 1
	}
	return p.Down.Part(b.Share(l.liveHosts()))
}

// liveHosts returns how many hosts there are, as far as grants of any bucket told.
func (l *Limiter) liveHosts() float64 { return math.Float64frombits(l.hosts.Load()) }

// heard follows the number of live hosts and the delay to the authority: up at
// once, down slowly.
func (l *Limiter) heard(hosts float64, trip time.Duration) {
	had := l.liveHosts()
	if hosts < had {
		hosts = had + (hosts-had)/100
	}
	l.hosts.Store(math.Float64bits(hosts))
	delay, longest := int64(trip/2), l.delay.Load()
	l.delay.Store(max(delay, longest-longest/1000))
}

// lead is how long before a lease runs dry the next one is asked for.
func (l *Limiter) lead() time.Duration {
	return min(max(5*time.Millisecond, time.Duration(l.delay.Load())*5/2), 250*time.Millisecond)
}
