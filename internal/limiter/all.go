// AcquireAll is all or nothing over several buckets: one after another is taken,
// and what was taken is put back when a later one is denied.

package limiter

import (
	"time"
)

// AcquireAll decides calls together: when one is denied nothing is consumed from
// any. Decisions are in the order of calls; those after the first that was denied
// say what they would have been. Pending as in Acquire.
//
// Not atomic to a watcher: between the taking and the putting back others may be
// denied what was taken.
func (l *Limiter) AcquireAll(now time.Duration, calls []Call, to AllReplier, ref uint32) (allowed bool, ds []Decision, pending bool, err *Error) {
	a := &all{l: l, to: to, ref: ref, decisions: make([]Decision, len(calls)), asks: make([]uint32, len(calls))}
	for _, c := range calls {
		if _, _, err := l.policy(&c); err != nil {
			return false, nil, false, err
		}
		c.Policy, c.Key, c.App = clone(c.Policy), clone(c.Key), clone(c.App)
		a.calls = append(a.calls, c)
	}
	if a.run(now, 0) {
		return a.denied == 0, a.decisions, false, a.err
	}
	return false, nil, true, nil
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

// all is an AcquireAll under way. One call is decided at a time, so nothing here
// is touched by two goroutines at once.
type all struct {
	l         *Limiter
	calls     []Call
	decisions []Decision
	asks      []uint32 // of each call's bucket when it was taken
	denied    int
	err       *Error
	to        AllReplier
	ref       uint32
}

// run decides the calls from i on, and is true when it came to the end; otherwise
// Decided goes on with it.
func (a *all) run(now time.Duration, i int) bool {
	for ; i < len(a.calls) && a.err == nil; i++ {
		c := &a.calls[i]
		ask := a.l.Acquire
		if a.denied > 0 {
			ask = a.l.Peek
		}
		d, pending, err := ask(now, c, a, uint32(i))
		if pending {
			return false
		}
		a.take(i, d, err)
	}
	if a.denied > 0 || a.err != nil {
		a.putBack(now)
	}
	return true
}

func (a *all) take(i int, d Decision, err *Error) {
	if err != nil {
		a.err = err
		a.calls = a.calls[:i]
		return
	}
	a.decisions[i] = d
	if !d.Allowed {
		a.denied++
		return
	}
	a.asks[i] = a.l.asksOf(&a.calls[i])
}

// Decided takes in the answer to call i and goes on.
func (a *all) Decided(i uint32, d Decision, err *Error) {
	now := a.l.Now()
	a.take(int(i), d, err)
	if !a.run(now, int(i)+1) {
		return
	}
	if a.err != nil {
		a.to.AllDecided(a.ref, false, nil, a.err)
		return
	}
	a.to.AllDecided(a.ref, a.denied == 0, a.decisions, nil)
}

func (a *all) Gone() bool { return a.to.Gone() }

func (a *all) putBack(now time.Duration) {
	for i := range a.calls {
		d := &a.decisions[i]
		if !d.Allowed {
			return
		}
		if d.Permit != 0 {
			a.l.Release(now, d.Permit)
			d.Permit = 0
		} else if d.Source != FromList && !d.Shadow {
			a.l.putBack(now, &a.calls[i], a.asks[i])
		}
	}
}
