// Nothing is sent twice: whatever becomes of a pipeline, an EVALSHA that may have
// run never arrives again, and the limiter is told which asks may have run.

package remote

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/redistest"
)

const (
	brief    = 50 * time.Millisecond // for what is to time out
	leisure  = 5 * time.Second
	noScript = "NOSCRIPT No matching script. Please use EVAL."
)

func says(e string) (string, redistest.Action) { return redistest.Error(e), redistest.Reply }

// first has one key answered with an error, or an action, and the others granted.
func first(key string, reply string, action redistest.Action) answer {
	return func(k string, _ int) (string, redistest.Action) {
		if k == key {
			return reply, action
		}
		return granted(1), redistest.Reply
	}
}

func TestNothingIsSentTwice(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  answer
		timeout time.Duration
		want    string // what becomes of the keys a, b and c, sent in one pipeline
		sent    [3]int // how often each arrived
		loads   int    // of the script, beside the one at the start
		up      bool   // is Redis still thought well of
	}{
		{name: "all granted", answer: first("", "", 0), timeout: leisure, want: "granted granted granted", sent: [3]int{1, 1, 1}, up: true},
		{name: "no reply", answer: func(string, int) (string, redistest.Action) { return "", redistest.Swallow },
			timeout: brief, want: "lost lost lost", sent: [3]int{1, 1, 1}},
		{name: "no reply to the last", answer: first("p:c", "", redistest.Swallow),
			timeout: brief, want: "lost lost lost", sent: [3]int{1, 1, 1}},
		{name: "closed before the first reply", answer: first("p:a", "", redistest.Close),
			timeout: leisure, want: "lost lost lost", sent: [3]int{1, 0, 0}},
		{name: "closed after the first reply", answer: first("p:a", redistest.Array(granted(1)), redistest.CloseAfter),
			timeout: leisure, want: "lost lost lost", sent: [3]int{1, 0, 0}},
		{name: "closed before the last reply", answer: first("p:c", "", redistest.Close),
			timeout: leisure, want: "lost lost lost", sent: [3]int{1, 1, 1}},
		{name: "not RESP", answer: first("p:b", "hello?\r\n", redistest.Reply),
			timeout: leisure, want: "lost lost lost", sent: [3]int{1, 1, 1}},
		{name: "a reply of another length", answer: first("p:b", redistest.Bulk("short"), redistest.Reply),
			timeout: leisure, want: "granted lost granted", sent: [3]int{1, 1, 1}},
		{name: "a reply of another type", answer: first("p:b", redistest.Simple("OK"), redistest.Reply),
			timeout: leisure, want: "granted lost granted", sent: [3]int{1, 1, 1}, up: true},
		{name: "LOADING on the first", answer: first("p:a", redistest.Error("LOADING Redis is loading the dataset in memory"), 0),
			timeout: leisure, want: "refused granted granted", sent: [3]int{1, 1, 1}},
		{name: "READONLY on the first", answer: first("p:a", redistest.Error("READONLY You can't write against a read only replica."), 0),
			timeout: leisure, want: "refused granted granted", sent: [3]int{1, 1, 1}},
		{name: "TRYAGAIN on the first", answer: first("p:a", redistest.Error("TRYAGAIN Multiple keys request during rehashing of slot"), 0),
			timeout: leisure, want: "refused granted granted", sent: [3]int{1, 1, 1}},
		{name: "CLUSTERDOWN on the last", answer: first("p:c", redistest.Error("CLUSTERDOWN The cluster is down"), 0),
			timeout: leisure, want: "granted granted refused", sent: [3]int{1, 1, 1}},
		{name: "OOM", answer: func(string, int) (string, redistest.Action) {
			return says("OOM command not allowed when used memory > 'maxmemory'.")
		}, timeout: leisure, want: "refused refused refused", sent: [3]int{1, 1, 1}},
		{name: "WRONGTYPE on one", answer: first("p:b", redistest.Error("WRONGTYPE Operation against a key holding the wrong kind of value"), 0),
			timeout: leisure, want: "granted refused granted", sent: [3]int{1, 1, 1}, up: true},
		{name: "NOSCRIPT on one", answer: func(key string, nth int) (string, redistest.Action) {
			if key == "p:b" && nth == 1 {
				return says(noScript)
			}
			return granted(1), redistest.Reply
		}, timeout: leisure, want: "granted granted granted", sent: [3]int{1, 2, 1}, loads: 1, up: true},
		{name: "NOSCRIPT forever", answer: func(string, int) (string, redistest.Action) { return says(noScript) },
			timeout: leisure, want: "refused refused refused", sent: [3]int{4, 4, 4}, loads: 3},
		{name: "NOSCRIPT, then no reply", answer: func(key string, nth int) (string, redistest.Action) {
			if nth == 1 {
				return says(noScript)
			}
			return "", redistest.Swallow
		}, timeout: brief, want: "lost lost lost", sent: [3]int{2, 2, 2}, loads: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := redistest.StartFake(t, fakeAuthority(c.answer))
			r := reached(t, f.URL(), c.timeout)
			r.keys = 1
			if got := sendABC(r); got != c.want {
				t.Errorf("outcomes %s, want %s", got, c.want)
			}
			if r.Reachable(0) != c.up {
				t.Errorf("Reachable is %v, want %v: %+v", r.Reachable(0), c.up, r.Status())
			}
			for i, key := range []string{"p:a", "p:b", "p:c"} {
				if got := timesSent(f, key); got != c.sent[i] {
					t.Errorf("%s arrived %d times, want %d", key, got, c.sent[i])
				}
			}
			if got := f.Count("script load") - len(distinct); got != c.loads {
				t.Errorf("the scripts were loaded %d times more, want %d", got, c.loads)
			}
		})
	}
}

