// An agent over a Redis Cluster, from its configuration file to what explain says.

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/internal/redistest"
)

func TestAgentOverACluster(t *testing.T) {
	const secret = "s3cr3t"
	t.Setenv("TEST_CLUSTER_PASSWORD", secret)
	files := redistest.NewTLS(t)
	cluster := redistest.StartCluster(t, redistest.WithTLS(files), redistest.WithPassword(secret))
	a := startAgent(t, fmt.Sprintf(`
redis:
  mode: cluster
  addrs: [%q]
  password_env: TEST_CLUSTER_PASSWORD
  tls: {ca: %q, cert: %q, key: %q}
  timeout: 500ms
policies: {api: {limit: 1000/day}}
`, cluster.Addrs()[0], files.CA, files.ClientCert, files.ClientKey))
	for deadline := time.Now().Add(20 * time.Second); a.limiter.Degraded(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the cluster is not reached: %+v", a.health())
		}
	}
	nodes := map[string]bool{}
	for i := range 50 {
		key := fmt.Sprint("k", i)
		d, err := a.client.Acquire(t.Context(), rlsidecar.Policy("api"), key)
		if err != nil || !d.Allowed || d.Source != rlsidecar.FromRedis {
			t.Fatalf("%s: %+v, %v", key, d, err)
		}
		status, out, errs := run("explain", "--socket", a.socket, "api", key)
		_, line, _ := strings.Cut(out, "redis node")
		line, _, _ = strings.Cut(line, "\n")
		node, state, _ := strings.Cut(strings.TrimSpace(line), ", ")
		if status != 0 || state != "ok" {
			t.Fatalf("explain: status %d\n%s%s", status, out, errs)
		}
		if strings.Contains(out, secret) {
			t.Fatalf("explain shows the password:\n%s", out)
		}
		nodes[node] = true
	}
	for _, master := range cluster.Masters(t) {
		if !nodes[master.Addr] {
			t.Errorf("no key is said to be on %s: %v", master.Addr, nodes)
		}
	}
}
