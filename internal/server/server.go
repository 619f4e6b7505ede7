// This file is the Server: what it is told, what it counts, what it watches.

package server

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"rlsidecar/protocol"
)

const (
	// DefaultMaxConnections is enough for thousands of worker processes.
	DefaultMaxConnections = 10_000
	// DefaultWriteTimeout is far beyond any client's own time-out.
	DefaultWriteTimeout = 2 * time.Second
	// DrainTimeout bounds Shutdown, whatever its context allows.
	DrainTimeout = 5 * time.Second

	apiLevel      = 1 // the protocol spoken; grows when it does
	apiCompatible = 1 // the oldest api level whose clients still understand us
)

// Config is what a Server can be told. The zero Config is good.
type Config struct {
	Version        string        // what info says
	MaxConnections int           // more are closed as soon as accepted; 0 means DefaultMaxConnections
	WriteTimeout   time.Duration // a peer that does not take a reply this long or up to a second more is cut off; 0 means DefaultWriteTimeout
	Log            *slog.Logger  // nil means slog.Default()

	// Observe, if set, is told how many calls of acquire, acquire_all, peek and
	// throttle were decided at once in a chunk of input, and the time since the
	// chunk was read. It is not told of late answers: when their calls came is not
	// kept. It is called by every connection's reader and must not block.
	Observe func(n int, took time.Duration)
}

// Stats are counters since start, except Connections.
type Stats struct {
	Connections    int    // open now
	Accepted       uint64 // ever opened
	Refused        uint64 // closed at once, being over MaxConnections
	ProtocolErrors uint64 // connections closed for what they sent
	Panics         uint64 // calls that made the agent panic
	SlowReaders    uint64 // connections cut off for not reading their replies
	BytesIn        uint64
	BytesOut       uint64
}

// Server serves one listener.
//
//	New ── Serve ──► accepting ── ctx done ──► not accepting ── Shutdown ──► ended
//	                     └──────────────────── Shutdown ───────────────────────┘
//
// Every goroutine it starts has ended when Shutdown returns without an error.
type Server struct {
	decider Decider
	cfg     Config
	log     *slog.Logger

	protocolErrors, panics, slow, refused, accepted atomic.Uint64
	blamed, crowded, failing                        seldom

	ended sync.WaitGroup // Serve's goroutines and the connections'
	stop  chan struct{}  // closed when Shutdown ends
	once  sync.Once

	mu       sync.Mutex // guards the fields that follow
	ln       net.Listener
	conns    map[*conn]struct{}
	closing  bool
	bytesIn  uint64 // of connections that have ended
	bytesOut uint64
}

// New returns a Server that has d decide.
func New(d Decider, cfg Config) *Server {
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = DefaultMaxConnections
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = DefaultWriteTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Server{decider: d, cfg: cfg, log: cfg.Log, stop: make(chan struct{}), conns: map[*conn]struct{}{}}
}

// sweep breaks the connections whose peers do not read their replies.
func (s *Server) sweep() {
	defer s.ended.Done()
	tick := time.NewTicker(min(time.Second, max(s.cfg.WriteTimeout/2, time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.sweepOnce()
		}
	}
}

func (s *Server) sweepOnce() {
	now := s.decider.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.out.stuck(now, s.cfg.WriteTimeout) {
			c.out.breakSlow()
		}
	}
}

// Stats returns the counters. They are not a snapshot of one instant.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Connections:    len(s.conns),
		Accepted:       s.accepted.Load(),
		Refused:        s.refused.Load(),
		ProtocolErrors: s.protocolErrors.Load(),
		Panics:         s.panics.Load(),
		SlowReaders:    s.slow.Load(),
		BytesIn:        s.bytesIn,
		BytesOut:       s.bytesOut,
	}
	for c := range s.conns {
		st.BytesIn += c.bytes.Load()
		st.BytesOut += c.out.bytes.Load()
	}
	return st
}

func (s *Server) info() map[string]any {
	m := s.decider.Info()
	m["version"] = s.cfg.Version
	m["api_level"] = apiLevel
	m["api_compatible"] = apiCompatible
	m["methods"] = protocol.Methods()
	m["connections"] = s.connections()
	return m
}

func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// seldom lets one in so many seconds through, for log lines that a client could
// cause without end.
type seldom struct{ next atomic.Int64 }

const logInterval = 10 * time.Second

func (s *seldom) due(now time.Duration) bool {
	next := s.next.Load()
	return int64(now) >= next && s.next.CompareAndSwap(next, int64(now+logInterval))
}
