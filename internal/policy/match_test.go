// The matcher against one that tries every entry, and at the size it is made for.

package policy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naive returns the number of the first entry that matches key, or none.
func naive(entries []string, key string) uint32 {
	addr, isAddr := parseAddr([]byte(key))
	for i, entry := range entries {
		network, isNetwork, _ := parseNetwork(entry)
		switch {
		case isNetwork && isAddr && network.Contains(addr):
			return uint32(i)
		case !isNetwork && strings.ContainsAny(entry, "*?") && globMatch(entry, []byte(key)):
			return uint32(i)
		case !isNetwork && entry == key:
			return uint32(i)
		}
	}
	return none
}

// addresses lie close together, at the ends of their ranges, or on both sides of a
// boundary of a machine word.
func addresses() *rapid.Generator[netip.Addr] {
	bases := []string{"0.0.0.0", "10.0.0.0", "127.255.255.248", "255.255.255.248", "::", "2001:db8::", "2001:db8::ffff:ffff:ffff:fff8",
		"2001:db8:0:1::", "7fff:ffff:ffff:ffff:ffff:ffff:ffff:fff8", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff8"}
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		a := netip.MustParseAddr(rapid.SampledFrom(bases).Draw(t, "base"))
		b := a.AsSlice()
		b[len(b)-1] += byte(rapid.IntRange(0, 7).Draw(t, "offset"))
		a, _ = netip.AddrFromSlice(b)
		return a
	})
}

func entries() *rapid.Generator[string] {
	network := rapid.Custom(func(t *rapid.T) string {
		a := addresses().Draw(t, "address")
		p, _ := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
		return p.String()
	})
	address := rapid.Map(addresses(), netip.Addr.String)
	return rapid.OneOf(network, network, address, rapid.StringMatching(`[ab]{1,3}`), rapid.StringMatching(`[ab*?]{1,3}`), rapid.Just("::1*"))
}

func collect(t rapid.TB, list []string, ordered bool) (*matcher, []uint32) {
	c := collector{ordered: ordered}
	for _, entry := range list {
		if err := c.add(entry); err != nil {
			t.Fatalf("%q: %v", entry, err)
		}
	}
	return c.matcher()
}

func TestMatcherAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(entries(), 0, 40).Draw(t, "list")
		ordered, covered := collect(t, list, true)
		loose, _ := collect(t, list, false)
		if ordered.n != len(list) || loose.n != len(list) {
			t.Fatalf("%d and %d entries of %d", ordered.n, loose.n, len(list))
		}
		key := rapid.OneOf(rapid.Map(addresses(), netip.Addr.String), rapid.StringMatching(`[ab]{0,3}`))
		for range 20 {
			s := subject{key: []byte(key.Draw(t, "key"))}
			s.spell()
			want := naive(list, string(s.key))
			if got := ordered.first(&s); got != want {
				t.Fatalf("%q meets entry %d, want %d", s.key, int32(got), int32(want))
			}
			if got := loose.first(&s); (got == none) != (want == none) {
				t.Fatalf("%q is on the list: %v", s.key, got != none)
			}
			if slices.Contains(covered, want) {
				t.Fatalf("%q meets %q, said to be covered", s.key, list[want])
			}
		}
	})
}

func TestCovered(t *testing.T) {
	for _, tt := range []struct {
		list []string
		want []uint32
	}{
		{[]string{"a", "b", "a"}, []uint32{2}},
		{[]string{"a*", "ab", "b"}, []uint32{1}},
		{[]string{"ab", "a*", "a*", "*", "c*", "c"}, []uint32{2, 4, 5}},
		{[]string{"10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/8"}, []uint32{1}},
		{[]string{"10.1.0.0/16", "10.0.0.0/8", "10.1.2.3", "10.2.0.0/16"}, []uint32{2, 3}},
		{[]string{"::/0", "0.0.0.0/0", "2001:db8::1", "::1%eth0"}, []uint32{2, 3}},
		{[]string{"10.0.0.1", "10.0.0.1"}, []uint32{1}},
	} {
		_, covered := collect(t, tt.list, true)
		slices.Sort(covered)
		if !slices.Equal(covered, tt.want) {
			t.Errorf("%q: %d, want %d", tt.list, covered, tt.want)
		}
	}
}

