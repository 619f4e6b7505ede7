// The whole configuration file as Go values, with its defaults.

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"time"
)

// MaxFile is the largest configuration file, in bytes.
const MaxFile = 16 << 20

// Config is one configuration, valid and complete.
type Config struct {
	Socket   Socket
	Redis    *Redis // nil: standalone
	Admin    Admin
	Cache    Cache
	Policies *Set
	Hash     string   // first 12 hex digits of the SHA-256 of the file
	Warnings []string // "file:line:column: message", in file order
}

// Socket is where callers connect. Moving any of it needs a restart.
type Socket struct {
	Path  string      // absolute, at most 107 bytes; default /run/rlsidecar/rlsidecar.sock
	Mode  os.FileMode // default 0660; never writable by others
	Group string      // name or number that owns the socket file; "": the agent's own
}

// Redis is the authority all hosts share.
type Redis struct {
	URL          string        // redis://, rediss:// or unix://; may hold a password
	Timeout      time.Duration // a call's budget before the fallback answers: 1ms..10s, default 20ms
	KeyPrefix    string        // before every key: 1..64 of [A-Za-z0-9_.-], default rlsidecar
	PasswordFile string        // absolute path; "": the URL's password, or none
	Username     string
}

// Admin is the listener of metrics and health.
type Admin struct {
	Listen string // loopback host:port; "": none
	Pprof  bool   // also serve profiles there
}

// Cache bounds what the host remembers.
type Cache struct {
	MaxBuckets int // 64..50,000,000, default 250,000; a bucket beyond it drops the least used one
}

func defaults() *Config {
	return &Config{
		Socket: Socket{Path: "/run/rlsidecar/rlsidecar.sock", Mode: 0o660},
		Cache:  Cache{MaxBuckets: 250_000},
	}
}

func defaultRedis() *Redis {
	return &Redis{Timeout: 20 * time.Millisecond, KeyPrefix: "rlsidecar"}
}

// Default returns the configuration of an empty file: standalone, no policies,
// inline limits on.
func Default() *Config {
	c, _ := Parse("", nil)
	return c
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// Load reads and checks the file at path. Problems in its text come back as Errors.
func Load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is not a regular file (%s)", path, info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFile+1))
}

// Parse checks data, the text of a file; name stands before positions in messages.
// The error, if any, is of type Errors.
func Parse(name string, data []byte) (*Config, error) {
	root, err := readTree(data)
	if err != nil {
		err.File = name
		return nil, Errors{err}
	}
	c := checker{file: name}
	cfg := c.config(root)
	if len(c.errs) > 0 {
		return nil, c.errs.sorted()
	}
	for _, w := range c.warnings.sorted() {
		cfg.Warnings = append(cfg.Warnings, w.Error())
	}
	cfg.Hash = hash(data)
	return cfg, nil
}

// String shows r without its password.
func (r *Redis) String() string {
	u, err := url.Parse(r.URL)
	if err != nil || checkRedisURL(u) != nil {
		return "(not a Redis URL)"
	}
	return u.Redacted()
}

// GoString keeps the password out of %#v.
func (r *Redis) GoString() string { return r.String() }

// LogValue keeps the password out of logs.
func (r *Redis) LogValue() slog.Value { return slog.StringValue(r.String()) }
