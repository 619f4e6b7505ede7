// A cluster formed, failed over, taken over, and a slot moved half-way.

package redistest

import (
	"fmt"
	"testing"
	"time"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := StartCluster(t)
	t.Logf("formed in %v", time.Since(start))
	if n := len(c.Masters(t)); n != 3 || len(c.Addrs()) != 6 {
		t.Fatalf("%d masters, addresses %v", n, c.Addrs())
	}
	if slot := c.KeySlot(t, "{limits:api:7}:0"); slot != c.KeySlot(t, "limits:api:7") {
		t.Errorf("a key's slot is %d, not that of its tag", slot)
	}
	master := c.MasterOf(t, "k")
	replica := c.ReplicaOf(t, master)
	master.Do(t, "SET", "k", "v")
	c.Failover(t, replica)
	if got := replica.Do(t, "GET", "k"); c.MasterOf(t, "k") != replica || got != "v" {
		t.Errorf("after the failover %s owns k, and the replica's value is %q", c.MasterOf(t, "k").Addr, got)
	}
	replica.Kill()
	start = time.Now()
	c.AwaitMasterInsteadOf(t, replica)
	t.Logf("a new master after %v", time.Since(start))
	if c.MasterOf(t, "k") != master {
		t.Errorf("%s owns k, want its first master back", c.MasterOf(t, "k").Addr)
	}
	replica.Restart(t)
	await(t, "the killed node to follow", func() error {
		return wants(replica, "master_link_status:up", "INFO", "replication")
	})
	c.AwaitOK(t)
}

func TestClusterMigration(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, WithPassword("p"))
	slot, from := c.KeySlot(t, "{m}"), c.MasterOf(t, "{m}")
	to := c.Masters(t)[0]
	if to == from {
		to = c.Masters(t)[1]
	}
	for i := range 5 {
		from.Do(t, "SET", fmt.Sprintf("{m}%d", i), "v")
	}
	m := c.BeginMigration(t, slot, to)
	if m.From != from || m.MoveKeys(t, 2) != 2 {
		t.Errorf("moves from %s, want %s", m.From.Addr, from.Addr)
	}
	kept, asked := 0, 0
	for i := range 5 {
		_, err := from.DoErr("GET", fmt.Sprintf("{m}%d", i))
		switch {
		case err == nil:
			kept++
		case err.Error() == fmt.Sprintf("ASK %d %s", slot, to.ClientAddr()):
			asked++
		default:
			t.Errorf("half-way: %v", err)
		}
	}
	if kept != 3 || asked != 2 {
		t.Errorf("half-way %d keys are with the old owner and %d with the new one, want 3 and 2", kept, asked)
	}
	m.Finish(t)
	if got := to.Do(t, "MGET", "{m}0", "{m}1", "{m}2", "{m}3", "{m}4"); c.MasterOf(t, "{m}") != to || got != "v\nv\nv\nv\nv" {
		t.Errorf("at the end %s owns the slot, and the new owner has %q", c.MasterOf(t, "{m}").Addr, got)
	}
	c.MigrateSlot(t, slot, from)
	if c.MasterOf(t, "{m}") != from {
		t.Error("the slot did not come back")
	}
}

// Replication held up by the proxies: what did not reach the replica is lost when it
// takes over.
func TestClusterBehindProxies(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, WithProxy())
	master := c.MasterOf(t, "k")
	replica := c.ReplicaOf(t, master)
	client := dial(t, master.ClientAddr())
	client.mustDo(t, "OK", "SET", "k", "1")
	waitFor(t, "the replica to have it", func() bool { return replica.Do(t, "DBSIZE") == "1" })
	master.Proxy.SetPeersBlackHole(true)
	client.mustDo(t, "OK", "SET", "k", "lost")
	c.Takeover(t, replica)
	dial(t, replica.ClientAddr()).mustDo(t, "1", "GET", "k")
	if n := replica.Proxy.Accepted(); n != 1 {
		t.Errorf("%d connections of clients, want 1", n)
	}
	master.Proxy.SetPeersBlackHole(false)
}
