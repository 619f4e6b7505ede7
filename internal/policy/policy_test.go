// What a policy makes of a key, a Set of a name, and what neither may allocate.

package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

func parse(t testing.TB, text string) *Config {
	t.Helper()
	cfg, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const listed = `
policies:
  p:
    limit: 1/s
    refill: interval
    overrides:
      - {key: vip, limit: 10/s}
      - {key: "vip*", limit: 11/s}
      - {key: "*-batch", limit: 12/s}
      - {key: vip-late, limit: 13/s}
      - {key: plain-batch, limit: 14/s}
      - {key: "a?c", limit: 15/s}
      - {key: 192.0.2.1, limit: 16/s}
      - {key: "192.0.2.0/24", limit: 17/s, burst: 3}
      - {key: "2001:db8::/32", limit: [18/s, 99/m]}
      - {key: "[x]", limit: 19/s}
      - {key: abcd, limit: 20/s}
    exempt: ["10.0.0.0/8", health, "internal:*", "2001:DB8::1", "198.51.100.1"]
    block: ["10.66.0.0/16", "internal:bad", "bot-?", "198.51.100.0/24", "2001:db8:bad::/48", "::ffff:203.0.113.0/120"]
`

func TestResolve(t *testing.T) {
	p := parse(t, listed).Policies.Lookup([]byte("p"))
	for _, tt := range []struct {
		key     string
		count   int64
		verdict Verdict
	}{
		{"someone", 1, Limited},
		{"", 1, Limited},
		{"vip", 10, Limited},
		{"vip2", 11, Limited},
		{"vip-late", 11, Limited}, // the glob stands first
		{"VIP", 1, Limited},
		{"x-batch", 12, Limited},
		{"-batch", 12, Limited},
		{"vip-batch", 11, Limited},
		{"plain-batch", 12, Limited},
		{"x-batch-", 1, Limited},
		{"abc", 15, Limited},
		{"ac", 1, Limited},
		{"abbc", 1, Limited},
		{"a\xffc", 15, Limited},
		{"abcd", 20, Limited},
		{"[x]", 19, Limited},
		{"x", 1, Limited},
		{"192.0.2.1", 16, Limited},
		{"::ffff:192.0.2.1", 16, Limited},
		{"::ffff:c000:201", 16, Limited},
		{"192.0.2.2", 17, Limited},
		{"192.0.3.1", 1, Limited},
		{"192.0.2.01", 1, Limited},
		{"2001:db8::5", 18, Limited},
		{"2001:0DB8:0:0:0:0:0:5", 18, Limited},
		{"10.1.2.3", 1, Exempt},
		{"10.66.2.3", 1, Blocked},
		{"11.1.2.3", 1, Limited},
		{"10.1.2.3.4", 1, Limited},
		{"10.1.2.3:80", 1, Limited},
		{"health", 1, Exempt},
		{"internal:x", 1, Exempt},
		{"internal:bad", 1, Blocked},
		{"bot-1", 1, Blocked},
		{"bot-12", 1, Limited},
		{"2001:db8::1", 18, Exempt},
		{"2001:db8:0:0::1", 18, Exempt},
		{"2001:db8::1%eth0", 18, Exempt},
		{"2001:db8:bad:1::", 18, Blocked},
		{"198.51.100.1", 1, Blocked}, // on both lists
		{"203.0.113.9", 1, Blocked},
		{"::ffff:203.0.113.9", 1, Blocked},
	} {
		rule, verdict := p.Resolve([]byte(tt.key))
		if got := rule.Limits[0].Count; got != tt.count || verdict != tt.verdict {
			t.Errorf("%q: limit %d, verdict %d: want %d, %d", tt.key, got, verdict, tt.count, tt.verdict)
		}
		if !rule.Interval {
			t.Errorf("%q: refill is not inherited", tt.key)
		}
	}
	if r, _ := p.Resolve([]byte("192.0.2.9")); r.Limits[0].Burst != 3 {
		t.Errorf("burst of an override: %d", r.Limits[0].Burst)
	}
	if r, _ := p.Resolve([]byte("2001:db8::2")); r.N != 2 || r.Limits[1].Period != time.Minute {
		t.Errorf("limits of an override: %+v", r)
	}
}

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, key string
		want         bool
	}{
		{"*", "", true}, {"*", "x", true}, {"?", "", false}, {"?", "x", true}, {"?", "xy", false},
		{"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "aXcYb", false}, {"a*b*c", "abbbc", true},
		{"**", "x", true}, {"a**", "a", true}, {"*?", "", false}, {"*?", "x", true}, {"?*?", "x", false},
		{"*ab", "aab", true}, {"*aab", "aaab", true}, {"x*yz", "xyyz", true}, {"*.*", "a.b", true}, {"*.*", "ab", false},
	} {
		if got := globMatch(tt.pattern, []byte(tt.key)); got != tt.want {
			t.Errorf("%q on %q: %v", tt.pattern, tt.key, got)
		}
	}
	key, start := []byte(strings.Repeat("a", 1024)), time.Now()
	if globMatch(strings.Repeat("a*", 500)+"b", key) {
		t.Error("matched without a b")
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("a hostile pattern took %v", took)
	}
}

