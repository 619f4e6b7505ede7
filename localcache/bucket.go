// Bucket is what this host knows of one bucket: the agent's half of the lease
// rule. The authority's half is bucket.State.

package localcache

import (
	"math"
	"time"

	"rlsidecar/internal/bucket"
)

// The constants of the agent's half, beside those of bucket.State.
const (
	leaseLife   = bucket.LeaseLife * time.Microsecond
	trustAlone  = leaseLife
	trustOthers = 250 * time.Millisecond
	busyFill    = 0.25 // s of refill in the smallest bucket that denies without asking
	shareWindow = 30   // s
)

// Bucket is one bucket on this host. All methods require its shard to be locked.
//
// What keeps the promise of bucket.State on this side:
//
//  1. A lease is spent only before end, which counts from the moment its ask was
//     built: before the authority's clock started on it.
//  2. What an ask gives back has left permits when the ask is built.
//  3. A lease is reported once. When the outcome of an ask is unknown the lease
//     becomes an orphan: it may be spent to its old end, since whether the ask ran
//     or not the authority counts it as outstanding until then, and is never
//     reported again.
//  4. Direct permits serve the calls that waited for them, at once; those left
//     over pay what was admitted without the authority, or are dropped.
//
// The design not taken sends each spent permit in the background, after the fact:
// it needs no lease, and admits up to one report interval of every host too much.
type Bucket struct {
	Key     Key
	Rule    *bucket.Rule
	Home    uint16        // which part of the authority keeps it
	Evicted bool          // the cache has forgotten it: whoever still holds it gives its lease back
	Asking  bool          // an ask is on its way
	Alarm   time.Duration // when somebody wakes for it; 0: nobody does
	Idle    time.Duration // when what is left of the lease is looked at again; 0: no lease
	NextAsk time.Duration // no background ask before
	Cut     time.Duration // no ask at all before: the authority refuses this bucket
	Waiting any           // the calls that wait for it, kept here by the limiter

	shard *Shard
	lease
	scarce   bool
	others   bool  // permits are out on other hosts
	denied   int64 // while scarce: the smallest cost refused; 0: none was
	demand   demand
	arrived  float64       // permits demanded since lastAsk
	lastAsk  time.Duration // 0: never
	refund   int64         // given back by callers, not yet reported
	debit    int64         // admitted without the authority, not yet reported
	horizon  float64       // s
	interval float64       // s
	outlook  bucket.Outlook
	known    time.Duration // when the ask was built that outlook answers; 0: never
	share    share
	local    *local
	held     held
}

// lease is what this host holds. The zero lease is none.
type lease struct {
	permits     int64 // that may be spent
	recorded    int64 // the authority counts so many as outstanding in slot
	epoch, slot int64
	end         time.Duration
	used        time.Duration // when permits were last spent of it
	orphan      bool
	asks        uint32 // changes whenever the lease is reported
}

// Shard returns the shard whose lock guards b.
func (b *Bucket) Shard() *Shard { return b.shard }

// Adopt makes b follow rule. Under a changed rule a denial no longer holds, and
// the local limits are cut to it; the lease stands, since its permits are counted.
func (b *Bucket) Adopt(rule *bucket.Rule) {
	had := b.Rule
	b.Rule = rule
	if had == nil || had == rule || *had == *rule {
		return
	}
	b.forgetDenial()
	b.known = 0
	switch {
	case !had.Kin(rule): // another bucket
		b.drop(b.permits)
		b.lease, b.local = lease{asks: b.asks + 1}, nil
		b.held.forget()
	case b.local != nil:
		b.local.gauge.Reshape(rule, had.N, 0)
	}
}

func (b *Bucket) forgetDenial() { b.scarce, b.denied, b.NextAsk = false, 0, 0 }

// Observe counts a call of cost as demand.
func (b *Bucket) Observe(now time.Duration, cost int64) {
	b.demand.observe(now, cost)
	b.arrived += float64(cost)
}

// Take spends cost permits of the lease, or nothing when it has fewer.
func (b *Bucket) Take(now time.Duration, cost int64) bool {
	b.expire(now)
	if b.permits < cost {
		return false
	}
	b.permits -= cost
	b.used = now
	b.hold(now, cost)
	b.shard.counts.Spent += uint64(cost)
	return true
}