// The questions of one call share its fate, but for what is said of each.
func TestCallOfMany(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer answer
		want   string // what becomes of the keys a, b and c, asked in one call
		sent   int    // calls
		up     bool
	}{
		{"all granted", first("", "", 0), "granted granted granted", 1, true},
		{"FOREIGN in the middle", first("p:b", failed("FOREIGN value"), 0), "granted refused granted", 1, true},
		{"READONLY at the end", first("p:c", failed("READONLY You can't write against a read only replica."), 0), "granted granted refused", 1, false},
		{"OOM of all", first("p:a", redistest.Error("OOM command not allowed when used memory > 'maxmemory'."), 0), "refused refused refused", 1, false},
		{"a reply of another length", first("p:a", redistest.Bulk("short"), 0), "lost granted granted", 1, false},
		{"a reply of another type", first("p:a", redistest.Int(1), 0), "lost granted granted", 1, false},
		{"no replies", first("p:a", "+OK\r\n", 0), "lost lost lost", 1, false},
		{"no reply", first("p:b", "", redistest.Swallow), "lost lost lost", 1, false},
		{"closed in the middle of the reply", func(string, int) (string, redistest.Action) {
			return "*3\r\n" + granted(1) + granted(1)[:20], redistest.CloseAfter
		}, "lost lost lost", 1, false},
		{"NOSCRIPT", func(key string, nth int) (string, redistest.Action) {
			if key == "p:a" && nth == 1 {
				return says(noScript)
			}
			return granted(1), redistest.Reply
		}, "granted granted granted", 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := redistest.StartFake(t, fakeAuthority(c.answer))
			r := reached(t, f.URL(), 4*brief)
			if got := sendABC(r); got != c.want {
				t.Errorf("outcomes %s, want %s", got, c.want)
			}
			if r.Reachable(0) != c.up {
				t.Errorf("Reachable is %v, want %v: %+v", r.Reachable(0), c.up, r.Status())
			}
			if got := f.Count("evalsha") - 1; got != c.sent {
				t.Errorf("%d calls arrived, want %d", got, c.sent)
			}
		})
	}
}

// sendABC sends three questions in one pipeline and names their outcomes.
func sendABC(r *Redis) string {
	qs := []*asked{question("a"), question("b"), question("c")}
	var batch []*bucket.Question
	for _, q := range qs {
		batch = append(batch, &q.Question)
	}
	r.send(batch)
	var got []string
	for _, q := range qs {
		got = append(got, q.outcome())
	}
	return strings.Join(got, " ")
}

