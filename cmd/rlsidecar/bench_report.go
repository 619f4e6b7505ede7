// report is what a trial came to, for people or as JSON.

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"rlsidecar/internal/limiter"
	"rlsidecar/protocol"
)

// report is printed as it is with --json. Times are microseconds; a null is what
// could not be told.
type report struct {
	Connections         int               `json:"connections"`
	Pipeline            int               `json:"pipeline"`
	Keys                int               `json:"keys"`
	Rate                float64           `json:"rate"` // 0: as many as would go
	Seconds             float64           `json:"seconds"`
	Decisions           uint64            `json:"decisions"`
	DecisionsPerSecond  float64           `json:"decisions_per_second"`
	Latency             latencies         `json:"latency_us"`
	Allowed             uint64            `json:"allowed"`
	Denied              uint64            `json:"denied"`
	Sources             map[string]uint64 `json:"sources"`
	Errors              map[string]uint64 `json:"errors"`
	FirstError          string            `json:"first_error"`
	Unanswered          uint64            `json:"unanswered"`
	RedisScriptsPer1000 *float64          `json:"redis_scripts_per_1000_decisions"`
	AgentMicros         *float64          `json:"agent_cpu_us_per_decision"`
}

type latencies struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

func newReport(t *trial, sum *tally) *report {
	r := &report{Seconds: t.seconds(), Decisions: sum.allowed + sum.denied, Allowed: sum.allowed, Denied: sum.denied,
		Unanswered: sum.silent, FirstError: sum.message, Sources: map[string]uint64{}, Errors: map[string]uint64{}}
	if r.Seconds > 0 {
		r.DecisionsPerSecond = float64(r.Decisions) / r.Seconds
	}
	h := &sum.latency
	r.Latency = latencies{micros(h.quantile(0.5)), micros(h.quantile(0.9)), micros(h.quantile(0.99)), micros(h.quantile(0.999)), micros(h.max)}
	for i, n := range sum.sources {
		if n > 0 {
			r.Sources[sourceName(i)] = n
		}
	}
	for code, n := range sum.errors {
		if n > 0 {
			r.Errors[protocol.Code(code).String()] = n
		}
	}
	return r
}

// useless is the error that a report without any decision is.
func (r *report) useless() error {
	switch {
	case r.Decisions > 0:
		return nil
	case r.FirstError != "":
		return fmt.Errorf("no call was decided: %s", r.FirstError)
	case r.Unanswered > 0:
		return errors.New("no call was answered")
	}
	return nil
}

func sourceName(i int) string {
	if s := limiter.Source(i); slices.Contains(limiter.Sources(), s) {
		return s.String()
	}
	return "other"
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (r *report) print(w io.Writer, asJSON bool) {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(r)
		return
	}
	if r.Seconds == 0 {
		fmt.Fprintln(w, "nothing was measured: it ended before the warm-up did")
		return
	}
	l := r.Latency
	fmt.Fprintf(w, "decisions/s    %.0f, over %.2f s with %d connections × %d in flight\n", r.DecisionsPerSecond, r.Seconds, r.Connections, r.Pipeline)
	fmt.Fprintf(w, "latency µs     p50 %.1f, p90 %.1f, p99 %.1f, p99.9 %.1f, max %.1f\n", l.P50, l.P90, l.P99, l.P999, l.Max)
	fmt.Fprintf(w, "outcome        %d allowed, %d denied, %d errors, %d unanswered\n", r.Allowed, r.Denied, total(r.Errors), r.Unanswered)
	fmt.Fprintf(w, "from           %s\n", list(r.Sources))
	if r.FirstError != "" {
		fmt.Fprintf(w, "errors         %s; the first: %s\n", list(r.Errors), r.FirstError)
	}
	if r.RedisScriptsPer1000 != nil {
		fmt.Fprintf(w, "Redis scripts  %.2f per 1,000 decisions\n", *r.RedisScriptsPer1000)
	}
	if r.AgentMicros != nil {
		fmt.Fprintf(w, "agent CPU      %.2f µs per decision\n", *r.AgentMicros)
	}
}

func total(counts map[string]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// list writes counts, the largest first.
func list(counts map[string]uint64) string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return cmp.Compare(counts[b], counts[a])
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	if len(names) == 0 {
		return "nowhere"
	}
	return strings.Join(names, ", ")
}
