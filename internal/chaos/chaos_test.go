// Every failure with load running, judged by what the design promises.

package chaos

import (
	"cmp"
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
		t.Run(s.name, func(t *testing.T) { rows = append(rows, judged(t, s)) })
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

// judged plays a scenario, and again when it was slow while the machine kept agents
// from the processor for as long as they wait for Redis: they cannot tell that from a
// Redis that is silent. What is slow three times is.
func judged(t *testing.T, s *scenario) (o outcome) {
	for try := 1; try <= 3; try++ {
		again := false
		t.Run(fmt.Sprint("try ", try), func(t *testing.T) {
			o = play(t, s, *seed)
			t.Logf("%s: %s", s.what, o.text())
			slow := o.slow()
			if again = len(slow) > 0 && o.machine > redisTimeout && try < 3; again {
				t.Logf("the machine is too busy to tell: %q", slow)
				slow = nil
			}
			for _, b := range append(o.wrong(), slow...) {
				t.Error(b)
			}
		})
		if !again || t.Failed() {
			break
		}
	}
	return o
}

// faults is what does not hold.
type faults []string

func (f *faults) unless(holds bool, format string, a ...any) {
	if !holds {
		*f = append(*f, fmt.Sprintf(format, a...))
	}
}

// wrong says which promises were broken that hold on any machine.
func (o *outcome) wrong() (f faults) {
	f.unless(o.wrongDenials == 0, "%d calls of a key far below its limit were denied", o.wrongDenials)
	f.unless(o.excess <= o.allowed, "%.1f permits above the bound, %.0f can be explained by lost writes", o.excess, o.allowed)
	f.unless(o.unavailable == 0 || o.scenario.agentsDie, "%d calls failed", o.unavailable)
	return f
}

// slow says which were broken that a busy machine can break.
func (o *outcome) slow() (f faults) {
	mostShared := o.allowed + float64(o.scenario.apart) + sharedSlack
	mostConnections := connectionsOnce + connectionsPerSecond*(o.faultTook+after).Seconds()
	f.unless(o.late == 0, "%d calls were answered late, the longest after %v", o.late, o.longest)
	f.unless(o.sharedExcess <= mostShared, "%.1f permits above the bound with local shares, want at most %.0f", o.sharedExcess, mostShared)
	mostRecovery := cmp.Or(o.scenario.recovery, recoveryTime)
	f.unless(o.recovered <= mostRecovery, "decisions were made without Redis until %v after the fault was over, want %v", o.recovered, mostRecovery)
	f.unless(o.connections <= mostConnections, "an agent opened %.0f connections, want at most %.0f", o.connections, mostConnections)
	f.unless(o.sparedNoticed <= sparedSlack, "%.0f %% of the decisions for keys of healthy masters were made without Redis", 100*o.sparedNoticed)
	f.unless(o.shareUsed >= leastUsed || o.scenario.what != "none", "without a fault %.0f %% of the permits were used, want %.0f %%", 100*o.shareUsed, 100*leastUsed)
	return f
}

const (
	recoveryTime         = 2 * time.Second
	connectionsOnce      = 40                                                  // all pools anew, to each of six nodes
	connectionsPerSecond = 10                                                  // of trying again
	probeEvery           = 0.57                                                // s, at most: agents find Redis again that far apart
	sharedSlack          = probeEvery * hotLimit * (hostCount - 1) / hostCount // by the others' shares while one has it again
	sparedSlack          = 0.05                                                // decisions that a busy machine has made without Redis
	leastUsed            = 0.9
)

func (o *outcome) text() string {
	return fmt.Sprintf("%d calls, longest %v (by the machine %v), %d past %v, late %d, wrong denials %d, without Redis %d, failed %d, above the bound %.1f of %.0f (shares %.1f), shared used %.0f %%, recovered in %v, %.1f connections per agent, %.0f permits lost, spared keys without Redis %.1f %%",
		o.calls, ms(o.longest), ms(o.machine), o.past, lateAfter, o.late, o.wrongDenials, o.degraded, o.unavailable,
		o.excess, o.allowed, o.sharedExcess, 100*o.shareUsed, ms(o.recovered), o.connections, o.leasesLost, 100*o.sparedNoticed)
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

const head = `| failure | Redis | longest call, ms (machine) | late | wrong denials | above the bound (may be) | with shares | without Redis, % of calls | recovered after, ms | connections per agent | permits of leases lost |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
`

func table(rows []outcome) string {
	var b strings.Builder
	b.WriteString(head)
	for _, o := range rows {
		fmt.Fprintf(&b, "| %s | %s | %d (%d) | %d | %d | %.0f (%.0f) | %.0f | %.1f | %d | %.0f | %.0f |\n", o.scenario.what, o.scenario.on,
			o.longest.Milliseconds(), o.machine.Milliseconds(), o.late, o.wrongDenials, o.excess, o.allowed, o.sharedExcess,
			100*float64(o.degraded)/float64(o.calls), o.recovered.Milliseconds(), o.connections, o.leasesLost)
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