// PutBack returns permits taken at asks to the lease. It is false, and they are a
// refund, when the lease was reported since, has ended, or would hold more than is
// recorded of it: direct permits never were part of it.
func (b *Bucket) PutBack(now time.Duration, cost int64, asks uint32) bool {
	b.expire(now)
	if b.asks != asks || b.permits+cost > b.recorded || now >= b.end {
		return false
	}
	b.permits += cost
	b.shard.counts.Spent -= uint64(cost)
	return true
}

// Asks identifies the lease for PutBack.
func (b *Bucket) Asks() uint32 { return b.asks }

// Permits returns what is left of the lease.
func (b *Bucket) Permits(now time.Duration) int64 {
	b.expire(now)
	return b.permits
}

func (b *Bucket) expire(now time.Duration) {
	if b.permits > 0 && now >= b.end {
		b.drop(b.permits)
	}
}

// drop lets permits go unused.
func (b *Bucket) drop(permits int64) {
	b.permits -= permits
	b.shard.counts.Expired += uint64(permits)
}

// Low reports that the lease will be spent within lead at the demand there is: time
// to ask in the background.
func (b *Bucket) Low(now, lead time.Duration) bool {
	rate := float64(b.demand.rate)
	return !b.Asking && now >= b.NextAsk && float64(b.permits) < 1+rate*lead.Seconds() && rate*b.horizon >= 1
}

// Denied reports whether what the authority last said denies cost now: it had too
// little for this cost and is not to be asked yet, or refill cannot have brought
// enough. A denial is trusted for the life of a lease at most, and less while
// other hosts hold permits that they may give back.
func (b *Bucket) Denied(now time.Duration, cost int64) bool {
	if !b.scarce || b.known == 0 {
		return false
	}
	if now < b.NextAsk && b.refuses(cost) {
		return true
	}
	return b.Lacks(now, cost)
}

// refuses reports that the authority had too little for cost, or nothing left, which
// is enough for a call that may borrow.
func (b *Bucket) refuses(cost int64) bool {
	return b.scarce && cost >= b.denied && (b.denied > 0 || b.Rule.Borrow == 0)
}

// Lacks is the part of Denied that is arithmetic: refill cannot have brought enough.
func (b *Bucket) Lacks(now time.Duration, cost int64) bool {
	trust := trustAlone
	if b.others {
		trust = trustOthers
	}
	return b.known > 0 && now < b.known+trust && b.outlook.Lacks(b.Rule, now.Microseconds(), b.lack(cost))
}

// lack returns the permits that the authority must have for a call of cost.
func (b *Bucket) lack(cost int64) float64 { return float64(b.Rule.Lack(cost - b.permits)) }

// Covers reports whether the lease, and what the authority was last known to
// have, cover cost.
func (b *Bucket) Covers(now time.Duration, cost int64) bool {
	if b.Permits(now) >= cost {
		return true
	}
	return b.known > 0 && b.outlook.Wait(b.Rule, now.Microseconds(), b.lack(cost)) == 0
}

// Busy reports that calls of this cost come so fast for so little that one more
// is denied rather than held: the next ask goes in the background.
func (b *Bucket) Busy(now time.Duration, cost int64) bool {
	refilled := now >= b.NextAsk+seconds(b.interval) && b.Covers(now, cost)
	return b.refuses(cost) && !refilled && float64(b.demand.rate)*b.interval >= 1 &&
		!b.Rule.Direct() && b.Rule.FillTime() >= busyFill
}

// Scarce reports that the authority last had less than was wanted.
func (b *Bucket) Scarce() bool { return b.scarce }

// Refuse remembers that a call of cost was denied by the last answer.
func (b *Bucket) Refuse(cost int64) {
	if b.denied == 0 || cost < b.denied {
		b.denied = cost
	}
}

// Remaining returns the permits left for this host as far as it knows, and the
// time until the bucket is full again: of a concurrency limit, until the last permit
// held here must end.
func (b *Bucket) Remaining(now time.Duration) (int64, time.Duration) {
	capacity, left := b.Rule.Capacity(), b.permits
	full := max(0, b.held.until-now)
	if b.known > 0 {
		left += b.outlook.Left(b.Rule, now.Microseconds())
	}
	if b.known > 0 && !b.concurrent() {
		full = time.Duration(b.outlook.FullIn(b.Rule, now.Microseconds(), b.permits)) * time.Microsecond
	}
	return min(left, capacity), full
}

