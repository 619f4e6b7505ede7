// Every way to ask, of every algorithm, in every mode.

package limiter

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestEveryAlgorithmIsItsModel makes random calls and compares every number of every
// answer: standalone, asking the authority each time, and cut off from it.
func TestEveryAlgorithmIsItsModel(t *testing.T) {
	for _, mode := range []string{"standalone", "exact", "away"} {
		for _, a := range ten {
			t.Run(a.name+", "+mode, func(t *testing.T) {
				fields := a.fields
				if mode == "exact" {
					fields += ", consistency: exact"
				}
				r := newRigOf(t, mode == "standalone", "  p: {"+fields+"}")
				r.away = mode == "away"
				w := walk{rig: r, m: a.model(), fresh: a.model, exact: mode == "exact", logs: strings.HasPrefix(a.name, "sliding"), rng: rand.New(rand.NewPCG(3, 5))}
				for i := 0; i < 600 && !t.Failed(); i++ {
					w.step()
				}
				if w.denied < 40 || w.allowed < 40 {
					t.Errorf("%d denied and %d allowed: the test tries little", w.denied, w.allowed)
				}
			})
		}
	}
}

// walk is a rig beside a model.
type walk struct {
	*rig
	m               model
	fresh           func() model
	exact, logs     bool
	rng             *rand.Rand
	denied, allowed int
}

// settle lets the asks on their way come back, so that the next one goes at once.
func (w *walk) settle() {
	for len(w.flying) > 0 {
		w.pass(ms)
	}
}

// ask makes a call and returns its answer, and when it was found: the authority
// answers in no time.
func (w *walk) ask(how asker, cost int64) (at int64, d Decision) {
	w.t.Helper()
	ref := w.begin(how, "p", "k", cost, 0)
	d = w.end(ref)
	return w.when[ref].Milliseconds(), d
}

func (w *walk) step() {
	w.t.Helper()
	w.settle()
	cost := []int64{1, 1, 2, 3, 5, 10}[w.rng.IntN(6)]
	call := &Call{Policy: []byte("p"), Key: []byte("k"), Cost: cost}
	switch w.rng.IntN(12) {
	case 0:
		if err := w.l.Refund(w.now, call); err != nil {
			w.t.Fatal(err)
		}
		w.settle()
		w.m.refund(w.now.Milliseconds(), cost)
	case 1:
		if w.rng.IntN(4) == 0 {
			w.reset(call)
		}
	case 2, 3:
		at, d := w.ask(w.l.Peek, cost)
		w.check("peek", at, cost, d)
	default:
		at, d := w.ask(w.l.Acquire, cost)
		w.check("acquire", at, cost, d)
	}
	w.rest(cost)
}

// rest lets time go by: little, some, or until permits come, or nearly.
func (w *walk) rest(cost int64) {
	at := w.now.Milliseconds()
	gap := []time.Duration{2 * ms, 30 * ms, 30 * ms, 100 * ms, 250 * ms, 1100 * ms}[w.rng.IntN(6)]
	if k := until(at, func(at int64) bool { return w.m.covers(at, cost) }); k > 5 && k < 2000 && w.rng.IntN(2) == 0 {
		gap = time.Duration(k-w.rng.Int64N(3)) * ms
	}
	w.pass(gap)
}

func (w *walk) reset(call *Call) {
	w.t.Helper()
	w.ref++
	pending, err := w.l.Reset(w.now, call, w, w.ref)
	if err != nil && !w.away {
		w.t.Fatal(err)
	}
	if pending {
		w.end(w.ref)
	}
	w.m = w.fresh()
}

// check compares the answer to a call with the model, and uses it there.
func (w *walk) check(what string, at, cost int64, d Decision) {
	w.t.Helper()
	k := until(at, func(at int64) bool { return w.m.covers(at, cost) })
	retry := roundUp(d.RetryAfter)
	rationed := w.exact && k > 0 && retry > k && retry <= 101                                              // no ask before
	guessed := w.exact && what == "peek" && w.logs && k > 0 && retry > 0 && retry <= roundUp(d.ResetAfter) // see bucket.Outlook
	if d.Allowed != (k == 0) || retry != k && !rationed && !guessed {
		w.t.Errorf("%s of %d at %d: got %+v, want allowed %v, retry after %d ms", what, cost, at, d, k == 0, k)
	}
	if what == "acquire" && k == 0 {
		w.m.use(at, cost)
		w.allowed++
	} else if what == "acquire" {
		w.denied++
	}
	w.checkLevel(at, d)
}

func (w *walk) checkLevel(at int64, d Decision) {
	w.t.Helper()
	left, full := w.m.left(at), until(at, w.m.full)
	if d.Limit != 10 || d.Remaining != left || roundUp(d.ResetAfter) != full {
		w.t.Errorf("at %d: got %+v, want %d of 10 left, full again in %d ms", at, d, left, full)
	}
}

// roundUp is milliseconds as the wire has them, but for the last microsecond, where
// floating point shows.
func roundUp(d time.Duration) int64 { return int64((d - time.Microsecond + ms - 1) / ms) }
