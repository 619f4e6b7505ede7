// The house: which package may import which of our own, and which libraries stay
// where they are.

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers lists what each package imports of ours, beside the standard library.
// docs/architecture.md draws it.
var layers = map[string][]string{
	"rlsidecar/protocol":         {},
	"rlsidecar/internal/bucket":  {},
	"rlsidecar/internal/policy":  {"rlsidecar/internal/bucket"},
	"rlsidecar/localcache":       {"rlsidecar/internal/bucket"},
	"rlsidecar/remote":           {"rlsidecar/internal/bucket"},
	"rlsidecar/internal/limiter": {"rlsidecar/internal/bucket", "rlsidecar/internal/policy", "rlsidecar/localcache"},
	"rlsidecar/internal/server":  {"rlsidecar/internal/bucket", "rlsidecar/internal/limiter", "rlsidecar/internal/policy", "rlsidecar/protocol"},
	"rlsidecar/internal/picture": {"rlsidecar/internal/bucket"},
	"rlsidecar/internal/meter":   {"rlsidecar/internal/bucket"},
	"rlsidecar/internal/admin":   {"rlsidecar/internal/limiter", "rlsidecar/internal/policy", "rlsidecar/internal/server"},
	"rlsidecar/clients/go":       {"rlsidecar/protocol"},

	"rlsidecar/clients/go/httplimit":    {"rlsidecar/clients/go"},
	"rlsidecar/clients/go/conformance":  {"rlsidecar/clients/go", "rlsidecar/protocol"},
	"rlsidecar/clients/go/bench":        {"rlsidecar/clients/go", "rlsidecar/protocol"},
	"rlsidecar/clients/go/examples/web": {"rlsidecar/clients/go", "rlsidecar/clients/go/httplimit"},
	"rlsidecar/internal/conformance":    {},
}

// homes lists the only packages that may import a library.
var homes = map[string][]string{
	"github.com/redis/go-redis/v9":                   {"rlsidecar/remote", "rlsidecar/cmd/rlsidecar", "rlsidecar/clients/go/bench"},
	"github.com/hashicorp/golang-lru/v2/simplelru":   {"rlsidecar/localcache"},
	"github.com/vmihailenco/msgpack/v5":              {"rlsidecar/protocol"},
	"github.com/goccy/go-yaml":                       {"rlsidecar/internal/policy"},
	"github.com/prometheus/client_golang/prometheus": {"rlsidecar/internal/admin"},
}

func TestLayers(t *testing.T) {
	seen := map[string]bool{}
	for name, imports := range imports(t) {
		seen[name] = true
		allowed, known := layers[name]
		for _, i := range imports {
			if home, kept := homes[i]; kept && !slices.Contains(home, name) {
				t.Errorf("%s imports %s: only %v may", name, i, home)
			}
			if strings.HasPrefix(i, "rlsidecar/") && known && !slices.Contains(allowed, i) {
				t.Errorf("%s imports %s: allowed are %v", name, i, allowed)
			}
		}
	}
	for name := range layers {
		if !seen[name] {
			t.Errorf("%s: no such package", name)
		}
	}
}

// imports returns what each package of the module imports, tests left out.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "rlsidecar/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[fields[0]] = fields[1:]
	}
	return all
}
