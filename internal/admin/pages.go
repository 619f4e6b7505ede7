// The pages: what is served at which path.

package admin

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rlsidecar/internal/limiter"
)

// maxScrapes is how many scrapes may run at once; more get status 503.
const maxScrapes = 4

// pages answers GET and HEAD: a pattern with GET stands for both, and the mux
// refuses the other methods.
func pages(s Sources, reg *prometheus.Registry, profiles bool, complaints *log.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorLog: complaints, MaxRequestsInFlight: maxScrapes}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		status, body := readiness(s.Limiter)
		text(w, status, body)
	})
	index := "rlsidecar " + s.Version + "\n\n/metrics  for Prometheus\n/healthz  the process answers\n/readyz   calls are answered, and from what\n"
	if profiles {
		index += "/debug/pprof/  profiles of the process\n"
		profile(mux)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, index) })
	return mux
}

func profile(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// readiness says whether calls are answered as they should be. Without Redis they
// still are, from this host's limits: taking the agent out of service then would
// make an outage of Redis one of the applications.
func readiness(l *limiter.Limiter) (status int, body string) {
	health := l.Health()
	switch {
	case l.Draining():
		return http.StatusServiceUnavailable, "not ready: shutting down\n"
	case health.State == "starting":
		return http.StatusServiceUnavailable, "not ready: Redis has not been tried yet\n"
	case l.Mode() == "standalone":
		return http.StatusOK, "ready\nmode: standalone\n"
	}
	body = fmt.Sprintf("ready\nmode: %s\nredis: %s\n", l.Mode(), health)
	if health.Bucket != "" {
		body += "bucket: " + health.Bucket + "\n"
	}
	return http.StatusOK, body
}
