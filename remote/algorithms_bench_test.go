// What each algorithm costs: microseconds of Redis and bytes in it, against the plain
// token bucket that `rlsidecar bench redis` asks, and nanoseconds without Redis.
//
//	go test -run - -bench Algorithms ./remote

package remote

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/limiter"
	"rlsidecar/internal/policy"
	"rlsidecar/internal/redistest"
)

const (
	benchRounds = 7
	benchAsks   = 2000 // in a round
	leaseAsks   = 500
)

// contest is a bucket that is asked again and again. It is asked for one permit, at
// about the pace of its limit, so that it is always nearly full of uses; or it is
// leased from, 20 times a second. Leases go one ask at a time, which is slower for
// Redis: those are compared with the plain script asked in the same way.
type contest struct {
	name  string
	rule  bucket.Rule
	hosts int               // that ask in turn
	lease bool              // from all of them
	once  func(*bucket.Ask) // makes a single ask what is to be measured

	script *redis.Script
	now    int64
	asked  int
	held   []bucket.Ask // by host, what it reports next
	took   []float64    // µs a script, by round
	first  int64        // bytes after one ask
	got    int64        // permits
}

func contestOf(name string, a bucket.Algorithm, limits ...bucket.Limit) *contest {
	return contestOn(name, bucket.Rule{Algorithm: a}, limits...)
}

func contestOn(name string, r bucket.Rule, limits ...bucket.Limit) *contest {
	rule, err := r.With(limits...)
	if err != nil {
		panic(err) // a mistake in this file
	}
	return &contest{name: name, rule: rule, hosts: 1, now: 1e15}
}

func per10s(count int64) bucket.Limit {
	return bucket.Limit{Count: count, Period: 10 * time.Second, Burst: count}
}

func contests() []*contest {
	hour := bucket.Limit{Count: 100_000, Period: time.Hour, Burst: 100_000}
	sixty := bucket.Rule{Algorithm: bucket.SlidingWindow, Parts: 60}
	of := func(hosts int, c *contest) *contest {
		c.hosts = hosts
		return c
	}
	all := []*contest{
		contestOf(plain, bucket.TokenBucket, per10s(1000)),
		contestOf("token_bucket", bucket.TokenBucket, per10s(1000)),
		contestOf("token_bucket/2_limits", bucket.TokenBucket, per10s(1000), hour),
		contestOf("leaky_bucket", bucket.LeakyBucket, per10s(1000)),
		contestOf("fixed_window", bucket.FixedWindow, per10s(1000)),
		contestOf("sliding_window/10_buckets", bucket.SlidingWindow, per10s(1000)),
		contestOn("sliding_window/60_buckets", sixty, per10s(1000)),
		contestOf("sliding_log/100", bucket.SlidingLog, per10s(100)),
		contestOf("sliding_log/1000", bucket.SlidingLog, per10s(1000)),
		contestOf("sliding_log/10000", bucket.SlidingLog, per10s(10_000)),
		of(3, contestOf("concurrency/3_hosts", bucket.Concurrency, per10s(1000))),
		of(50, contestOf("concurrency/50_hosts", bucket.Concurrency, per10s(1000))),
	}
	for _, c := range all {
		leased := *c
		leased.name, leased.lease = "lease/"+c.name, true
		all = append(all, &leased)
	}
	return all
}

const plain = "plain" // the name of the baseline

func BenchmarkAlgorithms(b *testing.B) {
	server := redistest.Start(b)
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		b.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	all := contests()
	for _, c := range all {
		c.begin(b, client)
	}
	for range benchRounds {
		for _, c := range all {
			c.round(b, client)
		}
	}
	for i, c := range all {
		baseline := all[i/(len(all)/2)*(len(all)/2)]
		b.Run("redis/"+c.name, func(b *testing.B) { c.report(b, client, baseline) })
	}
	for _, c := range slowest() {
		c.single(b, client)
		b.Run("redis/worst/"+c.name, func(b *testing.B) { c.report(b, client, nil) })
	}
	for _, c := range locals() {
		b.Run("local/"+c.name, c.decide)
	}
}

// clocked is a script at a time of its caller's; the clock is read all the same.
func clocked(text string) *redis.Script {
	return redis.NewScript(strings.Replace(text, "redis.call('TIME')", "redis.call('TIME') and {ARGV[#ARGV - 1], ARGV[#ARGV]}", 1))
}

// plainText is the script of `rlsidecar bench redis`.
func plainText(b *testing.B) string {
	source, err := os.ReadFile("../cmd/rlsidecar/bench_baseline.go")
	if err != nil {
		b.Fatal(err)
	}
	_, text, found := strings.Cut(string(source), "const plainScript = `")
	text, _, closed := strings.Cut(text, "`")
	if !found || !closed {
		b.Fatal("bench_baseline.go has no plainScript")
	}
	return text
}

