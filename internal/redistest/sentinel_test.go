// A master replaced by order and by force, with and without proxies.

package redistest

import (
	"slices"
	"testing"
	"time"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, WithPassword("p"))
	first := s.Master(t)
	if first != s.Servers[0] || len(s.Replicas(t)) != 2 || len(s.Addrs()) != 3 {
		t.Fatalf("master %s of %v, %d replicas, sentinels %v", first.Addr, clientAddrs(s.Servers), len(s.Replicas(t)), s.Addrs())
	}
	first.Do(t, "SET", "k", "v")
	first.Do(t, "WAIT", "2", "5000")
	second := s.Failover(t)
	if got := second.Do(t, "GET", "k"); second == first || got != "v" {
		t.Errorf("after the planned failover %s has k = %q", second.Addr, got)
	}
	await(t, "the old master to follow", func() error { return s.synced(second) })
	if killed := s.KillMaster(t); killed != second {
		t.Errorf("KillMaster ended %s, not the master %s", killed.Addr, second.Addr)
	}
	start := time.Now()
	third := s.AwaitMaster(t, second)
	t.Logf("a new master after %v", time.Since(start))
	if got := third.Do(t, "GET", "k"); got != "v" {
		t.Errorf("after the kill %s has k = %q", third.Addr, got)
	}
	second.Restart(t)
	await(t, "the killed master to follow", func() error { return s.synced(third) })
}

// Clients cut off from the master do not make the sentinels replace it.
func TestSentinelBehindProxies(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, WithProxy())
	master := s.Master(t)
	for _, n := range slices.Concat(s.Servers, s.Sentinels) {
		if n.Proxy.Accepted() != 0 {
			t.Errorf("%s counts %d of its peers' connections", n.Addr, n.Proxy.Accepted())
		}
	}
	c := dial(t, master.ClientAddr())
	c.mustDo(t, "OK", "SET", "k", "1")
	master.Proxy.BlackHole(true)
	if got, err := c.do(brief, "GET", "k"); !isTimeout(err) {
		t.Errorf("behind a black hole: %q, %v", got, err)
	}
	master.Proxy.Cut()
	master.Do(t, "SET", "k", "2")
	waitFor(t, "the replicas to hear of it", func() bool {
		return s.Replicas(t)[0].Do(t, "GET", "k") == "2" && s.Replicas(t)[1].Do(t, "GET", "k") == "2"
	})
	time.Sleep(time.Second)
	if s.Master(t) != master {
		t.Error("the sentinels replaced a master that they reach")
	}
	master.Proxy.BlackHole(false)
	// What is written while the peers' links stand still is lost with the master.
	master.Proxy.SetPeersBlackHole(true)
	dial(t, master.ClientAddr()).mustDo(t, "OK", "SET", "k", "lost")
	s.KillMaster(t)
	if got := s.AwaitMaster(t, master).Do(t, "GET", "k"); got != "2" {
		t.Errorf("the new master has k = %q, want the value before the last", got)
	}
}
