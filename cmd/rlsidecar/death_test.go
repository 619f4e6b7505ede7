// Permits of processes that die, leave, hand their connections on, or come back.
// The kernel is the only witness, so all of it is done by real processes.

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"rlsidecar/internal/redistest"
)

const (
	// kept is longer than the second after which the permits of a process without
	// connections are free, by as much as a busy machine may need.
	kept = 2 * time.Second
	soon = 3 * time.Second
)

// deathbed is where the holder's agent and the one that is asked after it are. They
// are one, or two that share a Redis.
type deathbed struct{ holders, others string }

var deaths = map[string]func(*testing.T, deathbed, string){
	"killed":                   killed,
	"killed with many":         killedWithMany,
	"closes one of two":        closesOneOfTwo,
	"comes back":               comesBack,
	"lends its connection":     lendsItsConnection,
	"stands still":             standsStill,
	"released by another":      releasedByAnother,
	"killed while it waits":    killedWhileItWaits,
	"leaves while it waits":    leavesWhileItWaits,
	"leaves two it waited for": leavesTwoItWaitedFor,
	"leaves as they come":      leavesAsTheyCome,
}

func TestPermitsEndWithTheirHolder(t *testing.T) {
	t.Parallel()
	const policies = "policies:\n  one: {limit: 1, algorithm: concurrency, max_hold: 1h}\n  many: {limit: 20, algorithm: concurrency, max_hold: 1h}\n"
	standalone := startProcess(t, policies)
	shared := fmt.Sprintf("redis: {url: %q, timeout: 1s}\n", redistest.Start(t).URL()) + policies
	worlds := map[string]deathbed{
		"standalone": {standalone, standalone},
		"two hosts":  {startProcess(t, shared), startProcess(t, shared)},
	}
	atOnce(t, worlds, func(t *testing.T, _ string, d deathbed) {
		atOnce(t, deaths, func(t *testing.T, what string, test func(*testing.T, deathbed, string)) {
			test(t, d, strings.ReplaceAll(what, " ", "-"))
		})
	})
	for where, d := range worlds {
		for _, socket := range []string{d.holders, d.others} {
			w := open(t, socket)
			eventually(t, where+": all permits are given back", soon, func() bool {
				return fmt.Sprint(w.info(t, "stats", "permits_held")) == "0"
			})
		}
	}
}

// startProcess is process with a configuration; it returns the socket.
func startProcess(t *testing.T, yaml string) string {
	t.Helper()
	socket := shortPath(t)
	process(t, socket, "--config", written(t, yaml), "--log-level", "warn")
	return socket
}

// wantKept fails unless the permit of one stays taken for longer than a dead
// process would keep it.
func wantKept(t *testing.T, d deathbed, key string) {
	t.Helper()
	if got, err := open(t, d.others).acquire("one", key, kept); got.Allowed || err != nil {
		t.Errorf("the permit was to be had: %+v, %v", got, err)
	}
}

// wantFree fails unless a permit comes within soon, and not before a time has
// passed since then.
func wantFree(t *testing.T, d deathbed, policy, key string, since time.Time, notBefore time.Duration) {
	t.Helper()
	w := open(t, d.others)
	got, err := w.acquire(policy, key, 4*soon)
	took := time.Since(since)
	if !got.Allowed || err != nil || took > soon {
		t.Errorf("the permit did not come within %v: %+v, %v after %v\n%s\n%s", soon, got, err, took,
			explained(d.holders, policy, key), explained(d.others, policy, key))
	}
	if took < notBefore {
		t.Errorf("the permit came after %v, %v is the least", took, notBefore)
	}
	wantRelease(t, d.others, got.Permit, true)
}

// explained is what an agent tells of a bucket.
func explained(socket, policy, key string) string {
	_, out, errs := run("explain", "--socket", socket, policy, key)
	return out + errs
}