func (c *contest) plain() bool { return strings.HasSuffix(c.name, plain) }

// key is as an agent would make it, the name standing for a policy of 3 letters and a
// key of 12.
func (c *contest) key() string {
	sum := sha1.Sum([]byte(c.name))
	return "{rlsidecar:" + format + ":api:user:" + hex.EncodeToString(sum[:])[:7] + "}" + scriptOf(c.rule.Algorithm).suffix
}

// begin loads the script and asks until the bucket is about full of uses.
func (c *contest) begin(b *testing.B, client *redis.Client) {
	text := Script(c.rule.Algorithm)
	if c.plain() {
		text = plainText(b)
	}
	c.script, c.held = clocked(text), make([]bucket.Ask, c.hosts)
	if err := c.script.Load(b.Context(), client).Err(); err != nil {
		b.Fatal(err)
	}
	client.Del(b.Context(), c.key())
	c.ask(b, client, 1)
	c.first = c.bytes(b, client)
	fill := int(c.rule.Limits[0].Count)
	if c.lease || c.rule.Algorithm == bucket.Concurrency {
		fill = max(400, c.hosts)
	}
	c.ask(b, client, fill)
}

// round measures so many asks.
func (c *contest) round(b *testing.B, client *redis.Client) {
	asks := benchAsks
	if c.lease {
		asks = leaseAsks
	}
	c.ask(b, client, asks/5) // warms up
	c.took = append(c.took, c.measure(b, client, asks))
}

