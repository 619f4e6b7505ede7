// A Redis Cluster: slots over three masters, each with a replica that takes over.

package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const slots = 16384

// Cluster is three masters with a replica each, which call a node failed after 1 s
// of silence. While a master is away the others go on, which is not Redis' default:
// WithConf("cluster-require-full-coverage", "yes") has it so. Its methods are for
// one goroutine at a time. Kill, Pause and Restart of a node are the Server's own.
type Cluster struct {
	Nodes []*Server // the first three were the first masters
}

// StartCluster returns when all nodes agree about all slots. The options hold for
// every node.
func StartCluster(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range 6 {
		c.startNode(t, opts)
	}
	for i, node := range c.Nodes {
		node.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < 3 {
			node.Do(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/3), strconv.Itoa((i+1)*slots/3-1))
		}
		c.Nodes[0].Do(t, "CLUSTER", "MEET", "127.0.0.1", portOf(node.ClientAddr()), busPort(t, node))
	}
	await(t, "the nodes to know each other", c.acquainted)
	for i, node := range c.Nodes[3:] {
		node.Do(t, "CLUSTER", "REPLICATE", c.Nodes[i].Do(t, "CLUSTER", "MYID"))
	}
	await(t, "the replicas to be in sync", c.synced)
	c.AwaitOK(t)
	return c
}

// startNode gives the node a bus port below those of outgoing connections too: the
// usual one, 10000 above its own, is not.
func (c *Cluster) startNode(t testing.TB, opts []Option) {
	t.Helper()
	bus := portOf(pickAddr(t))
	c.Nodes = append(c.Nodes, Start(t, slices.Concat(quickReplication(), []Option{
		WithConf("cluster-enabled", "yes"), WithConf("cluster-port", bus), WithConf("cluster-node-timeout", "1000"),
		WithConf("cluster-require-full-coverage", "no"), WithConf("cluster-announce-ip", "127.0.0.1"),
		WithConf("cluster-announce-bus-port", bus),
	}, opts, []Option{func(n *Server) {
		n.face = func() []string {
			port := portOf(n.ClientAddr())
			return []string{"cluster-announce-port " + port, "cluster-announce-tls-port " + port}
		}
	}})...))
}

func busPort(t testing.TB, node *Server) string {
	t.Helper()
	_, port, _ := strings.Cut(node.Do(t, "CONFIG", "GET", "cluster-port"), "\n")
	return port
}

func (c *Cluster) acquainted() error {
	for _, node := range c.Nodes {
		if err := wants(node, "cluster_known_nodes:"+strconv.Itoa(len(c.Nodes)), "CLUSTER", "INFO"); err != nil {
			return err
		}
		if list, err := node.DoErr("CLUSTER", "NODES"); err != nil || strings.Contains(list, "handshake") {
			return fmt.Errorf("%s: handshakes go on, %v", node.Addr, err)
		}
	}
	return nil
}

func (c *Cluster) synced() error {
	for _, node := range c.Nodes[3:] {
		if err := wants(node, "master_link_status:up", "INFO", "replication"); err != nil {
			return err
		}
	}
	return nil
}

// Addrs is where clients find the nodes.
func (c *Cluster) Addrs() []string { return clientAddrs(c.Nodes) }

// Masters are the nodes with slots, as the first that runs sees them, in the order
// of Nodes.
func (c *Cluster) Masters(t testing.TB) []*Server {
	t.Helper()
	owners := c.mustView(t).owners
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Server) bool { return !slices.Contains(owners[:], n) })
}

// MasterOf is the node with a key's slot.
func (c *Cluster) MasterOf(t testing.TB, key string) *Server {
	t.Helper()
	return c.mustView(t).owners[c.KeySlot(t, key)]
}

// ReplicaOf is a running replica of a master.
func (c *Cluster) ReplicaOf(t testing.TB, master *Server) *Server {
	t.Helper()
	for replica, of := range c.mustView(t).replicas {
		if of == master && replica.alive() {
			return replica
		}
	}
	t.Fatalf("no replica of %s runs", master.Addr)
	return nil
}

