// What the agent tells of itself: info for applications, explain for operators.

package limiter

import (
	"fmt"
	"time"

	"rlsidecar/internal/policy"
	"rlsidecar/localcache"
)

// Health is how the authority fares.
type Health struct {
	State   string // "starting", "ok", "degraded" or "failing"
	Reason  string // why it is not ok
	Mend    string // what somebody must do, when failing
	Bucket  string // the last fault of a single bucket
	Warning string // of what may go wrong though all is well
	Scripts uint64 // calls of scripts, since the start
	Asks    uint64 // questions about a bucket that they carried
	Dials   uint64 // connections opened, or tried to be
	Nodes   []NodeHealth
}

// NodeHealth is how one server of the authority fares.
type NodeHealth struct {
	Node, State, Reason string
}

// Health returns how the authority fares; standalone it is "ok".
func (l *Limiter) Health() Health {
	if l.health == nil {
		return Health{State: "ok"}
	}
	return l.health()
}

// Mode is "standalone" or "redis".
func (l *Limiter) Mode() string {
	if l.redis == nil {
		return "standalone"
	}
	return "redis"
}

// Degraded reports that Redis is configured and cannot be asked, of some buckets at least.
func (l *Limiter) Degraded() bool { return l.redis != nil && l.redis.Degraded() }

// Info returns the limiter's part of the method info.
func (l *Limiter) Info() map[string]any {
	h, c := l.Health(), l.cache.Counts()
	decisions, denied, shadow := map[string]uint64{}, uint64(0), uint64(0)
	l.Outcomes(func(_, _ string, o *Outcomes) {
		for _, s := range Sources() {
			decisions[s.String()] += o.Allowed(s) + o.Denied(s)
			denied += o.Denied(s)
		}
		shadow += o.Shadow()
	})
	info := map[string]any{
		"mode":     l.Mode(),
		"degraded": l.Degraded(),
		"stats": map[string]any{
			"decisions": decisions, "denied": denied, "shadow_denied": shadow,
			"redis_scripts": h.Scripts, "redis_asks": h.Asks, "redis_connections_opened": h.Dials,
			"permits": map[string]uint64{"leased": c.Granted, "spent": c.Spent, "given_back": c.Returned, "expired": c.Expired},
			"buckets": c.Held, "evicted": c.Evicted, "permits_held": l.permits.count(),
		},
	}
	if l.redis != nil {
		info["redis"] = map[string]any{"state": h.State, "reason": h.Reason, "mend": h.Mend, "bucket": h.Bucket, "warning": h.Warning, "nodes": nodes(h.Nodes)}
	}
	return info
}

func nodes(all []NodeHealth) map[string]string {
	states := map[string]string{}
	for _, n := range all {
		states[n.Node] = n.String()
	}
	return states
}

// Explain returns what this agent knows of the bucket of c, for people: names and
// values in the order they are to be shown. It changes nothing.
func (l *Limiter) Explain(now time.Duration, c *Call) ([][2]string, *Error) {
	p, _, err := l.policy(c)
	if err != nil {
		return nil, err
	}
	rule, verdict := p.Resolve(c.Key)
	limits, bursts := policy.ShowRule(rule)
	out := [][2]string{
		{"policy", p.Name}, {"key", string(c.Key)}, {"limits", limits + ", burst " + bursts},
		{"lists", [...]string{"on none", "exempt", "blocked"}[verdict]},
		{"mode", l.Mode()}, {"redis", l.Health().String()},
	}
	s := l.cache.Shard(c.Key)
	s.Lock()
	defer s.Unlock()
	b := s.Peek(p.ID, c.Key)
	if b == nil || verdict != policy.Limited {
		return append(out, [2]string{"bucket", "unknown to this agent: nobody asked here lately"}), nil
	}
	if l.node != nil {
		out = append(out, [2]string{"redis node", l.node(b.Home).String()})
	}
	return append(out, l.describe(now, b, p)...), nil
}

func (l *Limiter) describe(now time.Duration, b *localcache.Bucket, p *policy.Policy) [][2]string {
	out := b.Describe(now)
	if q := queueOf(b); q != nil && len(q.calls) > 0 {
		out = append(out, [2]string{"waiting", fmt.Sprintf("%d calls", len(q.calls))})
	}
	if l.redis == nil {
		d := l.localDesk(now, b, p)
		at := d.seen(1)
		return append(out, [2]string{"level", fmt.Sprintf("%d of %d permits, full in %v", at.Remaining, at.Limit, at.ResetAfter.Round(time.Millisecond))})
	}
	return append(out, [2]string{"share without redis", fmt.Sprintf("%.0f %% of the limit (%.0f live hosts)",
		100*l.share(b, p), b.Hosts(l.liveHosts()))})
}

func (n NodeHealth) String() string {
	switch {
	case n.Node == "":
		return "none keeps this bucket now"
	case n.Reason != "":
		return n.Node + ", " + n.State + ": " + n.Reason
	}
	return n.Node + ", " + n.State
}

func (h Health) String() string {
	switch {
	case h.Mend != "":
		return h.State + ": " + h.Reason + "; " + h.Mend
	case h.Reason != "":
		return h.State + ": " + h.Reason
	}
	return h.State
}
