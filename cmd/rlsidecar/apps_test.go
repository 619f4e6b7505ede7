// Applications, told by the kernel or by themselves: who may use a policy, and how
// its calls are counted.

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/protocol"
)

const noUser = 3_999_999_999 // of whom there is no process

// appsYAML is a configuration in which uid belongs to shop, gid to blog, and
// policies are for one each, or for all.
func appsYAML(uid, gid int, top string) string {
	return fmt.Sprintf(`
admin: {listen: "127.0.0.1:0"}
%s
apps:
  shop: {uids: [%d]}
  blog: {gids: [%d]}
policies:
  sales: {limit: 100/hour, apps: [shop]}
  posts: {limit: 100/hour, apps: [blog]}
  either: {limit: 100/hour, apps: [shop, blog]}
  all: {limit: 100/hour}
`, top, uid, gid)
}

func TestApplicationsByTheirProcess(t *testing.T) {
	for what, c := range map[string]struct {
		uid, gid int
		allowed  string // the policies that may be used
		who      string // in the refusal of the others
		app      string // in the metrics
	}{
		"by user":         {os.Getuid(), noUser, "sales either all", `this caller is "shop"`, "shop"},
		"by group":        {noUser, os.Getgid(), "posts either all", `this caller is "blog"`, "blog"},
		"user over group": {os.Getuid(), os.Getgid(), "sales either all", `this caller is "shop"`, "shop"},
		"of none":         {noUser, noUser, "all", "of none of the agent's apps", ""},
	} {
		t.Run(what, func(t *testing.T) {
			a := startAgent(t, appsYAML(c.uid, c.gid, ""))
			w := open(t, a.socket)
			for _, name := range []string{"sales", "posts", "either", "all"} {
				for _, ask := range ways(name) {
					_, err := w.call(ask.method, ask.params...)
					if strings.Contains(c.allowed, name) {
						if err != nil {
							t.Errorf("%s of %s: %v", ask.method, name, err)
						}
						continue
					}
					wantError(t, ask.method+" of "+name, err, protocol.NotPermitted, c.who)
				}
			}
			if got := a.metrics(t, "rlsidecar_decisions_total", `policy="all"`, `app="`+c.app+`"`, `outcome="allowed"`); got == "" {
				t.Errorf("no count of %q for policy all", c.app)
			}
		})
	}
}

type way struct {
	method string
	params []any
}

// ways is every method that names a policy.
func ways(policy string) []way {
	return []way{
		{"acquire", []any{policy, "k"}}, {"acquire", []any{policy, "k", 1, waiting(time.Second)}}, {"peek", []any{policy, "k"}},
		{"acquire_all", []any{[]any{[]any{policy, "k"}}}}, {"acquire_all", []any{[]any{[]any{"all", "k"}, []any{policy, "k"}}}},
		{"refund", []any{policy, "k"}}, {"reset", []any{policy, "k"}},
	}
}

func wantError(t *testing.T, what string, err error, code protocol.Code, message string) {
	t.Helper()
	if e, ok := err.(*protocol.Error); !ok || e.Code != code || !strings.Contains(e.Message, message) {
		t.Errorf("%s: %v, want error %d with %q", what, err, code, message)
	}
}

// metrics returns the line of a metric that has all of these labels.
func (r *running) metrics(t *testing.T, name string, labels ...string) string {
	t.Helper()
	reply, err := http.Get("http://" + r.admin.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	page, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		found := strings.HasPrefix(line, name+"{")
		for _, label := range labels {
			found = found && strings.Contains(line, label)
		}
		if found {
			return line
		}
	}
	return ""
}

func TestApplicationsThatNameThemselves(t *testing.T) {
	a := startAgent(t, appsYAML(noUser, os.Getgid(), "trust_client_app: true"))
	ctx := t.Context()
	for _, c := range []struct {
		policy, app string
		code        protocol.Code // 0: allowed
		message     string
	}{
		{"sales", "shop", 0, ""},
		{"posts", "blog", 0, ""},
		{"posts", "", 0, ""}, // as its process says
		{"sales", "", protocol.NotPermitted, `this caller is "blog"`},
		{"posts", "shop", protocol.NotPermitted, `policy "posts" is only for the apps blog: this caller is "shop"`},
		{"all", "store", protocol.InvalidArgument, `unknown app: "store"`},
		{"sales", "store", protocol.InvalidArgument, `unknown app: "store"`},
	} {
		var opts []rlsidecar.CallOption
		if c.app != "" {
			opts = append(opts, rlsidecar.App(c.app))
		}
		_, one := a.client.Acquire(ctx, rlsidecar.Policy(c.policy), "k", opts...)
		_, _, all := a.client.AcquireAll(ctx, []rlsidecar.Ask{{Limit: rlsidecar.Policy(c.policy), Key: "k"}}, opts...)
		for _, err := range []error{one, all} {
			if c.code == 0 && err == nil {
				continue
			}
			if e, ok := err.(*rlsidecar.Error); !ok || e.Code != c.code || !strings.Contains(e.Message, c.message) {
				t.Errorf("%s as %q: %v, want error %d with %q", c.policy, c.app, err, c.code, c.message)
			}
		}
	}
	for _, app := range []string{"shop", "blog"} {
		if a.metrics(t, "rlsidecar_decisions_total", `app="`+app+`"`, `outcome="allowed"`) == "" {
			t.Errorf("no decision is counted for %s", app)
		}
	}
	if line := a.metrics(t, "rlsidecar_decisions_total", `app="store"`); line != "" {
		t.Errorf("an app that does not exist is counted: %s", line)
	}
}

// TestClaimIsIgnoredWithoutTrust: the kernel's word counts.
func TestClaimIsIgnoredWithoutTrust(t *testing.T) {
	a := startAgent(t, appsYAML(noUser, os.Getgid(), ""))
	if _, err := a.client.Acquire(t.Context(), rlsidecar.Policy("posts"), "k", rlsidecar.App("shop")); err != nil {
		t.Error(err)
	}
	_, err := a.client.Acquire(t.Context(), rlsidecar.Policy("sales"), "k", rlsidecar.App("shop"))
	if e, ok := err.(*rlsidecar.Error); !ok || e.Code != protocol.NotPermitted {
		t.Errorf("%v, want error 8", err)
	}
}

// TestReloadMovesAUserToAnotherApplication on connections that are open already.
func TestReloadMovesAUserToAnotherApplication(t *testing.T) {
	a := startAgent(t, appsYAML(os.Getuid(), noUser, ""))
	w := open(t, a.socket)
	if _, err := w.acquire("sales", "k", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.acquire("posts", "k", 0); err == nil {
		t.Fatal("shop may use posts")
	}
	moved := strings.NewReplacer("shop: {", "was: {", "blog: {gids", "blog: {uids", "[shop]", "[was]", "[shop, blog]", "[was, blog]").Replace(appsYAML(noUser, os.Getuid(), ""))
	if err := os.WriteFile(a.configFile+".new", []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(a.configFile+".new", a.configFile); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the open connection is the other application's", 10*time.Second, func() bool {
		_, err := w.acquire("posts", "k", 0)
		return err == nil
	})
	_, err := w.acquire("sales", "k", 0)
	wantError(t, "sales", err, protocol.NotPermitted, `only for the apps was: this caller is "blog"`)
	if a.metrics(t, "rlsidecar_decisions_total", `policy="posts"`, `app="blog"`) == "" {
		t.Error("no decision is counted for blog")
	}
}
