// What errors say of Redis: which pass by themselves, which somebody must mend and
// how, which concern one key, which leave open whether the script ran. And no
// password in any of it.

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"rlsidecar/internal/redistest"
)

const sha = "9676d0f3c0a24f4aacd58ba1dfcce4f2371fb27b"

func TestClassifyReplies(t *testing.T) {
	const oom = "OOM command not allowed when used memory > 'maxmemory'."
	for _, c := range []struct {
		text string
		kind faultKind
		mend string // part of it
	}{
		{"LOADING Redis is loading the dataset in memory", transient, ""},
		{"CLUSTERDOWN Hash slot not served", transient, ""},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", transient, ""},
		{"TRYAGAIN Multiple keys request during rehashing of slot", transient, ""},
		{"READONLY You can't write against a read only replica.", transient, ""},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", transient, ""},
		{"ERR max number of clients reached", transient, ""},
		{"ERR max number of clients + cluster connections reached", transient, ""},
		{"NOREPLICAS Not enough good replicas to write.", transient, ""},
		{"NOSCRIPT No matching script. Please use EVAL.", transient, ""},
		{"NOAUTH Authentication required.", permanent, "redis.password_file"},
		{"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used", permanent, "redis.password_file"},
		{"WRONGPASS invalid username-password pair or user is disabled.", permanent, "redis.username"},
		{"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?", permanent, "take it out"},
		{"ERR invalid password", permanent, "password"},
		{"NOPERM this user has no permissions to run the 'evalsha' command", permanent, "~{shop:* +evalsha"},
		{"NOPERM this user has no permissions to access one of the keys used as arguments", permanent, "~{shop:*"},
		{"NOPERM ACL failure in script: User agent has no permissions to run the 'set' command", permanent, "+set"},
		{"ERR The user executing the script can't run this command or subcommand script: " + sha + ", on @user_script:172.", permanent, "+set"},
		{"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: " + sha + ", on @user_script:22.", permanent, "~{shop:*"},
		{"ERR ACL failure in script: User agent has no permissions to run the 'set' command", permanent, "+set"},
		{oom, permanent, "maxmemory"},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", permanent, "disk"},
		{"ERR DB index is out of range", permanent, "database"},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", ofBucket, "redis.key_prefix"},
		{"FOREIGN value under {shop:v2:api:k}", ofBucket, "redis.key_prefix"},
		{"ERR user_script:9: attempt to index a nil value script: " + sha + ", on @user_script:9.", permanent, "report it"},
		{"ERR unknown command 'EVALSHA', with args beginning with: ", permanent, "report it"},
	} {
		old := "ERR Error running script (call to f_" + sha + "): @user_script:172: "
		for form, err := range map[string]error{
			"as it is":                            rejected(c.text),
			"as the library wraps it":             fmt.Errorf("failed to authenticate: %w", rejected(c.text)),
			"with the place, as Redis 7":          rejected(c.text + " script: " + sha + ", on @user_script:172."),
			"of a script, Redis 6":                rejected(old + "@user_script: 172: -" + c.text),
			"of a command in a script, Redis 6":   rejected(old + c.text),
			"of a key, Redis 6":                   rejected("@user_script: 172: -" + c.text),
			"one of several":                      errors.Join(rejected(c.text), io.EOF),
			"with the rest of its lines, Redis 6": rejected(old + c.text + "\nmore"),
		} {
			f := classify(err, "shop", false)
			if f.kind != c.kind || f.lost || !strings.Contains(f.mend, c.mend) || (f.mend == "") != (c.kind == transient) {
				t.Errorf("%s, %s: %+v", c.text, form, f)
			}
			if !strings.HasPrefix(f.reason, c.text) || strings.ContainsAny(f.reason, "\n") {
				t.Errorf("%s, %s: the reason given is %q", c.text, form, f.reason)
			}
			if strings.Contains(f.mend, "PREFIX") {
				t.Errorf("%s: no prefix in %q", c.text, f.mend)
			}
		}
	}
}

