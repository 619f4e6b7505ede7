// Redis as it is run: behind Sentinel, as a Cluster, over TLS, with users that may do
// little. Every server is a real one.

package remote

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/redistest"
)

// takesOver bounds how long a replica may take to be found in its master's place: a
// second or two for Redis to agree, the rest for a busy machine.
const takesOver = 20 * time.Second

// running opens a Redis and runs it until the test ends.
func running(t *testing.T, o Options) *Redis {
	t.Helper()
	o.Timeout, o.Prefix = generous, "test"
	if o.Log == nil {
		o.Log = nowhere()
	}
	r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	attempted := make(chan struct{})
	ended.Go(func() { r.Run(ctx, func() { close(attempted) }) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
		r.Close()
	})
	<-attempted
	return r
}

// connected is running, once all of Redis answers.
func connected(t *testing.T, o Options) *Redis {
	t.Helper()
	r := running(t, o)
	await(t, takesOver, "Redis to be reached", func() bool { return !r.Degraded() })
	return r
}

// ask asks for one permit of key and returns what came of it.
func ask(t *testing.T, r *Redis, key string) *asked {
	t.Helper()
	a := question(key)
	a.Home = r.Home(a.Policy, key)
	r.Ask(&a.Question)
	a.wait(t)
	return a
}

// mustGrant asks for one permit of each key, and fails unless all are granted.
func mustGrant(t *testing.T, r *Redis, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if a := ask(t, r, key); a.err != nil || a.grant.Permits < 1 {
			t.Errorf("%s: %d permits, %v; %+v", key, a.grant.Permits, a.err, r.Status())
		}
	}
}

// keysBy sorts keys by the node that keeps them.
func keysBy(t *testing.T, c *redistest.Cluster, r *Redis) map[*redistest.Server][]string {
	t.Helper()
	by := map[*redistest.Server][]string{}
	for i := range 60 {
		key := fmt.Sprint("k", i)
		node := c.MasterOf(t, r.name("p", key))
		by[node] = append(by[node], key)
	}
	if len(by) != 3 {
		t.Fatalf("60 keys are on %d nodes", len(by))
	}
	return by
}

func cluster(t *testing.T, options ...redistest.Option) (*redistest.Cluster, *Redis) {
	t.Helper()
	c := redistest.StartCluster(t, options...)
	return c, connected(t, Options{Addrs: c.Addrs()[:2], Mode: Cluster})
}

