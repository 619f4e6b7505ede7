// What is counted: decisions by policy, outcome and source.

package limiter

import (
	"sync"
	"sync/atomic"

	"rlsidecar/localcache"
)

// Outcomes counts the decisions of one policy.
type Outcomes struct {
	allowed, denied [sources]atomic.Uint64
	shadow          atomic.Uint64
}

func (o *Outcomes) add(d *Decision) {
	switch {
	case d.Shadow:
		o.shadow.Add(1)
		fallthrough
	case d.Allowed:
		o.allowed[d.Source].Add(1)
	default:
		o.denied[d.Source].Add(1)
	}
}

// Allowed returns how many calls were allowed from a source, shadow denials among
// them.
func (o *Outcomes) Allowed(s Source) uint64 { return o.allowed[s].Load() }

// Denied returns how many calls were denied from a source.
func (o *Outcomes) Denied(s Source) uint64 { return o.denied[s].Load() }

// Shadow returns how many calls only their policy's shadow mode let through.
func (o *Outcomes) Shadow() uint64 { return o.shadow.Load() }

// Sources lists every source, with its name in metrics and in info.
func Sources() []Source {
	return []Source{FromLease, FromRedis, FromDenial, FromStandalone, FromFallback, FromList}
}

func (s Source) String() string {
	return [...]string{"lease", "redis", "denial", "standalone", "fallback", "list"}[s]
}

// InlineName is the policy under which all inline limits are counted.
const InlineName = "(inline)"

// counts keeps the outcomes of each policy name for the life of the process.
type counts struct {
	// mu guards byName.
	mu     sync.Mutex
	byName map[string]*Outcomes
	inline *Outcomes
}

func (c *counts) init() {
	c.byName = map[string]*Outcomes{}
	c.inline = c.of(InlineName)
}

func (c *counts) of(name string) *Outcomes {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.byName[name]
	if o == nil {
		o = &Outcomes{}
		c.byName[name] = o
	}
	return o
}

// Outcomes calls f with the counts of each policy since the start.
func (l *Limiter) Outcomes(f func(policy string, o *Outcomes)) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	for name, o := range l.counts.byName {
		f(name, o)
	}
}

// Leases returns the counts of permits and buckets on this host.
func (l *Limiter) Leases() localcache.Counts { return l.cache.Counts() }
