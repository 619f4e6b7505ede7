// The whole configuration file as Go values, with its defaults.

package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
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
	Hash     string   // first 12 hex digits of the SHA-256 of the file and of the list files it names
	Warnings []string // "file:line:column: message", in file order

	sum   [sha256.Size]byte // of which Hash shows the beginning
	lists []list
}

// list is a list file that the policies name, and how many entries it has.
type list struct {
	path    string
	entries int
}

// Socket is where callers connect. Moving any of it needs a restart.
type Socket struct {
	Path  string      // absolute, at most 107 bytes; default /run/rlsidecar/rlsidecar.sock
	Mode  os.FileMode // default 0660; never writable by others
	Group string      // name or number that owns the socket file; "": the agent's own
}

// Redis is the authority all hosts share.
type Redis struct {
	URL              string        // redis://, rediss:// or unix://; may hold a password. "": Addrs are given
	Addrs            []string      // host:port of the servers to begin with
	Mode             RedisMode     // what stands there; default RedisSingle
	Master           string        // under which the sentinels know it: 1..64 of [A-Za-z0-9_.-]
	DB               int           // with Addrs: 0..99999, default 0
	Timeout          time.Duration // a call's budget before the fallback answers: 1ms..10s, default 20ms
	KeyPrefix        string        // before every key: 1..64 of [A-Za-z0-9_.-], default rlsidecar
	Username         string
	Password         Secret
	SentinelUsername string
	SentinelPassword Secret
	TLS              *TLS // nil: none, unless URL is rediss://
}

// RedisMode says what stands at the addresses of Redis.
type RedisMode uint8

const (
	RedisSingle RedisMode = iota
	RedisSentinel
	RedisCluster
)

var redisModes = []string{"single", "sentinel", "cluster"}

func (m RedisMode) String() string { return redisModes[m] }

// Secret is where a password stands. The zero Secret: in the URL, or nowhere.
type Secret struct {
	File string // absolute path
	Env  string // name of a variable of the environment: 1..128 of [A-Za-z0-9_]
}

// TLS says whom to believe, and what to show.
type TLS struct {
	CA         string // file of the authorities (PEM), absolute path; "": those of the host
	Cert, Key  string // files of this client's certificate and key (PEM), absolute paths; "": none
	ServerName string // that the servers' certificates name; "": the host connected to
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

// sumOf tells one state of the configuration and its list files from another. Of
// a configuration without list files it is the SHA-256.
func sumOf(config []byte, lists [][sha256.Size]byte) [sha256.Size]byte {
	all := sha256.New()
	all.Write(config)
	for i := range lists {
		all.Write(lists[i][:])
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// Load reads and checks the file at path, and the list files it names. Problems in
// their text come back as Errors.
func Load(path string) (*Config, error) {
	data, err := readFile(path, MaxFile)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// readFile returns the regular file at path, or its first most+1 bytes.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("not a regular file (%s)", info.Mode().Type())}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var text bytes.Buffer
	text.Grow(int(min(info.Size(), most)) + bytes.MinRead)
	_, err = text.ReadFrom(io.LimitReader(f, most+1))
	return text.Bytes(), err
}

// Parse checks data, the text of a file, and the list files it names. name stands
// before positions in messages, and in its folder relative paths of list files
// begin. The error, if any, is of type Errors.
func Parse(name string, data []byte) (*Config, error) {
	return parseWith(name, data, newShelf(name, readList))
}

func parseWith(name string, data []byte, s *shelf) (*Config, error) {
	root, err := readTree(data)
	if err != nil {
		err.File = name
		return nil, Errors{err}
	}
	var sums [][sha256.Size]byte
	for _, path := range listPaths(root, s.folder) {
		sums = append(sums, s.open(path).sum)
	}
	c := checker{file: name, shelf: s, apps: newApps()}
	cfg := c.config(root)
	problems, warnings := c.errs.sorted(), c.warnings.sorted()
	for _, f := range s.files {
		problems = append(problems, f.problems()...)
		warnings = append(warnings, f.warnings()...)
		cfg.lists = append(cfg.lists, list{f.path, f.count()})
	}
	if len(problems) > 0 {
		return nil, problems
	}
	for _, w := range warnings {
		cfg.Warnings = append(cfg.Warnings, w.Error())
	}
	cfg.sum = sumOf(data, sums)
	cfg.Hash = hex.EncodeToString(cfg.sum[:6])
	return cfg, nil
}

// String shows r without its password.
func (r *Redis) String() string {
	at := strings.Join(r.Addrs, ",")
	if r.URL != "" {
		at = r.redacted()
	}
	switch r.Mode {
	case RedisSentinel:
		return "master " + r.Master + " of the sentinels " + at
	case RedisCluster:
		return "cluster " + at
	}
	return at
}

func (r *Redis) redacted() string {
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
