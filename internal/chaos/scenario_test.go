// The failures.

package chaos

import (
	"strconv"
	"time"

	"rlsidecar/internal/redistest"
)

type scenario struct {
	name      string // for --only
	what      string // for the table
	on        topology
	quick     bool          // part of ordinary test runs
	clock     bool          // Redis has a clock of its own
	losses    int           // times that Redis forgets writes, or is given time: each may cost a capacity
	agentsDie bool          // calls fail then
	apart     int           // permits that a host adds by its share, until it is back, while the others have the whole limit
	recovery  time.Duration // that it may take; 0: 2 s
	options   []redistest.Option
	fault     func(*stage)
}

var scenarios = []scenario{
	{name: "none", what: "none", quick: true, fault: nothing},
	{name: "none-sentinel", what: "none", on: sentinel, fault: nothing},
	{name: "none-cluster", what: "none", on: cluster, fault: nothing},

	{name: "kill-sentinel", what: "kill -9 of the master, another is elected", on: sentinel, losses: 1, fault: kill},
	{name: "kill-cluster", what: "kill -9 of a master, another is elected", on: cluster, quick: true, losses: 1, fault: kill},
	{name: "hang-1s", what: "SIGSTOP for 1 s", quick: true, fault: hang(time.Second)},
	{name: "hang-10s", what: "SIGSTOP for 10 s", fault: hang(10 * time.Second)},
	{name: "hang-sentinel", what: "SIGSTOP of the master for 10 s, another is elected", on: sentinel, losses: 1, fault: hangForLong},
	{name: "hang-cluster", what: "SIGSTOP of a master for 10 s, another is elected", on: cluster, losses: 1, fault: hangForLong},
	{name: "lost-tail-sentinel", what: "kill -9 of the master, a replica without the last writes is elected", on: sentinel, losses: 1, fault: killUnreplicated},
	{name: "lost-tail-cluster", what: "kill -9 of a master, a replica without the last writes is elected", on: cluster, losses: 1, fault: killUnreplicated},
	{name: "restart", what: "Redis restarted, empty", losses: 1, fault: func(g *stage) { g.nodes[0].Restart(g.t) }},

	// Both masters grant for a second or so: what the old one gives is lost besides what it had given.
	{name: "failover-sentinel", what: "planned failover", on: sentinel, losses: 2, fault: func(g *stage) { g.sentinel.Failover(g.t) }},
	{
		name: "failover-careful", what: "planned failover, min-replicas-to-write 2 (all)", on: sentinel, recovery: 5 * time.Second,
		options: []redistest.Option{redistest.WithConf("min-replicas-to-write", "2")},
		fault:   func(g *stage) { g.sentinel.Failover(g.t) },
	},
	{name: "failover-cluster", what: "planned failover", on: cluster, fault: func(g *stage) {
		g.cluster.Failover(g.t, g.cluster.ReplicaOf(g.t, g.master()))
	}},
	{name: "migration", what: "the hot keys' slots move to another master and back, key by key", on: cluster, fault: migrate},

	{name: "partition", what: "all agents cut off for 4 s", fault: cutOff},
	{name: "partition-one", what: "one agent of three cut off for 4 s", apart: 5 * hotLimit / hostCount, fault: func(g *stage) {
		g.first.BlackHole(true)
		g.hold(4 * time.Second)
		g.first.BlackHole(false)
		g.first.Cut()
	}},
	{name: "partition-sentinel", what: "all agents cut off from the master for 4 s, sentinels not", on: sentinel, fault: cutOff},
	{name: "partition-cluster", what: "all agents cut off from one master for 4 s", on: cluster, fault: cutOff},
	{name: "lost-1", what: "1 % of the replies lost, with their connections", fault: loseReplies(0.01)},
	{name: "lost-10", what: "10 % of the replies lost, with their connections", quick: true, fault: loseReplies(0.1)},
	{name: "latency-1", what: "1 ms there and back, up to twice that", fault: delayed(time.Millisecond)},
	{name: "latency-20", what: "20 ms there and back, up to twice that", fault: delayed(20 * time.Millisecond)},
	{name: "latency-200", what: "200 ms there and back, up to twice that", fault: delayed(200 * time.Millisecond)},

	{name: "script-flush", what: "SCRIPT FLUSH, ten times in 2 s", fault: repeat(10, "SCRIPT", "FLUSH")},
	{name: "flushall", what: "FLUSHALL", losses: 1, fault: repeat(1, "FLUSHALL")},
	{name: "debug-reload", what: "DEBUG RELOAD, ten times in 2 s", fault: repeat(10, "DEBUG", "RELOAD")},
	{name: "foreign", what: "Redis restarted, foreign values under our names for 3 s", losses: 2, fault: foreign},

	{name: "agent-killed", what: "agents killed with SIGKILL and started again, one after the other", quick: true, agentsDie: true, fault: killAgents},
	{name: "clock-forward", what: "Redis' clock set forward by an hour", clock: true, losses: 1, fault: func(g *stage) { g.clock.Set(g.t, time.Hour) }},
	{name: "clock-there-and-back", what: "Redis' clock set forward by an hour, and back after 2 s", clock: true, losses: 1, fault: func(g *stage) {
		g.clock.Set(g.t, time.Hour)
		g.hold(2 * time.Second)
		g.clock.Set(g.t, 0)
		g.hold(6 * time.Second)
	}},
	{name: "clock-back", what: "Redis' clock set back by 2 s", clock: true, fault: func(g *stage) { g.clock.Set(g.t, -2*time.Second) }},
	{name: "clock-back-hour", what: "Redis' clock set back by an hour", clock: true, fault: func(g *stage) {
		g.clock.Set(g.t, -time.Hour)
		g.hold(8 * time.Second) // for the calm keys to be used up
	}},
}

