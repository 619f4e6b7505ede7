// Network faults between the agent and a real server, to be switched while both run.

package redistest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is one half of a proxied connection.
type Direction int

const (
	Requests Direction = iota // from the client to the server
	Replies                   // from the server to the client
)

// Proxy passes TCP connections on to a server, well or badly. All methods may be
// called at any time, from any goroutine; a fault holds for open connections and new
// ones, and for bytes that reach the proxy after the call. Without faults it adds
// well under a millisecond. Connections between servers that have this proxy by
// WithProxy know no fault but Refuse and SetPeersBlackHole.
type Proxy struct {
	Addr string // 127.0.0.1:port, the same after Refuse

	t      testing.TB
	target string
	peers  net.IP         // from where servers connect; nil if none do
	wg     sync.WaitGroup // every goroutine of the proxy

	mu        sync.Mutex       // guards the fields that follow
	ln        *net.TCPListener // nil while refusing
	closed    bool
	links     map[*link]struct{}
	accepted  int
	cuts      int
	faults    [2]fault // by Direction
	peersHole bool
	dropShare float64
	dropRand  *rand.Rand
}

type fault struct {
	delay, jitter time.Duration
	blackHole     bool
}

// link is one client's connection and its twin to the server.
type link struct {
	client, server *net.TCPConn
	peer           bool          // the client is a server too
	done           chan struct{} // closed by end
	once           sync.Once
}

// end closes both connections, with a reset or in good order. The first call counts.
func (l *link) end(reset bool) {
	l.once.Do(func() {
		close(l.done)
		for _, c := range []*net.TCPConn{l.client, l.server} {
			if c == nil {
				continue
			}
			if reset {
				c.SetLinger(0)
			}
			c.Close()
		}
	})
}

// StartProxy listens on a port of its own and passes connections on to target, a
// host:port. A connection made while target refuses is reset.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return startProxy(t, target, nil)
}

// peerIP is what servers behind proxies connect from; everybody else is 127.0.0.1.
var peerIP = net.IPv4(127, 0, 0, 2)

func startProxy(t testing.TB, target string, peers net.IP) *Proxy {
	t.Helper()
	ln := listenLoopback(t)
	p := &Proxy{
		Addr: ln.Addr().String(), t: t, target: target, peers: peers,
		links: map[*link]struct{}{},
	}
	t.Cleanup(p.close)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serveLocked(ln)
	return p
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse(true)
	p.Cut()
	p.wg.Wait()
}

// Delay makes bytes late by d to d+jitter, each way. It is latency: it does not
// lower the throughput, and the order is kept.
func (p *Proxy) Delay(d, jitter time.Duration) {
	p.SetDelay(Requests, d, jitter)
	p.SetDelay(Replies, d, jitter)
}

// SetDelay is Delay for one direction.
func (p *Proxy) SetDelay(dir Direction, d, jitter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[dir].delay, p.faults[dir].jitter = d, jitter
}

// BlackHole swallows everything, both ways, for as long as it is on. Connections
// stay up, even when the server dies meanwhile. What was swallowed is lost.
func (p *Proxy) BlackHole(on bool) {
	p.SetBlackHole(Requests, on)
	p.SetBlackHole(Replies, on)
}

// SetBlackHole is BlackHole for one direction: with Replies only, the server runs
// commands whose answers never come.
func (p *Proxy) SetBlackHole(dir Direction, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[dir].blackHole = on
}

// SetPeersBlackHole is BlackHole for the connections between servers: replication
// through this proxy stands still, and what was written meanwhile is lost with the
// master. Clients don't notice.
func (p *Proxy) SetPeersBlackHole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peersHole = on
}

// DropReplies resets the connection instead of passing a reply on, for that fraction
// (0..1) of the chunks read from the server: the command has run, the client can't
// know. The same seed gives the same choices in the same order of chunks.
func (p *Proxy) DropReplies(fraction float64, seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropShare, p.dropRand = fraction, rand.New(rand.NewPCG(seed, 0))
}

