// The judgement judged: notes made up, with figures that are known.

package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func at(policy string, asked, answered time.Duration, change ...func(*note)) note {
	n := note{policy: policy, key: "a", asked: asked, answered: answered, allowed: true}
	for _, c := range change {
		c(&n)
	}
	return n
}

func denied(n *note)   { n.allowed = false }
func degraded(n *note) { n.degraded = true }

const s = time.Second

func TestExcess(t *testing.T) {
	for name, c := range map[string]struct {
		uses []note
		want float64
	}{
		"as many as there are":                 {[]note{at(strict, 0, 0), at(strict, 0, 0), at(strict, s, s)}, 0},
		"one more":                             {[]note{at(strict, 0, 0), at(strict, 0, 0), at(strict, 0, 0)}, 1},
		"one more, half of it refilled":        {[]note{at(strict, 0, 0), at(strict, 0, 0), at(strict, s/2, s/2)}, 0.5},
		"perhaps in time":                      {[]note{at(strict, 0, s), at(strict, 0, s), at(strict, 0, s)}, 0},
		"late in the run":                      {[]note{at(strict, 9*s, 9*s), at(strict, 9*s, 9*s), at(strict, 9*s, 9*s)}, 1},
		"one about which nothing can be known": {[]note{at(strict, 0, 9*s), at(strict, 9*s, 9*s), at(strict, 9*s, 9*s)}, 0},
	} {
		if got := excess(c.uses, 2, 1); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestLate(t *testing.T) {
	slow := at(calm, s, s+100*time.Millisecond)
	other := func(n *note) { n.host = 1 }
	for name, c := range map[string]struct {
		beside note
		late   int
	}{
		"nothing beside it":                {at(control, 0, 0, denied), 1},
		"the machine stood still":          {at(control, s, s+20*time.Millisecond, denied), 0},
		"not for long enough":              {at(control, s, s+19*time.Millisecond, denied), 1},
		"at another time":                  {at(control, 2*s, 2*s+90*time.Millisecond, denied), 1},
		"for another agent's callers only": {at(control, s, s+90*time.Millisecond, denied, other), 1},
	} {
		f := judge([]note{slow, c.beside}, 0)
		if f.past != 1 || f.late != c.late || f.longest != 100*time.Millisecond || f.calls != 1 {
			t.Errorf("%s: %+v, want %d late", name, f, c.late)
		}
	}
}

func TestRecovery(t *testing.T) {
	failed := func(n *note) { n.err = errors.New("refused") }
	for name, c := range map[string]struct {
		notes []note
		want  time.Duration
	}{
		"before the first call":  {[]note{at(calm, 0, 0, degraded), at(calm, 2*s, 2*s)}, 0},
		"after two calls":        {[]note{at(calm, 2*s, 2*s, degraded), at(calm, 3*s, 3*s, failed), at(calm, 4*s, 4*s)}, 3 * s},
		"a relapse":              {[]note{at(calm, 2*s, 2*s), at(calm, 3*s, 3*s, degraded)}, 0},
		"never":                  {[]note{at(calm, 2*s, 2*s, degraded), at(calm, 3*s, 3*s, degraded)}, 2 * s},
		"of another policy":      {[]note{at(shared, 2*s, 2*s, degraded)}, 0},
		"before it could be had": {[]note{at(calm, s/2, 2*s, degraded), at(calm, 2*s, 2*s)}, 0},
	} {
		if got := recovery(c.notes, s); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestCounts(t *testing.T) {
	f := judge([]note{
		at(calm, 0, 0), at(calm, 0, 0, denied), at(calm, 0, 0, degraded), at(strict, 0, 0, denied), at(shared, 0, 4*s),
		at(calm, 0, 0, func(n *note) { n.allowed, n.err = false, errors.New("refused") }),
	}, 0)
	if f.calls != 6 || f.wrongDenials != 1 || f.degraded != 1 || f.unavailable != 1 || f.shareUsed != 1./(5*hotLimit) {
		t.Errorf("%+v", f)
	}
	half := noticed([]note{at(calm, s, s, degraded), at(calm, s, s), at(calm, 0, 0, degraded)}, s, func(string) bool { return true })
	if half != 0.5 {
		t.Errorf("noticed %v, want a half", half)
	}
}

func TestInsert(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a\n" + beginMark + "old\n" + endMark + "b\n")
	if err := insert(file, "new\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if want := "a\n" + beginMark + "new\n" + endMark + "b\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	write("no marks")
	if err := insert(file, "new\n"); err == nil {
		t.Error("a page without marks was written to")
	}
}
