// What a call costs while the agent is away, in every language; -v shows the table for
// the READMEs:
//
//	go test ./internal/conformance -run TestAbsentAgent -v

package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// absences are the ways for an agent to be away, and how many calls are measured.
// Between two calls is a pause of up to 30 ms, so that some meet the back-off and some
// try to connect, as those of a busy application do.
var absences = []struct {
	name, socket string
	calls        int
}{
	{"missing", "missing", 100},
	{"stale", "stale", 100},
	{"hung", "deaf", 20},
	{"restarting", "listening", 100},
}

// TestAbsentAgent logs the table, and asserts only that each call is allowed.
func TestAbsentAgent(t *testing.T) {
	file := loadCases(t)
	found := commands(t)
	table := []string{
		"| client | socket missing | stale | hung | agent restarting |",
		"|---|---|---|---|---|",
	}
	for _, language := range languages {
		if command, ok := found[language]; ok {
			t.Run(language, func(t *testing.T) {
				table = append(table, "| "+language+" | "+strings.Join(absentRow(t, file, language, command), " | ")+" |")
			})
		}
	}
	t.Logf("median and maximum of one call, budget %d ms, on_unavailable = allow:\n\n%s\n",
		defaultTimeoutMS, strings.Join(table, "\n"))
}

func absentRow(t *testing.T, file *caseFile, language string, command []string) (row []string) {
	s := &suite{file: file, driver: startDriver(t, language, command)}
	defer s.driver.end(t)
	for _, absence := range absences {
		d := &dialogue{suite: s, t: t, timeouts: map[string]int{}, saved: map[string]float64{}}
		answers := []answer{{{Send: "hundred"}}}
		d.fake(absence.socket, script{answers: answers, replies: file.Replies}, 0)
		d.take(&step{Ask: map[string]any{"do": "open", "client": "a", "address": d.path, "timeout_ms": float64(defaultTimeoutMS)}})
		d.warm()
		row = append(row, d.costs(absence.calls, absence.name == "restarting"))
		d.close()
	}
	return row
}

// warm makes calls to an agent in good health, for compilers that learn.
func (d *dialogue) warm() {
	healthy := newFakeAgent(d.t, script{answers: []answer{{{Send: "hundred"}}}, replies: d.file.Replies}, 0)
	if err := healthy.start(); err != nil {
		d.t.Fatal(err)
	}
	d.take(&step{Ask: map[string]any{"do": "open", "client": "w", "address": healthy.path, "timeout_ms": 1000.0}})
	for range 500 {
		d.take(&step{Ask: map[string]any{"do": "acquire", "client": "w"}, Want: map[string]any{"allowed": true}})
	}
}

// costs makes calls and returns the median and the maximum of their time. With
// restarts, every tenth call comes right after one.
func (d *dialogue) costs(calls int, restarts bool) string {
	var took []time.Duration
	for n := range calls {
		if restarts && n%10 == 0 {
			if err := d.agent.act("restart"); err != nil {
				d.t.Fatal(err)
			}
		}
		got := d.ask(&step{Ask: map[string]any{"do": "acquire"}, AtMostMS: 5000})
		if got["allowed"] != true {
			d.t.Errorf("got %v", got)
		}
		us, _ := got["elapsed_us"].(float64)
		took = append(took, time.Duration(us)*time.Microsecond)
		time.Sleep(time.Duration(n%7) * 5 * time.Millisecond)
	}
	slices.Sort(took)
	return milliseconds(took[len(took)/2]) + ", " + milliseconds(took[len(took)-1])
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
