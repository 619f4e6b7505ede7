// The load, and the notes that are kept of every call.

package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	rlsidecar "rlsidecar/clients/go"
)

const (
	redisTimeout = 50 * time.Millisecond
	hotLimit     = 300 // a second, and the capacity, of strict and of shared
	calmKeys     = 6
)

// The policies that are called, and what each is to show.
const (
	strict  = "strict"  // twice the limit is asked for, and nothing given without Redis: never above the bound
	shared  = "shared"  // the same, but with a share without Redis
	calm    = "calm"    // a third of the limit is asked for: every denial is wrong
	control = "control" // all keys are blocked, Redis is never asked: how late a call is by the machine alone
)

// policies is the part of the configuration that is the same in all scenarios.
const policies = `
policies:
  strict: {limit: 300/second, when_redis_is_down: deny}
  shared: {limit: 300/second}
  calm: {limit: 60/second}
  control: {limit: 1/second, block: ["*"]}
`

// note is one call, in time since the load began.
type note struct {
	host              int
	policy, key       string
	asked, answered   time.Duration
	allowed, degraded bool
	err               error
}

func (n *note) took() time.Duration { return n.answered - n.asked }

// caller calls one agent for one key, at an even pace as long as answers come in time.
type caller struct {
	host        *host
	policy, key string
	every       time.Duration
	notes       []note
}

// callers are those of one host: 2 × 100 calls a second for each hot key, 7 for
// each of the calm ones, and 200 that show how busy the machine is.
func callers(h *host) (all []*caller) {
	for range 2 {
		all = append(all,
			&caller{host: h, policy: strict, key: "hot", every: 10 * time.Millisecond},
			&caller{host: h, policy: shared, key: "hot", every: 10 * time.Millisecond})
	}
	for i := range calmKeys {
		all = append(all, &caller{host: h, policy: calm, key: string(rune('a' + i)), every: 150 * time.Millisecond})
	}
	return append(all, &caller{host: h, policy: control, key: "k", every: 5 * time.Millisecond})
}

// run calls until ctx ends. A control call counts from the moment it was due: also
// the caller may have been kept waiting.
func (c *caller) run(ctx context.Context, began time.Time, rng *rand.Rand) {
	due := time.Now().Add(time.Duration(rng.Int64N(int64(c.every))))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		asked := time.Now()
		d, err := c.host.client.Acquire(context.Background(), rlsidecar.Policy(c.policy), c.key)
		answered := time.Now()
		if c.policy == control {
			asked = due
		}
		c.notes = append(c.notes, note{
			host: c.host.number, policy: c.policy, key: c.key, asked: asked.Sub(began), answered: answered.Sub(began),
			allowed: d.Allowed, degraded: d.Degraded, err: err,
		})
		if due = due.Add(c.every); due.Before(answered) {
			due = answered
		}
	}
}

// load runs the callers of all hosts until stop is called, which returns the notes.
func load(hosts []*host, began time.Time, seed uint64) (stop func() []note) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var all []*caller
	for _, h := range hosts {
		all = append(all, callers(h)...)
	}
	for i, c := range all {
		running.Go(func() { c.run(ctx, began, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	return func() (notes []note) {
		cancel()
		running.Wait()
		for _, c := range all {
			notes = append(notes, c.notes...)
		}
		return notes
	}
}