func TestCountedEntries(t *testing.T) {
	var many strings.Builder
	many.WriteString("policies:\n  p:\n    limit: 1/s\n    block:\n")
	for i := range maxGlobs + 1 {
		fmt.Fprintf(&many, "      - \"%d*x\"\n", i)
	}
	_, err := Parse("f", []byte(many.String()))
	if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("f:%d:9: block: more than %d entries", 5+maxGlobs, maxGlobs)) {
		t.Errorf("%v", err)
	}
}

func TestInline(t *testing.T) {
	s := Default().Policies
	in := Inline{Limit: bucket.Limit{Count: 5, Period: time.Minute, Burst: 7}}
	p, err := s.Inline(in)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "~60000" || p.ID.Value() != p.Name || !p.Inline || p.Exact || p.Shadow || p.Down != (Down{}) || !p.Admits(-1) {
		t.Errorf("%+v", p)
	}
	if rule, v := p.Resolve([]byte("k")); rule.N != 1 || rule.Limits[0] != in.Limit || v != Limited {
		t.Errorf("%+v %d", rule, v)
	}
	if again, _ := s.Inline(in); again != p {
		t.Error("not remembered")
	}
	in.Limit.Count, in.Limit.Burst = 9, 9
	if q, _ := s.Inline(in); q == p || q.ID != p.ID {
		t.Error("a changed count must be another rule of the same bucket")
	}
}

func TestInlineAlgorithms(t *testing.T) {
	s := Default().Policies
	for i, name := range bucket.Algorithms() {
		in := Inline{Algorithm: bucket.Algorithm(i), Limit: bucket.Limit{Count: 5, Period: time.Second, Burst: 5}}
		want := "~1000:" + name
		if in.Algorithm == bucket.TokenBucket {
			want = "~1000"
		}
		p, err := s.Inline(in)
		if err != nil || p.Name != want || p.ID.Value() != want || p.Rule.Algorithm != in.Algorithm {
			t.Errorf("%s: %+v %v", name, p, err)
		}
		if again, _ := s.Inline(in); again != p {
			t.Errorf("%s: not remembered", name)
		}
	}
}

func TestInlineRefused(t *testing.T) {
	s := Default().Policies
	of := func(a bucket.Algorithm, count int64, period time.Duration, burst int64) Inline {
		return Inline{a, bucket.Limit{Count: count, Period: period, Burst: burst}}
	}
	for want, in := range map[string]Inline{
		"count 0: allowed are 1 to 1000000000":                                             of(bucket.TokenBucket, 0, time.Second, 1),
		"burst -1: allowed are 1 to 1000000000":                                            of(bucket.TokenBucket, 1, time.Second, -1),
		"period 1.5ms: give whole milliseconds":                                            of(bucket.TokenBucket, 1, 1500*time.Microsecond, 1),
		"period 0s: allowed are 1ms to 8784h0m0s":                                          of(bucket.TokenBucket, 1, 0, 1),
		"count 1000000001: allowed are 1 to 1000000000":                                    of(bucket.TokenBucket, bucket.MaxCount+1, time.Second, 1),
		"period 8784h0m1s: allowed are 1ms to 8784h0m0s":                                   of(bucket.TokenBucket, 1, bucket.MaxPeriod+time.Second, 1),
		"burst 7: a fixed_window has none":                                                 of(bucket.FixedWindow, 5, time.Second, 7),
		"burst 7: a concurrency has none":                                                  of(bucket.Concurrency, 5, time.Second, 7),
		"count 10001: a sliding_log allows 1 to 10000; a sliding_window has no such bound": of(bucket.SlidingLog, 10001, time.Second, 10001),
		"algorithm 6: allowed are 0 to 5":                                                  of(6, 1, time.Second, 1),
	} {
		if _, err := s.Inline(in); err == nil || err.Error() != "inline limit: "+want {
			t.Errorf("%v: want %s", err, want)
		}
	}
	off := parse(t, "inline_limits: false").Policies
	if _, err := off.Inline(of(bucket.TokenBucket, 1, time.Second, 1)); !errors.Is(err, ErrInlineOff) {
		t.Errorf("switched off: %v", err)
	}
}

