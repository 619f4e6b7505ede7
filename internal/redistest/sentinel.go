// A master that three sentinels watch and replace when it is gone.

package redistest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// topologyTimeout bounds each wait for servers to agree: half a second of silence
// and an election take 1 to 3 s when the machine has time for them.
const topologyTimeout = 30 * time.Second

// Sentinel is one master and two replicas, watched by three sentinels that agree by
// two on a master's end after 500 ms of silence. Its methods are for one goroutine
// at a time.
type Sentinel struct {
	Name      string    // of the master, as the sentinels know it
	Servers   []*Server // the first was the first master
	Sentinels []*Server
}

// StartSentinel returns when the replicas have their master's data and the
// sentinels know all. The options hold for the three servers; of them, TLS and
// proxies also for the sentinels, which demand no password.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	s := &Sentinel{Name: "limits"}
	for range 3 {
		s.startServer(t, opts)
	}
	await(t, "the replicas to be in sync", func() error { return s.synced(s.Servers[0]) })
	for range 3 {
		s.startSentinel(t)
	}
	await(t, "the sentinels to know all servers and each other", s.settled)
	// A sentinel makes a replica again of a server that says it is a master for four
	// of these periods, which a failover's leader needs to see that it is one.
	for _, node := range s.Sentinels {
		node.Do(t, "SENTINEL", "DEBUG", "publish-period", "500")
	}
	return s
}

func (s *Sentinel) startServer(t testing.TB, opts []Option) {
	t.Helper()
	node := Start(t, slices.Concat(quickReplication(), opts, []Option{func(n *Server) {
		n.face = func() []string {
			lines := []string{"replica-announce-ip 127.0.0.1", "replica-announce-port " + portOf(n.ClientAddr())}
			if len(s.Servers) > 0 {
				lines = append(lines, "replicaof 127.0.0.1 "+portOf(s.Servers[0].ClientAddr()))
			}
			return lines
		}
	}})...)
	s.Servers = append(s.Servers, node)
}

func quickReplication() []Option {
	return []Option{
		WithConf("repl-diskless-sync-delay", "0"), WithConf("repl-ping-replica-period", "1"),
	}
}

func (s *Sentinel) startSentinel(t testing.TB) {
	t.Helper()
	like := s.Servers[0]
	node := Start(t, func(n *Server) {
		n.args, n.tls, n.proxied = []string{"--sentinel"}, like.tls, like.proxied
		n.face = func() []string { return s.sentinelConf(n) }
	})
	node.Do(t, "SENTINEL", "DEBUG", "ping-period", "100", "info-period", "200", "publish-period", "100", "ask-period", "100")
	s.Sentinels = append(s.Sentinels, node)
}

func (s *Sentinel) sentinelConf(n *Server) []string {
	master := s.Servers[0]
	lines := []string{
		"sentinel announce-ip 127.0.0.1", "sentinel announce-port " + portOf(n.ClientAddr()),
		"sentinel monitor " + s.Name + " 127.0.0.1 " + portOf(master.ClientAddr()) + " 2",
		"sentinel down-after-milliseconds " + s.Name + " 500",
		"sentinel failover-timeout " + s.Name + " 1000",
		"sentinel parallel-syncs " + s.Name + " 2",
	}
	if master.password != "" {
		lines = append(lines, "sentinel auth-pass "+s.Name+" "+master.password)
	}
	return lines
}

// Addrs is where clients find the sentinels.
func (s *Sentinel) Addrs() []string { return clientAddrs(s.Sentinels) }

// Master is the server that the sentinels name.
func (s *Sentinel) Master(t testing.TB) *Server {
	t.Helper()
	for _, node := range s.Sentinels {
		if !node.alive() {
			continue
		}
		if master, err := s.masterBy(node); err == nil {
			return master
		}
	}
	t.Fatalf("no sentinel names a master of %q", s.Name)
	return nil
}

// Replicas are the servers that run and are not the master.
func (s *Sentinel) Replicas(t testing.TB) []*Server {
	t.Helper()
	master := s.Master(t)
	return slices.DeleteFunc(slices.Clone(s.Servers), func(n *Server) bool { return n == master || !n.alive() })
}

// Failover has the sentinels replace a healthy master, and returns the new one when
// all of them know it.
func (s *Sentinel) Failover(t testing.TB) *Server {
	t.Helper()
	old := s.Master(t)
	await(t, "a sentinel to take the order", func() error {
		_, err := s.Sentinels[0].DoErr("SENTINEL", "FAILOVER", s.Name)
		return err
	})
	return s.AwaitMaster(t, old)
}

// KillMaster ends the master with SIGKILL and returns it: see AwaitMaster.
func (s *Sentinel) KillMaster(t testing.TB) *Server {
	t.Helper()
	master := s.Master(t)
	master.Kill()
	return master
}

// AwaitMaster waits until all sentinels name the same server, other than not, and it
// has become a master.
func (s *Sentinel) AwaitMaster(t testing.TB, not *Server) *Server {
	t.Helper()
	var master *Server
	await(t, "a master other than "+not.Addr, func() (err error) {
		master, err = s.agreed()
		if err == nil && master == not {
			err = fmt.Errorf("the sentinels still name %s", not.ClientAddr())
		}
		return err
	})
	return master
}

// agreed is the master that all live sentinels name and that knows to be one.
func (s *Sentinel) agreed() (*Server, error) {
	var master *Server
	for _, node := range s.Sentinels {
		if !node.alive() {
			continue
		}
		named, err := s.masterBy(node)
		if err != nil {
			return nil, err
		}
		if master != nil && named != master {
			return nil, fmt.Errorf("sentinels name both %s and %s", master.ClientAddr(), named.ClientAddr())
		}
		master = named
	}
	if master == nil || !master.alive() {
		return nil, fmt.Errorf("no sentinel names a server that runs")
	}
	role, err := master.DoErr("ROLE")
	if err == nil && !strings.HasPrefix(role, "master") {
		err = fmt.Errorf("%s is named but its role is %q", master.ClientAddr(), role)
	}
	return master, err
}

func (s *Sentinel) masterBy(sentinel *Server) (*Server, error) {
	reply, err := sentinel.DoErr("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
	if err != nil {
		return nil, err
	}
	addr := strings.Replace(reply, "\n", ":", 1)
	for _, node := range s.Servers {
		if node.ClientAddr() == addr {
			return node, nil
		}
	}
	return nil, fmt.Errorf("sentinel %s names %q, which is none of %v", sentinel.Addr, addr, clientAddrs(s.Servers))
}

func (s *Sentinel) synced(master *Server) error {
	for _, node := range s.Servers {
		if node == master {
			continue
		}
		if err := wants(node, "master_link_status:up", "INFO", "replication"); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sentinel) settled() error {
	for _, node := range s.Sentinels {
		if err := wants(node, "status=ok,", "INFO", "sentinel"); err != nil {
			return err
		}
		if err := wants(node, "slaves=2,sentinels=3", "INFO", "sentinel"); err != nil {
			return err
		}
	}
	return nil
}

// wants tells how the reply to a command lacks a text.
func wants(s *Server, text string, args ...string) error {
	reply, err := s.DoErr(args...)
	if err == nil && !strings.Contains(reply, text) {
		err = fmt.Errorf("redis-server %s: %q lacks %q: %q", s.Addr, args, text, reply)
	}
	return err
}

// await polls until ok says nothing.
func await(t testing.TB, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(topologyTimeout)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s: %v", topologyTimeout, what, err)
		}
		time.Sleep(5 * pollEvery)
	}
}

func clientAddrs(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.ClientAddr()
	}
	return addrs
}