// What Redis answered NOSCRIPT to did not run, whatever becomes of the loading.
func TestScriptCannotBeLoadedAgain(t *testing.T) {
	for name, load := range map[string]struct {
		reply  string
		action redistest.Action
	}{
		"refused":  {redistest.Error("NOPERM this user has no permissions to run the 'script|load' command"), redistest.Reply},
		"no reply": {"", redistest.Swallow},
		"closed":   {"", redistest.Close},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := fakeAuthority(func(string, int) (string, redistest.Action) { return says(noScript) })
			loads := 0
			f := redistest.StartFake(t, func(conn int, args []string) (string, redistest.Action) {
				if strings.EqualFold(args[0], "script") {
					if loads++; loads > len(distinct) {
						return load.reply, load.action
					}
				}
				return ask(conn, args)
			})
			r := reached(t, f.URL(), brief)
			if got := sendABC(r); got != "refused refused refused" {
				t.Errorf("outcomes %s, want all refused", got)
			}
			if got := f.Count("evalsha") - 1; got != 1 {
				t.Errorf("%d EVALSHAs arrived, want 1", got)
			}
		})
	}
}

func TestWhatWasNotSentIsRefused(t *testing.T) {
	closed := redistest.StartProxy(t, "127.0.0.1:1")
	closed.Refuse(true)
	nobody := open(t, "redis://"+closed.Addr, leisure)
	if got := sendABC(nobody); got != "refused refused refused" {
		t.Errorf("nobody listens: %s", got)
	}
	q := question("a")
	nobody.Ask(&q.Question)
	q.wait(t)
	if got := q.outcome(); got != "refused" {
		t.Errorf("asked while not reachable: %s", got)
	}
	f := redistest.StartFake(t, fakeAuthority(first("", "", 0)))
	r := reached(t, f.URL(), leisure)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	q = question("a")
	r.Ask(&q.Question)
	q.wait(t)
	if got := q.outcome(); got != "refused" || timesSent(f, "p:a") != 0 {
		t.Errorf("asked after Close: %s, sent %d times", got, timesSent(f, "p:a"))
	}
}

// The canary: with go-redis as it comes, the very same faults do send again. Where
// this fails, the tests above prove nothing.
func TestOnceIsWhatStopsTheLibrary(t *testing.T) {
	for name, c := range map[string]struct {
		reply  string
		action redistest.Action
	}{
		"no reply": {"", redistest.Swallow},
		"closed":   {"", redistest.Close},
		"LOADING":  {redistest.Error("LOADING Redis is loading the dataset in memory"), redistest.Reply},
		"READONLY": {redistest.Error("READONLY You can't write against a read only replica."), redistest.Reply},
	} {
		for _, pipelined := range []bool{false, true} {
			for _, plain := range []bool{false, true} {
				sent := sendWithRetries(t, c.reply, c.action, pipelined, plain)
				if plain && sent < 2 {
					t.Errorf("%s, pipelined %v: a plain command arrived %d times, expected to see it sent again", name, pipelined, sent)
				}
				if !plain && sent != 1 {
					t.Errorf("%s, pipelined %v: once arrived %d times", name, pipelined, sent)
				}
			}
		}
	}
}

// sendWithRetries sends one command through a client that retries, and returns how
// often it arrived.
func sendWithRetries(t *testing.T, reply string, action redistest.Action, pipelined, plain bool) int {
	t.Helper()
	f := redistest.StartFake(t, fakeAuthority(func(string, int) (string, redistest.Action) { return reply, action }))
	client := redis.NewClient(&redis.Options{Addr: f.Addr, Protocol: 2, ReadTimeout: brief, MaxRetryBackoff: time.Millisecond})
	defer client.Close()
	command := (&Redis{o: Options{Prefix: "test"}}).command(context.Background(), []*bucket.Question{&question("a").Question})
	var c redis.Cmder = command
	if plain {
		c = command.Cmd
	}
	if pipelined {
		pipe := client.Pipeline()
		_ = pipe.Process(context.Background(), c)
		_, _ = pipe.Exec(context.Background())
	} else {
		_ = client.Process(context.Background(), c)
	}
	if c.Err() == nil {
		t.Fatal("the command succeeded")
	}
	return timesSent(f, "p:a")
}
