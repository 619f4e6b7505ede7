// Package remote is the authority: Lua scripts in Redis, and the one place that
// talks to it.
package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"rlsidecar/internal/bucket"
)

const (
	format     = "v3" // of what is stored; part of every key
	pipelines  = 4    // in flight at once
	maxBatch   = 64   // asks in one pipeline: less than 1 ms of Redis
	maxKeys    = 32   // buckets in one script call: Redis does nothing else meanwhile
	silence    = 3    // times the time-out that a busy Redis may say nothing
	loadTries  = 2    // times that missing scripts are loaded for one pipeline
	patience   = time.Second
	firstProbe = 100 * time.Millisecond
	probeEvery = 500 * time.Millisecond
)

// Options say which Redis and how. URL is redis://, rediss:// or unix://, with the
// user, password and database in it; Username and PasswordFile replace what it has.
type Options struct {
	URL          string
	Username     string
	PasswordFile string
	Timeout      time.Duration // for one pipeline, 1 ms..10 s
	Prefix       string        // of every key
	Log          *slog.Logger
	// Observe, if set, is told of each pipeline: its asks, and how long it took.
	Observe func(asks int, took time.Duration)
}

// Redis is a limiter's authority.
//
// A script is sent once: no retry of go-redis is left on (see once), and what this
// package sends again is only what Redis answered NOSCRIPT to, which did not run.
type Redis struct {
	client  *redis.Client
	o       Options
	keys    int           // buckets in one script call at most
	scripts atomic.Uint64 // calls of them
	asks    atomic.Uint64
	heard   atomic.Int64 // Unix ns when Redis last answered an ask
	health  health
	work    sync.WaitGroup

	// mu guards the fields that follow. It is a leaf: Ask is called with a shard
	// locked.
	mu      sync.Mutex
	pending []*bucket.Question
	busy    int // pipelines in flight
	closed  bool
}

// quiet keeps go-redis from writing to standard error: what it has to say comes
// back as errors, and health tells it once.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }

// Open returns a Redis that is not reachable until Run has reached it. It fails
// when the options make no sense; it does not connect.
func Open(o Options) (*Redis, error) {
	client, err := options(o)
	if err != nil {
		return nil, err
	}
	r := &Redis{client: redis.NewClient(client), o: o, keys: maxKeys}
	r.health.init(o.Log)
	return r, nil
}

func options(o Options) (*redis.Options, error) {
	c, err := redis.ParseURL(o.URL)
	if err != nil {
		return nil, errBadURL // what the library says of it may hold the password
	}
	if o.Username != "" {
		c.Username = o.Username
	}
	if o.PasswordFile != "" {
		secret, err := os.ReadFile(o.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("redis.password_file: %w", err)
		}
		c.Password = strings.TrimSpace(string(secret))
	}
	c.Protocol, c.DisableIdentity = 2, true
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.MaxRetries, c.DialerRetries = -1, 1
	c.ContextTimeoutEnabled = true
	c.DialTimeout, c.PoolTimeout = patience, o.Timeout
	c.ReadTimeout, c.WriteTimeout = max(patience, o.Timeout), max(patience, o.Timeout)
	c.PoolSize, c.MaxActiveConns, c.PipelinePoolSize = pipelines+1, pipelines+1, -1
	c.ReadBufferSize, c.WriteBufferSize = 32<<10, 32<<10
	return c, nil
}

var errBadURL = errors.New("redis.url cannot be read: write redis://user:password@host:port/0, rediss:// (TLS) or unix:///path/to.sock?db=0; " +
	"a special character in a password is written %XX")

// Reachable reports whether Redis answered last.
func (r *Redis) Reachable() bool { return r.health.up.Load() }

var errAway = fmt.Errorf("Redis is not reachable: %w", bucket.ErrRefused)

// Ask sends q with the next pipeline: at once while fewer than a few are in
// flight, else together with all that come until one has ended.
func (r *Redis) Ask(q *bucket.Question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !r.Reachable() {
		go q.Answer(q, bucket.Grant{}, errAway)
		return
	}
	r.pending = append(r.pending, q)
	if r.busy < pipelines {
		r.busy++
		r.work.Add(1)
		go r.run()
	}
}

// run sends pipelines until nothing is pending.
func (r *Redis) run() {
	defer r.work.Done()
	for {
		batch := r.take()
		if batch == nil {
			return
		}
		r.send(batch)
	}
}

