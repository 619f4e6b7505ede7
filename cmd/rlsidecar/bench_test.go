// The load generator must measure what it says: against agents that answer, stall,
// refuse and keep silent.

package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rlsidecar/internal/redistest"
)

func TestHistogramClasses(t *testing.T) {
	for i := 1; i < classes; i++ {
		if longest(i) <= longest(i-1) || class(longest(i)) != i || class(longest(i-1)+1) != i {
			t.Fatalf("class %d: from %d to %d", i, longest(i-1)+1, longest(i))
		}
	}
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 63: 63, 64: 64, math.MaxInt64: classes - 1} {
		if got := class(d); got != want {
			t.Errorf("class(%d) = %d, want %d", d, got, want)
		}
	}
}

func TestHistogramQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h, half histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(math.Exp(rng.Float64() * 20)) // 1 ns to 0.5 s
		all = append(all, d)
		if i%2 == 0 {
			h.add(d)
		} else {
			half.add(d)
		}
	}
	h.merge(&half)
	slices.Sort(all)
	for _, q := range []float64{0, 0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		exact := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
		if got := h.quantile(q); got < exact || float64(got) > float64(exact)*(1+1.0/fine) {
			t.Errorf("quantile %g: got %d, want %d and up to 1/64 more", q, got, exact)
		}
	}
	if empty := (&histogram{}).quantile(0.5); empty != 0 {
		t.Errorf("of nothing: %v", empty)
	}
}

func TestZipfShares(t *testing.T) {
	l := load{keys: 1000}
	l.skew(1)
	rng, counts := rand.New(rand.NewPCG(3, 4)), make([]float64, l.keys)
	const picks = 200_000
	for range picks {
		counts[l.pick(rng)]++
	}
	for _, n := range []int{2, 4, 10} {
		if ratio := counts[0] / counts[n-1]; math.Abs(ratio/float64(n)-1) > 0.1 {
			t.Errorf("the first key is asked for %.2f times as often as number %d", ratio, n)
		}
	}
}

// measure runs bench as a command and returns what it printed as JSON.
func measure(t *testing.T, args ...string) report {
	t.Helper()
	var out, errs strings.Builder
	if status := bench(append(args, "--json", "--warmup", "20ms", "--duration", "200ms"), &out, &errs); status != exitOK {
		t.Fatalf("bench %q: status %d: %s", args, status, &errs)
	}
	var r report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	if r.Decisions == 0 || r.Decisions != r.Allowed+r.Denied || len(r.Errors) > 0 || r.Unanswered > 0 {
		t.Errorf("bench %q: %+v", args, r)
	}
	l := r.Latency
	if l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max {
		t.Errorf("bench %q: latencies %+v", args, l)
	}
	return r
}

func TestBenchAgent(t *testing.T) {
	a := startAgent(t, "policies:\n  small: {limit: 10/day}\n")
	for _, args := range [][]string{
		{"--connections", "1"},
		{"--connections", "8", "--pipeline", "16"},
		{"--connections", "2", "--pipeline", "1024", "--keys", "5000"},
		{"--keys", "100", "--zipf", "1.2", "--limit", "1000000/minute", "--cost", "2"},
		{"--connections", "4", "--pipeline", "2", "--rate", "2000"},
	} {
		r := measure(t, append(args, "--address", "unix://"+a.socket)...)
		if r.Denied > 0 || r.Sources["standalone"] != r.Decisions {
			t.Errorf("bench %q: %+v", args, r)
		}
		if r.RedisScriptsPer1000 == nil || *r.RedisScriptsPer1000 != 0 || r.AgentMicros == nil || *r.AgentMicros <= 0 {
			t.Errorf("bench %q: what the agent spent: %v %v", args, r.RedisScriptsPer1000, r.AgentMicros)
		}
	}
	if r := measure(t, "--address", a.socket, "--policy", "small", "--connections", "3"); r.Allowed > 10 || r.Denied == 0 {
		t.Errorf("10/day: %d allowed, %d denied", r.Allowed, r.Denied)
	}
}

func TestBenchKeepsItsRate(t *testing.T) {
	a := startAgent(t, "")
	for _, pipeline := range []string{"1", "8"} {
		r := measure(t, "--address", a.socket, "--connections", "4", "--pipeline", pipeline, "--rate", "1000")
		if r.Decisions < 195 || r.Decisions > 205 {
			t.Errorf("pipeline %s: %d calls in 200 ms at 1000 per second", pipeline, r.Decisions)
		}
	}
}

