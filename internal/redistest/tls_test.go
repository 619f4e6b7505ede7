// Who gets in: by certificate, by user, and over the proxy all the same.

package redistest

import (
	"bufio"
	"crypto/tls"
	"strings"
	"testing"
	"time"
)

// ping asks over TLS and returns the answer or what stood against it.
func ping(t *testing.T, addr string, conf *tls.Config, before ...[]string) (string, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, conf)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	r := bufio.NewReader(conn)
	for _, args := range before {
		if _, err := roundTrip(conn, r, args); err != nil {
			return "", err
		}
	}
	return roundTrip(conn, r, []string{"PING"})
}

func TestTLS(t *testing.T) {
	files := NewTLS(t)
	s := Start(t, WithTLS(files), WithProxy(), WithPassword("p"), WithUser("agent", "on", ">secret", "+ping"))
	if !strings.HasPrefix(s.URL(), "rediss://:p@"+s.Proxy.Addr) {
		t.Errorf("URL %s", s.URL())
	}
	if got, err := ping(t, s.ClientAddr(), files.Client(t), []string{"AUTH", "agent", "secret"}); got != "PONG" {
		t.Errorf("with the certificate and the user: %q, %v", got, err)
	}
	_, err := ping(t, s.Addr, files.Client(t), []string{"AUTH", "agent", "secret"}, []string{"GET", "k"})
	if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("a command that the user may not give: %v", err)
	}
	stranger := files.Client(t)
	stranger.Certificates = NewTLS(t).Client(t).Certificates
	nobody := files.Client(t)
	nobody.Certificates = nil
	for name, conf := range map[string]*tls.Config{
		"no certificate": nobody, "another authority's certificate": stranger, "another authority": NewTLS(t).Client(t),
	} {
		if got, err := ping(t, s.Addr, conf); err == nil {
			t.Errorf("%s: answered %q", name, got)
		}
	}
	if _, err := dial(t, s.Addr).do(5*time.Second, "PING"); err == nil {
		t.Error("plain TCP is answered")
	}
	if got := s.Do(t, "PING"); got != "PONG" {
		t.Errorf("over the Unix socket: %q", got)
	}
}

func TestTopologiesWithTLS(t *testing.T) {
	t.Parallel()
	files := NewTLS(t)
	s := StartSentinel(t, WithTLS(files), WithProxy())
	if got, err := ping(t, s.Addrs()[2], files.Client(t)); got != "PONG" {
		t.Errorf("a sentinel over TLS: %q, %v", got, err)
	}
	c := StartCluster(t, WithTLS(files), WithProxy())
	master := c.MasterOf(t, "k")
	if got, err := ping(t, master.ClientAddr(), files.Client(t), []string{"SET", "k", "v"}); got != "PONG" {
		t.Errorf("a node over TLS: %q, %v", got, err)
	}
	to := c.Masters(t)[0]
	if to == master {
		to = c.Masters(t)[1]
	}
	c.MigrateSlot(t, c.KeySlot(t, "k"), to)
	if got := to.Do(t, "GET", "k"); got != "v" {
		t.Errorf("after the slot has moved over TLS: %q", got)
	}
}
