// Command bench measures what a decision costs in Go: a call of the agent, against
// the same bytes sent to and fro by plain Go, and against go-redis asking a token
// bucket in Lua, all over Unix sockets:
//
//	go build -o build/rlsidecar ./cmd/rlsidecar
//	go run ./clients/go/bench -agent build/rlsidecar
//
// Latency is taken with both ends pinned to one processor, for what is measured
// otherwise is how fast the machine wakes one; throughput with 8 goroutines on all of
// them. The contestants take turns in each round; what is printed is the median of
// the rounds, as lines of JSON. Needs redis-server and taskset.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

var contestants = []string{"agent", "ping", "redis"}

func main() {
	agent := flag.String("agent", "build/rlsidecar", "`path` of the agent")
	rounds := flag.Int("rounds", 5, "`number` of rounds, 3 and more")
	calls := flag.Int("calls", 10_000, "`number` of calls in a round")
	part := flag.String("part", "", "latency or throughput; empty: both, each in a process of its own")
	flag.Parse()
	log.SetFlags(0)
	if *rounds < 3 || *calls < 100 {
		log.Fatalf("-rounds %d, -calls %d: allowed are 3 and 100, and more", *rounds, *calls)
	}
	var err error
	switch *part {
	case "latency":
		err = measure(*agent, *rounds, *calls, latency)
	case "throughput":
		err = measure(*agent, *rounds, *calls, throughput)
	default:
		err = both()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// both runs the two parts, the first on one processor with all that it starts.
func both() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, command := range [][]string{
		{"taskset", "-c", "0", self, "-part", "latency"},
		{self, "-part", "throughput"},
	} {
		cmd := exec.Command(command[0], append(command[1:], os.Args[1:]...)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%v: %w", command, err)
		}
	}
	return nil
}

// figures are what one contestant reached in one round, in microseconds or calls
// per second.
type figures map[string]float64

// measure has each contestant take its turn in each round.
func measure(agent string, rounds, calls int, turn func(call, int) (figures, error)) error {
	servers, err := start(agent)
	if err != nil {
		return err
	}
	defer servers.stop()
	reached := map[string][]figures{}
	for round := range rounds + 1 {
		for _, name := range contestants {
			call, end, err := servers.caller(name)
			if err != nil {
				return err
			}
			got, err := turn(call, calls)
			end()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if round > 0 { // the first one warms up
				reached[name] = append(reached[name], got)
			}
		}
	}
	return report(reached)
}

func latency(one call, calls int) (figures, error) {
	took := make([]time.Duration, calls)
	for i := range took {
		start := time.Now()
		if err := one(i); err != nil {
			return nil, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return figures{"p50_us": us(took[calls/2]), "p99_us": us(took[calls*99/100])}, nil
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func throughput(one call, calls int) (figures, error) {
	const callers = 8
	var (
		all    sync.WaitGroup
		failed = make(chan error, callers)
	)
	start := time.Now()
	for c := range callers {
		all.Go(func() {
			for i := range calls {
				if err := one(c*calls + i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return figures{"calls_per_s": callers * float64(calls) / time.Since(start).Seconds()}, nil
	}
}

// report prints the medians, and the agent's in relation to the others', taken within
// each round.
func report(reached map[string][]figures) error {
	out := json.NewEncoder(os.Stdout)
	for _, name := range contestants {
		line := map[string]any{"lang": "go", "what": name}
		for figure := range reached[name][0] {
			line[figure] = median(reached[name], func(f, _ figures) float64 { return f[figure] }, nil)
			if name != "agent" {
				line["agent_to_this_"+figure] = median(reached["agent"], func(f, other figures) float64 { return f[figure] / other[figure] }, reached[name])
			}
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func median(rounds []figures, of func(f, other figures) float64, others []figures) float64 {
	var values []float64
	for i, f := range rounds {
		var other figures
		if others != nil {
			other = others[i]
		}
		values = append(values, of(f, other))
	}
	slices.Sort(values)
	return float64(int(100*values[len(values)/2])) / 100
}