// measure returns the microseconds of Redis for one of so many asks.
func (c *contest) measure(b *testing.B, client *redis.Client, asks int) float64 {
	if err := client.ConfigResetStat(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	c.ask(b, client, asks)
	stats, err := client.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, line, _ := strings.Cut(stats, "cmdstat_evalsha:")
	line, _, _ = strings.Cut(line, "\r\n")
	var calls int
	var usec, each float64
	if _, err := fmt.Sscanf(line, "calls=%d,usec=%f,usec_per_call=%f,", &calls, &usec, &each); err != nil || calls != asks {
		b.Fatalf("%d asks, and Redis says %q (%v)", asks, line, err)
	}
	return each
}

// ask asks so many times: in pipelines, unless what a host says next depends on its
// answer.
func (c *contest) ask(b *testing.B, client *redis.Client, times int) {
	most := 100
	if c.lease {
		most = 1
	}
	for times > 0 {
		pipe := client.Pipeline()
		n := min(times, most)
		var replies []*redis.Cmd
		var hosts []int
		for range n {
			host := c.asked % c.hosts
			replies, hosts = append(replies, c.script.EvalSha(context.Background(), pipe, []string{c.key()}, c.words(host)...)), append(hosts, host)
			c.asked++
		}
		if _, err := pipe.Exec(b.Context()); err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
		for i, r := range replies {
			c.answered(b, hosts[i], r)
		}
		times -= n
	}
}

// words are the arguments of the next ask, that of a host.
func (c *contest) words(host int) []any {
	l := c.rule.Limits[0]
	if c.lease {
		c.now += 50_000 / int64(c.hosts)
	} else {
		c.now += l.Period.Microseconds() / l.Count * 51 / 50
	}
	words := []any{l.Count, l.Period.Microseconds(), l.Burst, 1}
	if !c.plain() {
		words = []any{AppendAsk(nil, &c.rule, c.next(host))}
	}
	return append(words, c.now/1e6, c.now%1e6)
}

func (c *contest) next(host int) *bucket.Ask {
	a := &c.held[host]
	a.Agent, a.Seq = int64(host+1), int64(c.asked+1)
	switch {
	case c.once != nil:
		c.once(a)
		return a
	case !c.lease: // a host of a concurrency limit has released what it got before
		a.Queued, a.Need, a.Unit = 1, 1, 1
		return a
	}
	rate := 0.9 * float64(c.rule.Limits[0].Count) / c.rule.Limits[0].Period.Seconds()
	a.Lease, a.Rate, a.Seen, a.Lead, a.Arrived, a.Since, a.Age = true, rate, 10*rate, 0.005, rate*0.05, 0.05, 0.01
	return a
}

// answered has host report next what it was granted, used but for one permit.
func (c *contest) answered(b *testing.B, host int, r *redis.Cmd) {
	if c.plain() {
		return
	}
	texts, err := r.StringSlice()
	if err != nil {
		b.Fatalf("%s: %v", c.name, err)
	}
	g, err := parseGrant(texts[0], &c.rule)
	c.got += g.Permits
	switch {
	case err != nil:
		b.Fatal(err)
	case c.rule.Algorithm == bucket.Concurrency && c.lease:
		c.held[host] = bucket.Ask{Epoch: g.Epoch, Keep: 2, InUse: 2, Holding: 5}
	case c.lease:
		c.held[host] = bucket.Ask{Epoch: g.Epoch, Slot: g.Slot, Recorded: g.Permits - g.Direct, Return: min(1, g.Permits-g.Direct)}
	}
}

func (c *contest) bytes(b *testing.B, client *redis.Client) int64 {
	n, err := client.MemoryUsage(b.Context(), c.key(), 0).Result()
	if err != nil {
		b.Fatalf("%s: %v", c.name, err)
	}
	return n
}

func (c *contest) report(b *testing.B, client *redis.Client, baseline *contest) {
	if !c.plain() && c.once == nil && (c.got == 0 || !c.lease && c.got < int64(c.asked)*9/10) {
		b.Fatalf("%d asks were granted %d permits: not what is to be measured", c.asked, c.got)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(c.took), "µs/script")
	if c.once != nil {
		return
	}
	var ratios []float64
	for i := range c.took {
		ratios = append(ratios, c.took[i]/baseline.took[i])
	}
	b.ReportMetric(median(ratios), "×plain")
	b.ReportMetric(float64(c.first), "bytes_first")
	b.ReportMetric(float64(c.bytes(b, client)), "bytes_full")
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// slowest is single asks that look at all a bucket has.
func slowest() []*contest {
	costly := contestOf("sliding_log_10000/denied_cost_9000", bucket.SlidingLog, per10s(10_000))
	costly.once = func(a *bucket.Ask) { a.Queued, a.Need, a.Unit = 9000, 9000, 9000 }
	silent := contestOf("sliding_log_10000/after_a_silence", bucket.SlidingLog, per10s(10_000))
	silent.once = func(a *bucket.Ask) { silent.now += 11e6 }
	back := contestOf("sliding_log_10000/refund_9000", bucket.SlidingLog, per10s(10_000))
	back.once = func(a *bucket.Ask) { a.Refund = 9000 }
	wide := contestOn("sliding_window_60/denied_cost_900", bucket.Rule{Algorithm: bucket.SlidingWindow, Parts: 60}, per10s(1000))
	wide.once = func(a *bucket.Ask) { a.Queued, a.Need, a.Unit = 900, 900, 900 }
	return []*contest{wide, costly, silent, back}
}

// single measures one such ask, of a bucket full of uses.
func (c *contest) single(b *testing.B, client *redis.Client) {
	special := c.once
	for range 3 {
		c.once = nil
		c.begin(b, client)
		c.once, c.held[0] = special, bucket.Ask{}
		c.took = append(c.took, c.measure(b, client, 1))
	}
}

// local is a policy of an agent without Redis.
type local struct {
	name, fields string
	step         time.Duration // between two calls: the pace of the limit
}

func locals() []local {
	return []local{
		{"token_bucket", "limit: 1000/10s", 10 * time.Millisecond},
		{"token_bucket/2_limits", "limit: [1000/10s, 500_000/hour]", 10 * time.Millisecond},
		{"leaky_bucket", "limit: 1000/10s, algorithm: leaky_bucket", 10 * time.Millisecond},
		{"fixed_window", "limit: 1000/10s, algorithm: fixed_window", 10 * time.Millisecond},
		{"sliding_window/10_buckets", "limit: 1000/10s, algorithm: sliding_window", 10100 * time.Microsecond},
		{"sliding_window/60_buckets", "limit: 1000/10s, algorithm: sliding_window, buckets: 60", 10100 * time.Microsecond},
		{"sliding_log/100", "limit: 100/10s, algorithm: sliding_log", 100 * time.Millisecond},
		{"sliding_log/1000", "limit: 1000/10s, algorithm: sliding_log", 10 * time.Millisecond},
		{"sliding_log/10000", "limit: 10_000/10s, algorithm: sliding_log", time.Millisecond},
		{"concurrency", "limit: 1000, algorithm: concurrency", time.Millisecond},
	}
}

func (c local) decide(b *testing.B) {
	config, err := policy.Parse("bench.yaml", []byte("policies: {p: {"+c.fields+"}}"))
	if err != nil {
		b.Fatal(err)
	}
	l := limiter.New(config.Policies, limiter.Options{})
	call := &limiter.Call{Policy: []byte("p"), Key: []byte("user:1234567"), Cost: 1}
	now, allowed := time.Hour, 0
	one := func() {
		now += c.step
		d, _, _ := l.Acquire(now, call, nil, 1)
		if d.Allowed {
			allowed++
		}
		if d.Permit != 0 {
			l.Release(now, d.Permit)
		}
	}
	for range 10_000 {
		one()
	}
	allowed = 0
	b.ReportAllocs()
	calls := 0
	for b.Loop() {
		one()
		calls++
	}
	if share := float64(allowed) / float64(calls); share < 0.9 {
		b.Fatal("only " + strconv.FormatFloat(100*share, 'f', 0, 64) + " % were allowed")
	}
}
