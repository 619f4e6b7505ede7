// Reload with real files, replaced in every way editors and deployments do it.

package policy

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	goodA = "policies: {a: {limit: 1/s}}\n"
	goodB = "policies: {b: {limit: 2/s}}\n"
	bad   = "policies: {b: {limit: 2/x, brust: 1}}\n"
)

// follower runs a Reloader on a file for one test.
type follower struct {
	*Reloader
	t   *testing.T
	hup chan os.Signal
	log *logText

	mu      sync.Mutex // guards applied
	applied []*Config
}

// logText is a log that can be read while it is written.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// follow starts on path. A poll of an hour is none: events alone must do.
func follow(t *testing.T, path string, poll time.Duration) *follower {
	t.Helper()
	first, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, hup: make(chan os.Signal, 1), log: &logText{}}
	f.Reloader = NewReloader(path, first, func(c *Config) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.applied = append(f.applied, c)
	}, slog.New(slog.NewTextHandler(f.log, nil)))
	f.poll, f.settle = poll, 10*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Run(ctx, f.hup) }()
	t.Cleanup(func() { cancel(); <-ended })
	f.settleDown()
	return f
}

// settleDown returns when Run is listening: a reading asked for was taken.
func (f *follower) settleDown() {
	f.t.Helper()
	f.hup <- syscall.SIGHUP
	f.until("the first reading", func() bool { return strings.Contains(f.log.String(), "in force already") })
}

func (f *follower) until(what string, done func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); {
		if time.Now().After(deadline) {
			f.t.Fatalf("no %s: %+v\n%s", what, f.Status(), f.log)
		}
		time.Sleep(time.Millisecond)
	}
}

func (f *follower) last() *Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.applied) == 0 {
		return Default()
	}
	return f.applied[len(f.applied)-1]
}

func (f *follower) untilPolicy(name string) {
	f.t.Helper()
	f.until("policy "+name, func() bool { return f.last().Policies.Lookup([]byte(name)) != nil && f.Status().Hash == f.last().Hash })
	if s := f.Status(); !s.OK || s.Error != "" {
		f.t.Errorf("%+v", s)
	}
}

const never = time.Hour

func TestReloadWrittenInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rl.yaml")
	write(t, path, goodA)
	f := follow(t, path, never)
	write(t, path, goodB)
	f.untilPolicy("b")
}

func rename(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".tmp", text)
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

func TestReloadRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rl.yaml")
	write(t, path, goodA)
	f := follow(t, path, never)
	rename(t, path, goodB)
	f.untilPolicy("b")
	rename(t, path, goodA) // the watch must outlive the first file
	f.untilPolicy("a")
	if s := f.Status(); s.Reloads != 2 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// link points name at target the way a ConfigMap does: a new link, renamed over the old.
func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name+".tmp"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		t.Fatal(err)
	}
}

func version(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, name, "rl.yaml"), text)
}

func TestReloadConfigMap(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rl.yaml")
	version(t, dir, "..1", goodA)
	link(t, "..1", filepath.Join(dir, "..data"))
	link(t, "..data/rl.yaml", path)
	f := follow(t, path, never)
	for i, text := range []string{goodB, goodA, goodB} {
		now := "..x" + strings.Repeat("x", i)
		version(t, dir, now, text)
		link(t, now, filepath.Join(dir, "..data"))
		f.untilPolicy(map[string]string{goodA: "a", goodB: "b"}[text])
	}
}

func TestReloadBehindLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	path, target := filepath.Join(dir, "rl.yaml"), filepath.Join(elsewhere, "real.yaml")
	write(t, target, goodA)
	link(t, target, path)
	f := follow(t, path, never)
	rename(t, target, goodB) // seen only in the folder of the target
	f.untilPolicy("b")
	third := filepath.Join(t.TempDir(), "third.yaml")
	write(t, third, goodA)
	link(t, third, path)
	f.untilPolicy("a")
	rename(t, third, goodB) // the new target's folder is followed as well
	f.untilPolicy("b")
}

func TestReloadByPoll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in", "rl.yaml")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, path, goodA)
	f := follow(t, path, 5*time.Millisecond)
	// The whole folder is replaced: its watch sees nothing of the new one.
	if err := os.Rename(filepath.Dir(path), filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	f.until("failure", func() bool { return !f.Status().OK })
	if s := f.Status(); !strings.Contains(s.Error, "no such file") {
		t.Errorf("%+v", s)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, path, goodB)
	f.untilPolicy("b")
}

func TestReloadBadThenGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rl.yaml")
	write(t, path, goodA)
	f := follow(t, path, 2*time.Millisecond)
	before := f.Status()
	rename(t, path, bad)
	f.until("failure", func() bool { return !f.Status().OK })
	s := f.Status()
	if s.Hash != before.Hash || s.Failures != 1 || s.Reloads != 0 || !s.LastSuccess.Equal(before.LastSuccess) {
		t.Errorf("%+v", s)
	}
	for _, want := range []string{path + ":1:23: ", path + ":1:28: unknown field 'brust': did you mean 'burst'?"} {
		if !strings.Contains(s.Error, want) {
			t.Errorf("%s: lacks %q", s.Error, want)
		}
		if n := strings.Count(f.log.String(), want); n != 1 {
			t.Errorf("%q is logged %d times", want, n)
		}
	}
	rename(t, path, bad+"# other\n")
	f.until("second failure", func() bool { return f.Status().Failures == 2 })
	rename(t, path, goodA)
	f.until("recovery", func() bool { return f.Status().OK })
	if s := f.Status(); s.Reloads != 0 || s.Hash != before.Hash || s.Error != "" {
		t.Errorf("back to the first: %+v", s)
	}
	rename(t, path, goodB)
	f.untilPolicy("b")
	if s := f.Status(); s.Reloads != 1 || s.Failures != 2 {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(f.log.String(), path+":1:23: "); n != 2 {
		t.Errorf("two bad contents are logged %d times", n)
	}
}

func TestReloadSIGHUP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rl.yaml")
	write(t, path, goodA)
	f := follow(t, path, never)
	before := strings.Count(f.log.String(), "in force already")
	f.hup <- syscall.SIGHUP
	f.until("answer to an unchanged file", func() bool { return strings.Count(f.log.String(), "in force already") > before })
	write(t, path, bad)
	f.hup <- syscall.SIGHUP
	f.until("failure", func() bool { return f.Status().Failures > 0 })
	write(t, path, goodB)
	f.hup <- syscall.SIGHUP
	f.untilPolicy("b")
	close(f.hup)
	write(t, path, goodA)
	f.untilPolicy("a")
}

func TestReloadNeedsTwoEqualReadings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rl.yaml")
	write(t, path, goodA)
	first, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	applied := 0
	r := NewReloader(path, first, func(*Config) { applied++ }, slog.New(slog.DiscardHandler))
	r.read(false)
	r.read(false)
	write(t, path, "") // a writer has truncated the file
	if again := r.read(false); !again || applied != 0 {
		t.Errorf("one reading was enough: %v %d", again, applied)
	}
	write(t, path, goodB)
	if again := r.read(false); !again || applied != 0 {
		t.Errorf("two different readings were enough: %v %d", again, applied)
	}
	if again := r.read(false); again || applied != 1 {
		t.Errorf("two equal readings were not enough: %v %d", again, applied)
	}
	if again := r.read(false); again || applied != 1 {
		t.Errorf("the same again: %v %d", again, applied)
	}
}

func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rl.yaml")
	write(t, path, goodA)
	f := follow(t, path, never)
	rename(t, path, "socket: {group: web}\nredis: {url: \"redis://u:s3cret@h\"}\nadmin: {listen: \"127.0.0.1:1\"}\ncache: {max_buckets: 64}\n"+
		"policies: {b: {limit: 1000/s, burst: 1}}\n")
	f.untilPolicy("b")
	f.until("warning", func() bool { return strings.Contains(f.log.String(), "after a restart") })
	log := f.log.String()
	if !strings.Contains(log, `parts="[socket redis admin cache]"`) || !strings.Contains(log, "every call asks Redis") {
		t.Error(log)
	}
	if strings.Contains(log, "s3cret") {
		t.Error("the password is logged")
	}
}

const listing = "policies: {a: {limit: 1/s, exempt_file: lists/exempt.txt, overrides_file: lists/overrides.txt}}\n"

// withLists writes a configuration with two list files, and returns their paths.
func withLists(t *testing.T) (path, exempt, overrides string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lists"), 0o755); err != nil {
		t.Fatal(err)
	}
	path, exempt, overrides = filepath.Join(dir, "rl.yaml"), filepath.Join(dir, "lists", "exempt.txt"), filepath.Join(dir, "lists", "overrides.txt")
	write(t, path, listing)
	write(t, exempt, "one\n")
	write(t, overrides, "2/s two\n")
	return path, exempt, overrides
}

// untilExempt waits for a configuration in which key is exempt.
func (f *follower) untilExempt(key string) {
	f.t.Helper()
	f.until(key+" exempt", func() bool {
		p := f.last().Policies.Lookup([]byte("a"))
		if p == nil || f.Status().Hash != f.last().Hash {
			return false
		}
		_, v := p.Resolve([]byte(key))
		return v == Exempt
	})
}