func TestSlotIsThatOfRedis(t *testing.T) {
	for key, want := range map[string]uint16{"123456789": 12739, "": 0, "foo": 12182, "{foo}bar": 12182, "{}foo": 9500, "foo{bar}{zap}": 5061, "foo{{bar}}zap": 4015} {
		if got := slotOf(key); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}

// However few slots a node keeps, its probe is about one of them, and found in time.
func TestProbeIsAboutASlotOfItsNode(t *testing.T) {
	r, err := Open(Options{Addrs: []string{"127.0.0.1:1"}, Mode: Cluster, Prefix: "test", Log: nowhere()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := r.newNode("127.0.0.1:1", func() *redis.Client { return redis.NewClient(r.at("127.0.0.1:1")) })
	defer n.close()
	for _, of := range []slotRange{{0, 0, "a"}, {slots - 1, slots - 1, "a"}, {7, 99, "a"}, {0, slots - 1, "a"}} {
		n.keeps.Store(longestOf([]slotRange{{5, 5, "b"}, of, {200, 200, "a"}}, "a"))
		if slot := int(slotOf(r.key(n.probe()))); slot < of.from || slot > of.to {
			t.Errorf("a probe for the node of %+v is about slot %d", of, slot)
		}
	}
}

func TestClusterIsAskedWhereTheKeyIs(t *testing.T) {
	t.Parallel()
	c, r := cluster(t)
	for node, keys := range keysBy(t, c, r) {
		before := node.CommandCalls(t, "evalsha")
		mustGrant(t, r, keys...)
		if n := node.CommandCalls(t, "evalsha") - before; n != len(keys) {
			t.Errorf("%s ran %d scripts for %d keys", node.Addr, n, len(keys))
		}
		if at := r.Node(r.Home("p", keys[0])); at.Node != node.Addr || at.State != "ok" {
			t.Errorf("Node of %s is %+v, want %s", keys[0], at, node.Addr)
		}
		if n := node.CommandRejections(t, "evalsha"); n > 0 {
			t.Errorf("%s rejected %d scripts: their keys are elsewhere", node.Addr, n)
		}
	}
	if all := r.Nodes(); len(all) != 3 {
		t.Errorf("%d nodes: %+v", len(all), all)
	}
}

// A node that hangs, or ends, takes its own buckets out and no others. Its replica has
// the scripts before it is asked for a bucket.
func TestClusterLosesOneNode(t *testing.T) {
	for name, lose := range map[string]func(*redistest.Server){
		"hung":   (*redistest.Server).Pause,
		"killed": (*redistest.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			book := &logbook{}
			c := redistest.StartCluster(t)
			r := connected(t, Options{Addrs: c.Addrs(), Mode: Cluster, Log: slog.New(book)})
			by := keysBy(t, c, r)
			lost := c.MasterOf(t, r.name("p", "k0"))
			replica := c.ReplicaOf(t, lost)
			home := r.Home("p", "k0")
			lose(lost)
			defer lost.Resume()
			for r.Reachable(home) { // as callers would
				ask(t, r, "k0")
			}
			if !r.Degraded() || r.Node(home).State != "degraded" || !strings.Contains(r.Status().Reason, lost.Addr) {
				t.Errorf("Node %+v, Status %+v", r.Node(home), r.Status())
			}
			for node, keys := range by {
				if node != lost {
					mustGrant(t, r, keys...)
				}
			}
			await(t, takesOver, "the replica to be found", func() bool { return r.Reachable(home) && !r.Degraded() })
			if at := r.Node(home).Node; at != replica.Addr {
				t.Errorf("k0 is looked for at %s, want %s", at, replica.Addr)
			}
			mustGrant(t, r, by[lost]...)
			if errors := replica.Do(t, "INFO", "errorstats"); strings.Contains(errors, "NOSCRIPT") {
				t.Errorf("the new master was asked before it had the scripts:\n%s", errors)
			}
			if log := book.String(); !strings.Contains(log, "Redis cannot be reached") {
				t.Errorf("logged:\n%s", log)
			}
		})
	}
}

// Buckets go with their slots, half-way and after: each keeps what was used of it.
func TestClusterMovesASlot(t *testing.T) {
	t.Parallel()
	c, r := cluster(t)
	day, err := bucket.NewRule(bucket.Limit{Count: 1000, Period: 24 * time.Hour, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	take := func(key string) int64 {
		t.Helper()
		a := question(key)
		a.Rule, a.Home = &day, r.Home("p", key)
		r.Ask(&a.Question)
		if a.wait(t); a.err != nil || a.grant.Permits != 1 {
			t.Fatalf("%s: %d permits, %v", key, a.grant.Permits, a.err)
		}
		return int64(a.grant.Outlook.Levels[0].Permits)
	}
	home := r.Home("p", "k0")
	var late string // another key of the slot, not used yet
	for i := 0; late == ""; i++ {
		if key := fmt.Sprint("x", i); r.Home("p", key) == home {
			late = key
		}
	}
	from := c.MasterOf(t, r.name("p", "k0"))
	to := c.Masters(t)[0]
	if to == from {
		to = c.Masters(t)[1]
	}
	level := take("k0")
	expect := func(what string) {
		t.Helper()
		if got := take("k0"); got != level-1 {
			t.Errorf("%s: the level is %d, want %d", what, got, level-1)
		}
		level--
	}
	m := c.BeginMigration(t, int(home), to)
	expect("before its key went")
	take(late)
	if m.MoveKeys(t, 100) == 0 {
		t.Fatal("no key went")
	}
	expect("after its key went")
	m.Finish(t)
	expect("after its slot went")
	await(t, takesOver, "the slot to be looked for at its new node", func() bool { return r.Node(home).Node == to.Addr })
	expect("when that is known")
}

func TestClusterFailsOverAsPlanned(t *testing.T) {
	t.Parallel()
	c, r := cluster(t)
	home := r.Home("p", "k0")
	replica := c.ReplicaOf(t, c.MasterOf(t, r.name("p", "k0")))
	mustGrant(t, r, "k0")
	c.Failover(t, replica)
	await(t, takesOver, "the new master to be asked", func() bool {
		a := ask(t, r, "k0")
		return a.err == nil && r.Node(home).Node == replica.Addr
	})
}

// The master is found by its name, and again when it is another; once it is known, the
// sentinels may go.
func TestSentinelsNameTheMaster(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *redistest.Sentinel){
		"killed":  func(t *testing.T, s *redistest.Sentinel) { old := s.KillMaster(t); s.AwaitMaster(t, old) },
		"planned": func(t *testing.T, s *redistest.Sentinel) { s.Failover(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinel(t)
			r := connected(t, Options{Addrs: s.Addrs(), Mode: Sentinel, Master: s.Name})
			mustGrant(t, r, "a")
			old := s.Master(t)
			lose(t, s)
			master := s.Master(t)
			if master == old {
				t.Fatal("the master is the old one")
			}
			await(t, takesOver, "the new master to be asked", func() bool { // the old one may answer until it is told
				before := master.CommandCalls(t, "evalsha")
				return ask(t, r, "a").err == nil && master.CommandCalls(t, "evalsha") > before
			})
			mustGrant(t, r, "a", "b", "c")
			for _, sentinel := range s.Sentinels {
				sentinel.Kill()
			}
			mustGrant(t, r, "d")
		})
	}
}

func TestMasterThatNobodyKnows(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	r := running(t, Options{Addrs: s.Addrs(), Mode: Sentinel, Master: "another"})
	if got := r.Status(); got.State != "failing" || !strings.Contains(got.Mend, "redis.master") {
		t.Errorf("Status %+v", got)
	}
}

func TestWrongModeSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	single := redistest.Start(t)
	for name, o := range map[string]struct {
		Options
		mend string
	}{
		"a cluster as a single server": {Options{Addrs: c.Addrs()[:1]}, "set redis.mode: cluster"},
		"a single server as a cluster": {Options{Addrs: []string{single.Addr}, Mode: Cluster}, "take redis.mode out"},
	} {
		r := running(t, o.Options)
		for i := 0; i < 100 && r.Status().State == "ok"; i++ { // the probe's key may be on this very node
			ask(t, r, fmt.Sprint(i))
		}
		if got := r.Status(); got.State != "failing" || !strings.Contains(got.Mend, o.mend) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// tlsOf is what an agent is told to connect to servers with these certificates.
func tlsOf(files *redistest.TLS) *TLS {
	return &TLS{CA: files.CA, Cert: files.ClientCert, Key: files.ClientKey}
}

func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	files := redistest.NewTLS(t)
	with := redistest.WithTLS(files)
	single := redistest.Start(t, with)
	c := redistest.StartCluster(t, with)
	s := redistest.StartSentinel(t, with)
	for name, o := range map[string]Options{
		"url":      {URL: single.URL()},
		"addrs":    {Addrs: []string{single.Addr}},
		"cluster":  {Addrs: c.Addrs(), Mode: Cluster},
		"sentinel": {Addrs: s.Addrs(), Mode: Sentinel, Master: s.Name},
	} {
		o.TLS = tlsOf(files)
		mustGrant(t, connected(t, o), "a", "b", "c")
		o.TLS = &TLS{CA: files.CA}
		if r := running(t, o); !r.Degraded() || r.Status().Reason == "" {
			t.Errorf("%s: without a client certificate: %+v", name, r.Status())
		}
		o.TLS = &TLS{Cert: files.ClientCert, Key: files.ClientKey}
		if r := running(t, o); !r.Degraded() {
			t.Errorf("%s: a server that nobody vouches for is believed", name)
		}
		o.TLS = tlsOf(files)
		o.TLS.ServerName = "redis.example"
		if r := running(t, o); !r.Degraded() || !strings.Contains(r.Status().Reason, "redis.example") {
			t.Errorf("%s: a server of another name is believed: %+v", name, r.Status())
		}
	}
}

func TestBadCertificatesStopTheStart(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, files := range map[string]TLS{
		"redis.tls.ca: open /no/such": {CA: "/no/such"},
		"holds no certificate":        {CA: empty},
		"redis.tls.cert":              {Cert: empty, Key: empty},
	} {
		_, err := Open(Options{Addrs: []string{"127.0.0.1:1"}, TLS: &files, Log: nowhere()})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", files, err, want)
		}
	}
}

// advised are the rights that operators are told to give.
func advised(cluster bool) []string {
	_, rights, _ := strings.Cut(classify(rejected("NOPERM"), "test", cluster).mend, "ACL SETUSER name ")
	return append([]string{"on", ">secret"}, strings.Fields(rights)...)
}

// The rights that are advised are enough, and those it can do without are not needed:
// managed services refuse some commands to everybody.
func TestUsersWhoMayDoLittle(t *testing.T) {
	t.Parallel()
	rights := advised(true)
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	login := Options{Username: "agent", Password: Secret{File: secret}}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, redistest.WithUser("agent", rights...), redistest.WithPassword("another"))
		o := login
		o.Addrs, o.Mode = c.Addrs(), Cluster
		r := connected(t, o)
		by := keysBy(t, c, r)
		for _, keys := range by {
			mustGrant(t, r, keys...)
		}
		home := r.Home("p", "k0")
		from := c.MasterOf(t, r.name("p", "k0"))
		to := c.Masters(t)[0]
		if to == from {
			to = c.Masters(t)[1]
		}
		m := c.BeginMigration(t, int(home), to)
		m.MoveKeys(t, 100)
		mustGrant(t, r, "k0")
		for _, node := range c.Nodes {
			checkACLLog(t, node)
		}
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.StartSentinel(t, redistest.WithUser("agent", rights...), redistest.WithPassword("another"))
		o := login
		o.Addrs, o.Mode, o.Master = s.Addrs(), Sentinel, s.Name
		mustGrant(t, connected(t, o), "a", "b")
		checkACLLog(t, s.Master(t))
	})
	for name, also := range map[string][]string{
		"no SCRIPT":                        {"-script", "+eval"},
		"no HELLO":                         {"-hello", "+auth"},
		"no INFO, COMMAND, CLIENT, CONFIG": {"-info", "-command", "-client", "-config"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.WithUser("agent", slices.Concat(rights, also)...))
			o := login
			o.Addrs = []string{server.Addr}
			r := connected(t, o)
			mustGrant(t, r, "a", "b")
			server.Do(t, "SCRIPT", "FLUSH")
			mustGrant(t, r, "a", "b")
		})
	}
}

