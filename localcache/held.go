// held is the permits of a concurrency limit that callers of this host hold.

package localcache

import (
	"time"

	"rlsidecar/internal/bucket"
)

// held is the part of a bucket that only concurrency limits have. The lease's
// permits are those granted that nobody holds: released permits go back to them as
// long as the lease lives, and are told to the authority with the next ask.
type held struct {
	inUse int64
	until time.Duration // the last of them must be given up
	told  int64         // what the authority thinks this host has, -1: unknown
	seq   int64         // of the last ask
	reset int64         // grows when all permits are void
}

// Held names a permit that is held, for Release.
type Held struct {
	cost, reset int64
}

func (b *Bucket) concurrent() bool { return b.Rule.Algorithm == bucket.Concurrency }

// hold counts cost permits as held from now.
func (b *Bucket) hold(now time.Duration, cost int64) {
	if b.concurrent() {
		b.held.inUse += cost
		b.held.until = max(b.held.until, now+b.Rule.Limits[0].Period)
	}
}

// Holding returns the name of a permit of cost that was taken just now.
func (b *Bucket) Holding(cost int64) Held { return Held{cost, b.held.reset} }

// Release gives up a permit, and reports whether it was still held.
func (b *Bucket) Release(now time.Duration, h Held) bool {
	if h.reset != b.held.reset {
		return false
	}
	if b.held.inUse -= h.cost; b.held.inUse == 0 {
		b.held.until = 0
	}
	if b.held.seq == 0 { // there is nobody to tell
		return true
	}
	tell := now + b.patience(now)
	if now < b.end && b.permits+b.held.inUse+h.cost <= b.held.told {
		b.permits += h.cost
	} else { // it is others' turn
		tell = max(now+time.Microsecond, b.lastAsk+seconds(b.interval))
	}
	if b.Idle == 0 || tell < b.Idle {
		b.Idle = tell
	}
	return true
}

// mistaken reports that the authority thinks this host has permits that it has not.
func (b *Bucket) mistaken() bool {
	return b.concurrent() && b.held.seq > 0 && b.held.told != b.held.inUse+b.permits
}

// tell puts into a what this host has, in place of a lease.
func (b *Bucket) tell(now time.Duration, a *bucket.Ask) {
	h := &b.held
	a.Recorded, a.Slot = 0, 0
	a.InUse = h.inUse
	a.Keep += h.inUse
	if h.inUse > 0 {
		a.Holding = max(0, h.until-now).Seconds()
	}
	h.seq = max(h.seq+1, now.Microseconds())
	a.Agent, a.Seq = b.shard.agent, h.seq
	h.told = -1
}

// heard takes in the answer to a. What was released meanwhile is there for others.
func (b *Bucket) heard(a *bucket.Ask, g *bucket.Grant) {
	b.recorded = 0
	kept := a.Keep
	if g.Void || a.Reset {
		b.held.forget()
		kept = 0
	}
	b.held.told = kept + g.Permits
	b.permits = max(0, b.held.told-b.held.inUse)
}

// forget makes every permit void.
func (h *held) forget() { h.inUse, h.until, h.reset = 0, 0, h.reset+1 }
