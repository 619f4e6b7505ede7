// What is counted: decisions by policy, outcome and source.

package limiter

import (
	"sync"
	"sync/atomic"

	"rlsidecar/localcache"
)

// Outcomes counts the decisions of one policy for one application.
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

// Total returns how many calls were decided.
func (o *Outcomes) Total() (n uint64) {
	for s := range sources {
		n += o.Allowed(s) + o.Denied(s)
	}
	return n
}

// Sources lists every source, with its name in metrics and in info.
func Sources() []Source {
	return []Source{FromLease, FromRedis, FromDenial, FromStandalone, FromFallback, FromList}
}

func (s Source) String() string {
	return [...]string{"lease", "redis", "denial", "standalone", "fallback", "list"}[s]
}

// InlineName is the policy under which all inline limits are counted.
const InlineName = "(inline)"

// counted is what is counted by itself: a policy's decisions for an application, ""
// of none.
type counted struct{ policy, app string }

// counts keeps all outcomes for the life of the process.
type counts struct {
	// mu guards all.
	mu  sync.Mutex
	all map[counted]*Outcomes
}

func (c *counts) init() {
	c.all = map[counted]*Outcomes{}
}

// row returns the outcomes of a policy: of no application, and of each of apps.
func (c *counts) row(policy string, apps []string) []*Outcomes {
	row := []*Outcomes{c.of(policy, "")}
	for _, app := range apps {
		row = append(row, c.of(policy, app))
	}
	return row
}

func (c *counts) of(policy, app string) *Outcomes {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.all[counted{policy, app}]
	if o == nil {
		o = &Outcomes{}
		c.all[counted{policy, app}] = o
	}
	return o
}

// Outcomes calls f with the counts of each policy and application since the start.
func (l *Limiter) Outcomes(f func(policy, app string, o *Outcomes)) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	for of, o := range l.counts.all {
		f(of.policy, of.app, o)
	}
}

// Held returns how many permits of concurrency limits are held on this host.
func (l *Limiter) Held() int { return l.permits.count() }

// Leases returns the counts of permits and buckets on this host.
func (l *Limiter) Leases() localcache.Counts { return l.cache.Counts() }