func nothing(g *stage) { g.hold(2 * time.Second) }

func kill(g *stage) {
	old := g.master()
	old.Kill()
	g.awaitOther(old)
	g.hold(time.Second)
	old.Restart(g.t)
	g.hold(2 * time.Second)
}

// hangForLong wakes a master that believes it is one still.
func hangForLong(g *stage) {
	old := g.master()
	old.Pause()
	start := time.Now()
	g.awaitOther(old)
	g.hold(10*time.Second - time.Since(start))
	old.Resume()
	g.hold(2 * time.Second)
}

// killUnreplicated has nobody hear from the master for less time than it takes to
// call it dead, and then it is.
func killUnreplicated(g *stage) {
	old := g.master()
	old.Proxy.SetPeersBlackHole(true)
	g.hold(300 * time.Millisecond)
	if g.cluster == nil {
		old.Kill()
	} else { // a second's loss: replicas are asked before they know
		replica := g.cluster.ReplicaOf(g.t, old)
		g.hold(700 * time.Millisecond)
		old.Kill()
		g.cluster.Takeover(g.t, replica)
	}
	g.awaitOther(old)
}

// cutOff lets nothing through between the agents and the master of the hot keys:
// connections stay up, and nobody hears from anybody.
func cutOff(g *stage) {
	proxy := g.master().Proxy
	proxy.BlackHole(true)
	g.hold(4 * time.Second)
	proxy.BlackHole(false)
	proxy.Cut()
}

func hang(d time.Duration) func(*stage) {
	return func(g *stage) {
		g.nodes[0].Pause()
		g.hold(d)
		g.nodes[0].Resume()
	}
}

func loseReplies(share float64) func(*stage) {
	return func(g *stage) {
		g.nodes[0].Proxy.DropReplies(share, g.rng.Uint64())
		g.hold(4 * time.Second)
		g.nodes[0].Proxy.DropReplies(0, 0)
	}
}

// delayed takes the round trip, half of it each way.
func delayed(d time.Duration) func(*stage) {
	return func(g *stage) {
		g.nodes[0].Proxy.Delay(d/2, d/2)
		g.hold(5 * time.Second)
		g.nodes[0].Proxy.Delay(0, 0)
	}
}

func repeat(times int, command ...string) func(*stage) {
	return func(g *stage) {
		for range times {
			g.nodes[0].Do(g.t, command...)
			g.hold(200 * time.Millisecond)
		}
	}
}

// migrate stays half-way for a while: some keys of a slot are with its new owner
// before the slot is.
func migrate(g *stage) {
	from := g.master()
	to := g.cluster.Masters(g.t)[0]
	if to == from {
		to = g.cluster.Masters(g.t)[1]
	}
	for _, target := range []*redistest.Server{to, from} {
		for _, policy := range []string{strict, shared} {
			name := g.key(policy, "hot")
			if g.cluster.MasterOf(g.t, name) == target {
				continue
			}
			m := g.cluster.BeginMigration(g.t, g.cluster.KeySlot(g.t, name), target)
			g.hold(300 * time.Millisecond)
			m.MoveKeys(g.t, 1)
			g.hold(500 * time.Millisecond)
			m.Finish(g.t)
			g.hold(300 * time.Millisecond)
		}
	}
}

// foreign has another application and another version of the agent get at the names
// first.
func foreign(g *stage) {
	node, names := g.nodes[0], g.keys()
	node.Proxy.Refuse(true)
	node.Proxy.Cut()
	node.Restart(g.t)
	for i, name := range names {
		if i%2 == 0 {
			node.Do(g.t, "RPUSH", name, "of", "another", "application")
		} else {
			node.Do(g.t, "SET", name, "9 another version "+strconv.Itoa(i))
		}
	}
	node.Proxy.Refuse(false)
	g.hold(3 * time.Second)
	for _, name := range names {
		node.Do(g.t, "DEL", name)
	}
}

func killAgents(g *stage) {
	for _, h := range g.hosts {
		h.lostBefore = h.leasesLost()
		h.kill()
		g.hold(time.Duration(100+g.rng.IntN(200)) * time.Millisecond)
		h.start(g.t)
		g.hold(time.Second)
	}
}
