// State is the authority's side of a bucket: what remote/lease.lua keeps in
// Redis, as a pure function. The two are twins: a test asks both the same
// questions at the same times and wants the same answers, to the last bit, so
// each line of arithmetic here stands in the script in the same order.

package bucket

import "math"

// The constants of the lease rule, in seconds unless said otherwise.
const (
	LeaseLife    = 2_000_000 // µs an agent may spend a lease, from the moment it sent the ask
	slotWidth    = LeaseLife / 4
	maxHorizon   = 0.5
	spread       = 8   // a host may hold 1/spread of its share of the level
	demandWindow = 0.5 // of the demand and host estimators
	keyCalls     = 2000
)

// State is one bucket as its authority keeps it, of any rule but Concurrency.
//
// The promise: over all hosts, permits used in any interval of length Δ never
// exceed what the rule allows in it, B + r·Δ for a token bucket. With H the
// permits hosts may still use, l the level and o what is outstanding, four
// invariants carry it:
//
//  1. H <= o. A grant raises both; a use lowers H alone; what is given back
//     leaves H when it is sent and o when it arrives; a lease ends at the agent,
//     which counts from the send, before its slot ends here.
//  2. l + o <= B. Refill stops at B-o, a grant moves permits from l to o, a
//     return moves them from o to l, reports and ended slots lower o alone.
//  3. An ask that carries a report runs at most once (remote never sends one
//     twice), and only against the birth of the bucket it belongs to: Epoch.
//  4. Direct permits are used when they are granted; they never enter H or o, and
//     what arrives too late to be used is not kept.
//
// So Φ = l + H stays at most B, only refill raises it, at most at r, and every
// use lowers it by its cost. Crediting returns up to B instead of B-o, the
// obvious design, lets each returned permit be refilled a second time.
//
// The other algorithms keep the promise with the same four:
//
//   - A fixed window refills by being forgotten, so leases end with it: Life says
//     when, and the Epoch of the next window voids their reports.
//   - A log counts o in full besides what is marked as used. A permit that was out
//     is marked when its use is reported, at the time of the lease's last use, or
//     when its slot ends: never before it was used, so every use of the last
//     period is either in o or still marked. Marking it at the grant, the obvious
//     design, lets it fall out of the log up to a lease's life too early.
//   - A sliding window is such a log whose marks are rounded down to a part: what
//     it promises in full is a period less one part.
type State struct {
	N           int     // limits in Gauge; 0: nobody has asked yet
	At          int64   // µs of the bucket's own time (see ownTime) when it was last asked
	Ahead       int64   // µs that this is ahead of the authority's clock
	Epoch       int64   // when this bucket, or its window, was born, µs
	Outstanding int64   // permits that hosts may still use
	Demand      float64 // permits asked for per second, all hosts
	Hosts       float64 // hosts that keep asking
	Granted     float64 // permits granted less those given back, since the last reset
	Gauge       Gauge
	Slots       []Slot // by End; at most 5
}

// Slot is the part of what is outstanding whose leases end together.
type Slot struct {
	End     int64 // in slotWidths since the epoch of the clock
	Permits int64
}

// Ask is one agent's question about one bucket. The zero Ask only looks.
type Ask struct {
	Reset  bool  // start afresh first
	Debit  int64 // permits admitted without the authority, to be paid now
	Refund int64 // permits callers gave back

	Epoch, Slot, Recorded int64 // the lease as this agent last had it recorded
	Keep, Return          int64 // what is left of it: kept, given back

	Queued int64 // cost of all waiting calls
	Need   int64 // permits the first of them lacks
	Unit   int64 // their common cost; 0 when they differ

	Lease   bool    // more than the queue needs may be granted
	Rate    float64 // demand seen by this agent, permits/s, a lower bound
	Seen    float64 // permits it was asked for lately
	Lead    float64 // s before a lease runs dry that a new one is asked for
	Arrived float64 // permits demanded since this agent's last ask
	Since   float64 // s since then
	Age     float64 // s since the lease was last used

	Paced    bool    // LeakyBucket: the calls wait their turn to leave
	Patience float64 // s they may wait

	Agent, Seq int64   // Concurrency: who asks, and a number that grows with each of its asks
	InUse      int64   // of Keep, those that callers hold
	Holding    float64 // s until the last of these must have been given up
	Waited     float64 // s that the first of the waiting calls has waited
}

// bare reports that the agent has nothing left of a lease.
func (a *Ask) bare() bool { return a.Keep == a.InUse && a.Return == 0 }

