// acquire asks the agent for permits, for shell scripts: the answer is the exit
// status. explain shows what the agent knows.

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	rlsidecar "rlsidecar/clients/go"
)

// asking is the flags of the commands that ask an agent.
type asking struct {
	address string
	app     string
	timeout time.Duration
}

func (a *asking) flags(f *flag.FlagSet) {
	f.StringVar(&a.address, "address", "", "`address` of the agent: unix:///path or a path (default $RLSIDECAR_ADDRESS, else\nunix:///run/rlsidecar/rlsidecar.sock)")
	f.StringVar(&a.address, "socket", "", "the same as --address")
	f.StringVar(&a.app, "app", "", "the `application` to ask as, where the agent trusts that (default $RLSIDECAR_APP)")
	f.DurationVar(&a.timeout, "timeout", time.Second, "how long to wait for the agent, beyond --wait")
}

// open returns a client, and the limit that policy stands for.
func (a *asking) open(policy string) (*rlsidecar.Client, rlsidecar.Limit, error) {
	limit, err := rlsidecar.ParseLimit(policy)
	if err != nil {
		return nil, limit, err
	}
	options := []rlsidecar.Option{rlsidecar.WithTimeout(a.timeout), rlsidecar.WithOnUnavailable(rlsidecar.Raise)}
	if a.app != "" {
		options = append(options, rlsidecar.WithApp(a.app))
	}
	client, err := rlsidecar.New(a.address, options...)
	return client, limit, err
}

// taking is the flags of the commands that take permits.
type taking struct {
	asking
	cost int64
	wait time.Duration
}

func (t *taking) flags(f *flag.FlagSet) {
	t.asking.flags(f)
	f.Int64Var(&t.cost, "cost", 1, "permits to take")
	f.DurationVar(&t.wait, "wait", 0, "how long to wait for them, 0 to 1m")
}

func (t *taking) options() []rlsidecar.CallOption {
	return []rlsidecar.CallOption{rlsidecar.Cost(t.cost), rlsidecar.Wait(t.wait)}
}

func acquire(args []string, out, errs io.Writer) int {
	var a taking
	f := flag.NewFlagSet("acquire", flag.ContinueOnError)
	a.flags(f)
	asJSON := f.Bool("json", false, "print the decision as JSON")
	const about = "Asks the agent for permits. POLICY is the name of a policy, or a limit such as 10/minute.\nExit status 0: allowed; 1: denied; 2: no decision. The permit of a concurrency limit ends with\nthis command: see rlsidecar hold."
	rest, status, ok := parse(f, args, about, []string{"POLICY", "KEY"}, out, errs)
	if !ok {
		return status
	}
	client, limit, err := a.open(rest[0])
	if err != nil {
		return complain(errs, "acquire", err)
	}
	defer client.Close()
	d, err := client.Acquire(context.Background(), limit, rest[1], a.options()...)
	if err != nil {
		return complain(errs, "acquire", err)
	}
	show(out, d, *asJSON)
	if !d.Allowed {
		return exitNo
	}
	return exitOK
}

// shown is a decision as --json prints it. Durations are in milliseconds.
type shown struct {
	Allowed      bool   `json:"allowed"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	RetryAfterMS *int64 `json:"retry_after_ms"` // null: never
	Source       string `json:"source"`
	Shadow       bool   `json:"shadow"`
}

func show(out io.Writer, d rlsidecar.Decision, asJSON bool) {
	if asJSON {
		s := shown{Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, ResetAfterMS: d.ResetAfter.Milliseconds(), Source: d.Source.String(), Shadow: d.Shadow}
		if d.RetryAfter >= 0 {
			ms := d.RetryAfter.Milliseconds()
			s.RetryAfterMS = &ms
		}
		_ = json.NewEncoder(out).Encode(s)
		return
	}
	words := []string{"allowed"}
	switch {
	case d.Allowed && d.Shadow:
		words = []string{"allowed (shadow: would be denied)"}
	case !d.Allowed && d.RetryAfter < 0:
		words = []string{"denied", "never possible"}
	case !d.Allowed:
		words = []string{"denied", fmt.Sprintf("retry after %v", d.RetryAfter)}
	}
	words = append(words, fmt.Sprintf("%d of %d left", d.Remaining, d.Limit), fmt.Sprintf("full in %v", d.ResetAfter), "from "+d.Source.String())
	fmt.Fprintln(out, strings.Join(words, ", "))
}

func explain(args []string, out, errs io.Writer) int {
	var a asking
	f := flag.NewFlagSet("explain", flag.ContinueOnError)
	a.flags(f)
	const about = "Shows what the agent knows of a key: lease, level, remembered denial, demand, share, and\nwhen Redis last answered. Exit status 0, or 2 on an error."
	rest, status, ok := parse(f, args, about, []string{"POLICY", "KEY"}, out, errs)
	if !ok {
		return status
	}
	client, limit, err := a.open(rest[0])
	if err != nil {
		return complain(errs, "explain", err)
	}
	defer client.Close()
	facts, err := client.Explain(context.Background(), limit, rest[1])
	if err != nil {
		return complain(errs, "explain", err)
	}
	for _, fact := range facts {
		fmt.Fprintf(out, "%-20s %s\n", fact[0], fact[1])
	}
	return exitOK
}
