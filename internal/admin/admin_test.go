// Tests of the listener and its pages, over HTTP, in front of a real limiter and
// a real socket.

package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/limiter"
	"rlsidecar/internal/policy"
	"rlsidecar/internal/server"
	"rlsidecar/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

const policies = `
policies:
  login: {limit: 2/hour}
  trial: {limit: 1/hour, mode: shadow}
  lists: {limit: 1/hour, exempt: [free], block: [bad]}
`

// agent is all that a listener reads from, running.
type agent struct {
	t       *testing.T
	limiter *limiter.Limiter
	server  *server.Server
	metrics *Metrics
	socket  string
	reload  policy.Status
	url     string
}

// start runs an agent with o and its admin listener until the test ends.
func start(t *testing.T, o limiter.Options, pprof bool) *agent {
	t.Helper()
	config, err := policy.Parse("test.yaml", []byte(policies))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, metrics: NewMetrics(), limiter: limiter.New(config.Policies, o)}
	a.reload = policy.Status{OK: true, Hash: config.Hash, LastSuccess: time.Unix(1_700_000_000, 5e8), Reloads: 3, Failures: 2}
	a.server = server.New(a.limiter, server.Config{Log: quiet, Observe: a.metrics.Decisions})
	a.serve()
	a.listen(pprof)
	return a
}

func (a *agent) serve() {
	a.socket = filepath.Join(a.t.TempDir(), "s")
	ln, err := server.Listen(server.ListenConfig{Path: a.socket})
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { a.limiter.Run(ctx); ended <- struct{}{} }()
	go func() { a.server.Serve(ctx, ln); ended <- struct{}{} }()
	a.t.Cleanup(func() {
		a.server.Shutdown(context.Background())
		cancel()
		<-ended
		<-ended
	})
}

func (a *agent) listen(pprof bool) {
	s, err := Listen("127.0.0.1:0", pprof, a.sources(), a.metrics, quiet)
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	a.url = "http://" + s.Addr().String()
	a.t.Cleanup(func() {
		cancel()
		<-ended
		http.DefaultClient.CloseIdleConnections()
		if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
			a.t.Error("the listener outlives Run")
		}
	})
}

func (a *agent) sources() Sources {
	return Sources{Limiter: a.limiter, Server: a.server, Reload: func() policy.Status { return a.reload }, Version: "1.2.3"}
}

func (a *agent) get(path string) (status int, body string) {
	a.t.Helper()
	return a.do(http.MethodGet, path)
}

func (a *agent) do(method, path string) (status int, body string) {
	a.t.Helper()
	r, err := http.NewRequest(method, a.url+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return reply.StatusCode, string(data)
}

// scrape returns every series of ours with its value.
func (a *agent) scrape() map[string]string {
	a.t.Helper()
	status, body := a.get("/metrics")
	if status != http.StatusOK {
		a.t.Fatalf("status %d: %s", status, body)
	}
	values := map[string]string{}
	for line := range strings.Lines(body) {
		if i := strings.LastIndexByte(line, ' '); strings.HasPrefix(line, prefix) {
			values[line[:i]] = strings.TrimSpace(line[i:])
		}
	}
	return values
}

// want waits until series have these values, "" for one that must not be there:
// bytes and connections are counted a moment after a client could know.
func (a *agent) want(series map[string]string) {
	a.t.Helper()
	wrong := func() (all []string) {
		got := a.scrape()
		for name, v := range series {
			if got[prefix+name] != v {
				all = append(all, fmt.Sprintf("%s is %q, want %q", name, got[prefix+name], v))
			}
		}
		return all
	}
	for end := time.Now().Add(5 * time.Second); len(wrong()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			a.t.Fatal(strings.Join(wrong(), "\n"))
		}
	}
}

