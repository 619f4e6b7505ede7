// Package remote is the authority: Lua scripts in Redis, and the one place that
// talks to it.
package remote

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"rlsidecar/internal/bucket"
)

const (
	format     = "v3" // of what is stored; part of every key
	pipelines  = 4    // in flight at once, to one node
	maxBatch   = 64   // asks in one pipeline: less than 1 ms of Redis
	maxKeys    = 32   // buckets in one script call: Redis does nothing else meanwhile
	silence    = 3    // times the time-out that a busy Redis may say nothing
	resends    = 3    // of a question that did not run: its script was missing, its slot elsewhere
	patience   = time.Second
	knockTime  = 250 * time.Millisecond // at least, for an answer from a node that was lost
	firstProbe = 100 * time.Millisecond
	probeEvery = 250 * time.Millisecond
)

// Options say which Redis and how.
type Options struct {
	URL   string   // redis://, rediss:// (TLS) or unix://, with the user, password and database in it
	Addrs []string // host:port of each server to begin with, in place of URL
	Mode  Mode
	// Master is the name under which the sentinels know it, in mode Sentinel.
	Master   string
	DB       int // with Addrs; 0 in mode Cluster
	Username string
	Password Secret
	TLS      *TLS // nil: none, unless URL is rediss://

	SentinelUsername string
	SentinelPassword Secret

	Timeout time.Duration // for one pipeline, 1 ms..10 s
	Prefix  string        // of every key
	Log     *slog.Logger
	// Observe, if set, is told of each pipeline: its questions, and how long it took.
	Observe func(questions int, took time.Duration)
}

// Redis is a limiter's authority.
//
// A script is sent once: no retry of go-redis is left on (see once), and what this
// package sends again is only what Redis answered NOSCRIPT, MOVED or ASK to, which did
// not run.
type Redis struct {
	o        Options
	dial     *redis.Options // of every connection
	seeds    []string
	topology atomic.Pointer[topology] // nil: not known yet
	health   health                   // of the cluster as a whole: whether its slots are known
	keys     int                      // buckets in one script call at most
	stale    chan struct{}            // capacity 1: the topology is to be looked at again
	life     context.Context          // until Close
	end      context.CancelFunc
	work     sync.WaitGroup // of the nodes
	scripts  atomic.Uint64
	asks     atomic.Uint64
	dials    atomic.Uint64

	// mu guards the fields that follow. Lock order: mu, then a node's.
	mu     sync.Mutex
	nodes  map[string]*node // by address: those of the topology and, of a cluster, others just learnt of
	closed bool
}

// quiet keeps go-redis from writing to standard error: what it has to say comes
// back as errors, and health tells it once.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }

// Open returns a Redis that is not reachable until Run has reached it. It fails
// when the options make no sense; it does not connect.
func Open(o Options) (*Redis, error) {
	dial, seeds, err := o.dialing()
	if err != nil {
		return nil, err
	}
	r := &Redis{o: o, keys: maxKeys, dial: dial, seeds: seeds, stale: make(chan struct{}, 1), nodes: map[string]*node{}}
	r.life, r.end = context.WithCancel(context.Background())
	r.health.init(o.Log)
	switch o.Mode {
	case Single:
		r.only(seeds[0], func() *redis.Client { return redis.NewClient(r.at(seeds[0])) })
	case Cluster:
		r.keys = 1 // keys of several slots cannot be told in one call
	case Sentinel:
		failover, err := o.failover(dial, seeds)
		if err != nil {
			return nil, err
		}
		r.only("master "+o.Master, func() *redis.Client { return redis.NewFailoverClient(failover) })
	}
	return r, nil
}

// only makes a topology of one node.
func (r *Redis) only(addr string, connect func() *redis.Client) {
	n := r.newNode(addr, connect)
	r.nodes[addr] = n
	r.topology.Store(&topology{nodes: []*node{n}})
}

func (r *Redis) clustered() bool { return r.o.Mode == Cluster }

// Home returns the slot of a bucket in a cluster, else 0. It never changes.
func (r *Redis) Home(policy, key string) uint16 {
	if !r.clustered() {
		return 0
	}
	return slotOf(r.name(policy, key))
}

// Reachable reports whether the node that keeps home answered last.
func (r *Redis) Reachable(home uint16) bool {
	n := r.topology.Load().of(home)
	return n != nil && n.health.up.Load()
}

// Degraded reports that some buckets cannot be asked about.
func (r *Redis) Degraded() bool {
	t := r.topology.Load()
	return t == nil || slices.ContainsFunc(t.nodes, func(n *node) bool { return !n.health.up.Load() }) ||
		t.owner != nil && slices.Contains(t.owner, nil)
}

var errAway = fmt.Errorf("Redis is not reachable: %w", bucket.ErrRefused)

// Ask sends q with the next pipeline of its node: at once while fewer than a few are
// in flight, else together with all that come until one has ended.
func (r *Redis) Ask(q *bucket.Question) {
	if n := r.topology.Load().of(q.Home); n == nil || !n.push(q) {
		go q.Answer(q, bucket.Grant{}, errAway)
	}
}

// name is what a bucket's keys begin with. The braces keep all of them in one slot.
func (r *Redis) name(policy, key string) string {
	return "{" + r.o.Prefix + ":" + format + ":" + policy + ":" + key + "}"
}

func (r *Redis) key(q *bucket.Question) string {
	return r.name(q.Policy, q.Key) + scriptOf(q.Rule.Algorithm).suffix
}

// Run reaches for Redis, and again whenever it is lost, until ctx ends. attempted
// is called once, after the first try, whatever came of it.
func (r *Redis) Run(ctx context.Context, attempted func()) {
	if r.clustered() {
		r.follow(ctx, attempted)
		return
	}
	n := r.topology.Load().nodes[0]
	r.work.Go(func() { n.run(ctx) })
	n.started(ctx)
	attempted()
	<-ctx.Done()
}

// Close waits for what is in flight and closes the connections. Later asks are
// refused.
func (r *Redis) Close() error {
	r.mu.Lock()
	r.closed = true
	var closing sync.WaitGroup
	for _, n := range r.nodes {
		closing.Go(n.close)
	}
	r.mu.Unlock()
	r.end()
	closing.Wait()
	r.work.Wait()
	return nil
}

// Scripts returns how many script calls were sent since the start.
func (r *Redis) Scripts() uint64 { return r.scripts.Load() }

// Asks returns how many questions they carried.
func (r *Redis) Asks() uint64 { return r.asks.Load() }

// Dials returns how many connections were opened, or tried to be, since the start.
func (r *Redis) Dials() uint64 { return r.dials.Load() }