// wantRelease releases over a new connection of this process.
func wantRelease(t *testing.T, socket string, permit uint64, want bool) {
	t.Helper()
	if held, err := open(t, socket).release(permit); held != want || err != nil {
		t.Errorf("release: %v, %v; want %v", held, err, want)
	}
}

func killed(t *testing.T, d deathbed, key string) {
	h := startHolder(t, d.holders)
	permit := h.hold("one", key)
	since := time.Now()
	h.kill()
	wantFree(t, d, "one", key, since, time.Second)
	wantRelease(t, d.holders, permit, false)
}

// killedWithMany has the permits on several connections.
func killedWithMany(t *testing.T, d deathbed, key string) {
	h := startHolder(t, d.holders)
	for i := range 20 {
		if i%5 == 4 {
			h.ok("dial")
		}
		h.hold("many", key)
	}
	if got := h.do("hold", "many", key); got != "0" {
		t.Errorf("one more than there are: %s", got)
	}
	since := time.Now()
	h.kill()
	wantFree(t, d, "many", key, since, time.Second)
	w := open(t, d.others)
	for n := 1; n <= 20; n++ {
		got, err := w.acquire("many", key, soon)
		if !got.Allowed || err != nil {
			t.Fatalf("permit %d is not to be had again: %+v, %v", n, got, err)
		}
		defer w.release(got.Permit)
	}
}

func closesOneOfTwo(t *testing.T, d deathbed, key string) {
	h := startHolder(t, d.holders)
	h.ok("dial")
	h.hold("one", key)
	h.ok("close")
	wantKept(t, d, key)
	since := time.Now()
	h.ok("close") // the last one, though the process lives
	wantFree(t, d, "one", key, since, time.Second)
}

// comesBack before the second has passed.
func comesBack(t *testing.T, d deathbed, key string) {
	h := startHolder(t, d.holders)
	permit := h.hold("one", key)
	h.ok("close")
	h.ok("dial")
	wantKept(t, d, key)
	wantRelease(t, d.holders, permit, true)
	wantFree(t, d, "one", key, time.Now(), 0)
}

// lendsItsConnection: as long as the connection is open, the agent cannot know that
// who opened it is dead.
func lendsItsConnection(t *testing.T, d deathbed, key string) {
	h := startHolder(t, d.holders)
	h.hold("one", key)
	h.ok("lend")
	h.kill()
	wantKept(t, d, key)
	since := time.Now()
	h.lifeline.Close()
	wantFree(t, d, "one", key, since, time.Second)
}

func standsStill(t *testing.T, d deathbed, key string) {
	h := startHolder(t, d.holders)
	h.hold("one", key)
	if err := h.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wantKept(t, d, key)
	since := time.Now()
	h.kill()
	wantFree(t, d, "one", key, since, time.Second)
}

// releasedByAnother process, while the dead one's second runs: once.
func releasedByAnother(t *testing.T, d deathbed, key string) {
	h := startHolder(t, d.holders)
	permit := h.hold("one", key)
	h.kill()
	wantRelease(t, d.holders, permit, true)
	wantRelease(t, d.holders, permit, false)
	wantFree(t, d, "one", key, time.Now(), 0)
	wantKeptAfter(t, d, key)
}

// wantKeptAfter takes the permit and fails when it ends with somebody else's.
func wantKeptAfter(t *testing.T, d deathbed, key string) {
	t.Helper()
	mine, err := open(t, d.holders).acquire("one", key, soon)
	if !mine.Allowed || err != nil {
		t.Fatal(mine, err)
	}
	wantKept(t, d, key)
	wantRelease(t, d.holders, mine.Permit, true)
}

func killedWhileItWaits(t *testing.T, d deathbed, key string) {
	waitsInVain(t, d, key, func(h *holder) { h.kill() })
}

// leavesWhileItWaits: the process lives, and so do its other connections.
func leavesWhileItWaits(t *testing.T, d deathbed, key string) {
	waitsInVain(t, d, key, func(h *holder) { h.ok("close") })
}

