// The rig of the outage tests: a limiter over this package over a real Redis, with
// a proxy between, and callers that wait for their answers and remember them.

package remote

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"rlsidecar/internal/limiter"
	"rlsidecar/internal/policy"
	"rlsidecar/internal/redistest"
)

type rig struct {
	t       *testing.T
	server  *redistest.Server
	proxy   *redistest.Proxy
	control *redis.Client // one connection, which passwords set later do not concern
	redis   *Redis
	limiter *limiter.Limiter
	log     *logbook
	budget  time.Duration // redis.timeout
	slowest atomic.Int64  // of the pipelines, ns
	loading sync.WaitGroup

	workers    []*worker
	halt       chan struct{}
	calling    sync.WaitGroup
	quiet      string // a key of the policy quiet, which only the test calls
	quietSpent int    // permits of it that were admitted and that Redis can know of

	started, loaded, began, noticed, ended, recovered, stopped time.Time
}

// prepareRig builds all that is needed and starts nothing but the server. With user,
// the agent connects as one who has the rights named in health.go.
func prepareRig(t *testing.T, budget time.Duration, user bool, options ...redistest.Option) *rig {
	t.Helper()
	r := &rig{t: t, budget: budget, log: &logbook{}, halt: make(chan struct{}), started: time.Now()}
	r.server = redistest.Start(t, options...)
	t.Cleanup(r.loading.Wait)
	t.Cleanup(r.server.Resume)
	r.proxy = redistest.StartProxy(t, r.server.Addr)
	r.control = redis.NewClient(&redis.Options{Network: "unix", Addr: r.server.Socket, DB: 1, PoolSize: 1, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { r.control.Close() })
	url := "redis://" + r.proxy.Addr + "/1"
	if user {
		_, rights, _ := strings.Cut(classify(rejected("NOPERM"), "test", false).mend, "ACL SETUSER name ")
		r.do("ACL", append([]string{"SETUSER", "agent", "on", ">secret"}, strings.Fields(rights)...)...)
		url = "redis://agent:secret@" + r.proxy.Addr + "/1"
	}
	var err error
	r.redis, err = Open(Options{URL: url, Timeout: budget, Prefix: "test", Log: slog.New(r.log), Observe: r.observe})
	if err != nil {
		t.Fatal(err)
	}
	config, err := policy.Parse("outage.yaml", []byte(outagePolicies))
	if err != nil {
		t.Fatal(err)
	}
	r.limiter = limiter.New(config.Policies, limiter.Options{Redis: r.redis, Timeout: budget})
	return r
}

func startRig(t *testing.T, budget time.Duration, user bool, options ...redistest.Option) *rig {
	t.Helper()
	r := prepareRig(t, budget, user, options...)
	r.start()
	return r
}

// start runs the limiter and the authority until the test ends.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	attempted := make(chan struct{})
	running.Go(func() { r.limiter.Run(ctx) })
	running.Go(func() { r.redis.Run(ctx, func() { close(attempted) }) })
	<-attempted
	r.t.Cleanup(func() {
		r.stopLoad()
		cancel()
		running.Wait()
		if err := r.redis.Close(); err != nil {
			r.t.Errorf("Close: %v", err)
		}
	})
}

// do runs a command on the server as its default user, in the agent's database.
func (r *rig) do(command string, args ...string) string {
	r.t.Helper()
	reply, err := r.doErr(command, args...)
	if err != nil {
		r.t.Fatalf("%s %q: %v", command, args, err)
	}
	return reply
}