// call sends requests in one write and reads as many replies.
func (a *agent) call(requests ...[]byte) {
	a.t.Helper()
	nc, err := net.Dial("unix", a.socket)
	if err != nil {
		a.t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := nc.Write(bytes.Join(requests, nil)); err != nil {
		a.t.Fatal(err)
	}
	var scan protocol.Scanner
	var got []byte
	buf := make([]byte, 64<<10)
	for left := len(requests); left > 0; {
		n, err := nc.Read(buf)
		if err != nil {
			a.t.Fatal(err)
		}
		for got = append(got, buf[:n]...); left > 0; left-- {
			if n, err = scan.Next(got); n == 0 || err != nil {
				break
			}
			got = got[n:]
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
}

func acquire(policy, key string) []byte {
	return protocol.AppendRequest(nil, 7, "acquire", policy, key)
}

// stub is an authority that refuses whatever it is asked.
type stub struct{ reachable bool }

func (s stub) Home(_, _ string) uint16 { return 0 }
func (s stub) Reachable(uint16) bool   { return s.reachable }
func (s stub) Degraded() bool          { return !s.reachable }

func (stub) Ask(q *bucket.Question) { go q.Answer(q, bucket.Grant{}, bucket.ErrRefused) }

func withRedis(reachable bool, h limiter.Health) limiter.Options {
	return limiter.Options{Redis: stub{reachable}, Health: func() limiter.Health { return h }}
}

func TestMetricsStandalone(t *testing.T) {
	a := start(t, limiter.Options{}, false)
	a.call(acquire("login", "k"), acquire("login", "k"), acquire("login", "k"),
		acquire("trial", "k"), acquire("trial", "k"),
		acquire("lists", "free"), acquire("lists", "bad"),
		protocol.AppendRequest(nil, 7, "throttle", "k", 1, 1, 60),
		protocol.AppendRequest(nil, 7, "acquire_all", []any{[]any{"lists", "a"}, []any{"lists", "b"}}),
		protocol.AppendRequest(nil, 7, "peek", "login", "k"),
		protocol.AppendRequest(nil, 7, "ping"), acquire("nosuch", "k"))
	a.want(map[string]string{
		`decisions_total{app="",outcome="allowed",policy="login",source="standalone"}`:    "2",
		`decisions_total{app="",outcome="denied",policy="login",source="standalone"}`:     "1",
		`decisions_total{app="",outcome="allowed",policy="trial",source="standalone"}`:    "2",
		`decisions_total{app="",outcome="denied",policy="trial",source="standalone"}`:     "0",
		`shadow_denied_total{app="",policy="trial"}`:                                      "1",
		`shadow_denied_total{app="",policy="login"}`:                                      "0",
		`decisions_total{app="",outcome="allowed",policy="lists",source="list"}`:          "1",
		`decisions_total{app="",outcome="denied",policy="lists",source="list"}`:           "1",
		`decisions_total{app="",outcome="allowed",policy="lists",source="standalone"}`:    "2",
		`decisions_total{app="",outcome="allowed",policy="(inline)",source="standalone"}`: "1",
		"decision_seconds_count":                       "10",
		"buckets":                                      "5",
		"buckets_evicted_total":                        "0",
		"degraded":                                     "0",
		"connections_total":                            "1",
		"connections_refused_total":                    "0",
		"protocol_errors_total":                        "0",
		"slow_readers_total":                           "0",
		"panics_total":                                 "0",
		"config_reload_success":                        "1",
		"config_reloads_total":                         "3",
		"config_reload_failures_total":                 "2",
		"config_last_reload_success_timestamp_seconds": "1.7000000005e+09",
		`config_info{hash="` + a.reload.Hash + `"}`:    "1",
		`redis_state{state="ok"}`:                      "",
		"redis_scripts_total":                          "",
		"redis_pipeline_seconds_count":                 "",
		`permits_total{event="granted"}`:               "0",
	})
}

func TestMetricsFollowTheSocket(t *testing.T) {
	a := start(t, limiter.Options{}, false)
	nc, err := net.Dial("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	request, sent := acquire("login", "k"), 0
	for range 2 {
		nc.Write(request)
		n, err := nc.Read(make([]byte, 1024))
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	a.want(map[string]string{"connections": "1", "decision_seconds_count": "2",
		"received_bytes_total": strconv.Itoa(2 * len(request)), "sent_bytes_total": strconv.Itoa(sent)})
	nc.Write([]byte{0xc1})
	if n, err := nc.Read(make([]byte, 1024)); err == nil {
		t.Fatalf("%d bytes in reply to what is no message", n)
	}
	nc.Close()
	a.want(map[string]string{"connections": "0", "connections_total": "1", "protocol_errors_total": "1", "received_bytes_total": strconv.Itoa(2*len(request) + 1)})
}

func TestMetricsOfRedis(t *testing.T) {
	a := start(t, withRedis(false, limiter.Health{State: "failing", Reason: "NOAUTH", Mend: "mend it", Scripts: 41}), false)
	a.metrics.Pipeline(3, 700*time.Microsecond)
	a.metrics.Pipeline(128, 3*time.Second)
	a.call(acquire("login", "k"))
	a.want(map[string]string{
		"degraded":                                  "1",
		`redis_state{state="starting"}`:             "0",
		`redis_state{state="ok"}`:                   "0",
		`redis_state{state="degraded"}`:             "0",
		`redis_state{state="failing"}`:              "1",
		"redis_scripts_total":                       "41",
		"redis_pipeline_seconds_count":              "2",
		"redis_pipeline_seconds_sum":                "3.0007",
		`redis_pipeline_seconds_bucket{le="0.001"}`: "1",
		`redis_pipeline_scripts_bucket{le="2"}`:     "0",
		`redis_pipeline_scripts_bucket{le="4"}`:     "1",
		`redis_pipeline_scripts_bucket{le="128"}`:   "2",
		"redis_pipeline_scripts_sum":                "131",
		`decisions_total{app="",outcome="allowed",policy="login",source="fallback"}`: "1",
	})
}

// A call that waits for Redis is counted as decided when it is, but is no part of
// the duration of calls answered at once.
func TestLateCallsAreNotTimed(t *testing.T) {
	a := start(t, withRedis(true, limiter.Health{State: "ok"}), false)
	a.call(acquire("login", "k"))
	a.want(map[string]string{
		"decision_seconds_count": "0",
		"degraded":               "0",
		`decisions_total{app="",outcome="allowed",policy="login",source="fallback"}`: "1",
	})
	a.call(acquire("lists", "free"))
	a.want(map[string]string{"decision_seconds_count": "1"})
}

func TestWithoutAFile(t *testing.T) {
	a := start(t, limiter.Options{}, false)
	a.reload = policy.Status{OK: true}
	for name := range a.scrape() {
		if strings.HasPrefix(name, prefix+"config_info") || strings.HasPrefix(name, prefix+"config_last") {
			t.Errorf("there is a %s without a configuration file", name)
		}
	}
	a.want(map[string]string{"config_reload_success": "1"})
	a.reload = policy.Status{Hash: "0123456789ab", Error: "bad", Failures: 1}
	a.want(map[string]string{"config_reload_success": "0", `config_info{hash="0123456789ab"}`: "1"})
}

func TestLint(t *testing.T) {
	for name, o := range map[string]limiter.Options{"standalone": {}, "redis": withRedis(true, limiter.Health{State: "ok"})} {
		t.Run(name, func(t *testing.T) {
			a := start(t, o, false)
			_, body := a.get("/metrics")
			problems, err := promlint.New(strings.NewReader(body)).Lint()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
			for _, family := range []string{"go_goroutines", "process_open_fds", prefix + "build_info"} {
				if !strings.Contains(body, "\n# TYPE "+family+" ") {
					t.Errorf("there is no %s", family)
				}
			}
		})
	}
}

// A pedantic registry checks that what is collected was described.
func TestCollectorKeepsItsWord(t *testing.T) {
	a := start(t, withRedis(true, limiter.Health{State: "ok", Nodes: []limiter.NodeHealth{{Node: "127.0.0.1:6379", State: "ok"}}}), false)
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(&collector{a.sources(), a.metrics}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(descriptions) {
		t.Errorf("%d families of %d described are collected", len(families), len(descriptions))
	}
}

func TestDecisionBuckets(t *testing.T) {
	a := start(t, limiter.Options{}, false)
	for _, step := range []struct {
		n    int
		took time.Duration
	}{{5, 10 * time.Microsecond}, {2, 10*time.Microsecond + 1}, {1, 100 * time.Millisecond}, {1, time.Second}, {1, -time.Second}, {0, time.Second}} {
		a.metrics.Decisions(step.n, step.took)
	}
	a.want(map[string]string{
		`decision_seconds_bucket{le="1e-05"}`:   "6",
		`decision_seconds_bucket{le="2.5e-05"}`: "8",
		`decision_seconds_bucket{le="0.05"}`:    "8",
		`decision_seconds_bucket{le="0.1"}`:     "9",
		`decision_seconds_bucket{le="+Inf"}`:    "10",
		"decision_seconds_count":                "10",
		"decision_seconds_sum":                  "1.100070002",
	})
	if n := testing.AllocsPerRun(100, func() { a.metrics.Decisions(3, time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations for what the hot path calls", n)
	}
}

func TestPages(t *testing.T) {
	tests := []struct {
		method, path string
		pprof        bool
		status       int
		body         string // part of it
	}{
		{"GET", "/", false, 200, "/readyz"},
		{"GET", "/healthz", false, 200, "ok"},
		{"HEAD", "/healthz", false, 200, ""},
		{"HEAD", "/metrics", false, 200, ""},
		{"POST", "/healthz", false, 405, ""},
		{"DELETE", "/metrics", false, 405, ""},
		{"GET", "/nosuch", false, 404, ""},
		{"GET", "/metrics/more", false, 404, ""},
		{"GET", "/debug/pprof/", false, 404, ""},
		{"GET", "/debug/pprof/cmdline", false, 404, ""},
		{"GET", "/debug/pprof/heap", false, 404, ""},
		{"GET", "/", true, 200, "/debug/pprof/"},
		{"GET", "/debug/pprof/", true, 200, "goroutine"},
		{"GET", "/debug/pprof/goroutine?debug=1", true, 200, "goroutine profile"},
		{"POST", "/debug/pprof/symbol", true, 405, ""},
	}
	agents := map[bool]*agent{false: start(t, limiter.Options{}, false), true: start(t, limiter.Options{}, true)}
	for _, tt := range tests {
		a := agents[tt.pprof]
		if status, body := a.do(tt.method, tt.path); status != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s, pprof %v: %d %q, want %d and %q", tt.method, tt.path, tt.pprof, status, body, tt.status, tt.body)
		}
	}
}

func TestReady(t *testing.T) {
	tests := []struct {
		name    string
		options limiter.Options
		status  int
		body    string
	}{
		{"standalone", limiter.Options{}, 200, "ready\nmode: standalone\n"},
		{"starting", withRedis(false, limiter.Health{State: "starting"}), 503, "not ready: Redis has not been tried yet\n"},
		{"ok", withRedis(true, limiter.Health{State: "ok"}), 200, "ready\nmode: redis\nredis: ok\n"},
		{"degraded", withRedis(false, limiter.Health{State: "degraded", Reason: "refused"}), 200, "ready\nmode: redis\nredis: degraded: refused\n"},
		{"failing", withRedis(false, limiter.Health{State: "failing", Reason: "NOAUTH", Mend: "set a password"}), 200, "ready\nmode: redis\nredis: failing: NOAUTH; set a password\n"},
		{"one bucket", withRedis(true, limiter.Health{State: "ok", Bucket: "k: WRONGTYPE"}), 200, "ready\nmode: redis\nredis: ok\nbucket: k: WRONGTYPE\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := start(t, tt.options, false)
			if status, body := a.get("/readyz"); status != tt.status || body != tt.body {
				t.Errorf("%d %q, want %d %q", status, body, tt.status, tt.body)
			}
			if err := a.limiter.Drain(context.Background()); err != nil {
				t.Fatal(err)
			}
			if status, body := a.get("/readyz"); status != 503 || body != "not ready: shutting down\n" {
				t.Errorf("draining: %d %q", status, body)
			}
			if status, _ := a.get("/healthz"); status != 200 {
				t.Errorf("healthz while draining: %d", status)
			}
		})
	}
}

func TestRunEndsWithProfileUnderWay(t *testing.T) {
	a := start(t, limiter.Options{}, false)
	s, err := Listen("127.0.0.1:0", true, a.sources(), a.metrics, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	io.WriteString(nc, "GET /debug/pprof/trace?seconds=60 HTTP/1.1\r\nHost: here\r\n\r\n")
	nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := nc.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("Run waits for a profile")
	}
}

func TestListenRefuses(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.7:9180", "example.org:80", "127.0.0.1", "", "127.0.0.1:70000", "[::ffff:192.0.2.1]:1"} {
		s, err := Listen(addr, false, Sources{}, nil, quiet)
		if err == nil {
			s.ln.Close()
			t.Errorf("%q is listened on", addr)
		} else if !strings.Contains(err.Error(), "admin.listen") {
			t.Errorf("%q: %v: does not name the field", addr, err)
		}
	}
}

func TestListenWhereAnotherDoes(t *testing.T) {
	a := start(t, limiter.Options{}, false)
	_, err := Listen(strings.TrimPrefix(a.url, "http://"), false, a.sources(), a.metrics, quiet)
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("error %v", err)
	}
}

func TestLoopback(t *testing.T) {
	ip := netip.MustParseAddr
	tests := []struct {
		addr  string
		hosts []netip.Addr // of localhost; nil: cannot be resolved
		want  string       // the address, or part of the error
	}{
		{"127.0.0.1:9180", nil, "127.0.0.1:9180"},
		{"127.3.2.1:1", nil, "127.3.2.1:1"},
		{"[::1]:0", nil, "[::1]:0"},
		{"localhost:5", []netip.Addr{ip("::1"), ip("127.0.0.1")}, "127.0.0.1:5"},
		{"localhost:5", []netip.Addr{ip("127.0.0.1"), ip("::1")}, "127.0.0.1:5"},
		{"localhost:5", []netip.Addr{ip("::1")}, "[::1]:5"},
		{"localhost:5", []netip.Addr{ip("::ffff:127.0.0.1")}, "127.0.0.1:5"},
		{"localhost:5", []netip.Addr{ip("127.0.0.1"), ip("192.0.2.1")}, "localhost is 192.0.2.1 on this host"},
		{"localhost:5", []netip.Addr{}, "no address"},
		{"localhost:5", nil, "cannot be resolved: no such host; write 127.0.0.1"},
		{"0.0.0.0:5", nil, "write 127.0.0.1:5"},
		{"[fe80::1%eth0]:5", nil, "write 127.0.0.1:5"},
		{"host:5", []netip.Addr{ip("127.0.0.1")}, "write 127.0.0.1:5"},
		{"127.0.0.1", nil, "write host:port"},
	}
	for _, tt := range tests {
		got, err := loopback(tt.addr, func(string) ([]netip.Addr, error) {
			if tt.hosts == nil {
				return nil, errors.New("no such host")
			}
			return tt.hosts, nil
		})
		if err == nil && got != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s where localhost is %v: %q, %v; want %q", tt.addr, tt.hosts, got, err, tt.want)
		}
	}
}

func TestLocalhostIsReal(t *testing.T) {
	s, err := Listen("localhost:0", false, Sources{Limiter: limiter.New(policy.Default().Policies, limiter.Options{})}, NewMetrics(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.ln.Close()
	if !netip.MustParseAddrPort(s.Addr().String()).Addr().IsLoopback() {
		t.Errorf("listens on %s", s.Addr())
	}
}