func TestBenchEcho(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- echo(ctx, path) }()
	awaitSocket(t, path)
	for _, pipeline := range []string{"1", "200"} {
		r := measure(t, "--address", path, "--echo", "--pipeline", pipeline)
		if r.Sources["echo"] != r.Decisions || r.RedisScriptsPer1000 != nil {
			t.Errorf("%+v", r)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAnEchoedCallIsAsLongAsACall(t *testing.T) {
	for _, o := range []benchFlags{{limit: "1/day"}, {policy: "p"}, {policy: strings.Repeat("p", 128)}} {
		o.connections, o.pipeline, o.keys, o.cost = 1, 300, 1, 1
		l, err := o.load()
		if err != nil {
			t.Fatal(err)
		}
		for id := range uint32(o.pipeline) {
			c := newCaller(newTrial(0, 0), l, nil, 1)
			plain := len(c.frame(id))
			l.echo = true
			if echoed := len(c.frame(id)); echoed != plain {
				t.Errorf("%+v: msgid %d: %d bytes for an echo, %d for an agent", o, id, echoed, plain)
			}
			l.echo = false
		}
	}
}

func TestBenchRedis(t *testing.T) {
	s := redistest.Start(t)
	for _, args := range [][]string{
		{"--goroutines", "1"},
		{"--goroutines", "8", "--keys", "50"},
		{"--goroutines", "8", "--script", "token_bucket"},
	} {
		r := measure(t, append([]string{"redis", "--redis", s.URL()}, args...)...)
		if r.Denied > 0 || r.Sources["redis"] != r.Decisions {
			t.Errorf("bench redis %q: %+v", args, r)
		}
	}
}

// serveBytes has each connection of a socket served by f, until the test ends.
func serveBytes(t *testing.T, f func(nc net.Conn)) string {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go f(nc)
		}
	}()
	return path
}

func awaitSocket(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		nc, err := net.Dial("unix", path)
		if err == nil {
			nc.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestAStallIsSeenByTheCallsItHeldUp: of a second in which nothing was answered
// for a while, a generator that waits for each reply sees one slow call.
func TestAStallIsSeenByTheCallsItHeldUp(t *testing.T) {
	const stall = 400 * time.Millisecond
	path := serveBytes(t, func(nc net.Conn) {
		defer nc.Close()
		buf := make([]byte, 8<<10)
		for i := 0; ; i++ {
			n, err := nc.Read(buf)
			if err != nil {
				return
			}
			if i == 100 {
				time.Sleep(stall)
			}
			nc.Write(buf[:n])
		}
	})
	o := benchFlags{timing: timing{duration: time.Second}, address: path, connections: 1, pipeline: 1, keys: 1, cost: 1, rate: 500, echo: true}
	r, err := o.run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if r.Decisions < 495 || r.Latency.P90 < 100e3 || r.Latency.Max < micros(stall) {
		t.Errorf("of 500 calls 200 were held up, the first by 400 ms: %d calls, %+v", r.Decisions, r.Latency)
	}
}

func TestBenchComplains(t *testing.T) {
	silent := serveBytes(t, func(nc net.Conn) { io.Copy(io.Discard, nc) })
	closing := serveBytes(t, func(nc net.Conn) { nc.Read(make([]byte, 10)); nc.Close() })
	a := startAgent(t, "inline_limits: false")
	quick := []string{"--warmup", "0s", "--duration", "50ms", "--connections", "2"}
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"start one with rlsidecar serve --socket /nowhere/s", []string{"--address", "/nowhere/s"}},
		{"is no agent", []string{"--address", silent}},
		{"no call was answered", []string{"--address", silent, "--echo"}},
		{"no call was answered", []string{"--address", silent, "--echo", "--rate", "500", "--pipeline", "3"}},
		{"the agent closed the connection", []string{"--address", closing, "--echo"}},
		{"no call was decided", []string{"--address", a.socket}},
		{`unknown policy: "nope"`, []string{"--address", a.socket, "--policy", "nope"}},
		{"write COUNT/PERIOD", []string{"--address", a.socket, "--limit", "5"}},
		{"with a count of 0: allowed are 1 to", []string{"--address", a.socket, "--limit", "0/second"}},
		{"--policy with --limit", []string{"--policy", "p", "--burst", "3"}},
		{"--pipeline 1025: allowed are 1 to 1024", []string{"--pipeline", "1025"}},
		{"--keys 0: allowed are", []string{"--keys", "0"}},
		{"--cost 0: allowed are", []string{"--cost", "0"}},
		{"--rate -1: allowed are", []string{"--rate", "-1"}},
		{"1 arguments: wanted are 0", []string{"redis", "64"}},
		{"--goroutines 0: allowed are", []string{"redis", "--goroutines", "0"}},
		{"--socket: give the path", []string{"echo"}},
	} {
		args := tt.args
		if args[0] != "redis" && args[0] != "echo" {
			args = append(slices.Clone(quick), args...)
		}
		var out, errs strings.Builder
		status := bench(args, &out, &errs)
		if status != exitError || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("bench %q: status %d, %q: want 2 and %q", args, status, &errs, tt.want)
		}
	}
}

func TestBenchEndsEarly(t *testing.T) {
	a := startAgent(t, "")
	for _, rate := range []float64{0, 4} {
		o := benchFlags{timing: timing{duration: time.Hour}, address: a.socket, connections: 2, pipeline: 1, keys: 1, cost: 1, rate: rate}
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		r, err := o.run(ctx, io.Discard)
		cancel()
		if err != nil || r.Decisions == 0 || r.Seconds > 30 {
			t.Errorf("rate %g: %v, %+v", rate, err, r)
		}
	}
}