// KeySlot is the slot of a key, 0..16383.
func (c *Cluster) KeySlot(t testing.TB, key string) int {
	t.Helper()
	slot, err := strconv.Atoi(c.first(t).Do(t, "CLUSTER", "KEYSLOT", key))
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// Failover has a replica take its healthy master's place in good order: no write is
// lost. It returns when all nodes agree.
func (c *Cluster) Failover(t testing.TB, replica *Server) {
	t.Helper()
	c.promote(t, replica)
}

// Takeover has a replica take its master's place without asking anybody: what had
// not reached it is lost. It returns when all running nodes agree.
func (c *Cluster) Takeover(t testing.TB, replica *Server) {
	t.Helper()
	c.promote(t, replica, "TAKEOVER")
}

// promote repeats the order: a replica forgets one that it could not fulfil in time.
func (c *Cluster) promote(t testing.TB, replica *Server, how ...string) {
	t.Helper()
	master := c.mustView(t).replicas[replica]
	tries := 0
	await(t, replica.Addr+" to be a master", func() error {
		if tries%500 == 0 {
			if _, err := replica.DoErr(append([]string{"CLUSTER", "FAILOVER"}, how...)...); err != nil {
				return err
			}
		}
		tries++
		return wants(replica, "role:master", "INFO", "replication")
	})
	c.AwaitMasterInsteadOf(t, master)
}

// AwaitMasterInsteadOf waits until the nodes agree and old owns no slot.
func (c *Cluster) AwaitMasterInsteadOf(t testing.TB, old *Server) {
	t.Helper()
	await(t, "another node to own the slots of "+old.Addr, func() error {
		v, err := c.agreed()
		if err == nil && slices.Contains(v.owners[:], old) {
			err = fmt.Errorf("%s owns slots", old.Addr)
		}
		return err
	})
}

// AwaitOK waits until all running nodes call the cluster's state ok and agree about
// the owner of each slot.
func (c *Cluster) AwaitOK(t testing.TB) {
	t.Helper()
	await(t, "all nodes to agree", func() error {
		_, err := c.agreed()
		return err
	})
}

// view is what one node knows of the cluster.
type view struct {
	owners   [slots]*Server
	replicas map[*Server]*Server // to their masters
}

func (c *Cluster) agreed() (*view, error) {
	var agreed *view
	for _, node := range c.Nodes {
		if !node.alive() {
			continue
		}
		if err := wants(node, "cluster_state:ok", "CLUSTER", "INFO"); err != nil {
			return nil, err
		}
		v, err := c.viewOf(node)
		if err != nil {
			return nil, err
		}
		if agreed != nil && v.owners != agreed.owners {
			return nil, fmt.Errorf("%s does not agree with the nodes before it", node.Addr)
		}
		agreed = v
	}
	if agreed == nil {
		return nil, errors.New("no node runs")
	}
	return agreed, nil
}

func (c *Cluster) mustView(t testing.TB) *view {
	t.Helper()
	v, err := c.viewOf(c.first(t))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (c *Cluster) first(t testing.TB) *Server {
	t.Helper()
	for _, node := range c.Nodes {
		if node.alive() {
			return node
		}
	}
	t.Fatal("no node of the cluster runs")
	return nil
}

// viewOf reads CLUSTER NODES: lines of an id, an address, flags, the master's id, two
// times, an epoch, the link's state, and then slots ("5", "6-9", or "[7->-id]" while
// one moves).
func (c *Cluster) viewOf(node *Server) (*view, error) {
	list, err := node.DoErr("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	v := &view{replicas: map[*Server]*Server{}}
	byID := map[string]*Server{}
	masters := map[*Server]string{}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		addr, _, _ := strings.Cut(fields[1], "@")
		i := slices.Index(c.Addrs(), addr)
		if i < 0 {
			return nil, fmt.Errorf("CLUSTER NODES of %s: stranger %q", node.Addr, line)
		}
		byID[fields[0]], masters[c.Nodes[i]] = c.Nodes[i], fields[3]
		if err := v.own(c.Nodes[i], fields[8:]); err != nil {
			return nil, err
		}
	}
	for replica, id := range masters {
		if id != "-" {
			v.replicas[replica] = byID[id]
		}
	}
	return v, nil
}

func (v *view) own(node *Server, ranges []string) error {
	for _, r := range ranges {
		if strings.HasPrefix(r, "[") {
			continue
		}
		low, high, several := strings.Cut(r, "-")
		if !several {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		for slot := from; slot <= to; slot++ {
			v.owners[slot] = node
		}
	}
	return nil
}

// Migration is the move of one slot, step by step.
type Migration struct {
	Slot     int
	From, To *Server

	c            *Cluster
	fromID, toID string
}

// BeginMigration opens the move of a slot to another master: from then on the old
// owner answers ASK for keys it no longer has, and TRYAGAIN when it has only some of
// a command's keys.
func (c *Cluster) BeginMigration(t testing.TB, slot int, to *Server) *Migration {
	t.Helper()
	from := c.mustView(t).owners[slot]
	m := &Migration{Slot: slot, From: from, To: to, c: c, fromID: from.Do(t, "CLUSTER", "MYID"), toID: to.Do(t, "CLUSTER", "MYID")}
	to.Do(t, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", m.fromID)
	from.Do(t, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", m.toID)
	return m
}

// MoveKeys moves up to n keys of the slot and returns how many there were.
func (m *Migration) MoveKeys(t testing.TB, n int) int {
	t.Helper()
	keys := m.From.Do(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.Slot), strconv.Itoa(n))
	if keys == "" {
		return 0
	}
	list := strings.Split(keys, "\n")
	args := []string{"MIGRATE", "127.0.0.1", portOf(m.To.Addr), "", "0", "5000"}
	if m.From.password != "" {
		args = append(args, "AUTH", m.From.password)
	}
	m.From.Do(t, slices.Concat(args, []string{"KEYS"}, list)...)
	return len(list)
}

// Finish moves the keys that are left and gives the slot to its new owner, of whom
// all nodes know when it returns.
func (m *Migration) Finish(t testing.TB) {
	t.Helper()
	for m.MoveKeys(t, 100) > 0 {
	}
	for _, node := range []*Server{m.To, m.From} {
		node.Do(t, "CLUSTER", "SETSLOT", strconv.Itoa(m.Slot), "NODE", m.toID)
	}
	m.c.AwaitOK(t)
}

// MigrateSlot is a whole Migration.
func (c *Cluster) MigrateSlot(t testing.TB, slot int, to *Server) {
	t.Helper()
	c.BeginMigration(t, slot, to).Finish(t)
}
