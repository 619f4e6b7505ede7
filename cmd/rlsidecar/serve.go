// serve runs the agent: configuration, socket, Redis, limiter, server, reload and
// signals, and their end in the right order.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"rlsidecar/internal/admin"
	"rlsidecar/internal/limiter"
	"rlsidecar/internal/policy"
	"rlsidecar/internal/server"
	"rlsidecar/remote"
)

const (
	defaultConfig = "/etc/rlsidecar/rlsidecar.yaml"
	drainTime     = 3 * time.Second // of the 5 s that ending may take
)

type serveFlags struct {
	config, socket, redis, logLevel, logFormat string
	procs                                      int
}

func serve(args []string, out, errs io.Writer) int {
	var o serveFlags
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.StringVar(&o.config, "config", "", "configuration `file`; without one "+defaultConfig+" is read if it exists,\nand otherwise the agent runs standalone with callers' own limits")
	f.StringVar(&o.socket, "socket", "", "`path` of the socket, in place of the file's (default "+server.DefaultPath+")")
	f.StringVar(&o.redis, "redis", "", "`URL` of Redis, in place of the file's: redis://, rediss:// or unix://; \"none\" for standalone")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.IntVar(&o.procs, "procs", 0, "processors to use (default all; 1 often gives the lowest latency)")
	const about = "Runs the agent until SIGTERM or SIGINT; a second one ends it at once. SIGHUP, or a change of\nthe configuration file, reloads the policies. Exit status 0: ended in order; 2: could not start."
	if _, status, ok := parse(f, args, about, nil, out, errs); !ok {
		return status
	}
	if err := o.run(errs); err != nil {
		return complain(errs, "serve", err)
	}
	return exitOK
}

func (o *serveFlags) run(errs io.Writer) error {
	log, err := newLogger(o.logLevel, o.logFormat, errs)
	if err != nil {
		return err
	}
	if o.procs > 0 {
		runtime.GOMAXPROCS(o.procs)
	}
	written, err := o.read()
	if err != nil {
		return err
	}
	config, err := o.override(written)
	if err != nil {
		return err
	}
	for _, w := range config.Warnings {
		log.Warn(w)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	a, err := newAgent(config, log)
	if err != nil {
		return err
	}
	if o.config != "" {
		a.follow(o.config, written)
	}
	return a.run(signals)
}

// read reads the file, if there is one.
func (o *serveFlags) read() (*policy.Config, error) {
	if o.config == "" {
		if _, err := os.Stat(defaultConfig); err == nil {
			o.config = defaultConfig
		}
	}
	if o.config == "" {
		return policy.Default(), nil
	}
	return policy.Load(o.config)
}

// override returns what was written with the flags in place of the file's fields.
func (o *serveFlags) override(written *policy.Config) (*policy.Config, error) {
	config := new(policy.Config)
	*config = *written
	if o.socket != "" {
		config.Socket.Path = o.socket
	}
	switch {
	case o.redis == "none":
		config.Redis = nil
	case o.redis != "":
		if err := config.SetRedisURL(o.redis); err != nil {
			return nil, fmt.Errorf("--redis: %w", err)
		}
	}
	return config, nil
}

func newLogger(level, format string, w io.Writer) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: allowed are debug, info, warn, error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: allowed are text, json", format)
}

// agent is everything that runs, put together.
type agent struct {
	log      *slog.Logger
	socket   *server.Listener
	redis    *remote.Redis // nil: standalone
	limiter  *limiter.Limiter
	server   *server.Server
	reloader *policy.Reloader // nil: no file
	admin    *admin.Server
	ended    sync.WaitGroup
}

func newAgent(config *policy.Config, log *slog.Logger) (*agent, error) {
	a := &agent{log: log}
	metrics := admin.NewMetrics()
	o := limiter.Options{MaxBuckets: config.Cache.MaxBuckets, Observe: metrics.Decisions}
	if r := config.Redis; r != nil {
		var err error
		if a.redis, err = remote.Open(redisOptions(r, log, metrics.Pipeline)); err != nil {
			return nil, err
		}
		o.Redis, o.Timeout, o.Health, o.Node = a.redis, r.Timeout, a.health, a.node
	}
	a.limiter = limiter.New(config.Policies, o)
	a.server = server.New(a.limiter, server.Config{Version: versionName(), Log: log, Observe: metrics.Decisions})
	var err error
	if a.socket, err = server.Listen(server.ListenConfig{Path: config.Socket.Path, Mode: config.Socket.Mode, Group: config.Socket.Group}); err != nil {
		return nil, err
	}
	if config.Admin.Listen != "" {
		sources := admin.Sources{Limiter: a.limiter, Server: a.server, Reload: a.reloadStatus, Version: versionName()}
		if a.admin, err = admin.Listen(config.Admin.Listen, config.Admin.Pprof, sources, metrics, log); err != nil {
			return nil, errors.Join(err, a.socket.Close())
		}
	}
	return a, nil
}

