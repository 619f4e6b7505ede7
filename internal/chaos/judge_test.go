// What the notes of a scenario say: the figures of the table.

package chaos

import (
	"cmp"
	"slices"
	"time"
)

// lateAfter is when a call is late. A call may have been kept by the machine rather
// than by the agent, so twice what the longest control call beside it took is granted:
// one that waits for Redis needs the processor twice as often.
const lateAfter = redisTimeout + 10*time.Millisecond

type figures struct {
	calls, unavailable   int // control left out, as in all that follows but machine
	longest              time.Duration
	machine              time.Duration // the longest control call
	past                 int           // calls past lateAfter
	late                 int           // of them, those that the machine does not explain
	wrongDenials         int
	degraded             int
	excess, sharedExcess float64 // permits of strict and of shared above the bound, for certain
	shareUsed            float64 // permits admitted of shared, as a part of what there was
	recovered            time.Duration
}

// judge reads the notes of a scenario whose fault was over at healed.
func judge(notes []note, healed time.Duration) figures {
	var f figures
	machine := controls(notes)
	used := map[string][]note{}
	for i := range notes {
		n := &notes[i]
		if n.policy == control {
			f.machine = max(f.machine, n.took())
			continue
		}
		f.calls++
		f.count(n, machine)
		if n.allowed {
			used[n.policy] = append(used[n.policy], *n)
		}
	}
	f.recovered = recovery(notes, healed)
	f.excess = excess(used[strict], hotLimit, hotLimit)
	f.sharedExcess = excess(used[shared], hotLimit, hotLimit)
	f.shareUsed = float64(len(used[shared])) / (hotLimit + hotLimit*ended(notes).Seconds())
	return f
}

func (f *figures) count(n *note, machine map[int][]note) {
	f.longest = max(f.longest, n.took())
	if n.took() > lateAfter {
		f.past++
		if n.took()-2*delay(machine[n.host], n) > lateAfter {
			f.late++
		}
	}
	switch {
	case n.err != nil:
		f.unavailable++
	case n.policy == calm && !n.allowed:
		f.wrongDenials++
	}
	if n.degraded {
		f.degraded++
	}
}

// controls are the control calls by host, in the order of their times.
func controls(notes []note) map[int][]note {
	all := map[int][]note{}
	for _, n := range notes {
		if n.policy == control {
			all[n.host] = append(all[n.host], n)
		}
	}
	for _, c := range all {
		slices.SortFunc(c, func(a, b note) int { return cmp.Compare(a.asked, b.asked) })
	}
	return all
}

// delay is the longest control call that overlaps n.
func delay(machine []note, n *note) (longest time.Duration) {
	for i := range machine {
		c := &machine[i]
		if c.asked > n.answered {
			break
		}
		if c.answered >= n.asked {
			longest = max(longest, c.took())
		}
	}
	return longest
}

// recovery is how long after healed the last of the callers of calm keys got a
// decision that was not made without Redis. A later relapse is no part of it.
func recovery(notes []note, healed time.Duration) (slowest time.Duration) {
	type who struct {
		host int
		key  string
	}
	waiting, recovered := map[who]time.Duration{}, map[who]bool{}
	for i := range notes { // in order for each caller
		n := &notes[i]
		at := who{n.host, n.key}
		if n.policy != calm || n.asked < healed || recovered[at] {
			continue
		}
		if n.degraded || n.err != nil {
			waiting[at] = n.answered - healed
			continue
		}
		recovered[at] = true
		if _, waited := waiting[at]; waited {
			waiting[at] = n.answered - healed
		}
	}
	for _, d := range waiting {
		slowest = max(slowest, d)
	}
	return slowest
}

// noticed is the part of the calls for spared calm keys since the fault that were
// decided without Redis.
func noticed(notes []note, since time.Duration, spared func(key string) bool) float64 {
	calls, degraded := 0, 0
	for i := range notes {
		if n := &notes[i]; n.policy == calm && n.asked >= since && spared(n.key) {
			calls++
			if n.degraded {
				degraded++
			}
		}
	}
	return float64(degraded) / float64(max(1, calls))
}

func ended(notes []note) (last time.Duration) {
	for i := range notes {
		last = max(last, notes[i].answered)
	}
	return last
}

// excess is by how much uses exceed capacity + rate·Δ at worst, over all intervals.
// Each was used between its question and its answer: an interval has for certain
// those that lie in it with both.
func excess(uses []note, capacity, rate float64) (most float64) {
	slices.SortFunc(uses, func(a, b note) int { return cmp.Compare(a.answered, b.answered) })
	for i := range uses {
		from, n := uses[i].asked, 0.0
		for j := range uses {
			if uses[j].asked >= from {
				n++
				most = max(most, n-capacity-rate*(uses[j].answered-from).Seconds())
			}
		}
	}
	return most
}