func TestReloadOfListFiles(t *testing.T) {
	path, exempt, overrides := withLists(t)
	f := follow(t, path, never)
	before := f.Status().Hash
	rename(t, exempt, "two\n") // seen by an event of its folder alone
	f.untilExempt("two")
	if s := f.Status(); s.Hash == before || s.Reloads != 1 {
		t.Errorf("%+v", s)
	}
	write(t, exempt, "six\n") // in place, of the same size
	f.untilExempt("six")
	rename(t, overrides, "9/s two\n")
	f.until("new override", func() bool {
		rule, _ := f.last().Policies.Lookup([]byte("a")).Resolve([]byte("two"))
		return rule.Limits[0].Count == 9
	})
	elsewhere := filepath.Join(t.TempDir(), "other.txt")
	write(t, elsewhere, "ten\n")
	rename(t, path, strings.ReplaceAll(listing, "lists/exempt.txt", elsewhere))
	f.untilExempt("ten")
	rename(t, elsewhere, "elf\n") // the new list's folder is followed as well
	f.untilExempt("elf")
	if s := f.Status(); !s.OK || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

func TestReloadOfBadListFile(t *testing.T) {
	path, exempt, _ := withLists(t)
	f := follow(t, path, 2*time.Millisecond)
	before := f.Status()
	rename(t, exempt, "two\n10.0.0.1/8\n")
	f.until("failure", func() bool { return !f.Status().OK })
	want := exempt + ":2:1: network \"10.0.0.1/8\" has host bits set"
	if s := f.Status(); s.Hash != before.Hash || s.Failures != 1 || s.Reloads != 0 || !strings.HasPrefix(s.Error, want) {
		t.Errorf("%+v: want %s", s, want)
	}
	if err := os.Remove(exempt); err != nil {
		t.Fatal(err)
	}
	f.until("second failure", func() bool { return f.Status().Failures == 2 })
	if s := f.Status(); !strings.Contains(s.Error, "rl.yaml:1:41: exempt_file '"+exempt+"': no such file") {
		t.Errorf("%+v", s)
	}
	write(t, exempt, "one\n")
	f.until("recovery", func() bool { return f.Status().OK })
	if s := f.Status(); s.Reloads != 0 || s.Hash != before.Hash {
		t.Errorf("back to the first: %+v", s)
	}
	rename(t, exempt, "two\n")
	f.untilExempt("two")
}

func TestReloadOfListFilesBySIGHUP(t *testing.T) {
	path, exempt, _ := withLists(t)
	f := follow(t, path, never)
	writeOld(t, exempt, "two\n")
	f.hup <- syscall.SIGHUP
	f.untilExempt("two")
	writeOld(t, exempt, "six\n") // looks as before
	f.hup <- syscall.SIGHUP
	f.untilExempt("six")
	write(t, exempt, "two\n")
	f.untilExempt("two")
}

// writeOld writes a file as if that had been long ago, always at the same time.
func writeOld(t *testing.T, path, text string) {
	t.Helper()
	write(t, path, text)
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
}

func TestListWrittenBetweenReadings(t *testing.T) {
	path, exempt, _ := withLists(t)
	writeOld(t, exempt, "one\n")
	first, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var applied []string
	r := NewReloader(path, first, func(c *Config) { applied = append(applied, c.Hash) }, slog.New(slog.DiscardHandler))
	write(t, path, listing+"# changed\n")
	if !r.read(false) {
		t.Fatal("the change is not noticed")
	}
	writeOld(t, exempt, "two\n") // unnoticed until it is read for the configuration
	if !r.read(false) || len(applied) != 0 {
		t.Fatalf("applied what only one reading saw: %q", applied)
	}
	if !r.read(false) || r.read(false) || len(applied) != 1 {
		t.Errorf("applied %q, want one configuration", applied)
	}
}

func TestUnchangedListIsNotReadAgain(t *testing.T) {
	_, exempt, _ := withLists(t)
	writeOld(t, exempt, "one\n")
	s := sums{}
	first := s.of(exempt)
	writeOld(t, exempt, "two\n")
	if s.of(exempt) != first {
		t.Error("read again, though it looks the same")
	}
	write(t, exempt, "two\n")
	second := s.of(exempt)
	if second == first {
		t.Error("a new time is not noticed")
	}
	write(t, exempt, "six\n") // within the time that a file system tells apart, perhaps
	if s.of(exempt) == second {
		t.Error("a fresh file is not read again")
	}
}

func TestFirstReadingIsNotRepeated(t *testing.T) {
	path, exempt, _ := withLists(t)
	first, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReloader(path, first, func(*Config) { t.Error("applied") }, slog.New(slog.DiscardHandler))
	for range 2 {
		if r.read(false) || r.pending != r.done {
			t.Error("an unchanged configuration is taken for a new one")
		}
	}
	write(t, exempt, "two\n")
	if !r.read(false) {
		t.Error("a changed list is not noticed")
	}
}
