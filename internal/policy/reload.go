// Following the configuration and its list files while the agent runs.

package policy

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"
)

// Status is what became of the latest reading of the file and its list files.
type Status struct {
	OK          bool      // the file is the configuration in force
	Hash        string    // of the configuration in force
	LastSuccess time.Time // when a reading was last found good; equal ones are not counted again
	Error       string    // every problem of the file, one per line; "" when OK
	Reloads     uint64    // configurations applied after the first
	Failures    uint64    // readings refused; equal ones count once, unless SIGHUP asked
}

// Reloader applies a changed file when it is good, and keeps the last good
// configuration when it is not. The list files a configuration names are part of it:
// a change of one is a change of all, and so is a mistake in one.
//
// A change is noticed by SIGHUP, by an event of a file's folder, or by a poll:
// network file systems send no events. Since files are also written in place, and
// half a file or an empty one can be valid, a change that was noticed is applied
// only when two readings, settle apart, agree. SIGHUP says that the file is
// complete: it is applied at once.
type Reloader struct {
	path    string
	running Config // only what needs a restart: socket, redis, admin and cache
	apply   func(*Config)
	log     *slog.Logger
	poll    time.Duration
	settle  time.Duration

	// Of the goroutine in Run.
	pending content           // read once, not applied yet
	done    content           // applied or refused
	text    [sha256.Size]byte // of the file in which lists were found
	lists   []string          // paths of its list files
	sums    sums              // of the lists

	mu     sync.Mutex // guards status
	status Status
}

// content tells one reading of the file from another.
type content struct {
	sum  [sha256.Size]byte // of the file and its list files, readable or not
	fail string            // why the file could not be read
}

// NewReloader returns a Reloader of the file at path, of which first was loaded.
// apply is called from Run with each good configuration; it decides alone what
// policies are in force.
func NewReloader(path string, first *Config, apply func(*Config), log *slog.Logger) *Reloader {
	r := &Reloader{
		path: path, apply: apply, log: log,
		running: Config{Socket: first.Socket, Redis: first.Redis, Admin: first.Admin, Cache: first.Cache},
		poll:    2 * time.Second, settle: 50 * time.Millisecond,
		done:   content{sum: first.sum},
		status: Status{OK: true, Hash: first.Hash, LastSuccess: time.Now()},
	}
	for _, l := range first.lists {
		r.lists = append(r.lists, l.path)
	}
	return r
}

// Status returns what became of the latest reading.
func (r *Reloader) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run follows the file until ctx ends. What comes from hup counts as SIGHUP; hup
// may be nil.
func (r *Reloader) Run(ctx context.Context, hup <-chan os.Signal) {
	w := newWatch(r.log, r.paths())
	defer w.close()
	poll := time.NewTicker(r.poll)
	defer poll.Stop()
	var settled <-chan time.Time
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case _, open := <-hup:
			if !open {
				hup = nil
				continue
			}
			r.read(true)
			w.follow(r.paths())
		case <-w.changed():
			again = true
		case <-w.failed(): // events were lost
			again = true
		case <-settled:
			settled = nil
			again = r.read(false)
			w.follow(r.paths())
		case <-poll.C:
			again = r.read(false)
			w.follow(r.paths())
		}
		if again && settled == nil {
			settled = time.After(r.settle)
		}
	}
}

// read takes one reading, and acts on it when it is new and either confirmed by
// the reading before or forced. It reports whether a second reading is wanted.
func (r *Reloader) read(forced bool) (again bool) {
	data, now, err := r.reading(forced)
	confirmed := now == r.pending
	r.pending = now
	switch {
	case forced:
	case now == r.done:
		return false
	case !confirmed:
		return true
	}
	r.done = now
	var cfg *Config
	if err == nil {
		cfg, err = Parse(r.path, data)
	}
	switch {
	case err != nil:
		r.refuse(err)
	case cfg.sum != now.sum && !forced: // a list was written since
		r.pending, r.sums = content{}, sums{}
		return true
	default:
		r.take(cfg, forced)
	}
	return false
}

// reading returns the text of the file, and what tells its present state and that
// of its list files from others. all reads even list files that look unchanged.
func (r *Reloader) reading(all bool) (data []byte, now content, err error) {
	data, err = readFile(r.path, MaxFile)
	if err != nil {
		return nil, content{fail: err.Error()}, err
	}
	if text := sha256.Sum256(data); text != r.text || all {
		root, _ := readTree(data)
		r.text, r.lists, r.sums = text, listPaths(root, filepath.Dir(r.path)), sums{}
	}
	lists := make([][sha256.Size]byte, len(r.lists))
	for i, path := range r.lists {
		lists[i] = r.sums.of(path)
	}
	return data, content{sum: sumOf(data, lists)}, nil
}

// paths returns the files to follow.
func (r *Reloader) paths() []string { return append([]string{r.path}, r.lists...) }

func (r *Reloader) take(cfg *Config, asked bool) {
	r.mu.Lock()
	same := cfg.Hash == r.status.Hash
	wasOK := r.status.OK
	r.status.OK, r.status.Error, r.status.LastSuccess = true, "", time.Now()
	r.mu.Unlock()
	if same {
		if asked || !wasOK {
			r.log.Info("configuration is the one in force already", "path", r.path, "hash", cfg.Hash)
		}
		return
	}
	r.apply(cfg)
	r.mu.Lock()
	r.status.Hash = cfg.Hash
	r.status.Reloads++
	r.mu.Unlock()
	r.report(cfg)
}

func (r *Reloader) report(cfg *Config) {
	r.log.Info("configuration reloaded", "path", r.path, "hash", cfg.Hash, "policies", len(cfg.Policies.ordered))
	for _, w := range cfg.Warnings {
		r.log.Warn(w)
	}
	if parts := needRestart(&r.running, cfg); len(parts) > 0 {
		r.log.Warn("changed, but in force only after a restart", "parts", parts)
	}
}

func (r *Reloader) refuse(err error) {
	r.mu.Lock()
	r.status.OK, r.status.Error = false, err.Error()
	r.status.Failures++
	inForce := r.status.Hash
	r.mu.Unlock()
	r.log.Error("configuration refused: the last good one stays in force", "path", r.path, "in_force", inForce)
	var problems Errors
	if !errors.As(err, &problems) {
		r.log.Error(err.Error())
	}
	for _, p := range problems {
		r.log.Error(p.Error())
	}
}

// needRestart names the parts of now that differ from what the agent was started with.
func needRestart(started, now *Config) []string {
	var parts []string
	if started.Socket != now.Socket {
		parts = append(parts, "socket")
	}
	if !reflect.DeepEqual(started.Redis, now.Redis) {
		parts = append(parts, "redis")
	}
	if started.Admin != now.Admin {
		parts = append(parts, "admin")
	}
	if started.Cache != now.Cache {
		parts = append(parts, "cache")
	}
	return parts
}
