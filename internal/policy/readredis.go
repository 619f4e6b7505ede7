// The section redis: where it is, what it is, and how one gets in.

package policy

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

func (c *checker) redis(name string, n *node) *Redis {
	r := defaultRedis()
	var login, sentinels login
	tls := (*node)(nil)
	c.object(name, n,
		field{"url", func(name string, n *node) { c.redisURL(name, n, r) }},
		field{"addrs", func(name string, n *node) { c.addrs(name, n, r) }},
		field{"mode", c.choice(redisModes, func(i int) { r.Mode = RedisMode(i) })},
		field{"master", c.text(&r.Master, checkName)},
		field{"db", c.number(0, 99_999, func(db int64) { r.DB = int(db) })},
		field{"timeout", c.duration(&r.Timeout, time.Millisecond, 10*time.Second)},
		field{"key_prefix", c.text(&r.KeyPrefix, checkName)},
		keep("username", &login.username), keep("password_file", &login.file), keep("password_env", &login.env),
		keep("sentinel_username", &sentinels.username), keep("sentinel_password_file", &sentinels.file), keep("sentinel_password_env", &sentinels.env),
		keep("tls", &tls),
	)
	if n.kind != kindMap {
		return r
	}
	c.login(login, &r.Username, &r.Password)
	c.login(sentinels, &r.SentinelUsername, &r.SentinelPassword)
	if tls != nil {
		c.tls(tls, r)
	}
	c.redisPlace(n, r)
	c.redisMode(n, r)
	c.redisUser(login, r)
	return r
}

// redisPlace wants one of url and addrs.
func (c *checker) redisPlace(n *node, r *Redis) {
	url, addrs := has(n, "url"), has(n, "addrs")
	switch {
	case url && addrs:
		c.fail(n, "redis has a url and addrs: keep one")
	case !url && !addrs:
		c.fail(n, "redis has no url: add url: redis://127.0.0.1:6379/0, or addrs with a mode, or remove redis to run standalone")
	case url && has(n, "db"):
		c.fail(n, "redis has a url and db: write the database in the url, as in redis://127.0.0.1:6379/%d", r.DB)
	}
}

// redisMode holds the mode against what else is said.
func (c *checker) redisMode(n *node, r *Redis) {
	u, _ := url.Parse(r.URL)
	switch {
	case r.Mode == RedisSentinel && r.Master == "":
		c.fail(n, "redis.mode is sentinel and there is no master: add master: and the name that the sentinels know it by")
	case r.Mode != RedisSentinel && r.Master != "":
		c.fail(n, "redis has a master, but mode is %s: write mode: sentinel, or remove master", r.Mode)
	case r.Mode != RedisSentinel && (r.SentinelUsername != "" || r.SentinelPassword != Secret{}):
		c.fail(n, "redis has a user or password for sentinels, but mode is %s: write mode: sentinel, or remove it", r.Mode)
	case r.Mode == RedisSingle && len(r.Addrs) > 1:
		c.fail(n, "redis.addrs names %d servers: write mode: cluster, or mode: sentinel with a master", len(r.Addrs))
	case r.Mode != RedisSingle && u != nil && u.Scheme == "unix":
		c.fail(n, "redis.url is a socket, but mode is %s: name its servers in addrs, as host:port", r.Mode)
	case r.Mode == RedisCluster && (r.DB != 0 || u != nil && u.Scheme != "unix" && strings.Trim(u.Path, "/0") != ""):
		c.fail(n, "a cluster has database 0 only: remove the number")
	case r.TLS != nil && u != nil && (u.Scheme == "redis" || u.Scheme == "unix"):
		c.fail(n, "redis has tls, but its url begins with %s://: write rediss://", u.Scheme)
	}
}

// redisUser refuses a name or password that is given twice.
func (c *checker) redisUser(l login, r *Redis) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return
	}
	if l.username != nil && u.User.Username() != "" {
		c.fail(l.username, "username is given here and in the url: keep one")
	}
	if l.file != nil && hasPassword(u) {
		c.fail(l.file, "a password is given by password_file and in the url: keep the file")
	}
	if l.env != nil && hasPassword(u) {
		c.fail(l.env, "a password is given by password_env and in the url: keep the variable")
	}
}

// login is the fields that say who one is.
type login struct{ username, file, env *node }

func (c *checker) login(l login, username *string, password *Secret) {
	if l.username != nil {
		c.text(username, printable)("username", l.username)
	}
	if l.file != nil {
		c.text(&password.File, checkPath)("password_file", l.file)
	}
	if l.env != nil {
		c.text(&password.Env, checkEnv)("password_env", l.env)
	}
	if l.file != nil && l.env != nil {
		c.fail(l.env, "a password is given by a file and by the environment: keep one")
	}
}

func (c *checker) tls(n *node, r *Redis) {
	r.TLS = &TLS{}
	c.object("tls", n,
		field{"ca", c.text(&r.TLS.CA, checkPath)},
		field{"cert", c.text(&r.TLS.Cert, checkPath)},
		field{"key", c.text(&r.TLS.Key, checkPath)},
		field{"server_name", c.text(&r.TLS.ServerName, printable)},
	)
	if n.kind == kindMap && has(n, "cert") != has(n, "key") {
		c.fail(n, "tls has only one of cert and key: a client certificate needs both")
	}
}

func (c *checker) addrs(name string, n *node, r *Redis) {
	if !c.is(name, n, kindList) {
		return
	}
	for _, item := range n.items {
		var addr string
		c.text(&addr, checkAddr)("address", item)
		r.Addrs = append(r.Addrs, addr)
	}
	if len(n.items) == 0 || len(n.items) > 100 {
		c.fail(n, "%s has %d addresses: allowed are 1 to 100", name, len(n.items))
	}
}

func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return errors.New("write host:port, such as redis-1:6379")
	}
	if p, err := strconv.Atoi(port); err != nil || !digits(port) || p < 1 || p > 65535 {
		return fmt.Errorf("port %s: allowed are 1 to 65535", quote(port))
	}
	return printable(addr)
}

func checkName(s string) error {
	if !made(s, 64, "_.-") {
		return errors.New("allowed are 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	return nil
}

func checkEnv(s string) error {
	if !made(s, 128, "_") {
		return errors.New("name the variable: 1 to 128 of A-Z a-z 0-9 _")
	}
	return nil
}

func hasPassword(u *url.URL) bool {
	_, is := u.User.Password()
	return is
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

// SetRedisURL makes url, a single server, the Redis of c, with defaults for all else
// that the file left out.
func (c *Config) SetRedisURL(url string) error {
	r := defaultRedis()
	if c.Redis != nil {
		*r = *c.Redis
	}
	if err := setURL(r, url); err != nil {
		return err
	}
	r.Addrs, r.Mode, r.Master, r.DB = nil, RedisSingle, "", 0
	if !strings.HasPrefix(url, "rediss:") {
		r.TLS = nil
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
