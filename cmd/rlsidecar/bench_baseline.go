// What the agent is compared with: a bare echo over the same socket, which nothing
// written in Go this way can beat by much, and the same decisions asked of Redis
// for each call, which is what one would do without an agent.

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/limiter"
	"rlsidecar/protocol"
	"rlsidecar/remote"
)

func benchEcho(args []string, out, errs io.Writer) int {
	f := flag.NewFlagSet("bench echo", flag.ContinueOnError)
	path := f.String("socket", "", "`path` of the socket")
	const about = "Sends back whatever comes, one goroutine a connection, until SIGTERM or SIGINT. It is what\nrlsidecar bench --echo is to be pointed at."
	if _, status, ok := parse(f, args, about, nil, out, errs); !ok {
		return status
	}
	if *path == "" {
		return complain(errs, f.Name(), errors.New("--socket: give the path of a socket to be made"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := echo(ctx, *path); err != nil {
		return complain(errs, f.Name(), err)
	}
	return exitOK
}

func echo(ctx context.Context, path string) error {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		nc, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go sendBack(nc)
	}
}

func sendBack(nc net.Conn) {
	defer nc.Close()
	buf := make([]byte, 8<<10) // what the agent reads at once
	for {
		n, err := nc.Read(buf)
		if err != nil {
			return
		}
		if _, err := nc.Write(buf[:n]); err != nil {
			return
		}
	}
}

// plainScript is the least a shared limit can be: a token bucket of two numbers,
// without leases.
const plainScript = `
local count, period, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local level, at = burst, now
local state = redis.call('GET', KEYS[1])
if state then level, at = struct.unpack('<dd', state) end
if now > at then
  level, at = math.min(burst, level + (now - at) * count / period), now
end
local allowed = 0
if level >= cost then allowed, level = 1, level - cost end
redis.call('SET', KEYS[1], struct.pack('<dd', level, at), 'PX', math.ceil(burst * period / count / 1000) + 1000)
return {allowed, math.floor(level)}`

type directFlags struct {
	timing
	url, script      string
	goroutines, keys int
}

func benchRedis(args []string, out, errs io.Writer) int {
	var o directFlags
	f := flag.NewFlagSet("bench redis", flag.ContinueOnError)
	o.timing.flags(f)
	f.StringVar(&o.url, "redis", "redis://127.0.0.1:6379/0", "`URL` of Redis")
	f.IntVar(&o.goroutines, "goroutines", 64, "goroutines that ask, each with a connection of its own in the pool")
	f.IntVar(&o.keys, "keys", 1, "different keys")
	f.StringVar(&o.script, "script", "plain", "what Redis runs: plain, a token bucket of two numbers, or the agent's own script of an\n`algorithm`, asked for single permits: "+strings.Join(scripts(), ", "))
	const about = "Asks Redis for each decision: one EVALSHA through go-redis, limit 1000000000/second. Keys are\nwritten under rlsidecar-bench: and expire by themselves."
	if _, status, ok := parse(f, args, about, nil, out, errs); !ok {
		return status
	}
	check := errors.Join(o.timing.check(), between("--goroutines", o.goroutines, 1, 10_000), between("--keys", o.keys, 1, 10_000_000))
	return o.finish(f.Name(), out, errs, func(ctx context.Context) (*report, error) { return o.run(ctx, errs) }, check)
}

func (o *directFlags) run(ctx context.Context, errs io.Writer) (*report, error) {
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ask, err := o.question(ctx, client)
	if err != nil {
		return nil, err
	}
	t := newTrial(o.warmup, o.duration)
	workers := make([]worker, o.goroutines)
	for i := range workers {
		workers[i] = &direct{trial: t, ask: ask, prefix: o.prefix(), keys: o.keys, rng: rand.New(rand.NewPCG(uint64(i), 2))}
	}
	sum, err := t.run(ctx, workers, newProgress(errs), func() {})
	if err != nil {
		return nil, err
	}
	r := newReport(t, sum)
	r.Connections, r.Pipeline, r.Keys = o.goroutines, 1, o.keys
	return r, r.useless()
}

// prefix keeps the two scripts from finding each other's values.
func (o *directFlags) prefix() string {
	if o.script != "plain" {
		return "rlsidecar-bench:" + o.script + ":"
	}
	return "rlsidecar-bench:plain:"
}

// client connects to Redis as the agent does, but for the size of the pool.
func (o *directFlags) client() (*redis.Client, error) {
	c, err := redis.ParseURL(o.url)
	if err != nil {
		return nil, fmt.Errorf("--redis: %w", err)
	}
	c.Protocol, c.DisableIdentity = 2, true
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.MaxRetries, c.DialerRetries = -1, 1
	c.PoolSize, c.MinIdleConns = o.goroutines, o.goroutines
	return redis.NewClient(c), nil
}

// question loads a script, and returns what asks it for one permit of a key.
func (o *directFlags) question(ctx context.Context, client *redis.Client) (func(key string) (bool, error), error) {
	text, args, allowed := plainScript, []any{protocol.MaxCount, 1_000_000, protocol.MaxCount, 1}, allowedPlain
	if o.script != "plain" {
		algorithm, known := bucket.ParseAlgorithm(o.script)
		if !known || algorithm == bucket.Concurrency {
			return nil, fmt.Errorf("--script %q: allowed are plain, %s", o.script, strings.Join(scripts(), ", "))
		}
		ask, err := askForOne(algorithm)
		if err != nil {
			return nil, err
		}
		text, args, allowed = remote.Script(algorithm), []any{ask}, allowedLease
	}
	script := redis.NewScript(text)
	if err := script.Load(ctx, client).Err(); err != nil {
		return nil, fmt.Errorf("no Redis at --redis %s that takes the script: %w", client.Options().Addr, err)
	}
	return func(key string) (bool, error) {
		return allowed(script.EvalSha(context.Background(), client, []string{key}, args...))
	}, nil
}

// scripts are the algorithms that can be asked again and again with the same words.
func scripts() []string { return bucket.Algorithms()[:bucket.Concurrency] }

func allowedPlain(c *redis.Cmd) (bool, error) {
	reply, err := c.Int64Slice()
	return err == nil && len(reply) > 0 && reply[0] == 1, err
}

func allowedLease(c *redis.Cmd) (bool, error) {
	replies, err := c.StringSlice()
	return err == nil && len(replies[0]) >= 8 && binary.LittleEndian.Uint64([]byte(replies[0][:8])) != 0, err
}

// askForOne is the argument of an algorithm's script that asks for one permit and no
// lease of as much as there can be.
func askForOne(a bucket.Algorithm) ([]byte, error) {
	count := int64(bucket.MaxCount)
	if a == bucket.SlidingLog {
		count = bucket.MaxLogged
	}
	rule, err := bucket.Rule{Algorithm: a}.With(bucket.Limit{Count: count, Period: time.Second, Burst: count})
	return remote.AppendAsk(nil, &rule, &bucket.Ask{Queued: 1, Need: 1, Unit: 1}), err
}

// direct is one goroutine that asks Redis.
type direct struct {
	tally
	*trial
	ask    func(key string) (bool, error)
	prefix string
	keys   int
	rng    *rand.Rand
}

func (d *direct) run() error {
	for now := int64(0); !d.over(now); {
		key := d.prefix + strconv.Itoa(d.rng.IntN(d.keys))
		from := d.now()
		allowed, err := d.ask(key)
		now = d.now()
		switch {
		case err != nil && !d.counts(from):
		case err != nil:
			d.failed(protocol.Unavailable, err.Error())
		case d.counts(from):
			d.latency.add(time.Duration(now - from))
			d.decided(allowed, uint8(limiter.FromRedis))
		}
		d.answered.Add(1)
	}
	return nil
}

// expire does nothing: go-redis gives up a call by itself.
func (d *direct) expire() {}

func (d *direct) result() *tally { return &d.tally }
