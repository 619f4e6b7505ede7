// A real server in front of a scripted agent.

package httplimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/protocol"
)

// startAgent answers every acquire with what decide makes of its key.
func startAgent(t *testing.T, decide func(key string) protocol.Decision) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		listener.Close()
		os.RemoveAll(dir)
	})
	go func() {
		for nc, err := listener.Accept(); err == nil; nc, err = listener.Accept() {
			go serve(t, nc, decide)
		}
	}()
	return path
}

func serve(t *testing.T, nc net.Conn, decide func(key string) protocol.Decision) {
	defer nc.Close()
	var scan protocol.Scanner
	var buf []byte
	piece := make([]byte, 4096)
	for {
		n, err := nc.Read(piece)
		if err != nil {
			return
		}
		buf = append(buf, piece[:n]...)
		size, err := scan.Next(buf)
		if err != nil {
			t.Errorf("sent %x: %v", buf, err)
			return
		}
		if size == 0 {
			continue
		}
		r, _, _ := protocol.ParseRequest(buf[:size])
		var c protocol.Call
		if err := r.Call(&c, nil); err != nil {
			nc.Write(protocol.AppendError(nil, r.ID, err.Code, err.Message))
		} else if d := decide(string(c.Key)); d.Source == 99 {
			nc.Write(protocol.AppendError(nil, r.ID, protocol.UnknownPolicy, "unknown policy: api"))
		} else {
			nc.Write(protocol.AppendDecision(nil, r.ID, &d))
		}
		buf = buf[size:]
	}
}

func newClient(t *testing.T, path string, opts ...rlsidecar.Option) *rlsidecar.Client {
	t.Helper()
	c, err := rlsidecar.New(path, append([]rlsidecar.Option{rlsidecar.WithTimeout(10 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

// get serves one request through the middleware on a real connection.
func get(t *testing.T, h http.Handler, header ...string) (*http.Response, string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.NewRequest("GET", server.URL+"/path", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

var told = []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit", "Retry-After"}

func wantHeaders(t *testing.T, h http.Header, want map[string]string) {
	t.Helper()
	for _, name := range told {
		if got := strings.Join(h.Values(name), " | "); got != want[name] {
			t.Errorf("%s: %q, want %q", name, got, want[name])
		}
	}
}

func TestHeaders(t *testing.T) {
	allowed := protocol.Decision{Allowed: true, Limit: 100, Remaining: 99, ResetAfterMS: 1001}
	denied := protocol.Decision{Limit: 100, ResetAfterMS: 60_000, RetryAfterMS: 250}
	never := protocol.Decision{Limit: 100, Remaining: 100, RetryAfterMS: -1}
	api, own := rlsidecar.Policy("api"), rlsidecar.Per(100, 90500*time.Millisecond)
	tests := []struct {
		name   string
		d      protocol.Decision
		limit  rlsidecar.Limit
		style  Style
		status int
		want   map[string]string
	}{
		{"allowed", allowed, api, XRateLimit, 200, map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "99", "X-RateLimit-Reset": "2"}},
		{"denied", denied, api, XRateLimit, 429, map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60", "Retry-After": "1"}},
		{"never", never, api, XRateLimit, 429, map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "100", "X-RateLimit-Reset": "0"}},
		{"ietf", allowed, api, IETF, 200, map[string]string{"RateLimit-Policy": `"api";q=100`, "RateLimit": `"api";r=99;t=2`}},
		{"ietf, own limit", denied, own, IETF, 429, map[string]string{"RateLimit-Policy": `"100/90500ms";q=100;w=91`, "RateLimit": `"100/90500ms";r=0;t=60`, "Retry-After": "1"}},
		{"ietf, under a second", allowed, rlsidecar.Per(100, 999*time.Millisecond), IETF, 200, map[string]string{"RateLimit-Policy": `"100/999ms";q=100`, "RateLimit": `"100/999ms";r=99;t=2`}},
		{"ietf, quoted", allowed, rlsidecar.Policy(`a"\é`), IETF, 200, map[string]string{"RateLimit-Policy": `"a\"\\?";q=100`, "RateLimit": `"a\"\\?";r=99;t=2`}},
		{"silent", denied, api, Silent, 429, map[string]string{"Retry-After": "1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := newClient(t, startAgent(t, func(string) protocol.Decision { return tt.d }))
			response, body := get(t, Limit(client, tt.limit, Headers(tt.style))(http.HandlerFunc(hello)))
			if response.StatusCode != tt.status || (body == "hello") != (tt.status == 200) {
				t.Errorf("status %d, %q; want %d", response.StatusCode, body, tt.status)
			}
			wantHeaders(t, response.Header, tt.want)
		})
	}
}

func TestKeys(t *testing.T) {
	asked := make(chan string, 1)
	client := newClient(t, startAgent(t, func(key string) protocol.Decision {
		asked <- key
		return protocol.Decision{Allowed: true, Limit: 1}
	}))
	api := rlsidecar.Policy("api")
	get(t, Limit(client, api)(http.HandlerFunc(hello)))
	if key := <-asked; key != "127.0.0.1" {
		t.Errorf("key %q, want the caller's address", key)
	}
	byHeader := Limit(client, api, Key(func(r *http.Request) string { return r.Header.Get("X-Api-Key") }))(http.HandlerFunc(hello))
	get(t, byHeader, "X-Api-Key", "k1")
	if key := <-asked; key != "k1" {
		t.Errorf("key %q, want k1", key)
	}
	response, body := get(t, byHeader)
	if body != "hello" || len(asked) > 0 {
		t.Errorf("%q, and asked for an empty key", body)
	}
	wantHeaders(t, response.Header, nil)
}

// TestResponsesPassThrough has a stream that is flushed, a redirect, a header of the
// handler's own, and one middleware behind the other.
func TestResponsesPassThrough(t *testing.T) {
	client := newClient(t, startAgent(t, func(key string) protocol.Decision {
		return protocol.Decision{Allowed: true, Limit: 10, Remaining: int64(len(key)), ResetAfterMS: 1000}
	}))
	limit := func(key string, style Style) func(http.Handler) http.Handler {
		return Limit(client, rlsidecar.Policy(key), Headers(style), Key(func(*http.Request) string { return key }))
	}
	x := func(limit, remaining string) map[string]string {
		return map[string]string{"X-RateLimit-Limit": limit, "X-RateLimit-Remaining": remaining, "X-RateLimit-Reset": "1"}
	}
	tests := []struct {
		name    string
		handler http.Handler
		status  int
		want    map[string]string
	}{
		{"redirect", limit("ab", XRateLimit)(http.RedirectHandler("/other", http.StatusFound)), 302, x("10", "2")},
		{"not modified", limit("ab", XRateLimit)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) })), 304, x("10", "2")},
		{"the handler's own", limit("ab", XRateLimit)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-RateLimit-Limit", "7")
		})), 200, x("7", "2")},
		{"outer has less", limit("a", XRateLimit)(limit("abc", XRateLimit)(http.HandlerFunc(hello))), 200, x("10", "1")},
		{"inner has less", limit("abc", XRateLimit)(limit("a", XRateLimit)(http.HandlerFunc(hello))), 200, x("10", "1")},
		{"both listed", limit("abc", IETF)(limit("a", IETF)(http.HandlerFunc(hello))), 200,
			map[string]string{"RateLimit-Policy": `"abc";q=10, "a";q=10`, "RateLimit": `"abc";r=3;t=1, "a";r=1;t=1`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			response, _ := get(t, tt.handler)
			if response.StatusCode != tt.status {
				t.Errorf("status %d, want %d", response.StatusCode, tt.status)
			}
			wantHeaders(t, response.Header, tt.want)
		})
	}
}