// Wait returns how long until a call of cost could be allowed on this host, behind
// others that cost ahead.
func (b *Bucket) Wait(now time.Duration, ahead, cost int64) time.Duration {
	if b.known == 0 {
		return 0
	}
	wait := time.Duration(b.outlook.Wait(b.Rule, now.Microseconds(), float64(ahead)+b.lack(cost))) * time.Microsecond
	if b.others { // what they do not use comes back by then
		wait = min(wait, b.known+leaseLife-now)
	}
	return max(wait, b.NextAsk-now, time.Millisecond)
}

// Refund takes permits back from a caller: they go to the authority with the next
// ask, and no denial is remembered past them.
func (b *Bucket) Refund(cost int64) {
	capacity := b.Rule.Capacity()
	b.refund = min(b.refund+min(cost, capacity), capacity)
	b.forgetDenial()
}

// Refunding reports that a refund has not been told yet.
func (b *Bucket) Refunding() bool { return b.refund > 0 }

// Owes reports that the authority has something to be told or given back.
func (b *Bucket) Owes(now time.Duration) bool {
	return b.refund > 0 || b.debit > 0 || b.mistaken() || b.concurrent() && b.permits > 0 ||
		b.recorded > 0 && !b.orphan && now < b.end
}

// Returns reports that the authority should hear of the lease before it ends: what
// is left of it, or, where uses count from their report on, that it is spent.
func (b *Bucket) Returns(now time.Duration) bool {
	return b.Permits(now) > 0 || b.mistaken() || !b.Rule.Levelled() && b.Owes(now)
}

// blank reports that b tells nothing that a new bucket would not.
func (b *Bucket) blank(now time.Duration) bool {
	if b.Asking || b.Waiting != nil || b.Permits(now) > 0 || b.Owes(now) || b.held.inUse > 0 {
		return false
	}
	if b.known > 0 && (now < b.known+trustAlone || b.share.total > 0 && now < b.share.at+shareWindow*time.Second) {
		return false
	}
	return b.local == nil || b.local.full(b.Rule, now)
}

// Want is what an ask is for. The zero Want only reports.
type Want struct {
	Lead                time.Duration // before a lease runs dry that the next is asked for
	Queued, First, Unit int64         // cost of all waiting calls, of the first, their common cost or 0
	Hint                int64         // cost of a call that was denied rather than queued
	Lease               bool          // more than they need may be taken
	Waited              time.Duration // the first of them has
	Paced               bool          // they wait their turn to leave
	Patience            time.Duration // of the least patient, when paced
	Quit                bool          // keep nothing
	Reset               bool
}

// Ask builds the ask for what is wanted, gives back what the host does not expect
// to use, and marks b as asking. An orphaned lease ends here.
func (b *Bucket) Ask(now time.Duration, w Want) bucket.Ask {
	b.expire(now)
	b.demand.fold(now)
	if b.orphan {
		b.drop(b.permits)
		b.lease = lease{asks: b.asks}
	}
	rate := b.rateNow(now)
	keep := int64(0)
	if !w.Quit && !w.Reset && !(b.concurrent() && b.Rule.Direct()) {
		keep = min(b.permits, int64(2*rate*(b.horizon+w.Lead.Seconds())))
	}
	a := bucket.Ask{
		Reset: w.Reset, Refund: b.refund, Debit: b.owed(now),
		Epoch: b.epoch, Slot: b.slot, Recorded: b.recorded, Keep: keep, Return: b.permits - keep,
		Queued: w.Queued, Unit: w.Unit, Need: w.Hint,
		Lease: w.Lease && b.permits == keep && !b.Rule.Direct(),
		Rate:  rate, Seen: float64(b.demand.cost), Lead: w.Lead.Seconds(), Arrived: b.arrived,
		Paced: w.Paced, Patience: w.Patience.Seconds(),
	}
	b.permits = keep
	switch {
	case w.Queued > 0 && w.Paced:
		a.Need = w.First
	case w.Queued > 0:
		a.Need = max(0, w.First-keep)
	}
	b.since(now, &a)
	if b.concurrent() {
		a.Waited = w.Waited.Seconds()
		b.tell(now, &a)
	}
	b.arrived, b.refund, b.debit, b.lastAsk, b.Asking, b.Idle = 0, 0, 0, now, true, 0
	b.asks++
	return a
}