func (r *Redis) take() []*bucket.Question {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.pending), maxBatch)
	if n == 0 {
		r.busy--
		return nil
	}
	batch := r.pending[:n:n]
	r.pending = r.pending[n:]
	if len(r.pending) == 0 {
		r.pending = nil
	}
	return batch
}

// send asks a batch, and again those for which the script was missing: somebody may
// flush the scripts between the loading and the next try, but not for ever.
func (r *Redis) send(batch []*bucket.Question) {
	if !r.Reachable() {
		for _, q := range batch {
			q.Answer(q, bucket.Grant{}, errAway)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.o.Timeout)
	defer cancel()
	for tries := loadTries; len(batch) > 0; tries-- {
		batch = r.exec(ctx, batch, tries == 0)
		if len(batch) == 0 {
			return
		}
		if err := r.load(ctx, scriptsOf(batch)); err != nil {
			f := classify(err, r.o.Prefix)
			f.lost = false // the loading may be; the asks did not run
			for _, q := range batch {
				r.refuse(q, err, f)
			}
			return
		}
	}
}

// scriptsOf returns the scripts of a batch, each once.
func scriptsOf(batch []*bucket.Question) (all []*script) {
	for _, q := range batch {
		if s := scriptOf(q.Rule.Algorithm); !slices.ContainsFunc(all, func(o *script) bool { return o.sha == s.sha }) {
			all = append(all, s)
		}
	}
	return all
}

// call is the questions that one script call asks, at most Redis.keys of them.
type call struct {
	script    *script
	questions []*bucket.Question
}

// calls sorts a batch into script calls.
func (r *Redis) calls(batch []*bucket.Question) (all []*call) {
	for _, q := range batch {
		s := scriptOf(q.Rule.Algorithm)
		i := slices.IndexFunc(all, func(c *call) bool { return c.script.sha == s.sha && len(c.questions) < r.keys })
		if i < 0 {
			i = len(all)
			all = append(all, &call{script: s})
		}
		all[i].questions = append(all[i].questions, q)
	}
	return all
}

// exec runs one pipeline and answers its questions, but for those that need the
// script loaded, which it returns unless this is the last try.
func (r *Redis) exec(ctx context.Context, batch []*bucket.Question, last bool) (missing []*bucket.Question) {
	pipe := r.client.Pipeline()
	calls := r.calls(batch)
	commands := make([]once, len(calls))
	for i, c := range calls {
		commands[i] = r.command(ctx, c)
		_ = pipe.Process(ctx, commands[i])
	}
	started := time.Now()
	_, _ = pipe.Exec(ctx) // each command has its own error
	ended := time.Now()
	r.scripts.Add(uint64(len(calls)))
	r.asks.Add(uint64(len(batch)))
	if r.o.Observe != nil {
		r.o.Observe(len(batch), ended.Sub(started))
	}
	for i, c := range calls {
		replies, err := commands[i].Slice()
		if redis.HasErrorPrefix(err, "NOSCRIPT") && !last {
			missing = append(missing, c.questions...)
			continue
		}
		if err == nil {
			r.heard.Store(ended.UnixNano())
		}
		r.answer(c, replies, err)
	}
	return missing
}

// answer gives each question of a call its reply, or what became of all.
func (r *Redis) answer(c *call, replies []any, err error) {
	if err == nil && len(replies) != len(c.questions) {
		err = fmt.Errorf("the script answered %d asks of %d", len(replies), len(c.questions))
	}
	for i, q := range c.questions {
		if err != nil {
			r.refuse(q, err, r.judge(err))
			continue
		}
		if failure := keyError(replies[i]); failure != nil {
			r.refuse(q, failure, r.judge(failure))
			continue
		}
		reply, _ := replies[i].(string) // of another type, it has no length that is right
		r.grant(q, reply)
	}
}

// judge is classify for a pipeline. One that fails while others are answered says
// nothing of Redis: its connection was cut, or this host was too busy to read the
// reply in time. Redis is given up when it has been silent for longer.
func (r *Redis) judge(err error) fault {
	f := classify(err, r.o.Prefix)
	if f.silent && time.Now().UnixNano()-r.heard.Load() < int64(silence*r.o.Timeout) {
		f.kind = ofConnection
	}
	return f
}

func (r *Redis) grant(q *bucket.Question, reply string) {
	g, err := parseGrant(reply, q.Rule)
	if err != nil {
		r.health.fail(fault{kind: permanent, reason: err.Error(), mend: "another version of the agent may use this key prefix"})
		q.Answer(q, bucket.Grant{}, fmt.Errorf("%w: %w", err, bucket.ErrLost))
		return
	}
	q.Answer(q, g, nil)
}

// refuse answers q with err, and takes in what it says of Redis.
func (r *Redis) refuse(q *bucket.Question, err error, f fault) {
	switch f.kind {
	case ofBucket:
		r.health.bucketFault(r.key(q), f)
	case transient, permanent:
		r.health.fail(f)
	}
	outcome := bucket.ErrRefused
	if f.lost {
		outcome = bucket.ErrLost
	}
	q.Answer(q, bucket.Grant{}, fmt.Errorf("%w: %w", err, outcome))
}

// once is a command that go-redis never sends twice. It takes a whole pipeline
// with it. (MaxRetries alone does not hold on a cluster; go-redis asks each command
// for this method.)
type once struct{ *redis.Cmd }

// NoRetry tells go-redis that the command must not be repeated.
func (once) NoRetry() bool { return true }

func (r *Redis) command(ctx context.Context, c *call) once {
	words := []any{"evalsha", c.script.sha, len(c.questions)}
	for _, q := range c.questions {
		words = append(words, r.key(q))
	}
	for _, q := range c.questions {
		words = append(words, AppendAsk(nil, q.Rule, &q.Ask))
	}
	command := redis.NewCmd(ctx, words...)
	command.SetFirstKeyPos(3)
	return once{command}
}

// key names a bucket in Redis. The braces keep whatever is ever stored beside it
// in one cluster slot.
func (r *Redis) key(q *bucket.Question) string {
	return "{" + r.o.Prefix + ":" + format + ":" + q.Policy + ":" + q.Key + "}" + scriptOf(q.Rule.Algorithm).suffix
}

func (r *Redis) load(ctx context.Context, scripts []*script) error {
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, s := range scripts {
			p.ScriptLoad(ctx, s.text)
		}
		return nil
	})
	return err
}