func TestInlineIsBounded(t *testing.T) {
	s := Default().Policies
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range int64(600) {
				n := int64(g)*300 + i + 1
				p, err := s.Inline(Inline{Limit: bucket.Limit{Count: n, Period: time.Second, Burst: n}})
				if err != nil || p.Rule.Limits[0].Count != n {
					t.Errorf("%d: %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(*s.inline.Load()); n != maxInline {
		t.Errorf("%d remembered, want %d", n, maxInline)
	}
}

func TestSet(t *testing.T) {
	s := parse(t, "policies: {login: {limit: 1/s}, api: {limit: 1/s}, payments/refund: {limit: 1/s}, abc: {limit: 1/s}}").Policies
	var names []string
	for _, p := range s.Policies() {
		names = append(names, p.Name)
		if s.Lookup([]byte(p.Name)) != p || p.ID.Value() != p.Name {
			t.Errorf("%q is not found", p.Name)
		}
	}
	if want := []string{"login", "api", "payments/refund", "abc"}; !slices.Equal(names, want) {
		t.Errorf("order %q", names)
	}
	if s.Lookup([]byte("nobody")) != nil || s.Lookup(nil) != nil {
		t.Error("found what is not there")
	}
	for word, want := range map[string]string{
		"logn": "login", "Login": "login", "lgoin": "login", "apo": "api", "payment/refunds": "payments/refund",
		"": "", "x": "", "zzzzz": "", "logout": "", strings.Repeat("l", 5000): "",
	} {
		if got := s.Nearest(word); got != want {
			t.Errorf("nearest to %q: %q, want %q", word, got, want)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	s := parse(t, listed).Policies
	name, limit := []byte("p"), Inline{Limit: bucket.Limit{Count: 5, Period: time.Minute, Burst: 7}}
	if _, err := s.Inline(limit); err != nil {
		t.Fatal(err)
	}
	p := s.Lookup(name)
	check := func(what string, f func()) {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	admitting := parse(t, "apps: {shop: {uids: [1], gids: [2]}, blog: {uids: [3]}}\npolicies: {p: {limit: 1/s, apps: [blog]}}").Policies
	shop, restricted := []byte("shop"), admitting.Lookup(name)
	check("AppNamed", func() { _ = admitting.AppNamed(shop) })
	check("AppOf", func() { _ = admitting.AppOf(9, 2) })
	check("Admits", func() { _ = restricted.Admits(1) })
	check("Lookup", func() { _ = s.Lookup(name) })
	check("Inline", func() { _, _ = s.Inline(limit) })
	for _, key := range []string{"someone", "vip", "x-batch", "10.1.2.3", "1.2.3.400", "2001:db8::1", "fe80::1%eth0", "dead:beef:77", "user:12", strings.Repeat("é", 512)} {
		k := []byte(key)
		check("Resolve "+key, func() { _, _ = p.Resolve(k) })
	}
}

func BenchmarkResolve(b *testing.B) {
	p := parse(b, listed).Policies.Lookup([]byte("p"))
	for _, key := range []string{"someone", "2001:db8::1"} {
		b.Run(key, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = p.Resolve([]byte(key))
			}
		})
	}
}

func TestIdentityIsStable(t *testing.T) {
	one, two := parse(t, "policies: {a: {limit: 1/s}}"), parse(t, "policies: {a: {limit: 2/s}}")
	if a, b := one.Policies.Lookup([]byte("a")), two.Policies.Lookup([]byte("a")); a == b || a.ID != b.ID {
		t.Error("two loads must give two policies of one identity")
	}
	if one.Hash == two.Hash || len(one.Hash) != 12 {
		t.Errorf("hashes %q %q", one.Hash, two.Hash)
	}
}

func TestPasswordIsNotShown(t *testing.T) {
	for _, url := range []string{
		"redis://agent:s3cret@127.0.0.1/0", "redis:agent:s3cret@h", "agent:s3cret@h", "redis://a:12/s3cret@h", "redis://a:s3cret/@h:1", "%zz:s3cret",
	} {
		r := &Redis{URL: url}
		shown := fmt.Sprintf("%v %+v %#v %s %s", r, r, r, r, r.LogValue())
		if strings.Contains(shown, "s3cret") {
			t.Errorf("%s is shown as %s", url, shown)
		}
	}
}

func FuzzParseAddr(f *testing.F) {
	for _, s := range []string{"1.2.3.4", "01.2.3.4", "1.2.3", "::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::1.2.3.4", "1:2:3:4:5:6:1.2.3.4",
		"::ffff:1.2.3.4", "1::2::3", ":::", ":1", "1:", "12345::", "::%x", "::1%", "fe80::1%eth0", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:1.2.3.4", "g::", "1.2.3.4%x", "::1:2:3:4:5:6:7:8"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		got, ok := parseAddr(key)
		want, err := netip.ParseAddr(string(key))
		want = want.WithZone("").Unmap()
		if len(key) <= 256 && (ok != (err == nil) || ok && got != want) {
			t.Errorf("%q: %v %v, netip says %v %v", key, got, ok, want, err)
		}
	})
}