// since puts the times into a that count from something past.
func (b *Bucket) since(now time.Duration, a *bucket.Ask) {
	if b.lastAsk > 0 {
		a.Since = (now - b.lastAsk).Seconds()
	}
	if b.used > 0 {
		a.Age = (now - b.used).Seconds()
	}
}

// rateNow is the demand, less what a host that went quiet no longer has.
func (b *Bucket) rateNow(now time.Duration) float64 {
	rate := float64(b.demand.rate)
	if dt := (now - b.lastAsk).Seconds(); b.lastAsk > 0 && dt >= 0.02 {
		rate = min(rate, (b.arrived+2*math.Sqrt(b.arrived)+1)/dt)
	}
	return rate
}

// Granted takes in the answer to the ask a, built at sent. Its direct permits are
// there to Take until Settle. jitter, 0..1, spreads the next asks of many hosts.
func (b *Bucket) Granted(sent, now time.Duration, q *bucket.Question, g *bucket.Grant, jitter float64) {
	a := &q.Ask
	b.Asking, b.local = false, nil
	if !q.Rule.Kin(b.Rule) { // permits of another bucket
		return
	}
	returned := a.Return
	b.recorded = a.Keep + g.Permits - g.Direct
	if g.Void {
		b.drop(b.permits)
		b.shard.counts.Expired += uint64(returned)
		b.recorded, returned = g.Permits-g.Direct, 0
	}
	b.permits += g.Permits
	if b.concurrent() {
		b.heard(a, g)
	}
	born := b.epoch != g.Epoch
	b.epoch, b.slot, b.end = g.Epoch, g.Slot, sent+min(leaseLife, seconds(g.Life))
	if b.concurrent() { // what was granted serves those who waited for it, whatever its life
		b.end = max(b.end, now+1)
	}
	b.remember(sent, g)
	b.share.granted(now, float64(g.Permits-returned), g.Granted, g.Hosts, born)
	b.shard.counts.Granted += uint64(g.Permits)
	b.shard.counts.Returned += uint64(returned)

	b.scarce, b.denied, b.NextAsk = g.Scarce, 0, 0
	if b.Rule.Direct() { // nothing to ration: only what was refused is scarce
		b.scarce = g.Permits < max(a.Queued, min(a.Need, 1))
	}
	if b.scarce {
		b.NextAsk = now + seconds(g.Interval*(0.75+0.5*jitter))
	}
	if b.Returns(now) {
		b.Idle = now + b.patience(now)
	}
	if *q.Rule != *b.Rule {
		b.known = 0
		b.forgetDenial()
	}
}

// patience is how long permits lie ready for the next caller here before others get
// them, in any case before the lease ends. Those that somebody released are no sign
// of demand.
func (b *Bucket) patience(now time.Duration) time.Duration {
	if b.concurrent() && b.Rule.Direct() {
		return time.Microsecond
	}
	return max(time.Microsecond, min(seconds(2*b.horizon)+20*time.Millisecond, (b.end-now)*4/5))
}

func (b *Bucket) remember(sent time.Duration, g *bucket.Grant) {
	b.horizon, b.interval, b.others = g.Horizon, g.Interval, g.Others
	b.outlook, b.known = g.Outlook, sent
	b.outlook.Shift(sent.Microseconds())
}

// Settle ends the use of direct permits, of which so many are left: they pay what
// was admitted locally for calls that could not wait, or are dropped.
func (b *Bucket) Settle(left int64) {
	if left = min(left, b.permits); left > 0 {
		b.drop(left)
		b.debit -= min(left, b.debit)
	}
}

// Lost takes in that the outcome of the ask a is unknown. What it said is not
// reported again, debit included: it may have been paid.
func (b *Bucket) Lost(a *bucket.Ask) {
	b.Asking, b.orphan = false, !b.concurrent() // what is held is told again
	b.shard.counts.Expired += uint64(a.Return)
}

// Refused takes in that the ask a did not run: all it reported is still so.
func (b *Bucket) Refused(a *bucket.Ask) {
	b.Asking = false
	b.permits += a.Return
	b.refund += a.Refund
	b.debit += a.Debit
	b.arrived += a.Arrived
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
