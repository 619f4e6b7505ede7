// A scenario's stage: Redis behind proxies, three agents, the load, and the moments
// that count.

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"rlsidecar/internal/redistest"
)

const (
	hostCount = 3
	warmUp    = 2 * time.Second // long enough for agents to know their shares
	after     = 3 * time.Second // more than a lease's life
)

type topology int

const (
	alone topology = iota
	sentinel
	cluster
)

func (tp topology) String() string { return [...]string{"one server", "Sentinel", "Cluster"}[tp] }

type stage struct {
	t        *testing.T
	rng      *rand.Rand
	hosts    []*host
	nodes    []*redistest.Server // which keep the buckets
	others   []*redistest.Server // sentinels
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster
	clock    *redistest.Clock
	first    *redistest.Proxy // that only the first agent goes through; nil but before one server

	began, healed time.Time
	spared        func(key string) bool // calm keys that the fault must not touch
}

// set builds the stage and waits until all agents lease.
func set(t *testing.T, s *scenario, seed uint64) *stage {
	t.Helper()
	g := &stage{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	redis := g.redis(s)
	for i := range hostCount {
		way := redis
		if i == 0 && g.first != nil {
			way = url(g.first.Addr)
		}
		g.hosts = append(g.hosts, newHost(t, i, way))
	}
	for _, h := range g.hosts {
		h.awaitLeasing(t)
	}
	return g
}

// redis starts the servers and returns what an agent's configuration says of them.
func (g *stage) redis(s *scenario) string {
	options := append([]redistest.Option{redistest.WithProxy(), redistest.WithConf("enable-debug-command", "local")}, s.options...)
	switch s.on {
	case sentinel:
		g.sentinel = redistest.StartSentinel(g.t, options...)
		g.nodes, g.others = g.sentinel.Servers, g.sentinel.Sentinels
		return fmt.Sprintf("mode: sentinel, master: %s, addrs: %s", g.sentinel.Name, list(g.sentinel.Addrs()))
	case cluster:
		g.cluster = redistest.StartCluster(g.t, options...)
		g.nodes = g.cluster.Nodes
		return fmt.Sprintf("mode: cluster, addrs: %s", list(g.cluster.Addrs()))
	}
	if s.clock {
		g.clock = redistest.NewClock(g.t)
		options = append(options, redistest.WithClock(g.clock))
	}
	g.nodes = []*redistest.Server{redistest.Start(g.t, options...)}
	g.first = redistest.StartProxy(g.t, g.nodes[0].ClientAddr())
	return url(g.nodes[0].ClientAddr())
}

func url(addr string) string { return fmt.Sprintf("url: %q", "redis://"+addr) }

func list(addrs []string) string { return `["` + strings.Join(addrs, `", "`) + `"]` }

// master is the node with the hot keys' buckets.
func (g *stage) master() *redistest.Server {
	switch {
	case g.sentinel != nil:
		return g.sentinel.Master(g.t)
	case g.cluster != nil:
		return g.cluster.MasterOf(g.t, g.key(strict, "hot"))
	}
	return g.nodes[0]
}

// key is the name in Redis of a policy's bucket.
func (g *stage) key(policy, key string) string {
	g.t.Helper()
	for _, name := range g.keys() {
		if strings.Contains(name, ":"+policy+":"+key+"}") {
			return name
		}
	}
	g.t.Fatalf("Redis has no bucket of policy %s and key %q: %q", policy, key, g.keys())
	return ""
}

// keys are all names on all masters.
func (g *stage) keys() (all []string) {
	for _, node := range g.masters() {
		for name := range strings.Lines(node.Do(g.t, "KEYS", "*")) {
			all = append(all, strings.TrimSpace(name))
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

func (g *stage) masters() []*redistest.Server {
	switch {
	case g.sentinel != nil:
		return []*redistest.Server{g.sentinel.Master(g.t)}
	case g.cluster != nil:
		return g.cluster.Masters(g.t)
	}
	return g.nodes
}

// spare has the verdict demand that calm keys of other masters than node notice
// nothing.
func (g *stage) spare(node *redistest.Server) {
	hurt := map[string]bool{}
	for i := range calmKeys {
		key := string(rune('a' + i))
		hurt[key] = g.cluster.MasterOf(g.t, g.key(calm, key)) == node
	}
	g.spared = func(key string) bool { return !hurt[key] }
}

// awaitOther waits until another master has taken the place of old; the fault is over
// then.
func (g *stage) awaitOther(old *redistest.Server) {
	g.t.Helper()
	if g.sentinel != nil {
		g.sentinel.AwaitMaster(g.t, old)
	} else {
		g.cluster.AwaitMasterInsteadOf(g.t, old)
	}
	g.heal()
}

// connections is how many the proxies have accepted.
func (g *stage) connections() (n int) {
	for _, node := range slices.Concat(g.nodes, g.others) {
		n += node.Proxy.Accepted()
	}
	return n
}

func (g *stage) leasesLost() (n float64) {
	for _, h := range g.hosts {
		n += h.leasesLost()
	}
	return n
}

// heal notes that from now on nothing is in the agents' way.
func (g *stage) heal() { g.healed = time.Now() }

// hold lets the load run on.
func (g *stage) hold(d time.Duration) { time.Sleep(d) }

// outcome is one row of the table.
type outcome struct {
	figures
	scenario      *scenario
	connections   float64 // opened per agent, from the fault on
	leasesLost    float64 // permits
	faultTook     time.Duration
	sparedNoticed float64 // part of the decisions for spared keys that were degraded
	allowed       float64 // excess that lost writes explain
}

// play runs one scenario from the first call to the last.
func play(t *testing.T, s *scenario, seed uint64) outcome {
	t.Helper()
	g := set(t, s, seed)
	g.began = time.Now()
	stop := load(g.hosts, g.began, seed)
	g.hold(warmUp + time.Duration(g.rng.IntN(300))*time.Millisecond)
	if g.cluster != nil {
		g.spare(g.master())
	}
	connections, lost, started := g.connections(), g.leasesLost(), time.Now()
	s.fault(g)
	if g.healed.IsZero() {
		g.heal()
	}
	g.hold(after)
	o := outcome{scenario: s, connections: float64(g.connections()-connections) / hostCount, faultTook: g.healed.Sub(started)}
	o.leasesLost = g.leasesLost() - lost
	notes := stop()
	o.figures = judge(notes, g.healed.Sub(g.began))
	o.allowed = float64(s.losses * hotLimit)
	if g.spared != nil {
		o.sparedNoticed = noticed(notes, started.Sub(g.began), g.spared)
	}
	return o
}
