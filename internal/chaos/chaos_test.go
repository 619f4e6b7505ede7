// Every failure with load running, judged by what the design promises.

package chaos

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	all      = flag.Bool("chaos.all", false, "play every scenario, not only the quick ones")
	only     = flag.String("chaos.only", "", "play the scenarios whose name matches this `pattern`")
	seed     = flag.Uint64("chaos.seed", 1, "`number` that the callers' pace, the lost replies and the moments of the faults follow from")
	markdown = flag.String("chaos.markdown", "", "put the table into this `file`, between its chaos marks")
)

func TestChaos(t *testing.T) {
	pattern, err := regexp.Compile("^(?:" + *only + ")$")
	if err != nil {
		t.Fatal(err)
	}
	var rows []outcome
	for i := range scenarios {
		s := &scenarios[i]
		if *only != "" && !pattern.MatchString(s.name) || *only == "" && !*all && !s.quick {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			o := play(t, s, *seed)
			t.Logf("%s: %s", s.what, o.text())
			o.verdict(t)
			rows = append(rows, o)
		})
	}
	if len(rows) == 0 {
		t.Fatalf("no scenario is named %q", *only)
	}
	fmt.Print(table(rows))
	if *markdown != "" {
		if err := insert(*markdown, table(rows)); err != nil {
			t.Error(err)
		}
	}
}

// verdict fails the test where a promise was broken.
func (o *outcome) verdict(t *testing.T) {
	t.Helper()
	if o.late > 0 {
		t.Errorf("%d calls were answered late, the longest after %v", o.late, o.longest)
	}
	if o.wrongDenials > 0 && !o.scenario.denials {
		t.Errorf("%d calls of a key far below its limit were denied", o.wrongDenials)
	}
	if o.excess > o.allowed {
		t.Errorf("%.1f permits above the bound, %.0f can be explained by lost writes", o.excess, o.allowed)
	}
	if o.recovered > recoveryTime {
		t.Errorf("decisions were made without Redis until %v after the fault was over, want %v", o.recovered, recoveryTime)
	}
	if most := connectionsOnce + connectionsPerSecond*(o.faultTook+after).Seconds(); o.connections > most {
		t.Errorf("an agent opened %.0f connections, want at most %.0f", o.connections, most)
	}
	if o.sparedNoticed > 0.1 { // a busy machine, too, makes an agent give Redis up for a moment
		t.Errorf("%.0f %% of the decisions for keys of healthy masters were made without Redis", 100*o.sparedNoticed)
	}
	if o.unavailable > 0 && o.scenario.name != "agent-killed" {
		t.Errorf("%d calls failed", o.unavailable)
	}
	if o.scenario.what == "none" && o.shareUsed < 0.9 {
		t.Errorf("without a fault %.0f %% of the permits were used, want 90 %%", 100*o.shareUsed)
	}
}

const (
	recoveryTime         = 2 * time.Second
	connectionsOnce      = 40 // all pools anew, to each of six nodes
	connectionsPerSecond = 20 // of trying again
)

func (o *outcome) text() string {
	return fmt.Sprintf("%d calls, longest %v (control %v), %d past %v, late %d, wrong denials %d, without Redis %d, unavailable %d, excess %.1f of %.0f allowed (shared %.1f), shared used %.0f %%, recovered in %v, %.1f connections per agent, %.0f permits lost, spared keys without Redis %.1f %%",
		o.calls, ms(o.longest), ms(o.controlLast), o.past, lateAfter, o.late, o.wrongDenials, o.degraded, o.unavailable,
		o.excess, o.allowed, o.sharedExcess, 100*o.shareUsed, ms(o.recovered), o.connections, o.leasesLost, 100*o.sparedNoticed)
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

const head = `| failure | Redis | longest call, ms | late | wrong denials | above the bound (may be) | without Redis, %% of calls | recovered after, ms | connections per agent | permits of leases lost |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|
`

func table(rows []outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, head)
	for _, o := range rows {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %.0f (%.0f) | %.1f | %d | %.0f | %.0f |\n", o.scenario.what, o.scenario.on,
			o.longest.Milliseconds(), o.late, o.wrongDenials, o.excess, o.allowed, 100*float64(o.degraded)/float64(o.calls),
			o.recovered.Milliseconds(), o.connections, o.leasesLost)
	}
	return b.String()
}

const (
	beginMark = "<!-- chaos: written by scripts/chaos -->\n"
	endMark   = "<!-- /chaos -->\n"
)

// insert replaces what is between the marks of a file.
func insert(file, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(page), beginMark)
	_, behind, ended := strings.Cut(rest, endMark)
	if !begun || !ended {
		return fmt.Errorf("%s: the table goes between the lines %q and %q, which are not there", file, beginMark, endMark)
	}
	return os.WriteFile(file, []byte(before+beginMark+text+endMark+behind), 0o644)
}