// checkACLLog fails when the server refused the agent anything but what it only tries.
func checkACLLog(t *testing.T, server *redistest.Server) {
	t.Helper()
	for _, entry := range strings.Split(server.Do(t, "ACL", "LOG"), "\ncount\n") {
		if strings.Contains(entry, "\nobject\n") && !strings.Contains(entry, "\nobject\ninfo\n") {
			t.Errorf("%s refused:\n%s", server.Addr, entry)
		}
	}
}

// A password may change while the agent runs: its file is read again.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do(t, "ACL", "SETUSER", "agent", "on", ">old", "~*", "+@all")
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	r := connected(t, Options{Addrs: []string{server.Addr}, Username: "agent", Password: Secret{File: file}})
	mustGrant(t, r, "a")
	server.Do(t, "ACL", "SETUSER", "agent", "<old", ">new")
	server.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	await(t, recovery, "the old password to fail", func() bool { ask(t, r, "a"); return r.Status().State == "failing" })
	write("new")
	await(t, recovery, "the new password to be used", func() bool { return r.Status().State == "ok" })
	mustGrant(t, r, "a")
}

func TestPasswordInTheEnvironment(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("s3cr3t"))
	t.Setenv("TEST_REDIS_PASSWORD", "s3cr3t")
	mustGrant(t, connected(t, Options{Addrs: []string{server.Addr}, Password: Secret{Env: "TEST_REDIS_PASSWORD"}}), "a")
	_, err := Open(Options{Addrs: []string{server.Addr}, Password: Secret{Env: "TEST_NO_SUCH"}, Log: nowhere()})
	if err == nil || !strings.Contains(err.Error(), "TEST_NO_SUCH") {
		t.Errorf("no such variable: %v", err)
	}
}

// An agent warns of a Redis that may forget buckets, and of no other.
func TestEvictionIsWarnedOf(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, c := range []struct {
		memory, policy string
		warns          bool
	}{
		{"0", "allkeys-lru", false}, {"100mb", "noeviction", false},
		{"100mb", "allkeys-lru", true}, {"100mb", "allkeys-lfu", true}, {"100mb", "allkeys-random", true},
		{"100mb", "volatile-lru", true}, {"100mb", "volatile-lfu", true}, {"100mb", "volatile-random", true}, {"100mb", "volatile-ttl", true},
	} {
		server.Do(t, "CONFIG", "SET", "maxmemory", c.memory)
		server.Do(t, "CONFIG", "SET", "maxmemory-policy", c.policy)
		book := &logbook{}
		r := connected(t, Options{Addrs: []string{server.Addr}, Log: slog.New(book)})
		if warned := strings.Contains(r.Status().Warning, c.policy); warned != c.warns || warned != strings.Contains(book.String(), c.policy) {
			t.Errorf("%s with %s: Warning %q, logged:\n%s", c.policy, c.memory, r.Status().Warning, book)
		}
		mustGrant(t, r, "a")
	}
}