// follow reloads the policies from the file as it changes from what was written.
func (a *agent) follow(file string, written *policy.Config) {
	a.reloader = policy.NewReloader(file, written, func(c *policy.Config) { a.limiter.SetPolicies(c.Policies) }, a.log)
}

func redisOptions(r *policy.Redis, log *slog.Logger, observe func(int, time.Duration)) remote.Options {
	o := remote.Options{
		URL: r.URL, Addrs: r.Addrs, Mode: remote.Mode(r.Mode), Master: r.Master, DB: r.DB,
		Username: r.Username, Password: remote.Secret(r.Password),
		SentinelUsername: r.SentinelUsername, SentinelPassword: remote.Secret(r.SentinelPassword),
		Timeout: r.Timeout, Prefix: r.KeyPrefix, Log: log, Observe: observe,
	}
	if r.TLS != nil {
		o.TLS = (*remote.TLS)(r.TLS)
	}
	return o
}

func (a *agent) health() limiter.Health {
	s := a.redis.Status()
	h := limiter.Health{State: s.State, Reason: s.Reason, Mend: s.Mend, Bucket: s.Bucket, Warning: s.Warning,
		Scripts: a.redis.Scripts(), Asks: a.redis.Asks(), Dials: a.redis.Dials()}
	for _, n := range a.redis.Nodes() {
		h.Nodes = append(h.Nodes, nodeHealth(n))
	}
	return h
}

func (a *agent) node(home uint16) limiter.NodeHealth { return nodeHealth(a.redis.Node(home)) }

func nodeHealth(s remote.Status) limiter.NodeHealth {
	return limiter.NodeHealth{Node: s.Node, State: s.State, Reason: s.Reason}
}

func (a *agent) reloadStatus() policy.Status {
	if a.reloader == nil {
		return policy.Status{OK: true}
	}
	return a.reloader.Status()
}

// run serves until a signal comes, then drains. A second signal ends the process
// at once.
func (a *agent) run(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a.start(ctx)
	served := make(chan error, 1)
	accepting, stop := context.WithCancel(ctx)
	defer stop()
	go func() { served <- a.server.Serve(accepting, a.socket) }()
	a.log.Info("serving", "socket", a.socket.Addr(), "mode", a.limiter.Mode(), "version", versionName())

	var failure error
	select {
	case s := <-signals:
		a.log.Info("shutting down", "signal", s.String())
	case failure = <-served:
	}
	a.ended.Go(func() {
		select {
		case s := <-signals:
			a.log.Warn("ended at once", "signal", s.String())
			os.Exit(exitError)
		case <-ctx.Done():
		}
	})
	a.drain()
	cancel()
	a.ended.Wait()
	if a.redis != nil {
		failure = errors.Join(failure, a.redis.Close())
	}
	a.log.Info("ended")
	return failure
}

// start runs what works beside the server. It waits for the first attempt at
// Redis, so that the first call finds it warm.
func (a *agent) start(ctx context.Context) {
	a.ended.Go(func() { a.limiter.Run(ctx) })
	if a.admin != nil {
		a.ended.Go(func() { a.admin.Run(ctx) })
	}
	if a.redis != nil {
		attempted := make(chan struct{})
		a.ended.Go(func() { a.redis.Run(ctx, func() { close(attempted) }) })
		<-attempted
	}
	if a.reloader != nil {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		a.ended.Go(func() {
			defer signal.Stop(hup)
			a.reloader.Run(ctx, hup)
		})
	} else {
		signal.Ignore(syscall.SIGHUP)
	}
}

func (a *agent) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		a.log.Warn("not everything could be finished", "error", err)
	}
}
