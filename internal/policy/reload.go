// Following the file while the agent runs.

package policy

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Status is what became of the latest reading of the file.
type Status struct {
	OK          bool      // the file is the configuration in force
	Hash        string    // of the configuration in force
	LastSuccess time.Time // when a reading was last found good; equal ones are not counted again
	Error       string    // every problem of the file, one per line; "" when OK
	Reloads     uint64    // configurations applied after the first
	Failures    uint64    // readings refused; equal ones count once, unless SIGHUP asked
}

// Reloader applies a changed file when it is good, and keeps the last good
// configuration when it is not.
//
// A change is noticed by SIGHUP, by an event of the file's folder, or by a poll:
// network file systems send no events. Since files are also written in place, and
// half a file or an empty one can be valid, a change that was noticed is applied
// only when two readings, settle apart, agree. SIGHUP says that the file is
// complete: it is applied at once.
type Reloader struct {
	path    string
	running *Config // what socket, redis, admin and cache were started with
	apply   func(*Config)
	log     *slog.Logger
	poll    time.Duration
	settle  time.Duration

	// Of the goroutine in Run.
	pending content // read once, not applied yet
	done    content // applied or refused

	mu     sync.Mutex // guards status
	status Status
}

// content tells one reading of the file from another.
type content struct {
	sum  [sha256.Size]byte
	fail string // why it could not be read
}

// NewReloader returns a Reloader of the file at path, of which first was loaded.
// apply is called from Run with each good configuration; it decides alone what
// policies are in force.
func NewReloader(path string, first *Config, apply func(*Config), log *slog.Logger) *Reloader {
	return &Reloader{
		path: path, running: first, apply: apply, log: log,
		poll: 2 * time.Second, settle: 50 * time.Millisecond,
		status: Status{OK: true, Hash: first.Hash, LastSuccess: time.Now()},
	}
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
	w := newWatch(r.path, r.log)
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
			w.follow()
		case <-w.changed():
			again = true
		case <-w.failed(): // events were lost
			again = true
		case <-settled:
			settled = nil
			again = r.read(false)
			w.follow()
		case <-poll.C:
			again = r.read(false)
			w.follow()
		}
		if again && settled == nil {
			settled = time.After(r.settle)
		}
	}
}

// read takes one reading, and acts on it when it is new and either confirmed by
// the reading before or forced. It reports whether a second reading is wanted.
func (r *Reloader) read(forced bool) (again bool) {
	data, err := readFile(r.path)
	now := content{sum: sha256.Sum256(data)}
	if err != nil {
		now = content{fail: err.Error()}
	}
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
	r.take(data, err, forced)
	return false
}

func (r *Reloader) take(data []byte, err error, asked bool) {
	var cfg *Config
	if err == nil {
		cfg, err = Parse(r.path, data)
	}
	if err != nil {
		r.refuse(err)
		return
	}
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
	if parts := needRestart(r.running, cfg); len(parts) > 0 {
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
	if (started.Redis == nil) != (now.Redis == nil) || started.Redis != nil && *started.Redis != *now.Redis {
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