func (r *rig) doErr(command string, args ...string) (string, error) {
	words := []any{command}
	for _, a := range args {
		words = append(words, a)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	reply, err := r.control.Do(ctx, words...).Result()
	switch {
	case err == redis.Nil:
		return "", nil
	case err != nil:
		return "", err
	}
	return fmt.Sprint(reply), nil
}

// disconnect closes all connections of clients but the one that asks.
func (r *rig) disconnect() { r.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }

func (r *rig) observe(_ int, took time.Duration) {
	for was := r.slowest.Load(); int64(took) > was && !r.slowest.CompareAndSwap(was, int64(took)); was = r.slowest.Load() {
	}
}

func (r *rig) await(within time.Duration, what string, ok func() bool) time.Duration {
	r.t.Helper()
	started := time.Now()
	for !ok() {
		if time.Since(started) > within {
			r.t.Fatalf("not within %v: %s; Status is %+v", within, what, r.redis.Status())
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(started)
}

// worker calls again and again, one call at a time, over its keys.
type worker struct {
	limiter *limiter.Limiter
	policy  string
	keys    []string
	pace    time.Duration // between two calls
	wait    time.Duration // of each call
	answers []answered

	ref     atomic.Uint32
	strange atomic.Int64 // answers that nobody waits for
	reply   chan answered
}

type answered struct {
	at   time.Time
	took time.Duration
	key  string
	d    limiter.Decision
	err  error
}

func newWorker(l *limiter.Limiter, policy string, pace time.Duration, keys ...string) *worker {
	return &worker{limiter: l, policy: policy, keys: keys, pace: pace, reply: make(chan answered, 1)}
}

func (w *worker) Gone() bool { return false }

func (w *worker) Decided(ref uint32, d limiter.Decision, err *limiter.Error) {
	a := answered{d: d}
	if err != nil {
		a.err = err
	}
	if ref != w.ref.Load() {
		w.strange.Add(1)
		return
	}
	select {
	case w.reply <- a:
	default:
		w.strange.Add(1)
	}
}

// call asks once and waits for the answer.
func (w *worker) call(key string) answered {
	select {
	case <-w.reply:
		w.strange.Add(1)
	default:
	}
	ref := w.ref.Add(1)
	c := limiter.Call{Policy: []byte(w.policy), Key: []byte(key), Cost: 1, Wait: w.wait}
	at := time.Now()
	d, pending, err := w.limiter.Acquire(w.limiter.Now(), &c, w, ref)
	a := answered{d: d}
	if err != nil {
		a.err = err
	}
	if pending {
		select {
		case a = <-w.reply:
		case <-time.After(5 * time.Second):
			a = answered{err: fmt.Errorf("key %q: no answer", key)}
		}
	}
	a.at, a.took, a.key = at, time.Since(at), key
	return a
}

func (w *worker) run(halt <-chan struct{}) {
	tick := time.NewTicker(w.pace)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-halt:
			return
		case <-tick.C:
			w.answers = append(w.answers, w.call(w.keys[i%len(w.keys)]))
		}
	}
}

// try makes one call for the test itself.
func (r *rig) try(policy, key string) limiter.Decision {
	r.t.Helper()
	a := newWorker(r.limiter, policy, 0).call(key)
	if a.err != nil {
		r.t.Errorf("%s: %v", policy, a.err)
	}
	return a.d
}

// startLoad sets callers to work: on keys that are always short, on many that are
// rarely used, on a policy that asks each time, and with calls that may be held.
func (r *rig) startLoad() {
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprint("k", i))
	}
	r.workers = []*worker{
		newWorker(r.limiter, "hot", 2*time.Millisecond, "a"),
		newWorker(r.limiter, "hot", 3*time.Millisecond, "a", "b"),
		newWorker(r.limiter, "hot", 3*time.Millisecond, "b"),
		newWorker(r.limiter, "cold", 5*time.Millisecond, many...),
		newWorker(r.limiter, "exact", 7*time.Millisecond, "e"),
	}
	held := newWorker(r.limiter, "hot", 3*time.Millisecond, "b", "c")
	held.wait = 30 * time.Millisecond
	r.workers = append(r.workers, held)
	r.loaded = time.Now()
	for _, w := range r.workers {
		r.calling.Go(func() { w.run(r.halt) })
	}
}

func (r *rig) stopLoad() {
	select {
	case <-r.halt:
	default:
		close(r.halt)
	}
	r.calling.Wait()
	r.stopped = time.Now()
}

// admitted counts the calls of a key that were allowed, by Redis or by the fallback.
func (r *rig) admitted(policy, key string) (leased, local int) {
	for _, w := range r.workers {
		for _, a := range w.answers {
			switch {
			case w.policy != policy || a.key != key || !a.d.Allowed:
			case a.d.Source == limiter.FromFallback:
				local++
			default:
				leased++
			}
		}
	}
	return leased, local
}

// logbook keeps what is logged.
type logbook struct {
	mu    sync.Mutex // guards lines
	lines []slog.Record
}

func (l *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logbook) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logbook) WithGroup(string) slog.Handler            { return l }
func (l *logbook) Handle(_ context.Context, line slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// between returns the lines of that time.
func (l *logbook) between(from, to time.Time) []slog.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []slog.Record
	for _, line := range l.lines {
		if line.Time.After(from) && line.Time.Before(to) {
			out = append(out, line)
		}
	}
	return out
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	text := slog.NewTextHandler(&b, nil)
	for _, line := range l.lines {
		_ = text.Handle(context.Background(), line)
	}
	return b.String()
}

func double(raw string) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64([]byte(raw[:8])))
}

// rejected is an error reply of Redis.
type rejected string

func (e rejected) Error() string { return string(e) }
func (rejected) RedisError()     {}
