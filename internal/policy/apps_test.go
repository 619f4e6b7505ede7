// Who is which application, and what that opens.

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const twoApps = `
apps:
  shop: {uids: [33, 34], gids: [33]}
  ops: {uids: [root], gids: [root]}
policies:
  everyone: {limit: 1/s}
  shopping: {limit: 1/s, apps: [shop]}
  both: {limit: 1/s, apps: [ops, shop]}
`

func TestAppOf(t *testing.T) {
	s := parse(t, twoApps).Policies
	if !slices.Equal(s.Apps(), []string{"shop", "ops"}) || s.TrustsClient() {
		t.Errorf("%q %v", s.Apps(), s.TrustsClient())
	}
	for _, tt := range []struct {
		uid, gid uint32
		want     int
	}{{33, 1000, 0}, {34, 0, 0}, {1000, 33, 0}, {0, 0, 1}, {0, 33, 1}, {33, 0, 0}, {1000, 1000, -1}, {1000, 34, -1}, {4294967295, 4294967295, -1}} {
		if got := s.AppOf(tt.uid, tt.gid); got != tt.want {
			t.Errorf("uid %d, gid %d: %d, want %d", tt.uid, tt.gid, got, tt.want)
		}
	}
	for name, want := range map[string]int{"shop": 0, "ops": 1, "Shop": -1, "": -1} {
		if got := s.AppNamed([]byte(name)); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

func TestAdmits(t *testing.T) {
	s := parse(t, twoApps).Policies
	for _, tt := range []struct {
		policy, names string
		want          [3]bool // nobody, shop, ops
	}{
		{"everyone", "", [3]bool{true, true, true}},
		{"shopping", "shop", [3]bool{false, true, false}},
		{"both", "shop, ops", [3]bool{false, true, true}},
	} {
		p := s.Lookup([]byte(tt.policy))
		if got := [3]bool{p.Admits(-1), p.Admits(0), p.Admits(1)}; got != tt.want {
			t.Errorf("%s admits %v, want %v", tt.policy, got, tt.want)
		}
		if got := s.AppNames(p); got != tt.names {
			t.Errorf("%s is for %q, want %q", tt.policy, got, tt.names)
		}
	}
}

func TestAdmitsTheLastApp(t *testing.T) {
	var text strings.Builder
	text.WriteString("trust_client_app: true\napps:\n")
	for i := range maxApps {
		fmt.Fprintf(&text, "  app%d: {}\n", i)
	}
	s := parse(t, text.String()+"policies: {p: {limit: 1/s, apps: [app64, app99]}}\n").Policies
	p := s.Lookup([]byte("p"))
	for app := -1; app < 2*maxApps; app++ {
		if want := app == 64 || app == 99; p.Admits(app) != want {
			t.Errorf("app %d: %v", app, !want)
		}
	}
	if !s.TrustsClient() || s.AppNamed([]byte("app99")) != 99 {
		t.Errorf("%v %d", s.TrustsClient(), s.AppNamed([]byte("app99")))
	}
}

func TestNoApps(t *testing.T) {
	s := Default().Policies
	if len(s.Apps()) != 0 || s.AppOf(0, 0) != -1 || s.AppNamed([]byte("a")) != -1 || s.TrustsClient() {
		t.Errorf("%+v", s.apps)
	}
}