// Run reaches for Redis, and again whenever it is lost, until ctx ends. attempted
// is called once, after the first try, whatever came of it.
func (r *Redis) Run(ctx context.Context, attempted func()) {
	r.reach(ctx)
	attempted()
	for wait := firstProbe; ; wait = probeEvery {
		if r.Reachable() {
			select {
			case <-ctx.Done():
				return
			case <-r.health.lost:
			}
			wait = firstProbe
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(float64(wait) * (0.75 + 0.5*rand.Float64()))):
			r.reach(ctx)
		}
	}
}

// reach connects, loads the script, and marks Redis reachable if a whole ask on a
// key of its own is answered within the time a call has.
func (r *Redis) reach(ctx context.Context) {
	if err := r.warm(ctx); err != nil {
		r.health.fail(classify(err, r.o.Prefix))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	rule, _ := bucket.NewRule(bucket.Limit{Count: 1, Period: time.Second, Burst: 1})
	probe := r.command(ctx, &call{levels, []*bucket.Question{{Policy: "~probe", Rule: &rule}}})
	if err := r.client.Process(ctx, probe); err != nil {
		r.health.fail(classify(err, r.o.Prefix))
		return
	}
	r.health.recover()
}

// warm opens all connections and loads the script, with more time than a call
// has: a handshake must not eat a call's budget.
func (r *Redis) warm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.load(ctx, distinct); err != nil {
		return err
	}
	errs := make(chan error, pipelines)
	for range pipelines {
		conn := r.client.Conn()
		defer conn.Close() // not before all have answered: each is to be another
		go func() { errs <- conn.Ping(ctx).Err() }()
	}
	var all error
	for range pipelines {
		all = errors.Join(all, <-errs)
	}
	return all
}

// Close waits for what is in flight and closes the connections. Later asks are
// refused.
func (r *Redis) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		r.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience): // redis.timeout may be long: break the connections
	}
	err := r.client.Close()
	<-ended
	return err
}

// Scripts returns how many script calls were sent since the start.
func (r *Redis) Scripts() uint64 { return r.scripts.Load() }

// Asks returns how many buckets these calls asked, the ones asked again included.
func (r *Redis) Asks() uint64 { return r.asks.Load() }