// Grant answers an Ask.
type Grant struct {
	Permits int64 // Direct included
	Direct  int64 // of these, only for the calls that waited: not part of the lease
	Epoch   int64
	Slot    int64 // where the lease is recorded; 0: there is none

	Void     bool    // the lease reported is unknown: drop what was kept of it
	Scarce   bool    // not all the queue needs was there
	Others   bool    // permits are outstanding, and may come back sooner than refill
	Horizon  float64 // s of its demand this agent may hold
	Interval float64 // s to leave between two asks while scarce
	Hosts    float64
	Granted  float64
	Life     float64 // s the lease may be used, from the moment the ask was sent
	Delay    float64 // s until the first of the paced calls leaves, from now
	Outlook  Outlook // in µs before and after the grant
}

// Apply answers a when the authority's clock says so, in µs. The clock may have
// stepped back.
func (s *State) Apply(r *Rule, clock int64, a *Ask) Grant {
	if r.Refill() == windowed && clock >= s.At {
		s.Ahead = 0 // windows are by the clock again, as soon as that repeats nothing
	}
	now := ownTime(clock, s.At, &s.Ahead)
	if s.N == 0 || a.Reset {
		s.begin(r, now)
	}
	s.refill(r, now)
	s.retire(r, now)
	s.settle(r, now, a)
	void := !s.report(r, now, a)
	s.estimate(now, a)
	return s.grant(r, now, a, void)
}

// ownTime returns the own time of a bucket that was asked at before. It never runs
// backwards, and never stands still: after a step back of the clock it goes on from
// at, as far ahead of the clock as that takes.
func ownTime(clock, at int64, ahead *int64) int64 {
	*ahead = max(*ahead, at-clock)
	return clock + *ahead
}

func (s *State) begin(r *Rule, now int64) {
	*s = State{N: r.N, At: now, Ahead: s.Ahead, Epoch: max(now, s.Epoch+1), Slots: s.Slots[:0]}
	s.Gauge.Fill(r, 1, now)
}

func (s *State) refill(r *Rule, now int64) {
	s.Gauge.Reshape(r, s.N, s.Outstanding)
	s.N = r.N
	if s.Gauge.Refill(r, 1, now, s.Outstanding) {
		s.Epoch, s.Outstanding, s.Slots = max(now, s.Epoch+1), 0, s.Slots[:0]
	}
}

// retire takes ended leases off what is outstanding. What was not used of them is
// lost, since nobody tells: it counts as used when they ended.
func (s *State) retire(r *Rule, now int64) {
	live := s.Slots[:0]
	for _, slot := range s.Slots {
		if slot.End <= now/slotWidth {
			s.Outstanding -= slot.Permits
			s.Gauge.spent(r, now, slot.End*slotWidth, float64(slot.Permits))
		} else {
			live = append(live, slot)
		}
	}
	s.Slots = live
}

func (s *State) settle(r *Rule, now int64, a *Ask) {
	if a.Debit > 0 {
		s.Gauge.pay(r, now, s.Outstanding, float64(a.Debit))
	}
	if a.Refund > 0 {
		s.Gauge.Refund(r, 1, now, float64(a.Refund), s.Outstanding)
	}
}

// report takes the agent's old lease off the books and credits what it gives
// back. It is false when that lease is not on the books.
func (s *State) report(r *Rule, now int64, a *Ask) bool {
	if a.Recorded == 0 {
		return true
	}
	for i := range s.Slots {
		if slot := &s.Slots[i]; slot.End == a.Slot && s.Epoch == a.Epoch && slot.Permits >= a.Recorded {
			slot.Permits -= a.Recorded
			s.Outstanding -= a.Recorded
			s.Gauge.takeBack(r, float64(a.Return))
			s.Gauge.spent(r, now, max(0, now-int64(a.Age*1e6)), float64(a.Recorded-a.Keep-a.Return))
			s.Granted -= float64(a.Return)
			return true
		}
	}
	return false
}

func (s *State) estimate(now int64, a *Ask) {
	w := decay(float64(now-s.At) / 1e6 / demandWindow)
	s.Demand = s.Demand*w + a.Arrived/demandWindow
	s.Hosts = s.Hosts*w + min(a.Since, demandWindow)/demandWindow
	s.At = now
}

// decay is close to e^-x, of operations that round alike in every language.
func decay(x float64) float64 {
	y := 1 / (1 + x/256)
	for range 8 {
		y *= y
	}
	return y
}

func (s *State) grant(r *Rule, now int64, a *Ask, void bool) Grant {
	kept := a.Keep
	if void {
		kept = 0
	}
	level := s.Gauge.Free(r, 1, now, s.Outstanding+kept)
	g := Grant{Epoch: s.Epoch, Void: void, Life: LeaseLife / 1e6}
	if r.Algorithm == FixedWindow {
		g.Life = float64(s.Gauge.levels.life(r, now)) / 1e6
	}
	if a.Paced {
		g.Delay = float64(s.Gauge.Full(r, 1, now, s.Outstanding+kept)) / 1e6
	}
	served := s.share(r, a, level, kept, &g)
	if a.bare() || a.Paced {
		g.Direct = served
	}
	s.Gauge.Use(r, now, float64(g.Direct))
	s.Gauge.lend(r, float64(g.Permits-g.Direct))
	s.record(now, &g, g.Permits-g.Direct+kept)
	g.Others = s.Outstanding >= 1
	g.Outlook = s.Gauge.look(r, now, s.Outstanding, float64(max(1, a.Need)))
	return g
}