// Cut resets every connection there is. New ones are not affected.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts++
	for l := range p.links {
		if !l.peer || p.closed {
			l.end(true)
		}
	}
}

// Refuse closes the listening socket, or opens it again on the same port. Open
// connections are not affected: see Cut.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on && p.ln != nil {
		p.ln.Close()
		p.ln = nil
	}
	if on || p.ln != nil || p.closed {
		return
	}
	ln, err := net.Listen("tcp4", p.Addr)
	if err != nil {
		p.t.Errorf("proxy can't listen on %s again: %v", p.Addr, err)
		return
	}
	p.serveLocked(ln.(*net.TCPListener))
}

// Accepted is the number of connections accepted so far, those of peers left out.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *Proxy) serveLocked(ln *net.TCPListener) {
	p.ln = ln
	p.wg.Go(func() {
		for {
			client, err := ln.AcceptTCP()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				p.t.Errorf("proxy %s stops accepting: %v", p.Addr, err)
				return
			}
			p.join(client)
		}
	})
}

// join connects an accepted client to the server. A Cut while it dials counts.
func (p *Proxy) join(client *net.TCPConn) {
	l := &link{client: client, done: make(chan struct{})}
	l.peer = client.RemoteAddr().(*net.TCPAddr).IP.Equal(p.peers)
	cuts := p.count(l)
	server, err := net.DialTimeout("tcp4", p.target, time.Second)
	if err != nil {
		l.end(true)
		return
	}
	l.server = server.(*net.TCPConn)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || cuts != p.cuts && !l.peer {
		l.end(true)
		return
	}
	p.links[l] = struct{}{}
	p.pump(l, Requests, l.client, l.server)
	p.pump(l, Replies, l.server, l.client)
	p.wg.Go(func() { p.forget(l) })
}

func (p *Proxy) count(l *link) (cuts int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.peer {
		p.accepted++
	}
	return p.cuts
}

func (p *Proxy) forget(l *link) {
	<-l.done
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

type chunk struct {
	bytes []byte
	due   time.Time // when it may leave the proxy
}

// pump moves one direction with two goroutines, so that a chunk which waits for its
// time holds up neither the reading nor the clock of those behind it.
func (p *Proxy) pump(l *link, dir Direction, from, to *net.TCPConn) {
	queue := make(chan chunk, 256)
	p.wg.Go(func() { p.read(l, dir, from, queue) })
	p.wg.Go(func() { p.write(l, dir, to, queue) })
}

func (p *Proxy) read(l *link, dir Direction, from *net.TCPConn, queue chan<- chunk) {
	defer close(queue)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		wait, swallow, drop := p.fate(l, dir)
		if drop {
			l.end(true)
			return
		}
		if swallow {
			continue
		}
		select {
		case queue <- chunk{bytes.Clone(buf[:n]), time.Now().Add(wait)}:
		case <-l.done:
			return
		}
	}
}

// fate decides about one chunk; it uses up a random number, so ask once.
func (p *Proxy) fate(l *link, dir Direction) (wait time.Duration, swallow, drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.peer {
		return 0, p.peersHole, false
	}
	f := p.faults[dir]
	if f.blackHole {
		return 0, true, false
	}
	if dir == Replies && p.dropShare > 0 && p.dropRand.Float64() < p.dropShare {
		return 0, false, true
	}
	if f.jitter > 0 {
		f.delay += rand.N(f.jitter + 1)
	}
	return f.delay, false, false
}

func (p *Proxy) swallows(l *link, dir Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.peer {
		return p.peersHole
	}
	return p.faults[dir].blackHole
}

func (p *Proxy) write(l *link, dir Direction, to *net.TCPConn, queue <-chan chunk) {
	for c := range queue {
		select {
		case <-l.done:
			return
		case <-time.After(time.Until(c.due)):
		}
		if _, err := to.Write(c.bytes); err != nil {
			l.end(true)
			return
		}
	}
	// The sender is gone, of which a black hole would not let the client hear.
	if dir == Requests || !p.swallows(l, Replies) {
		l.end(false)
	}
}