// waitsInVain has a process wait for a permit and leave the queue: the permit goes
// to the next as soon as it is free.
func waitsInVain(t *testing.T, d deathbed, key string, leave func(*holder)) {
	first := open(t, d.holders)
	held, err := first.acquire("one", key, 0)
	if !held.Allowed || err != nil {
		t.Fatal(held, err)
	}
	h := startHolder(t, d.holders)
	h.ok("dial")
	h.ok("wait", "one", key)
	leave(h)
	since := time.Now()
	wantRelease(t, d.holders, held.Permit, true)
	wantFree(t, d, "one", key, since, 0)
}

// leavesTwoItWaitedFor of which the first was there, and the second never came: it
// was all or nothing, so it is nothing. The process keeps another connection.
func leavesTwoItWaitedFor(t *testing.T, d deathbed, key string) {
	held, err := open(t, d.holders).acquire("one", key+"/second", 0)
	if !held.Allowed || err != nil {
		t.Fatal(held, err)
	}
	h := startHolder(t, d.holders)
	h.ok("dial")
	h.ok("both", "one", key+"/first", key+"/second")
	w := open(t, d.holders)
	eventually(t, "the first permit is taken", soon, func() bool {
		got, err := w.acquire("one", key+"/first", 0)
		if got.Allowed {
			_, err = w.release(got.Permit)
		}
		return !got.Allowed && err == nil
	})
	h.ok("close")
	since := time.Now()
	wantFree(t, d, "one", key+"/first", since, 0)
	wantRelease(t, d.holders, held.Permit, true)
	wantFree(t, d, "one", key+"/second", time.Now(), 0)
}

// leavesAsTheyCome closes its only connection while the permits that it waits for
// come: whether it got them, or the next in the queue, none is lost.
func leavesAsTheyCome(t *testing.T, d deathbed, key string) {
	const keys = 50
	h, w := startHolder(t, d.holders), open(t, d.holders)
	key += "/%d"
	var permits [keys]uint64
	for i := range permits {
		held, err := w.acquire("one", fmt.Sprintf(key, i), 0)
		if permits[i] = held.Permit; !held.Allowed || err != nil {
			t.Fatal(held, err)
		}
		h.ok("wait", "one", fmt.Sprintf(key, i))
	}
	left := make(chan string)
	go func() { left <- h.do("close") }()
	for _, permit := range permits {
		if held, err := w.release(permit); !held || err != nil {
			t.Fatal(held, err)
		}
	}
	if got := <-left; got != "ok" {
		t.Fatal(got)
	}
	since := time.Now()
	for i := range permits {
		wantFree(t, d, "one", fmt.Sprintf(key, i), since, 0)
	}
}

// TestReleaseInAnOutageReachesRedis: Redis is away when a permit is released, and learns of it when
// it is back, not when the longest hold ends.
func TestReleaseInAnOutageReachesRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	proxy := redistest.StartProxy(t, redis.Addr)
	const yaml = "redis: {url: %q, timeout: 200ms}\npolicies:\n  one: {limit: 1, algorithm: concurrency, max_hold: 1h}\n"
	d := deathbed{startProcess(t, fmt.Sprintf(yaml, "redis://"+proxy.Addr)), startProcess(t, fmt.Sprintf(yaml, redis.URL()))}
	held, err := open(t, d.holders).acquire("one", "k", 0)
	if !held.Allowed || err != nil {
		t.Fatal(held, err)
	}
	proxy.BlackHole(true)
	wantRelease(t, d.holders, held.Permit, true)
	w := open(t, d.holders)
	eventually(t, "the outage is noticed", soon, func() bool { return w.info(t, "degraded") == true })
	proxy.BlackHole(false)
	proxy.Cut()
	eventually(t, "the outage has ended", soon, func() bool { return w.info(t, "degraded") == false })
	wantFree(t, d, "one", "k", time.Now(), 0)
}
