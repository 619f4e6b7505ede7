// What ten hosts make of one limit, measured: nothing above it, almost nothing below,
// and few scripts. scripts/hosts measures all cases; the ordinary tests a few.

package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/internal/arrivals"
	"rlsidecar/internal/bucket"
	"rlsidecar/internal/redistest"
)

var (
	casesSeconds   = flag.Int("cases-seconds", 10, "how long calls come in each case")
	casesSeed      = flag.Uint64("cases-seed", 1, "of the arrivals")
	casesOnly      = flag.String("cases-only", "", "the cases whose name has this `text` in it")
	casesSimulated = flag.String("cases-simulated", "", "`file` with the simulated figures of the cases")
	casesTable     = flag.String("cases-table", "", "measure all cases and write the table to this `file`")
)

// figures are what a case is judged by.
type figures struct {
	excess                   float64 // permits above B + r·Δ in the worst interval
	used                     float64 // % of what a central limiter would have allowed
	per1000, perKey, busiest float64 // scripts: per 1,000 calls, a second, and of the busiest host
	waited                   float64 // % of the calls, for Redis
	p99                      time.Duration
	calls, degraded, failed  int
}

func (f *fleet) measure(c arrivals.Case, length time.Duration, seed uint64) figures {
	rule, err := bucket.NewRule(bucket.Limit{Count: c.Count, Period: time.Second, Burst: c.Burst})
	if err != nil {
		f.t.Fatal(err)
	}
	limit := rlsidecar.PerSecond(c.Count).Burst(c.Burst)
	before := f.scripts()
	made := f.load(c.Arrivals(seed), length, limit, c.String())
	scripts, busiest := since(before, f.scripts())
	n, seconds := float64(len(made)), length.Seconds()
	return figures{
		excess:  made.excess(&rule),
		used:    100 * float64(made.count((*call).allowed)) / float64(made.central(&rule)),
		per1000: 1000 * float64(scripts) / n, perKey: float64(scripts) / seconds, busiest: float64(busiest) / seconds,
		waited: 100 * float64(made.count((*call).waited)) / n,
		p99:    made.slowest(0.99),
		calls:  len(made), degraded: made.count((*call).degraded), failed: made.count((*call).failed),
	}
}

// since returns how much more after is than before, all together and the most of one.
func since(before, after []int) (sum, most int) {
	for i := range after {
		sum += after[i] - before[i]
		most = max(most, after[i]-before[i])
	}
	return sum, most
}

// TestTenHostsAndOneLimit is the short form: what must hold on a busy machine too.
func TestTenHostsAndOneLimit(t *testing.T) {
	f := casesFleet(t)
	for _, c := range []arrivals.Case{
		{Kind: "zipf", Load: 0.9, Count: 1000, Burst: 1000},
		{Kind: "onoff", Load: 1.5, Count: 1000, Burst: 1000},
		{Kind: "even", Load: 3, Count: 1000, Burst: 100},
	} {
		got := f.measure(c, 3*time.Second, 1)
		t.Logf("%v: %+v", c, got)
		if got.failed > 0 || got.degraded > 0 {
			t.Errorf("%v: %d calls failed, %d were answered without Redis", c, got.failed, got.degraded)
		}
		if got.excess >= 1 {
			t.Errorf("%v: %.1f permits more than the limit allows", c, got.excess)
		}
		if got.used < 95 {
			t.Errorf("%v: %.1f %% of the limit used: want 95 at least", c, got.used)
		}
	}
}

func casesFleet(t *testing.T) *fleet {
	redis := redistest.Start(t)
	return startFleet(t, redis, arrivals.Hosts, fmt.Sprintf("redis: {url: %q, timeout: 5s}\npolicies: {p: {limit: 1/s}}\n", redis.URL()))
}

// TestCases measures them all, for scripts/hosts.
func TestCases(t *testing.T) {
	if *casesTable == "" {
		return // TestTenHostsAndOneLimit is the short form
	}
	f, beside := casesFleet(t), simulated(t)
	var table strings.Builder
	table.WriteString(tableHead)
	for _, c := range arrivals.Cases() {
		if !strings.Contains(c.String(), *casesOnly) {
			continue
		}
		got := f.measure(c, time.Duration(*casesSeconds)*time.Second, *casesSeed)
		table.WriteString(got.row(c, beside[c.String()]))
		if got.excess >= 1 || got.failed > 0 || got.degraded > 0 {
			t.Errorf("%v: %+v: want no excess, and all calls answered with Redis", c, got)
		}
	}
	if table.Len() == len(tableHead) {
		t.Fatalf("no case has %q in its name: %v", *casesOnly, arrivals.Cases())
	}
	if err := os.WriteFile(*casesTable, []byte(table.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

const tableHead = `| limit and load of 10 hosts | excess | used, % | scripts per 1,000 calls | scripts/s of the key | scripts/s of the busiest host | calls that waited, % | p99, ms |
|---|--:|--:|--:|--:|--:|--:|--:|
`

// row is a case's line of the table, each figure with the simulated one behind it.
func (r *figures) row(c arrivals.Case, beside [5]float64) string {
	pair := func(format string, got, simulated float64) string {
		return fmt.Sprintf(format+" ("+format+")", got, simulated)
	}
	return fmt.Sprintf("| %v | %.1f | %s | %s | %s | %s | %s | %.2f |\n", c, r.excess, pair("%.2f", r.used, beside[0]), pair("%.0f", r.per1000, beside[1]),
		pair("%.0f", r.perKey, beside[2]), pair("%.0f", r.busiest, beside[3]), pair("%.1f", r.waited, beside[4]), r.p99.Seconds()*1000)
}

// simulated reads what the simulation of internal/limiter wrote: a case a line, its
// name and its figures between tabs.
func simulated(t *testing.T) map[string][5]float64 {
	text, err := os.ReadFile(*casesSimulated)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][5]float64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		var of [5]float64
		for i := range of {
			if of[i], err = strconv.ParseFloat(fields[1+i], 64); err != nil {
				t.Fatalf("%s: %q: %v", *casesSimulated, line, err)
			}
		}
		all[fields[0]] = of
	}
	return all
}
