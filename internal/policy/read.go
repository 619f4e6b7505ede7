// The top level of the file: what each field may hold.

package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

func (c *checker) config(root *node) *Config {
	cfg := defaults()
	inline := true
	var policies, applications *node
	var list []*Policy
	if root != nil {
		c.object("the file", root,
			field{"socket", func(name string, n *node) { c.socket(name, n, &cfg.Socket) }},
			field{"redis", func(name string, n *node) { cfg.Redis = c.redis(name, n) }},
			field{"admin", func(name string, n *node) { c.admin(name, n, &cfg.Admin) }},
			field{"cache", func(name string, n *node) { c.cache(name, n, &cfg.Cache) }},
			field{"inline_limits", c.boolean(func(on bool) { inline = on })},
			field{"trust_client_app", c.boolean(func(on bool) { c.apps.trust = on })},
			keep("apps", &applications),
			keep("policies", &policies),
		)
	}
	c.shared = cfg.Redis != nil
	if applications != nil {
		c.applications(applications)
	}
	if policies != nil {
		list = c.policies(policies)
	}
	cfg.Policies = newSet(list, inline, c.apps)
	return cfg
}

func (c *checker) socket(name string, n *node, s *Socket) {
	c.object(name, n,
		field{"path", c.text(&s.Path, checkSocketPath)},
		field{"mode", func(name string, n *node) { c.mode(name, n, &s.Mode) }},
		field{"group", func(name string, n *node) { c.group(name, n, &s.Group) }},
	)
}

func checkSocketPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return errors.New("write an absolute path")
	case len(path) > 107:
		return fmt.Errorf("%d bytes: a socket's path has at most 107", len(path))
	case strings.HasSuffix(path, "/"):
		return errors.New("name a file, not a folder")
	}
	return printable(path)
}

func printable(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("holds a control character")
	}
	return nil
}

// mode reads three octal digits, quoted or not, with or without a leading 0 or 0o.
func (c *checker) mode(name string, n *node, into *os.FileMode) {
	if !n.scalar() {
		c.is(name, n, kindText)
		return
	}
	octal := strings.TrimPrefix(strings.TrimPrefix(n.text, "0o"), "0")
	v, err := strconv.ParseUint(octal, 8, 32)
	switch {
	case err != nil || len(octal) != 3:
		c.fail(n, "%s %s: write the permissions as octal digits, such as \"0660\"", name, n.show())
	case v&0o002 != 0:
		c.fail(n, "%s %s: every user of the host could connect and use up limits: write \"0660\" and name the callers' group in socket.group", name, n.show())
	default:
		*into = os.FileMode(v)
	}
}

func (c *checker) group(name string, n *node, into *string) {
	switch {
	case n.kind != kindText && n.kind != kindInt:
		c.is(name, n, kindText)
	case !made(n.text, 32, "_.-"):
		c.fail(n, "%s %s: a group is 1 to 32 of A-Z a-z 0-9 _ . -, or its number", name, n.show())
	default:
		*into = n.text
	}
}

// made reports whether s is 1 to most ASCII letters, digits and bytes of marks.
func made(s string, most int, marks string) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		b := s[i]
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		if !letter && (b < '0' || b > '9') && strings.IndexByte(marks, b) < 0 {
			return false
		}
	}
	return true
}

func has(n *node, name string) bool {
	for _, f := range n.fields {
		if f.key.text == name {
			return true
		}
	}
	return false
}

func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return errors.New("write an absolute path")
	}
	return printable(path)
}

func (c *checker) admin(name string, n *node, a *Admin) {
	c.object(name, n,
		field{"listen", c.text(&a.Listen, checkListen)},
		field{"pprof", c.boolean(func(on bool) { a.Pprof = on })},
	)
	if a.Pprof && !has(n, "listen") {
		c.fail(n, "admin has pprof but no listen: add listen: 127.0.0.1:9180")
	}
}

// checkListen refuses all but loopback: the admin pages have no password, and
// show policies and keys.
func checkListen(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("write host:port, such as 127.0.0.1:9180")
	}
	p, err := strconv.Atoi(port)
	if err != nil || !digits(port) || p > 65535 {
		return fmt.Errorf("port %s: allowed are 0 to 65535", quote(port))
	}
	ip, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("these pages have no password, so only this host may reach them: write 127.0.0.1:%s", port)
}

func (c *checker) cache(name string, n *node, into *Cache) {
	c.object(name, n, field{"max_buckets", func(name string, n *node) {
		if v, ok := c.integer(name, n, 64, 50_000_000); ok {
			into.MaxBuckets = int(v)
		}
	}})
}
