// Package admin is the agent's own HTTP listener: metrics for Prometheus, health
// for whoever supervises it, profiles on request. It has no password, so it
// listens on loopback only, and it changes nothing.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"rlsidecar/internal/limiter"
	"rlsidecar/internal/policy"
	"rlsidecar/internal/server"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second // a profile gets its own length on top
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
	lastWords     = time.Second // for the replies under way when the agent ends
)

// Sources is what the pages are made of. All fields are needed.
type Sources struct {
	Limiter *limiter.Limiter
	Server  *server.Server
	Reload  func() policy.Status // with an empty Hash when there is no file
	Version string
}

// Server is the listener and its pages.
type Server struct {
	ln   net.Listener
	http http.Server
	log  *slog.Logger
}

// Listen binds addr, which is host:port with a loopback address or "localhost" as
// host; port 0 takes a free one. Nothing is answered before Run. With pprof the Go
// profiles are served too.
func Listen(addr string, pprof bool, s Sources, m *Metrics, log *slog.Logger) (*Server, error) {
	at, err := loopback(addr, resolve)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("admin.listen: %w", err)
	}
	complaints := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	return &Server{ln: ln, log: log, http: http.Server{
		Handler:           pages(s, registry(s, m), pprof, complaints),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          complaints,
	}}, nil
}

// Addr returns the address listened on.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Run serves until ctx ends, and then lets the replies under way be written for
// up to a second. It is to be called once; the listener is closed when it returns.
func (s *Server) Run(ctx context.Context) {
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.ln) }()
	select {
	case err := <-served:
		s.log.Error("the admin listener has failed; the agent goes on without it", "error", err)
	case <-ctx.Done():
		s.shutdown()
		<-served
	}
}

func (s *Server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
}

// loopback returns addr with a loopback IP address as host, or says why it cannot
// be one. A name is resolved here and not by the listener, so that what was
// checked is what is bound.
func loopback(addr string, resolve func(host string) ([]netip.Addr, error)) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("admin.listen %q: write host:port, such as 127.0.0.1:9180", addr)
	}
	refused := fmt.Errorf("admin.listen %q: these pages have no password, so only this host may reach them: write 127.0.0.1:%s", addr, port)
	ip, err := netip.ParseAddr(host)
	if err != nil {
		if host != "localhost" {
			return "", refused
		}
		if ip, err = localhost(addr, resolve); err != nil {
			return "", err
		}
	}
	if !ip.IsLoopback() {
		return "", refused
	}
	return net.JoinHostPort(ip.String(), port), nil
}

// localhost returns the address of that name, IPv4 if it has one. All it has must
// be loopback: a host where it is anything else is not set up as its users think.
func localhost(addr string, resolve func(host string) ([]netip.Addr, error)) (best netip.Addr, err error) {
	ips, err := resolve("localhost")
	if err == nil && len(ips) == 0 {
		err = errors.New("no address")
	}
	if err != nil {
		return best, fmt.Errorf("admin.listen %q: localhost cannot be resolved: %w; write 127.0.0.1 in its place", addr, err)
	}
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return best, fmt.Errorf("admin.listen %q: localhost is %s on this host, which is not loopback: write 127.0.0.1 in its place", addr, ip)
		}
		if !best.IsValid() || ip.Unmap().Is4() && !best.Is4() {
			best = ip.Unmap()
		}
	}
	return best, nil
}

func resolve(host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), headerTimeout)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
