// What a bucket costs Redis by the number of buckets in a call: microseconds of its
// processor, all included, and bytes, against the plainest token buckets in Lua.
//
//	go test -run - -bench Calls ./remote

package remote

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/redistest"
)

const (
	callRounds = 9
	callAsks   = 6400 // in a round
	callKeys   = 1600
)

// hashScript keeps a token bucket in a hash of two fields, as most do it.
const hashScript = `
local count, period, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local state = redis.call('HMGET', KEYS[1], 'level', 'at')
local level, at = tonumber(state[1]) or burst, tonumber(state[2]) or now
level = math.min(burst, level + math.max(0, now - at) * count / period)
local allowed = 0
if level >= cost then level, allowed = level - cost, 1 end
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(period * burst / count / 1000) + 1000)
return {allowed, math.floor(level)}
`

// caller asks for one permit of each of callKeys buckets in turn, so many in a call.
type caller struct {
	name   string
	policy string // of three letters
	text   string
	rule   *bucket.Rule // nil: a plain script
	keys   int
	script *redis.Script
	asked  int
	took   []float64 // µs of Redis's processor for a bucket, by round
}

func callers(b *testing.B) []*caller {
	all := []*caller{
		{name: "string_of_two_numbers", text: plainText(b), keys: 1},
		{name: "hash_of_two_fields", text: hashScript, keys: 1},
	}
	for _, name := range bucket.Algorithms() {
		algorithm, _ := bucket.ParseAlgorithm(name)
		rule, err := bucket.Rule{Algorithm: algorithm}.With(per10s(1000))
		if err != nil {
			b.Fatal(err)
		}
		for _, keys := range []int{1, 8, maxKeys} {
			all = append(all, &caller{name: name, text: Script(algorithm), rule: &rule, keys: keys})
		}
	}
	return all
}

func BenchmarkCalls(b *testing.B) {
	options, err := redis.ParseURL(redistest.Start(b).URL())
	if err != nil {
		b.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	all := callers(b)
	for i, c := range all {
		c.policy, c.script = fmt.Sprintf("p%02d", i), redis.NewScript(c.text)
		if err := c.script.Load(b.Context(), client).Err(); err != nil {
			b.Fatal(err)
		}
		c.ask(b, client, callKeys)
	}
	for range callRounds {
		for _, c := range all {
			before := processor(b, client)
			c.ask(b, client, callAsks)
			c.took = append(c.took, (processor(b, client)-before)*1e6/callAsks)
		}
	}
	for _, c := range all {
		b.Run(fmt.Sprintf("%s/%d_a_call", c.name, c.keys), func(b *testing.B) { c.report(b, client, all[0]) })
	}
}

// processor returns the seconds of processor that Redis has used.
func processor(b *testing.B, client *redis.Client) (seconds float64) {
	info, err := client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, field := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		_, text, _ := strings.Cut(info, field)
		text, _, _ = strings.Cut(text, "\r\n")
		s, err := strconv.ParseFloat(text, 64)
		if err != nil {
			b.Fatalf("Redis says %q of its processor", info)
		}
		seconds += s
	}
	return seconds
}

func (c *caller) ask(b *testing.B, client *redis.Client, buckets int) {
	for buckets > 0 {
		pipe := client.Pipeline()
		for range maxBatch / c.keys {
			keys, words := c.words()
			c.script.EvalSha(context.Background(), pipe, keys, words...)
		}
		if _, err := pipe.Exec(b.Context()); err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
		buckets -= maxBatch
	}
}

func (c *caller) words() (keys []string, words []any) {
	for range c.keys {
		keys = append(keys, c.key(c.asked%callKeys))
		c.asked++
		if c.rule != nil {
			ask := bucket.Ask{Queued: 1, Need: 1, Unit: 1, Arrived: 1, Since: 0.1, Agent: 1, Seq: int64(c.asked)}
			words = append(words, AppendAsk(nil, c.rule, &ask))
		}
	}
	if c.rule == nil {
		words = []any{1000, 10_000_000, 1000, 1}
	}
	return keys, words
}

// key has 12 letters of a caller's own.
func (c *caller) key(i int) string {
	return fmt.Sprintf("{rlsidecar:%s:%s:user:%07d}", format, c.policy, i)
}

func (c *caller) report(b *testing.B, client *redis.Client, plainest *caller) {
	bytes, err := client.MemoryUsage(b.Context(), c.key(0), 0).Result()
	if err != nil {
		b.Fatal(err)
	}
	var ratios []float64
	for i := range c.took {
		ratios = append(ratios, c.took[i]/plainest.took[i])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(c.took), "µs/bucket")
	b.ReportMetric(median(ratios), "×string")
	b.ReportMetric(float64(bytes), "bytes")
}
