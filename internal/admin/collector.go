// The collector reads what the limiter, the server and the reloader count, at
// scrape time: nothing is counted twice. No label holds a key, so the number of
// series follows the number of policies alone.

package admin

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"rlsidecar/internal/limiter"
)

const prefix = "rlsidecar_"

var (
	decisionsTotal    = describe("decisions_total", "Calls decided, by policy, application, outcome and where the answer came from. Those let through by shadow mode alone are among the allowed ones.", "policy", "app", "outcome", "source")
	shadowDeniedTotal = describe("shadow_denied_total", "Calls that their policy would have denied, but for its shadow mode.", "policy", "app")
	decisionSeconds   = describe("decision_seconds", "From the reading of a call to its decision, the time it waited for Redis or for permits included.")

	permitsTotal   = describe("permits_total", "Permits of leases: granted by Redis, spent here, given back, or expired unused.", "event")
	bucketsHeld    = describe("buckets", "Buckets in this host's memory.")
	permitsHeld    = describe("permits_held", "Permits of concurrency limits that callers on this host hold.")
	bucketsEvicted = describe("buckets_evicted_total", "Buckets forgotten because the memory for them was full.")

	degraded     = describe("degraded", "1 while Redis is configured and cannot be asked, else 0.")
	redisState   = describe("redis_state", "1 for the state Redis is in, 0 for the others.", "state")
	nodeUp       = describe("redis_node_up", "1 while this node of Redis answers, else 0.", "node")
	mayEvict     = describe("redis_may_evict", "1 while Redis may forget buckets to save memory, else 0.")
	scriptsTotal = describe("redis_scripts_total", "Calls of lease scripts sent to Redis.")
	asksTotal    = describe("redis_asks_total", "Questions about a bucket that these calls carried.")
	dialsTotal   = describe("redis_connections_opened_total", "Connections to Redis opened, or tried to be.")

	connections        = describe("connections", "Connections open now.")
	connectionsTotal   = describe("connections_total", "Connections accepted.")
	connectionsRefused = describe("connections_refused_total", "Connections closed at once, because as many were open as may be.")
	protocolErrors     = describe("protocol_errors_total", "Connections closed for what they sent.")
	slowReaders        = describe("slow_readers_total", "Connections cut off for not reading their replies.")
	panicsTotal        = describe("panics_total", "Calls that made the agent panic.")
	receivedBytes      = describe("received_bytes_total", "Bytes read from connections.")
	sentBytes          = describe("sent_bytes_total", "Bytes written to connections.")

	reloadSuccess  = describe("config_reload_success", "1 when the configuration file, as last read, is the one in force, else 0.")
	reloadTime     = describe("config_last_reload_success_timestamp_seconds", "When the configuration file was last read and found good.")
	reloadsTotal   = describe("config_reloads_total", "Configurations applied after the first.")
	reloadFailures = describe("config_reload_failures_total", "Readings of the configuration file that were refused.")
	configInfo     = describe("config_info", "1, labelled with the first 12 hex digits of the SHA-256 of the configuration file in force.", "hash")
	buildInfo      = describe("build_info", "1, labelled with the version of the agent and of Go.", "version", "go")
)

// descriptions is every family made by describe, in order.
var descriptions []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(prefix+name, help, labels, nil)
	descriptions = append(descriptions, d)
	return d
}

// registry returns all metrics of the agent. Those of Redis are left out when it
// is not configured: a state would have to be made up.
func registry(s Sources, m *Metrics) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(&collector{s, m})
	if s.Limiter.Mode() == "redis" {
		reg.MustRegister(m.pipelineSeconds, m.pipelineScripts)
	}
	return reg
}

type collector struct {
	Sources
	metrics *Metrics
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	out := sink(ch)
	out.gauge(buildInfo, 1, c.Version, runtime.Version())
	c.decisions(out)
	c.leases(out)
	c.redis(out)
	c.socket(out)
	c.reloads(out)
}

func (c *collector) decisions(out sink) {
	out <- c.metrics.decisions.metric(decisionSeconds)
	c.Limiter.Outcomes(func(policy, app string, o *limiter.Outcomes) {
		if app != "" && o.Total() == 0 { // policies times applications is a large number
			return
		}
		for _, s := range limiter.Sources() {
			out.counter(decisionsTotal, o.Allowed(s), policy, app, "allowed", s.String())
			out.counter(decisionsTotal, o.Denied(s), policy, app, "denied", s.String())
		}
		out.counter(shadowDeniedTotal, o.Shadow(), policy, app)
	})
}

func (c *collector) leases(out sink) {
	n := c.Limiter.Leases()
	out.counter(permitsTotal, n.Granted, "granted")
	out.counter(permitsTotal, n.Spent, "spent")
	out.counter(permitsTotal, n.Returned, "given_back")
	out.counter(permitsTotal, n.Expired, "expired")
	out.gauge(bucketsHeld, float64(n.Held))
	out.counter(bucketsEvicted, n.Evicted)
	out.gauge(permitsHeld, float64(c.Limiter.Held()))
}

func (c *collector) redis(out sink) {
	out.gauge(degraded, oneIf(c.Limiter.Degraded()))
	if c.Limiter.Mode() != "redis" {
		return
	}
	health := c.Limiter.Health()
	out.counter(scriptsTotal, health.Scripts)
	out.counter(asksTotal, health.Asks)
	out.counter(dialsTotal, health.Dials)
	out.gauge(mayEvict, oneIf(health.Warning != ""))
	for _, n := range health.Nodes {
		out.gauge(nodeUp, oneIf(n.State == "ok"), n.Node)
	}
	for _, state := range []string{"starting", "ok", "degraded", "failing"} {
		out.gauge(redisState, oneIf(health.State == state), state)
	}
}

func (c *collector) socket(out sink) {
	n := c.Server.Stats()
	out.gauge(connections, float64(n.Connections))
	out.counter(connectionsTotal, n.Accepted)
	out.counter(connectionsRefused, n.Refused)
	out.counter(protocolErrors, n.ProtocolErrors)
	out.counter(slowReaders, n.SlowReaders)
	out.counter(panicsTotal, n.Panics)
	out.counter(receivedBytes, n.BytesIn)
	out.counter(sentBytes, n.BytesOut)
}

// reloads leaves out the hash and the time when there is no file.
func (c *collector) reloads(out sink) {
	n := c.Reload()
	out.gauge(reloadSuccess, oneIf(n.OK))
	out.counter(reloadsTotal, n.Reloads)
	out.counter(reloadFailures, n.Failures)
	if !n.LastSuccess.IsZero() {
		out.gauge(reloadTime, float64(n.LastSuccess.UnixMilli())/1000)
	}
	if n.Hash != "" {
		out.gauge(configInfo, 1, n.Hash)
	}
}

// sink is where a scrape's metrics go.
type sink chan<- prometheus.Metric

func (s sink) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