// share decides how many of level permits the agent gets, and returns those that
// are for waiting calls.
func (s *State) share(r *Rule, a *Ask, level float64, kept int64, g *Grant) int64 {
	g.Interval = s.interval(r)
	free := math.Floor(level + slack)
	demand := max(s.Demand, a.Rate, 1e-9)
	served, short := serve(r, free, g.Delay, a)
	g.Horizon = min(maxHorizon, max(g.Interval, (level-served)/(spread*demand)))
	extra := 0.0
	if a.Lease && !short {
		extra = math.Floor(min(math.Floor(a.Rate*min(g.Horizon+a.Lead, g.Life))-float64(max(0, kept-a.InUse)), a.Seen))
		if r.Algorithm == Concurrency { // what is lost with a host is lost for long
			extra = min(extra, math.Floor((free-served)/spread))
		}
	}
	if short || a.Paced {
		extra = 0
	} else {
		extra = max(0, min(max(extra, float64(a.Queued)-served), free-served))
	}
	g.Permits = int64(served + extra)
	ebbs := level/demand < g.Interval && float64(g.Permits) >= free && r.Algorithm != Concurrency
	g.Scarce = short || g.Permits < a.Queued || ebbs
	s.Granted += float64(g.Permits)
	g.Hosts, g.Granted = s.Hosts, s.Granted
	return int64(served)
}

// serve returns how many of the free permits go to the waiting calls: all they
// need, or as many whole calls as fit when they cost the same, or what the first
// one lacks. It is short when not even that is there.
func serve(r *Rule, free, delay float64, a *Ask) (served float64, short bool) {
	least, unit, queued := float64(r.Lack(a.Need)), float64(a.Unit), float64(a.Queued)
	if a.Paced {
		if delay > a.Patience {
			return 0, true
		}
		free = min(free, unit*math.Floor((a.Patience-delay)/(max(unit, 1)*r.Pace()))+float64(a.Need))
	}
	switch {
	case free >= queued:
		return queued, free < least
	case free < least:
		return 0, true
	case a.Unit > 0 && (a.bare() || a.Paced):
		served = math.Floor(free/unit) * unit
		if r.Borrow > 0 && served < queued && free-served >= float64(r.Lack(a.Unit)) {
			served += unit
		}
		return served, false
	}
	return float64(a.Need), false
}

// interval is the least time between two asks of one host for a scarce bucket:
// it bounds what an overloaded key costs the authority, whatever its demand.
func (s *State) interval(r *Rule) float64 {
	fill := r.FillTime()
	if fill < 0.02 {
		return max(0.0005, fill/8)
	}
	m := min(max(fill/50, 0.005), 0.1)
	return max(m, min(s.Hosts/keyCalls, fill/4))
}

func (s *State) record(now int64, g *Grant, permits int64) {
	if permits <= 0 {
		return
	}
	g.Slot = (now+LeaseLife)/slotWidth + 1
	s.Outstanding += permits
	if last := len(s.Slots) - 1; last >= 0 && s.Slots[last].End == g.Slot {
		s.Slots[last].Permits += permits
		return
	}
	s.Slots = append(s.Slots, Slot{g.Slot, permits})
}

// Lack returns how many permits must be there for a call that costs so many: those
// it cannot borrow.
func (r *Rule) Lack(cost int64) int64 { return max(0, cost-r.Borrow) }

// Covers reports whether so many free permits are enough for a call of cost.
func (r *Rule) Covers(free float64, cost int64) bool {
	return cost == 0 || free+slack >= float64(r.Lack(cost))
}

// Pace returns the seconds between two permits that leave a bucket evenly.
func (r *Rule) Pace() float64 {
	pace := 0.0
	for i := range r.N {
		pace = max(pace, float64(r.Limits[i].Period.Microseconds())/(float64(r.Limits[i].Count)*1e6))
	}
	return pace
}

// FillTime returns the seconds in which the fastest limit of the rule fills: B/r. Of
// a Concurrency rule nobody knows it.
func (r *Rule) FillTime() float64 {
	if r.Algorithm == Concurrency {
		return 0.5
	}
	fill := math.Inf(1)
	for _, l := range r.Limits[:r.N] {
		fill = min(fill, float64(l.Burst)*float64(l.Period.Microseconds())/(float64(l.Count)*1e6))
	}
	return fill
}

// Direct reports whether the rule is too small to lease from: every call is then
// asked for by itself.
func (r *Rule) Direct() bool { return r.Capacity() < 10 || r.FillTime() < 0.02 }
