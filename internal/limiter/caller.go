// Who asks: the process at the other end of a connection, and the application it
// belongs to.

package limiter

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"rlsidecar/internal/policy"
)

// Peer is the process that connected, as the kernel noted it at connect: it stays
// the same when the connection is inherited or passed on. The user and group are
// good for permission. The pid is 0 across pid namespaces, and may be another
// process's by now: it only tells which connections belong together.
type Peer struct {
	Known    bool
	UID, GID uint32
	PID      int32
}

// LogValue makes a peer readable in a log line.
func (p Peer) LogValue() slog.Value {
	if !p.Known {
		return slog.StringValue("unknown")
	}
	return slog.GroupValue(slog.Int("uid", int(p.UID)), slog.Int("gid", int(p.GID)), slog.Int("pid", int(p.PID)))
}

// Caller is one connection. A nil Caller is of no application, and what it holds
// ends only by itself.
type Caller struct {
	peer  Peer
	owner *owner
	app   atomic.Pointer[appOf]
}

// appOf is a peer's application in one policy set.
type appOf struct {
	set *policy.Set
	app int
}

// noApp is the application of a peer that no application claims.
const noApp = -1

// Connect returns the caller behind a new connection. Disconnect ends it.
func (l *Limiter) Connect(p Peer) *Caller {
	return &Caller{peer: p, owner: l.permits.connect(p.PID)}
}

// Disconnect says that the connection has closed: what its process holds is
// released a second after its last one.
func (l *Limiter) Disconnect(c *Caller) { l.permits.disconnect(l.clock(), c.owner) }

// appIn returns the place of the peer's application in set.Apps, or noApp.
func (c *Caller) appIn(set *policy.Set) int {
	if c == nil || !c.peer.Known || len(set.Apps()) == 0 {
		return noApp
	}
	seen := c.app.Load()
	if seen == nil || seen.set != set {
		seen = &appOf{set, set.AppOf(c.peer.UID, c.peer.GID)}
		c.app.Store(seen)
	}
	return seen.app
}

// app returns the application that c is asked for.
func (c *Call) app(set *policy.Set) (int, *Error) {
	if c.App == nil || !set.TrustsClient() {
		return c.Caller.appIn(set), nil
	}
	if app := set.AppNamed(c.App); app != noApp {
		return app, nil
	}
	return noApp, &Error{InvalidArgument, fmt.Sprintf("unknown app: %.64q is not one of the agent's apps", c.App)}
}

// notAdmitted says that an application may not use p.
func notAdmitted(set *policy.Set, p *policy.Policy, app int) *Error {
	who := "this caller is of none of the agent's apps"
	if app != noApp {
		who = fmt.Sprintf("this caller is %q", set.Apps()[app])
	}
	return &Error{NotPermitted, fmt.Sprintf("policy %q is only for the apps %s: %s", p.Name, set.AppNames(p), who)}
}
