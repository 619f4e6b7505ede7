// Holders is the authority's side of a concurrency limit: who holds how many
// permits. Its twin is remote/holders.lua.

package bucket

import "slices"

const (
	holdersLease = LeaseLife / 4 // µs a host may hand out permits before it asks again
	turnLasts    = 100_000       // µs in which a host that was refused asks again
)

// Holders is one bucket of a Concurrency rule.
//
// The promise: never more than N permits are held at once, over all hosts. A host
// may hand out what it has been granted until its lease ends, and what it has handed
// out is given up a Period later at most. So an entry is kept for a lease and a
// Period after its host was last heard of: a host that is cut off keeps its permits
// until nobody can hold them any more.
//
// An ask says how many permits its host has, not how many more or fewer: after an
// ask whose outcome is unknown the next one puts things right. (Reports of changes,
// as State has them, would leave permits lost for a Period.) Seq makes an ask that
// arrives behind a later one harmless. Epoch grows with each reset: what a host
// handed out before is forgotten.
//
// Permits that are released on a host go to its own callers first, as long as its
// lease lives. Where calls of others have waited for longer, that is not for long:
// what they need is kept for them, and its lease ends at once (Life is 0), so that
// what its callers release comes back here. So does, after an outage, what is held
// too many.
type Holders struct {
	Known   bool  // somebody has asked
	At      int64 // as of State
	Ahead   int64
	Epoch   int64 // µs of the last reset; 0: none
	Demand  float64
	Hosts   float64
	Granted float64
	All     []Holder // in the order they came
}

// Holder is one agent. It stays for a lease when it holds nothing: a late ask of its
// own must find Seq.
type Holder struct {
	Agent, Seq int64
	Permits    int64
	End        int64 // µs: forgotten
	Heard      int64 // µs of its last ask
	Unmet      int64 // permits that the first of its calls lacks
	Since      int64 // µs when that call came
}

// Apply answers a when the authority's clock says so, in µs.
func (h *Holders) Apply(r *Rule, clock int64, a *Ask) Grant {
	now := ownTime(clock, h.At, &h.Ahead)
	if !h.Known {
		h.Known, h.At = true, now
	}
	if a.Reset {
		h.All, h.Epoch = nil, max(now, h.Epoch+1)
	}
	h.All = slices.DeleteFunc(h.All, func(o Holder) bool { return o.End <= now })
	void := !a.Reset && a.Keep > 0 && a.Epoch < h.Epoch
	kept := a.Keep
	if void || a.Reset {
		kept = 0
	}
	h.Epoch = max(h.Epoch, a.Epoch)
	s := State{N: 1, At: h.At, Demand: h.Demand, Hosts: h.Hosts, Granted: h.Granted}
	s.estimate(now, a)
	g := Grant{Epoch: h.Epoch, Void: void, Life: holdersLease / 1e6}
	if own := h.own(a); own.Seq < a.Seq {
		h.grant(r, now, a, &s, own, kept, &g)
	} else {
		g.Void, g.Scarce = true, true
	}
	h.At, h.Demand, h.Hosts, h.Granted = now, s.Demand, s.Hosts, s.Granted
	g.Hosts, g.Granted = s.Hosts, s.Granted
	g.Others = h.others(a) >= 1
	g.Outlook.Free = float64(r.Limits[0].Count - h.others(a) - h.own(a).Permits)
	g.Outlook.Want = float64(max(1, a.Need))
	return g
}

func (h *Holders) grant(r *Rule, now int64, a *Ask, s *State, own *Holder, kept int64, g *Grant) {
	since := now - int64(a.Waited*1e6)
	before := h.before(own, now, since)
	free := r.Limits[0].Count - h.others(a) - kept - before
	if free < 0 || before > 0 {
		g.Life = 0
	}
	s.share(r, a, float64(free), kept, g)
	own.Seq, own.Permits, own.Heard = a.Seq, kept+g.Permits, now
	own.End = now + own.life(r, a)
	own.Since, own.Unmet = since, a.Need
	if g.Permits >= a.Need {
		own.Unmet = 0
	}
}

// before returns the permits that calls of other hosts wait for since before.
func (h *Holders) before(own *Holder, now, since int64) (permits int64) {
	for _, o := range h.All {
		if o.Unmet > 0 && o.Since < since && now-o.Heard < turnLasts && o.Agent != own.Agent {
			permits += o.Unmet
		}
	}
	return permits
}

// own returns the entry of the agent that asks.
func (h *Holders) own(a *Ask) *Holder {
	i := slices.IndexFunc(h.All, func(o Holder) bool { return o.Agent == a.Agent })
	if i < 0 {
		i = len(h.All)
		h.All = append(h.All, Holder{Agent: a.Agent})
	}
	return &h.All[i]
}

func (h *Holders) others(a *Ask) (permits int64) {
	for _, o := range h.All {
		if o.Agent != a.Agent {
			permits += o.Permits
		}
	}
	return permits
}

// life returns the microseconds after which nobody can hold what the agent has: a
// permit may change hands there until the lease ends. Those in use may be held for
// longer than the rule says now.
func (o *Holder) life(r *Rule, a *Ask) int64 {
	if o.Permits == 0 {
		return LeaseLife
	}
	return LeaseLife + max(r.Limits[0].Period.Microseconds(), int64(a.Holding*1e6))
}