func TestClassifyConnections(t *testing.T) {
	timeout := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		err    error
		lost   bool
		reason string
	}{
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, false, "connection refused"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}, false, "i/o timeout"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nowhere"}}, false, "no such host"},
		{redis.ErrPoolTimeout, false, "pool"},
		{redis.ErrPoolExhausted, false, "pool"},
		{redis.ErrClosed, false, "closed"},
		{timeout, true, "no answer in time"},
		{&net.OpError{Op: "write", Net: "tcp", Err: os.ErrDeadlineExceeded}, true, "no answer in time"},
		{context.DeadlineExceeded, true, "no answer in time"},
		{io.EOF, true, "the connection was closed"},
		{io.ErrUnexpectedEOF, true, "unexpected EOF"},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, true, "connection reset"},
		{&net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}, true, "broken pipe"},
		{errors.New("redis: can't parse \"hello\"\nmore"), true, "can't parse"},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			f := classify(err, "shop", false)
			if f.kind != transient || f.lost != c.lost || f.mend != "" || !strings.Contains(f.reason, c.reason) || strings.Contains(f.reason, "\n") {
				t.Errorf("%v: %+v, want lost %v", err, f, c.lost)
			}
		}
	}
}

const secret = "s3cr3t"

// The password of the URL, or of the file, is nowhere to be read.
func TestPasswordIsNeverShown(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("another"))
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"in the URL":         {URL: "redis://:" + secret + "@" + server.Addr + "/0"},
		"with a user":        {URL: "redis://agent:" + secret + "@" + server.Addr + "/0"},
		"in a file":          {URL: "redis://" + server.Addr + "/0", Password: Secret{File: file}, Username: "agent"},
		"nobody listens":     {URL: "redis://:" + secret + "@127.0.0.1:1/0"},
		"no such host":       {URL: "redis://:" + secret + "@host.invalid:6379/0"},
		"no such socket":     {URL: "unix://:" + secret + "@/no/such.sock"},
		"TLS to a plain one": {URL: "rediss://:" + secret + "@" + server.Addr + "/0"},
	} {
		t.Run(name, func(t *testing.T) {
			book := &logbook{}
			o.Timeout, o.Prefix, o.Log = 20*time.Millisecond, "test", slog.New(book)
			r, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for range 2 {
				r.node().reach(context.Background())
			}
			s := r.Status()
			if r.Reachable(0) || s.Reason == "" || len(book.lines) != 1 {
				t.Errorf("Status %+v, logged:\n%s", s, book)
			}
			if shown := fmt.Sprintf("%+v\n%s", s, book); strings.Contains(shown, secret) {
				t.Errorf("the password is shown:\n%s", shown)
			}
		})
	}
}

func TestBadURLDoesNotShowItsPassword(t *testing.T) {
	for _, url := range []string{
		"redis://:s3cr3t%zz@127.0.0.1:6379/0",
		"redis://:s3cr3t\"%zz@127.0.0.1:6379/0",
		"redis://:%zs3cr3t@127.0.0.1:6379/0",
		"redis://agent:s3cr3t/x@127.0.0.1:6379/0",
		"redis://agent:1/s3cr3t@127.0.0.1:6379/0",
		"redis://:s3cr3t@127.0.0.1:6379/no",
		"redis://:s3cr3t@127.0.0.1:6379/0/1",
		"redis://:s3cr3t@127.0.0.1:6379/0?s3cr3t=1",
		"redis://:s3cr3t\x7f@127.0.0.1:6379/0",
		"redis://:s3cr3t@[::1/0",
		"http://:s3cr3t@127.0.0.1:6379/0",
		"s3cr3t",
	} {
		_, err := Open(Options{URL: url, Log: nowhere()})
		switch {
		case err == nil:
			t.Errorf("%q: no error", url)
		case strings.Contains(err.Error(), secret):
			t.Errorf("%q: the error shows the password: %v", url, err)
		case !strings.Contains(err.Error(), "redis.url") || !strings.Contains(err.Error(), "redis://"):
			t.Errorf("%q: the error does not say what to write: %v", url, err)
		}
	}
}
