// Applications: who calls, told by the user and group at the other end of the socket.

package policy

import (
	"errors"
	"fmt"
	"math"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

const (
	maxApps    = 100
	maxAppName = 64 // bytes
)

// apps is the applications of the file, numbered in its order.
type apps struct {
	names      []string
	byName     map[string]int
	uids, gids map[uint32]int
	trust      bool // callers may name their application themselves
}

func newApps() *apps {
	return &apps{byName: map[string]int{}, uids: map[uint32]int{}, gids: map[uint32]int{}}
}

// appSet is a set of numbers of applications.
type appSet [(maxApps + 63) / 64]uint64

func (s *appSet) add(app int) { s[app/64] |= 1 << (app % 64) }

func (s *appSet) has(app int) bool {
	return app >= 0 && app < maxApps && s[app/64]>>(app%64)&1 == 1
}

// Apps returns the names of the applications in file order. The slice must not be
// changed.
func (s *Set) Apps() []string { return s.apps.names }

// AppOf returns the application that a process of this user and primary group
// belongs to, as its place in Apps, or -1. The user decides before the group. Both
// are as SO_PEERCRED tells them: those at the time of connecting, so a further group
// of the user is not seen. Places change with a reload: keep the uid and the gid,
// not the answer.
func (s *Set) AppOf(uid, gid uint32) int {
	if app, ok := s.apps.uids[uid]; ok {
		return app
	}
	if app, ok := s.apps.gids[gid]; ok {
		return app
	}
	return -1
}

// AppNamed returns the place in Apps of the application of that name, or -1. It
// does not allocate.
func (s *Set) AppNamed(name []byte) int {
	if app, ok := s.apps.byName[string(name)]; ok {
		return app
	}
	return -1
}

// TrustsClient reports whether callers may name their application themselves.
func (s *Set) TrustsClient() bool { return s.apps.trust }

// Admits reports whether the application at that place in Apps may use the policy;
// -1 is a caller that belongs to none. A policy that names no applications admits
// everyone. It does not allocate.
func (p *Policy) Admits(app int) bool { return p.admitted == appSet{} || p.admitted.has(app) }

// AppNames returns the applications that may use p, "shop, blog", or "" for every
// caller.
func (s *Set) AppNames(p *Policy) string {
	var names []string
	for app, name := range s.apps.names {
		if p.admitted.has(app) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// applications reads those of the top level.
func (c *checker) applications(n *node) {
	a := c.apps
	c.each("apps", n, func(key, value *node) {
		switch {
		case !made(key.text, maxAppName, "_./-"):
			c.fail(key, "application name %s: allowed are 1 to %d of A-Z a-z 0-9 _ . / -", quote(key.text), maxAppName)
			return
		case len(a.names) == maxApps:
			c.fail(key, "application %s: allowed are at most %d", quote(key.text), maxApps)
			return
		}
		app := len(a.names)
		a.names = append(a.names, key.text)
		a.byName[key.text] = app
		before := c.failures()
		members := 0
		c.object("application "+quote(key.text), value,
			field{"uids", func(name string, n *node) { members += c.members(name, n, app, a.uids, userID) }},
			field{"gids", func(name string, n *node) { members += c.members(name, n, app, a.gids, groupID) }},
		)
		if members == 0 && !a.trust && c.failures() == before {
			c.fail(key, "application %s has no uids and no gids: add uids: [USER], or let callers name it with trust_client_app: true", quote(key.text))
		}
	})
}

// members reads names or numbers of users or groups of an application, and returns
// how many there are.
func (c *checker) members(name string, n *node, app int, into map[uint32]int, find func(string) (string, error)) int {
	if !c.is(name, n, kindList) {
		return 0
	}
	for _, item := range n.items {
		if !item.scalar() {
			c.is("an entry of "+name, item, kindText)
			continue
		}
		id, err := identity(item.text, find)
		if err != nil {
			c.fail(item, "%s: %v", name, err)
			continue
		}
		if other, taken := into[id]; taken {
			c.fail(item, "%s: %s belongs to application %s already", name, item.show(), quote(c.apps.names[other]))
			continue
		}
		into[id] = app
	}
	return len(n.items)
}

// identity returns the number that text is, or that find knows for it.
func identity(text string, find func(string) (string, error)) (uint32, error) {
	number := text
	if !digits(text) {
		found, err := find(text)
		if err != nil {
			return 0, err
		}
		number = found
	}
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil || id == math.MaxUint32 {
		return 0, fmt.Errorf("%s: allowed are names, and numbers 0 to %d", quote(text), uint32(math.MaxUint32-1))
	}
	return uint32(id), nil
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		return "", fmt.Errorf("there is no user %s on this host: create it, or write its number", quote(name))
	}
	if err != nil {
		return "", fmt.Errorf("user %s: %w", quote(name), err)
	}
	return u.Uid, nil
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if errors.As(err, new(user.UnknownGroupError)) {
		return "", fmt.Errorf("there is no group %s on this host: create it, or write its number", quote(name))
	}
	if err != nil {
		return "", fmt.Errorf("group %s: %w", quote(name), err)
	}
	return g.Gid, nil
}

// admitted reads the applications of a policy.
func (c *checker) admitted(name string, n *node, into *appSet) {
	if !c.is(name, n, kindList) {
		return
	}
	if len(n.items) == 0 {
		c.fail(n, "%s is empty: name who may use the policy, or remove it to admit everyone", name)
	}
	for _, item := range n.items {
		app := slices.Index(c.apps.names, item.text)
		switch {
		case !item.scalar():
			c.is("an entry of "+name, item, kindText)
		case app >= 0:
			into.add(app)
		case len(c.apps.names) == 0:
			c.fail(item, "unknown application %s: the file has none; add it to apps, at the top", item.show())
		default:
			c.fail(item, "unknown application %s%s", item.show(), didYouMean(item.text, c.apps.names))
		}
	}
}
