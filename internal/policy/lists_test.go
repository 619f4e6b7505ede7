// List files as a policy sees them.

package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files writes files into a new folder, and returns the path of the one named rl.yaml.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		write(t, filepath.Join(dir, name), text)
	}
	return filepath.Join(dir, "rl.yaml")
}

func TestListsBesideFiles(t *testing.T) {
	cfg, err := Load(files(t, map[string]string{
		"rl.yaml": `policies:
  p:
    limit: [1/s, 9/m]
    refill: interval
    borrow: 5
    exempt: [health]
    exempt_file: exempt.txt
    block: [bot]
    block_file: block.txt
    overrides: [{key: vip, limit: 2/s}, {key: "b*", limit: 3/s, burst: 4}]
    overrides_file: overrides.txt
`,
		"exempt.txt":    "# probes\r\n\r\n  10.0.0.0/8\r\ninternal:*\r\ntwo words\r\nbot\r\n",
		"block.txt":     "10.6.0.0/16\n  # not me\nbad",
		"overrides.txt": "4/s vip\n5/s b2\n6/s,60/m burst=7,70 two words\n7/s burst=8 192.0.2.0/24\n8/s c*\n9/s cc\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	p := cfg.Policies.Lookup([]byte("p"))
	for _, tt := range []struct {
		key          string
		count, burst int64
		n            int
		verdict      Verdict
	}{
		{"someone", 1, 1, 2, Limited},
		{"vip", 2, 2, 1, Limited},
		{"b2", 3, 4, 1, Limited},
		{"two words", 6, 7, 2, Exempt},
		{"words", 1, 1, 2, Limited},
		{"192.0.2.9", 7, 8, 1, Limited},
		{"cc", 8, 8, 1, Limited},
		{"health", 1, 1, 2, Exempt},
		{"10.1.2.3", 1, 1, 2, Exempt},
		{"10.6.2.3", 1, 1, 2, Blocked},
		{"internal:x", 1, 1, 2, Exempt},
		{"bot", 3, 4, 1, Blocked},
		{"bad", 3, 4, 1, Blocked},
		{"# not me", 1, 1, 2, Limited},
	} {
		rule, verdict := p.Resolve([]byte(tt.key))
		if l := rule.Limits[0]; l.Count != tt.count || l.Burst != tt.burst || rule.N != tt.n || verdict != tt.verdict {
			t.Errorf("%q: %+v %d: want %+v", tt.key, rule, verdict, tt)
		}
		if !rule.Interval || rule.Borrow != 5 {
			t.Errorf("%q: the settings are not inherited: %+v", tt.key, rule)
		}
	}
}

func TestListIsReadOnce(t *testing.T) {
	reads := map[string]int{}
	s := newShelf("/etc/rl/rl.yaml", func(path string) ([]byte, error) {
		reads[path]++
		return []byte("7/s a\n"), nil
	})
	cfg, err := parseWith("/etc/rl/rl.yaml", []byte(`policies:
  a: {limit: 1/s, overrides_file: list}
  b: {limit: 2/s, overrides_file: /etc/rl/list}
  c: {limit: 2/s, overrides_file: ../rl/list, algorithm: fixed_window}
  d: {limit: 2/s, exempt_file: list, block_file: list}
`), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(reads) != 1 || reads["/etc/rl/list"] != 1 {
		t.Errorf("read %v", reads)
	}
	of := func(name string) *Policy { return cfg.Policies.Lookup([]byte(name)) }
	if of("a").overrides[0] != of("b").overrides[0] || of("d").exempt[0] != of("d").block[0] {
		t.Error("policies of equal settings do not share a list")
	}
	if rule, _ := of("c").Resolve([]byte("a")); rule.Algorithm != of("c").Rule.Algorithm {
		t.Errorf("an override of another policy: %+v", rule)
	}
}

func TestHashCoversLists(t *testing.T) {
	path := files(t, map[string]string{"rl.yaml": "policies: {p: {limit: 1/s, block_file: b}}\n", "b": "one\n"})
	load := func() *Config {
		cfg, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	first := load()
	if again := load(); again.Hash != first.Hash || len(first.Hash) != 12 {
		t.Errorf("%s, then %s", first.Hash, again.Hash)
	}
	write(t, filepath.Join(filepath.Dir(path), "b"), "two\n")
	if second := load(); second.Hash == first.Hash {
		t.Error("another list gives the same hash")
	}
}

func TestListTooLarge(t *testing.T) {
	path := files(t, map[string]string{"rl.yaml": "policies: {p: {limit: 1/s, block_file: b}}\n", "b": ""})
	list := filepath.Join(filepath.Dir(path), "b")
	if err := os.Truncate(list, MaxList+1); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s:1:40: block_file '%s': is larger than 64 MiB", path, list)
	if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v: want %s", err, want)
	}
}

func TestManyProblemsOfAList(t *testing.T) {
	const wrong = 3 * enough
	var text strings.Builder
	for i := range wrong {
		fmt.Fprintf(&text, "%d/z key:%d\n", i, i)
	}
	path := files(t, map[string]string{"rl.yaml": "policies: {p: {limit: 1/s, overrides_file: o}}\n", "o": text.String()})
	_, err := Load(path)
	all := strings.Split(fmt.Sprint(err), "\n")
	last := fmt.Sprintf("%s:11:1: and %d more", filepath.Join(filepath.Dir(path), "o"), wrong-maxPerList)
	if len(all) != maxPerList+1 || all[maxPerList] != last {
		t.Errorf("%d lines, the last %q: want %q", len(all), all[len(all)-1], last)
	}
}

func TestTooManyGlobsInAList(t *testing.T) {
	var text strings.Builder
	for i := range maxGlobs + 5 {
		fmt.Fprintf(&text, "%d*\n", i)
	}
	path := files(t, map[string]string{"rl.yaml": "policies: {p: {limit: 1/s, block_file: b}}\n", "b": text.String()})
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("b:%d:1: more than %d entries with * or ?", maxGlobs+1, maxGlobs)) {
		t.Errorf("%v", err)
	}
}

// FuzzLists holds that no list file panics, and that a refusal says where.
func FuzzLists(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*/lists/*.txt")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	const config = "policies: {a: {limit: 1/s, block_file: l, overrides_file: l}, b: {limit: 1, algorithm: concurrency, overrides_file: l}}"
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := parseWith("fuzz", []byte(config), newShelf("fuzz", func(string) ([]byte, error) { return text, nil }))
		if err != nil {
			checkPositions(t, "l", text, err)
			return
		}
		for _, p := range cfg.Policies.Policies() {
			if rule, _ := p.Resolve([]byte("10.0.0.1")); rule.N < 1 || rule.Capacity() < 1 {
				t.Errorf("policy %q has the rule %+v", p.Name, rule)
			}
		}
	})
}
