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
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
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
		cfg, err := Parse(filepath.Base(path), data)
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
		cfg, err := Parse(filepath.Base(path), data)
		if err == nil || cfg != nil {
			t.Fatalf("accepted: %+v", cfg)
		}
		checkPositions(t, data, err)
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("shows a password: %v", err)
		}
		golden(t, strings.TrimSuffix(path, "yaml")+"err", err.Error()+"\n")
	})
}

// checkPositions fails unless err is Errors, 1 to 20, in order, each in the text.
func checkPositions(t *testing.T, data []byte, err error) {
	t.Helper()
	var all Errors
	if !errors.As(err, &all) || len(all) < 1 || len(all) > maxErrors {
		t.Fatalf("%T with %d problems: %v", err, len(all), err)
	}
	lines := strings.Count(strings.ReplaceAll(string(data), "\r", "\n"), "\n") + 1
	last := all[0]
	for _, e := range all {
		if e.Line < 1 || e.Line > lines || e.Column < 1 || e.Column > len(data)+1 {
			t.Errorf("%v: no such place in %d lines", e, lines)
		}
		if e.Message == "" || strings.Contains(e.Message, "\n") {
			t.Errorf("message %q", e.Message)
		}
		if e.Line < last.Line || e.Line == last.Line && e.Column < last.Column {
			t.Errorf("%v comes after %v", e, last)
		}
		last = e
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
		cfg, err := Parse("fuzz", data)
		if err != nil {
			checkPositions(t, data, err)
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