func TestNeighboursBecomeOnePiece(t *testing.T) {
	var list []string
	for i := range 256 {
		list = append(list, fmt.Sprintf("10.0.%d.0/24", i))
	}
	m, _ := collect(t, list, false)
	if n := len(m.v4.from); n != 2 {
		t.Errorf("a /16 written as 256 networks has %d pieces, want 2", n)
	}
}

const million = 1_000_000

// networks returns n different networks and addresses, IPv4 and IPv6 in turn.
func networks(n int) string {
	var b strings.Builder
	for i := range n {
		x := uint32(i) * 2654435761 // each once, in no order
		switch i % 4 {
		case 0:
			p, _ := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, x))).Prefix(24 + i%9)
			b.WriteString(p.String())
		case 1:
			b.WriteString(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, x))).String())
		default:
			a := [16]byte{0: 0x20, 1: 1}
			binary.BigEndian.PutUint32(a[4:], x)
			p, _ := netip.AddrFrom16(a).Prefix(48 + i%81)
			b.WriteString(p.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// names returns n different keys, each behind front.
func names(n int, front string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%suser:%d\n", front, i)
	}
	return b.String()
}

var large = []struct {
	name, field, text string
	hit, miss         string
}{
	{"networks", blockFile, networks(million), "2001:0:fff0:bdc0::", "fe80::1"},
	{"keys", exemptFile, names(million, ""), "user:765432", "user:1000001"},
	{"overrides", overridesFile, names(million, "7/second burst=9 "), "user:765432", "user:1000001"},
}

// keysOf returns the key of each line, of a network its first address.
func keysOf(text string) [][]byte {
	var keys [][]byte
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		key, _, _ := strings.Cut(fields[len(fields)-1], "/")
		keys = append(keys, []byte(key))
	}
	return keys
}

func listPolicy(t testing.TB, field, text string) string {
	dir := t.TempDir()
	path := filepath.Join(dir, "rl.yaml")
	for name, text := range map[string]string{path: "policies: {p: {limit: 1/s, " + field + ": list.txt}}\n", filepath.Join(dir, "list.txt"): text} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestMillionEntries(t *testing.T) {
	for _, l := range large {
		t.Run(l.name, func(t *testing.T) {
			cfg, err := Load(listPolicy(t, l.field, l.text))
			if err != nil {
				t.Fatal(err)
			}
			if n := cfg.lists[0].entries; n != million {
				t.Fatalf("%d entries, want %d", n, million)
			}
			p := cfg.Policies.Lookup([]byte("p"))
			for _, key := range keysOf(l.text) {
				if rule, verdict := p.Resolve(key); rule == &p.Rule && verdict == Limited {
					t.Fatalf("%q is not found", key)
				}
			}
			if rule, verdict := p.Resolve([]byte(l.miss)); rule != &p.Rule || verdict != Limited {
				t.Errorf("%q is found", l.miss)
			}
			hit, miss := []byte(l.hit), []byte(l.miss)
			if n := testing.AllocsPerRun(100, func() { p.Resolve(hit); p.Resolve(miss) }); n != 0 {
				t.Errorf("a lookup allocates %v times", n)
			}
		})
	}
}

// BenchmarkLists loads lists of a million entries, tells the memory of an entry,
// and looks up keys that are on them and one that is not.
func BenchmarkLists(b *testing.B) {
	for _, l := range large {
		path := listPolicy(b, l.field, l.text)
		b.Run(l.name+"/load", func(b *testing.B) {
			for b.Loop() {
				if _, err := Load(path); err != nil {
					b.Fatal(err)
				}
			}
		})
		before := heap()
		cfg, err := Load(path)
		if err != nil {
			b.Fatal(err)
		}
		after := heap()
		p := cfg.Policies.Lookup([]byte("p"))
		keys := keysOf(l.text)
		b.Run(l.name+"/hit", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p.Resolve(keys[i*7919%million])
			}
			b.ReportMetric(float64(after-before)/million, "B/entry")
		})
		miss := []byte(l.miss)
		b.Run(l.name+"/miss", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Resolve(miss)
			}
		})
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