func TestStreams(t *testing.T) {
	client := newClient(t, startAgent(t, func(string) protocol.Decision { return protocol.Decision{Allowed: true, Limit: 10} }))
	goOn := make(chan bool)
	server := httptest.NewServer(Limit(client, rlsidecar.Policy("api"))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-goOn
		io.WriteString(w, "second\n")
	})))
	defer server.Close()
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Errorf("%q, %v", line, err)
	}
	if response.Header.Get("X-RateLimit-Limit") != "10" {
		t.Errorf("%v", response.Header)
	}
	close(goOn)
	if line, err := lines.ReadString('\n'); line != "second\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestWithoutAgent(t *testing.T) {
	tests := []struct {
		mode   rlsidecar.OnUnavailable
		status int
		want   map[string]string
	}{
		{rlsidecar.Allow, 200, nil},
		{rlsidecar.Deny, 429, map[string]string{"Retry-After": "1"}},
		{rlsidecar.Raise, 503, nil},
	}
	for _, tt := range tests {
		client := newClient(t, filepath.Join(t.TempDir(), "s"), rlsidecar.WithOnUnavailable(tt.mode))
		for _, style := range []Style{XRateLimit, IETF} {
			response, _ := get(t, Limit(client, rlsidecar.Policy("api"), Headers(style))(http.HandlerFunc(hello)))
			if response.StatusCode != tt.status {
				t.Errorf("%s: status %d, want %d", tt.mode, response.StatusCode, tt.status)
			}
			wantHeaders(t, response.Header, tt.want)
		}
	}
}

func TestOwnAnswers(t *testing.T) {
	mistake := protocol.Decision{Source: 99}
	client := newClient(t, startAgent(t, func(key string) protocol.Decision {
		if key == "mistake" {
			return mistake
		}
		return protocol.Decision{Limit: 5, RetryAfterMS: 7000}
	}))
	key := Key(func(r *http.Request) string { return r.Header.Get("K") })
	denied := Denied(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, ok := Decision(r)
		if !ok || d.RetryAfter != 7*time.Second {
			t.Errorf("%+v, %v", d, ok)
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	failed := Failed(func(w http.ResponseWriter, _ *http.Request, err error) {
		if e := (*rlsidecar.Error)(nil); !errors.As(err, &e) || e.Code != protocol.UnknownPolicy {
			t.Errorf("%v", err)
		}
		w.WriteHeader(http.StatusInsufficientStorage)
	})
	limited := Limit(client, rlsidecar.Policy("api"), key, denied, failed)(http.HandlerFunc(hello))
	if r, _ := get(t, limited, "K", "a"); r.StatusCode != http.StatusTeapot || r.Header.Get("Retry-After") != "7" {
		t.Errorf("denied: %d, %v", r.StatusCode, r.Header)
	}
	if r, _ := get(t, limited, "K", "mistake"); r.StatusCode != http.StatusInsufficientStorage {
		t.Errorf("failed: %d", r.StatusCode)
	}
	if r, _ := get(t, Limit(client, rlsidecar.Policy("api"), key)(http.HandlerFunc(hello)), "K", "mistake"); r.StatusCode != 500 {
		t.Errorf("failed, by default: %d", r.StatusCode)
	}
	costly := Cost(func(*http.Request) int64 { return 0 })
	if r, _ := get(t, Limit(client, rlsidecar.Policy("api"), costly)(http.HandlerFunc(hello))); r.StatusCode != 500 {
		t.Errorf("cost 0: %d", r.StatusCode)
	}
}
