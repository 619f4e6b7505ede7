// The files of testdata: good ones against the table they give, bad ones against
// every message. `go test -update` writes what is expected anew; read the diff.

package policy

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the expected results of testdata anew")

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\ngot\n%s\nwant\n%s", path, got, want)
	}
}

func eachFile(t *testing.T, folder string, least int, run func(t *testing.T, path string, data []byte)) {
	t.Chdir(filepath.Join("testdata", folder)) // list files are named as from there
	paths, err := filepath.Glob("*.yaml")
	if err != nil || len(paths) < least {
		t.Fatalf("%d files in testdata/%s (%v): want at least %d", len(paths), folder, err, least)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) { run(t, path, data) })
	}
}

func TestGoodFiles(t *testing.T) {
	eachFile(t, "good", 9, func(t *testing.T, path string, data []byte) {
		cfg, err := Parse(path, data)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := cfg.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		for _, w := range cfg.Warnings {
			b.WriteString("warning: " + w + "\n")
		}
		golden(t, strings.TrimSuffix(path, "yaml")+"table", b.String())
	})
}

func TestBadFiles(t *testing.T) {
	eachFile(t, "bad", 60, func(t *testing.T, path string, data []byte) {
		cfg, err := Parse(path, data)
		if err == nil || cfg != nil {
			t.Fatalf("accepted: %+v", cfg)
		}
		checkPositions(t, path, data, err)
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("shows a password: %v", err)
		}
		golden(t, strings.TrimSuffix(path, "yaml")+"err", err.Error()+"\n")
	})
}

// checkPositions fails unless err is Errors, in order by file, and those of the
// configuration are 1 to 20, each in the text, and come first.
func checkPositions(t *testing.T, name string, data []byte, err error) {
	t.Helper()
	var all Errors
	if !errors.As(err, &all) || len(all) < 1 {
		t.Fatalf("%T: %v", err, err)
	}
	lines := strings.Count(strings.ReplaceAll(string(data), "\r", "\n"), "\n") + 1
	last, own := all[0], 0
	for _, e := range all {
		if e.Message == "" || strings.Contains(e.Message, "\n") || e.Line < 1 || e.Column < 1 {
			t.Errorf("%+v", e)
		}
		if e.File == last.File && (e.Line < last.Line || e.Line == last.Line && e.Column < last.Column) || e.File == name && last.File != name {
			t.Errorf("%v comes after %v", e, last)
		}
		if last = e; e.File != name {
			continue
		}
		if own++; e.Line > lines || e.Column > len(data)+1 || own > maxErrors {
			t.Errorf("%v: no such place in %d lines, or beyond %d", e, lines, maxErrors)
		}
	}
}

func TestDefaultIsTheEmptyFile(t *testing.T) {
	c := Default()
	if c.Redis != nil || c.Socket.Mode != 0o660 || c.Socket.Path != "/run/rlsidecar/rlsidecar.sock" || c.Cache.MaxBuckets != 250_000 {
		t.Errorf("%+v", c)
	}
	if len(c.Policies.Policies()) != 0 || c.Policies.noInline || c.Hash != "e3b0c44298fc" {
		t.Errorf("%+v", c)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rl.yaml")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	write(t, path, "policies: {a: {limit: 1/s}}\n")
	if cfg, err := Load(path); err != nil || cfg.Policies.Lookup([]byte("a")) == nil {
		t.Errorf("%v", err)
	}
	write(t, path, "cash: 1\n")
	var first *Error
	if _, err := Load(path); !errors.As(err, &first) || first.File != path || first.Line != 1 || first.Column != 1 {
		t.Errorf("%v", err)
	}
	if err := os.Truncate(path, MaxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || err.Error() != path+":1:1: the file is larger than 16 MiB" {
		t.Errorf("too large: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// FuzzParse holds that no text panics, and that a refusal says where.
func FuzzParse(f *testing.F) {
	for _, folder := range []string{"good", "bad"} {
		paths, _ := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := parseWith("fuzz", data, newShelf("fuzz", func(string) ([]byte, error) { return nil, os.ErrNotExist }))
		if err != nil {
			checkPositions(t, "fuzz", data, err)
			return
		}
		for _, p := range cfg.Policies.Policies() {
			if rule, _ := p.Resolve([]byte("10.0.0.1")); rule.N < 1 || rule.Capacity() < 1 {
				t.Errorf("policy %q has the rule %+v", p.Name, rule)
			}
		}
		if err := cfg.WriteTable(&strings.Builder{}); err != nil {
			t.Error(err)
		}
	})
}
