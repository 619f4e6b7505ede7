// bench puts the agent under load and measures it, from outside: over its socket,
// as any application would.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rlsidecar/internal/server"
	"rlsidecar/protocol"
)

const benchAbout = `Puts the agent under load over its socket and measures it. Each connection keeps --pipeline
calls in flight; the latency of a call counts from its write or, with --rate, from when it was
due. Ctrl-C ends the measurement early and shows what there is so far. Exit status 0, or 2 on
an error. Without --policy the agent has to allow callers their own limits.

Baselines to compare with, each with its own --help:
  rlsidecar bench echo     a server that sends back whatever comes; measure it with bench --echo
  rlsidecar bench redis    the same decisions asked of Redis, one EVALSHA each, without an agent`

// timing is the flags of a trial.
type timing struct {
	duration, warmup time.Duration
	json             bool
}

func (t *timing) flags(f *flag.FlagSet) {
	f.DurationVar(&t.duration, "duration", 5*time.Second, "how long to measure")
	f.DurationVar(&t.warmup, "warmup", time.Second, "how long to put on load before that")
	f.BoolVar(&t.json, "json", false, "print the result as JSON")
}

func (t *timing) check() error {
	return errors.Join(
		between("--duration", t.duration, time.Millisecond, 24*time.Hour),
		between("--warmup", t.warmup, 0, time.Hour))
}

type benchFlags struct {
	timing
	address, policy, limit      string
	connections, pipeline, keys int
	burst, cost                 int64
	zipf, rate                  float64
	echo                        bool
}

func (o *benchFlags) flags(f *flag.FlagSet) {
	o.timing.flags(f)
	f.StringVar(&o.address, "address", "", "`address` of the agent: unix:///path or a path (default $RLSIDECAR_ADDRESS, else\nunix://"+server.DefaultPath+")")
	f.IntVar(&o.connections, "connections", 64, "connections, 1 to 10000")
	f.IntVar(&o.pipeline, "pipeline", 1, "calls in flight on each connection, 1 to 1024")
	f.StringVar(&o.policy, "policy", "", "`name` of the policy to ask for")
	f.StringVar(&o.limit, "limit", "", "`limit` to bring along instead, such as 100/second (default 1000000000/second)")
	f.Int64Var(&o.burst, "burst", 0, "capacity that goes with --limit (default its count)")
	f.IntVar(&o.keys, "keys", 1, "different keys, 1 to 10000000")
	f.Float64Var(&o.zipf, "zipf", 0, "skew: the n-th key gets a share of 1/n^`s`; 0 for equal shares")
	f.Int64Var(&o.cost, "cost", 1, "permits each call asks for")
	f.Float64Var(&o.rate, "rate", 0, "calls per second over all connections; 0 for as many as will go")
	f.BoolVar(&o.echo, "echo", false, "at the address is \"rlsidecar bench echo\", not an agent")
}

func (o *benchFlags) check() error {
	if o.policy != "" && (o.limit != "" || o.burst != 0) {
		return errors.New("--policy with --limit or --burst: give one or the other")
	}
	return errors.Join(o.timing.check(),
		between("--connections", o.connections, 1, 10_000),
		between("--pipeline", o.pipeline, 1, protocol.MaxInFlight),
		between("--burst", o.burst, 0, protocol.MaxCount),
		between("--keys", o.keys, 1, 10_000_000),
		between("--zipf", o.zipf, 0, 10),
		between("--cost", o.cost, 1, protocol.MaxCost),
		between("--rate", o.rate, 0, 1e9))
}

func between[T int | int64 | float64 | time.Duration](name string, v, lo, hi T) error {
	if v >= lo && v <= hi {
		return nil
	}
	return fmt.Errorf("%s %v: allowed are %v to %v", name, v, lo, hi)
}

func bench(args []string, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == "echo" {
		return benchEcho(args[1:], out, errs)
	}
	if len(args) > 0 && args[0] == "redis" {
		return benchRedis(args[1:], out, errs)
	}
	var o benchFlags
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	o.flags(f)
	if _, status, ok := parse(f, args, benchAbout, nil, out, errs); !ok {
		return status
	}
	return o.finish("bench", out, errs, func(ctx context.Context) (*report, error) { return o.run(ctx, errs) }, o.check())
}

// finish runs a measurement that Ctrl-C ends early, and shows it even when it
// went wrong on the way.
func (t *timing) finish(name string, out, errs io.Writer, run func(context.Context) (*report, error), err error) int {
	if err != nil {
		return complain(errs, name, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := run(ctx)
	if r != nil {
		r.print(out, t.json)
	}
	if err != nil {
		return complain(errs, name, err)
	}
	return exitOK
}

func (o *benchFlags) run(ctx context.Context, errs io.Writer) (*report, error) {
	l, err := o.load()
	if err != nil {
		return nil, err
	}
	a, err := watch(o.address, o.echo)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	workers, t, err := o.callers(l, a.path)
	if err != nil {
		return nil, err
	}
	sum, err := t.run(ctx, workers, newProgress(errs), a.look)
	r := newReport(t, sum)
	r.Connections, r.Pipeline, r.Keys, r.Rate = o.connections, o.pipeline, o.keys, o.rate
	a.report(r)
	if err != nil {
		return r, fmt.Errorf("a connection ended early: %w", err)
	}
	return r, r.useless()
}

func (o *benchFlags) load() (*load, error) {
	l := &load{pipeline: o.pipeline, keys: o.keys, echo: o.echo, call: protocol.Call{Cost: o.cost}}
	if o.zipf > 0 {
		l.skew(o.zipf)
	}
	if o.policy != "" {
		l.call.Policy = []byte(o.policy)
		return l, nil
	}
	l.call.Inline = protocol.Inline{Count: protocol.MaxCount, PeriodMS: 1000}
	if o.limit != "" {
		var err error
		if l.call.Inline, err = parseInline(o.limit); err != nil {
			return nil, err
		}
	}
	l.call.Inline.Burst = o.burst
	return l, nil
}

// callers connects them all before the clock of the trial starts.
func (o *benchFlags) callers(l *load, path string) ([]worker, *trial, error) {
	conns := make([]net.Conn, o.connections)
	for i := range conns {
		nc, err := net.Dial("unix", path)
		if err != nil {
			return nil, nil, fmt.Errorf("connection %d of %d: %w", i+1, o.connections, err)
		}
		conns[i] = nc
	}
	t := newTrial(o.warmup, o.duration)
	workers := make([]worker, o.connections)
	for i, nc := range conns {
		c := newCaller(t, l, nc, uint64(i))
		if o.rate > 0 {
			c.pace(o.rate, i, o.connections)
		}
		workers[i] = c
	}
	return workers, t, nil
}

var periods = map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}

// parseInline reads COUNT/PERIOD.
func parseInline(s string) (protocol.Inline, error) {
	count, period, _ := strings.Cut(s, "/")
	n, err := strconv.ParseInt(count, 10, 64)
	d, known := periods[period]
	if !known && err == nil {
		d, err = time.ParseDuration(period)
	}
	if err != nil || d%time.Millisecond != 0 {
		return protocol.Inline{}, fmt.Errorf("--limit %q: write COUNT/PERIOD, such as 100/second or 5/250ms", s)
	}
	return protocol.Inline{Count: n, PeriodMS: d.Milliseconds()}, errors.Join(
		between("--limit with a count of", n, 1, protocol.MaxCount),
		between("--limit with a period of", d, time.Millisecond, protocol.MaxPeriodMS*time.Millisecond))
}
