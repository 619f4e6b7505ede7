// The top level of the file: what each field may hold.

package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
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

func (c *checker) redis(name string, n *node) *Redis {
	r := defaultRedis()
	var username, password *node
	c.object(name, n,
		field{"url", func(name string, n *node) { c.redisURL(name, n, r) }},
		field{"timeout", c.duration(&r.Timeout, time.Millisecond, 10*time.Second)},
		field{"key_prefix", c.text(&r.KeyPrefix, checkPrefix)},
		keep("password_file", &password),
		keep("username", &username),
	)
	if n.kind == kindMap && !has(n, "url") {
		c.fail(n, "redis has no url: add url: redis://127.0.0.1:6379/0, or remove redis to run standalone")
	}
	u, _ := url.Parse(r.URL)
	if username != nil {
		c.text(&r.Username, printable)("username", username)
		if u != nil && u.User.Username() != "" {
			c.fail(username, "username is given here and in the url: keep one")
		}
	}
	if password != nil {
		c.text(&r.PasswordFile, checkPath)("password_file", password)
		if u != nil && hasPassword(u) {
			c.fail(password, "a password is given by password_file and in the url: keep the file")
		}
	}
	return r
}

func has(n *node, name string) bool {
	for _, f := range n.fields {
		if f.key.text == name {
			return true
		}
	}
	return false
}

func hasPassword(u *url.URL) bool {
	_, is := u.User.Password()
	return is
}

func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return errors.New("write an absolute path")
	}
	return printable(path)
}

func checkPrefix(s string) error {
	if !made(s, 64, "_.-") {
		return errors.New("allowed are 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	return nil
}

// redisURL puts no part of the URL in a message: a password that is not written
// as it should be may turn up in any part.
func (c *checker) redisURL(name string, n *node, r *Redis) {
	if n.kind != kindText {
		c.fail(n, "%s must be a string, not %s", name, n.kind)
		return
	}
	if err := setURL(r, n.text); err != nil {
		c.fail(n, "%s: %v", name, err)
	}
}

// SetRedisURL makes url the Redis of c, with defaults for all else that the file
// left out.
func (c *Config) SetRedisURL(url string) error {
	r := defaultRedis()
	if c.Redis != nil {
		*r = *c.Redis
	}
	if err := setURL(r, url); err != nil {
		return err
	}
	c.Redis = r
	return nil
}

func setURL(r *Redis, text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("cannot be read: write redis://host:port/db (a special character in a password is written %XX)")
	}
	if err := checkRedisURL(u); err != nil {
		return err
	}
	r.URL = text
	return nil
}

func checkRedisURL(u *url.URL) error {
	switch u.Scheme {
	case "redis", "rediss":
		return checkRedisHost(u)
	case "unix":
		return checkRedisSocket(u)
	}
	return errors.New("must begin with redis://, rediss:// (TLS) or unix://")
}

func checkRedisHost(u *url.URL) error {
	db := strings.TrimPrefix(u.Path, "/")
	port, err := strconv.Atoi(u.Port())
	switch {
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("no host: write redis://host:port/db")
	case u.Port() != "" && (err != nil || port < 1 || port > 65535):
		return errors.New("the port must be 1 to 65535")
	case db != "" && !isDB(db):
		return errors.New("the path must be a database's number, such as /0")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("options behind ? or # are not supported: use the fields of redis")
	}
	return nil
}

func checkRedisSocket(u *url.URL) error {
	query := u.Query()
	db := query.Get("db")
	query.Del("db")
	switch {
	case u.Host != "" || !strings.HasPrefix(u.Path, "/"):
		return errors.New("write three slashes and an absolute path: unix:///run/redis.sock")
	case db != "" && !isDB(db):
		return errors.New("db must be a database's number, such as ?db=0")
	case len(query) > 0 || u.Fragment != "":
		return errors.New("only ?db=N may follow the path: use the fields of redis")
	}
	return nil
}

func isDB(s string) bool { return digits(s) && len(s) <= 5 }

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
