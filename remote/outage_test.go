// Outages on a real Redis, with load running: every call is answered in time, from
// leases and local limits while the fault lasts and from Redis soon after, what was
// admitted meanwhile is paid for, and the log says it once.

package remote

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/limiter"
	"rlsidecar/internal/redistest"
)

const (
	usual      = 20 * time.Millisecond  // redis.timeout
	generous   = 250 * time.Millisecond // where a time-out would be the machine's fault
	margin     = 150 * time.Millisecond // for a busy machine, and the race detector
	recovery   = 2 * time.Second
	localPart  = 0.5 // the share in outagePolicies
	hotLimit   = 100 // a second, and burst
	quietSize  = 1000
	quietCalls = 7 // of the quiet key before the fault
)

const outagePolicies = `
redis: {url: "redis://127.0.0.1:6379"}
policies:
  hot:   {limit: 100/second, when_redis_is_down: {mode: local, share: 0.5}}
  cold:  {limit: 5/second, when_redis_is_down: {mode: local, share: 0.5}}
  exact: {limit: 200/second, consistency: exact, when_redis_is_down: {mode: local, share: 0.5}}
  quiet: {limit: 1000/day, consistency: exact, when_redis_is_down: {mode: local, share: 0.5}}
`

// outage is a fault and what is to be seen of it.
type outage struct {
	name    string
	options []redistest.Option
	user    bool // connect as the user "agent", who may do what is named in health.go
	begin   func(*rig)
	lasts   time.Duration // default 300 ms
	end     func(*rig)
	state   string // while it lasts; "": it is too short to tell
	reason  string // part of Status().Reason
	mend    string // part of Status().Mend
	forgets bool   // Redis comes back empty
	flaps   bool   // Redis answers now and then: sources and logs are not told apart
	works   bool   // all the same, most answers come from it
}

var outages = []outage{
	{name: "hung", lasts: time.Second, state: "degraded", reason: "no answer in time",
		begin: func(r *rig) { r.server.Pause() }, end: func(r *rig) { r.server.Resume() }},
	{name: "killed, restarted empty", lasts: time.Second, state: "degraded", forgets: true,
		begin: func(r *rig) { r.server.Kill() }, end: func(r *rig) { r.server.Restart(r.t) }},
	{name: "scripts flushed", state: "ok",
		begin: func(r *rig) {
			for range 20 {
				r.do("SCRIPT", "FLUSH")
				time.Sleep(10 * time.Millisecond)
			}
		}},
	{name: "out of memory", state: "failing", reason: "OOM", mend: "maxmemory",
		begin: func(r *rig) { r.do("CONFIG", "SET", "maxmemory", "1") }, end: func(r *rig) { r.do("CONFIG", "SET", "maxmemory", "0") }},
	{name: "loading", state: "degraded", reason: "LOADING",
		options: []redistest.Option{redistest.WithConf("enable-debug-command", "yes"),
			redistest.WithConf("key-load-delay", "4000"), redistest.WithConf("loading-process-events-interval-bytes", "1024")},
		begin: reload, end: func(r *rig) { r.loading.Wait() }},
	{name: "read-only", state: "degraded", reason: "READONLY",
		begin: func(r *rig) { r.do("REPLICAOF", "127.0.0.1", "1") }, end: func(r *rig) { r.do("REPLICAOF", "NO", "ONE") }},
	{name: "password changed", user: true, state: "failing", reason: "WRONGPASS", mend: "redis.password_file",
		begin: func(r *rig) { r.do("ACL", "SETUSER", "agent", ">new", "<secret"); r.disconnect() },
		end:   func(r *rig) { r.do("ACL", "SETUSER", "agent", "<new", ">secret") }},
	{name: "password demanded", state: "failing", reason: "NOAUTH", mend: "redis.password_file",
		begin: func(r *rig) { r.do("CONFIG", "SET", "requirepass", "new"); r.disconnect() },
		end:   func(r *rig) { r.do("CONFIG", "SET", "requirepass", "") }},
	{name: "no right to run scripts", user: true, state: "failing", reason: "NOPERM", mend: "+evalsha",
		begin: func(r *rig) { r.do("ACL", "SETUSER", "agent", "-evalsha") }, end: func(r *rig) { r.do("ACL", "SETUSER", "agent", "+evalsha") }},
	{name: "no right to write in scripts", user: true, state: "failing", mend: "+set",
		begin: func(r *rig) { r.do("ACL", "SETUSER", "agent", "-set") }, end: func(r *rig) { r.do("ACL", "SETUSER", "agent", "+set") }},
	{name: "no right to the keys", user: true, state: "failing", reason: "NOPERM", mend: "{test:*",
		begin: func(r *rig) { r.do("ACL", "SETUSER", "agent", "resetkeys") }, end: func(r *rig) { r.do("ACL", "SETUSER", "agent", "~{test:*") }},
	{name: "paused", state: "degraded", reason: "no answer in time",
		begin: func(r *rig) { r.do("CLIENT", "PAUSE", "300") }, end: func(r *rig) { r.do("PING") }},
	{name: "far", flaps: true, works: true,
		begin: func(r *rig) { r.proxy.Delay(5*time.Millisecond, 0) }, end: func(r *rig) { r.proxy.Delay(0, 0) }},
	{name: "too far", lasts: time.Second, state: "degraded", reason: "no answer in time",
		begin: func(r *rig) { r.proxy.Delay(50*time.Millisecond, 0) }, end: func(r *rig) { r.proxy.Delay(0, 0) }},
	{name: "black hole", lasts: time.Second, state: "degraded", reason: "no answer in time",
		begin: func(r *rig) { r.proxy.BlackHole(true) }, end: func(r *rig) { r.proxy.BlackHole(false) }},
	{name: "replies lost", lasts: time.Second, state: "degraded", reason: "no answer in time",
		begin: func(r *rig) { r.proxy.SetBlackHole(redistest.Replies, true) }, end: func(r *rig) { r.proxy.SetBlackHole(redistest.Replies, false) }},
	{name: "cut", flaps: true,
		begin: func(r *rig) { r.proxy.Cut() }},
	{name: "refused and cut", lasts: time.Second, state: "degraded",
		begin: func(r *rig) { r.proxy.Refuse(true); r.proxy.Cut() }, end: func(r *rig) { r.proxy.Refuse(false) }},
	{name: "a tenth of the replies dropped", lasts: 2 * time.Second, flaps: true,
		begin: func(r *rig) { r.proxy.DropReplies(0.1, 1) }, end: func(r *rig) { r.proxy.DropReplies(0, 1) }},
}

// reload has Redis write its data and read it back slowly, and returns when it says
// LOADING.
func reload(r *rig) {
	r.do("EVAL", "for i = 1, 200 do redis.call('SET', 'filler:' .. i, string.rep('x', 100)) end", "0")
	r.loading.Go(func() { _, _ = r.server.DoErr("DEBUG", "RELOAD") })
	await(r.t, 5*time.Second, "LOADING", func() bool {
		_, err := r.server.DoErr("GET", "filler:1")
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	})
}

func TestOutages(t *testing.T) {
	var ran, paid atomic.Int64 // paid: the debt was seen to be paid exactly
	t.Cleanup(func() {         // when the parallel tests have ended
		if 2*paid.Load() < ran.Load() {
			t.Errorf("debts were paid exactly after %d outages of %d, want at least half", paid.Load(), ran.Load())
		}
	})
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			budget := usual
			if o.state == "ok" {
				budget = generous
			}
			r := startRig(t, budget, o.user, o.options...)
			r.await(recovery, "leasing before the fault", r.leasing)
			r.pickQuiet()
			r.startLoad()
			r.run(300 * time.Millisecond)
			r.suffer(&o)
			took := r.await(recovery, "leasing after the fault", r.leasing)
			r.recovered = time.Now()
			if !o.flaps {
				ran.Add(1)
			}
			if r.checkDebts(&o) && !o.flaps {
				paid.Add(1)
			}
			r.run(200 * time.Millisecond)
			r.stopLoad()
			r.check(&o)
			r.report(took)
		})
	}
}

// suffer lives through the fault and checks what is to be seen of it.
func (r *rig) suffer(o *outage) {
	r.t.Helper()
	r.began = time.Now()
	o.begin(r)
	if o.state != "" {
		r.await(time.Second, "Status "+o.state+", "+o.reason, func() bool { return r.shows(o) })
	}
	r.noticed = time.Now()
	if o.state != "ok" && !o.flaps {
		r.spendQuietLocally()
		r.spendShare()
	}
	r.run(max(300*time.Millisecond, o.lasts) - time.Since(r.began))
	if s := r.redis.Status(); o.state == "ok" && s.State != "ok" {
		r.t.Errorf("Status %+v", s)
	}
	r.ended = time.Now()
	if o.end != nil {
		o.end(r)
	}
}

func (r *rig) shows(o *outage) bool {
	s := r.redis.Status()
	return s.State == o.state && strings.Contains(s.Reason, o.reason) && strings.Contains(s.Mend, o.mend) && (s.Mend != "") == (o.state == "failing")
}

// checkDebts wants Redis to know of all that was admitted to the quiet key. It is
// false when a time-out in between, of a machine too busy, may have lost some: what
// may have been paid is not paid again.
func (r *rig) checkDebts(o *outage) bool {
	r.t.Helper()
	if o.forgets {
		r.quietSpent -= quietCalls
	}
	r.await(recovery, "the quiet key is asked for again", func() bool { return r.acquireQuiet() == limiter.FromRedis })
	if r.paid(2 * time.Second) {
		return true
	}
	if o.flaps || len(r.log.between(r.recovered.Add(time.Millisecond), time.Now())) > 0 {
		return false
	}
	level, out := r.quietLevel()
	r.t.Errorf("Redis has %.3f permits and %.0f outstanding for the quiet key, after %d were admitted", level, out, r.quietSpent)
	return false
}

func (r *rig) check(o *outage) {
	r.t.Helper()
	r.checkAnswered()
	r.checkExact(o)
	if !o.flaps {
		r.checkSources(o)
		r.checkLog(o)
	}
	if calls, from := r.during(); o.works && 2*from[limiter.FromFallback] > calls {
		r.t.Errorf("of %d answers too many came from the fallback: %v", calls, from)
	}
}

// checkAnswered wants each call answered once and in time, and no pipeline to linger.
func (r *rig) checkAnswered() {
	r.t.Helper()
	if d := time.Duration(r.slowest.Load()); d > r.budget+margin {
		r.t.Errorf("a pipeline took %v", d)
	}
	for _, w := range r.workers {
		if n := w.strange.Load(); n > 0 {
			r.t.Errorf("%s: %d answers to calls that had one", w.policy, n)
		}
		for _, a := range w.answers {
			if a.err != nil {
				r.t.Errorf("%s: %v", w.policy, a.err)
			}
			if a.took > w.wait+r.budget+margin {
				r.t.Errorf("%s: answered after %v from %v, %v after the fault began", w.policy, a.took, a.d.Source, a.at.Sub(r.began))
			}
		}
	}
}

// checkExact wants no more admitted than the limit, but for what the fallback
// admitted; and of that no more than this host's share.
func (r *rig) checkExact(o *outage) {
	r.t.Helper()
	burst := float64(hotLimit)
	if o.forgets {
		burst *= 2
	}
	for _, key := range []string{"a", "b"} {
		leased, local := r.admitted("hot", key)
		seconds := r.stopped.Sub(r.loaded).Seconds()
		if most := burst + hotLimit*seconds; float64(leased) > most {
			r.t.Errorf("hot %s: %d admitted by Redis in %.1f s, at most %.0f", key, leased, seconds, most)
		}
		down := r.recovered.Add(500 * time.Millisecond).Sub(r.began).Seconds()
		if most := localPart*hotLimit*(1+down) + 1; !o.flaps && float64(local) > most {
			r.t.Errorf("hot %s: %d admitted by the fallback in %.1f s, at most %.0f", key, local, down, most)
		}
		if o.state != "ok" && !o.flaps && (leased == 0 || local == 0) {
			r.t.Errorf("hot %s: %d admitted by Redis, %d by the fallback: want some of each", key, leased, local)
		}
	}
}

// during counts, by source, the answers to calls made and answered while the fault
// lasted.
func (r *rig) during() (calls int, from map[limiter.Source]int) {
	from = map[limiter.Source]int{}
	for _, w := range r.workers {
		for _, a := range w.answers {
			if a.at.After(r.noticed) && a.at.Add(a.took).Before(r.ended) {
				calls++
				from[a.d.Source]++
			}
		}
	}
	return calls, from
}

// checkSources wants no fallback while Redis answers, and while it does not, nothing
// but leases and the fallback.
func (r *rig) checkSources(o *outage) {
	r.t.Helper()
	calls, from := r.during()
	local := from[limiter.FromFallback]
	if calls == 0 && r.ended.Sub(r.noticed) > 100*time.Millisecond {
		r.t.Errorf("no calls during the fault")
	}
	if o.state == "ok" && local > 0 || o.state != "ok" && local+from[limiter.FromLease] < calls {
		r.t.Errorf("%d answers while %s came from %v", calls, o.state, from)
	}
}

// checkLog wants transitions in the log, each once, and nothing while the fault
// lasts.
func (r *rig) checkLog(o *outage) {
	r.t.Helper()
	lines := r.log.between(r.started, r.stopped)
	for i := 1; i < len(lines); i++ {
		if lines[i].Level == lines[i-1].Level {
			r.t.Errorf("logged twice in a row:\n%s", r.log)
		}
	}
	if during := r.log.between(r.noticed, r.ended); len(during) > 0 {
		r.t.Errorf("%d lines logged during the fault:\n%s", len(during), r.log)
	}
	failing := slices.ContainsFunc(lines, func(l slog.Record) bool { return l.Level == slog.LevelError })
	if failing != (o.state == "failing") || o.state == "ok" && len(lines) != 1 || len(lines) == 0 {
		r.t.Errorf("state %s, logged:\n%s", o.state, r.log)
	}
}

func (r *rig) report(recovered time.Duration) {
	var took []time.Duration
	sources := map[limiter.Source]int{}
	for _, w := range r.workers {
		for _, a := range w.answers {
			took = append(took, max(0, a.took-w.wait))
			sources[a.d.Source]++
		}
	}
	slices.Sort(took)
	r.t.Logf("%d calls, p99 %v, longest %v, recovered after %v, answers from %v", len(took),
		took[len(took)*99/100].Round(100*time.Microsecond), took[len(took)-1].Round(100*time.Microsecond), recovered.Round(time.Millisecond), sources)
}

// An agent that starts before its Redis serves local limits at once, and leases
// when Redis comes.
func TestRedisComesLater(t *testing.T) {
	t.Parallel()
	r := prepareRig(t, usual, false)
	r.server.Stop()
	r.proxy.Refuse(true)
	r.quiet = "q"
	r.start()
	r.startLoad()
	r.began = time.Now()
	r.await(time.Second, "Status degraded", func() bool {
		s := r.redis.Status()
		return s.State == "degraded" && strings.Contains(s.Reason, "connection refused") && s.Mend == ""
	})
	r.noticed = time.Now()
	r.spendQuietLocally()
	r.run(1200 * time.Millisecond)
	r.ended = time.Now()
	r.server.Restart(t)
	r.proxy.Refuse(false)
	took := r.await(recovery, "leasing", r.leasing)
	r.recovered = time.Now()
	o := outage{state: "degraded"}
	r.checkDebts(&o)
	r.run(200 * time.Millisecond)
	r.stopLoad()
	r.checkAnswered()
	r.checkExact(&o)
	r.checkSources(&o)
	r.checkLog(&o)
	r.report(took)
}

// However often nobody listened, the first try after somebody does brings Redis back.
func TestFirstTryCounts(t *testing.T) {
	server := redistest.Start(t)
	r := reached(t, server.URL(), leisure)
	r.node().worn = true
	server.Stop()
	for range 3 * (pipelines + 1) {
		if got := sendABC(r); got != "refused refused refused" {
			t.Fatalf("outcomes %s with nobody there", got)
		}
		r.node().reach(t.Context())
		if r.Reachable(0) {
			t.Fatal("reached though nobody listens")
		}
	}
	server.Restart(t)
	if r.node().reach(t.Context()); !r.Reachable(0) {
		t.Errorf("not reached at the first try: %+v", r.Status())
	}
}

// A key that is somebody else's takes its own bucket out, and no other.
func TestForeignKeyConcernsItsBucketAlone(t *testing.T) {
	for name, c := range map[string]struct {
		command []string
		says    string
	}{
		"another type":    {[]string{"LPUSH", "KEY", "x"}, "WRONGTYPE"},
		"another content": {[]string{"SET", "KEY", "their own"}, "FOREIGN"},
		"another version": {[]string{"SET", "KEY", "\x02" + strings.Repeat("\x00", 74)}, "FOREIGN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, generous, false)
			r.await(recovery, "leasing", r.leasing)
			r.startLoad()
			key := r.key("hot", "a")
			r.began = time.Now()
			for i, word := range c.command {
				c.command[i] = strings.Replace(word, "KEY", key, 1)
			}
			r.await(recovery, "the key is theirs", func() bool { // the script may be quicker between the two
				r.do("DEL", key)
				_, err := r.doErr(c.command[0], c.command[1:]...)
				return err == nil && r.redis.Status().Bucket != ""
			})
			r.noticed = time.Now()
			r.run(400 * time.Millisecond)
			s := r.redis.Status()
			if s.State != "ok" || !strings.Contains(s.Bucket, c.says) || !strings.Contains(s.Bucket, "hot:a") || !strings.Contains(s.Bucket, "key_prefix") {
				t.Errorf("Status %+v", s)
			}
			r.ended = time.Now()
			r.do("DEL", key)
			r.await(recovery, "the bucket is asked for again", func() bool {
				d := r.try("hot", "a")
				return d.Source == limiter.FromRedis || d.Source == limiter.FromLease || d.Source == limiter.FromDenial
			})
			r.stopLoad()
			r.checkAnswered()
			r.checkOneBucketFell()
			if lines := r.log.between(r.started, r.stopped); len(lines) != 2 || lines[1].Level != slog.LevelError {
				t.Errorf("logged:\n%s", r.log)
			}
			r.report(0)
		})
	}
}

// checkOneBucketFell wants fallback answers for the key a of hot, and for no other.
func (r *rig) checkOneBucketFell() {
	r.t.Helper()
	fell, others := 0, 0
	for _, w := range r.workers {
		for _, a := range w.answers {
			switch {
			case a.d.Source != limiter.FromFallback:
			case w.policy == "hot" && a.key == "a":
				fell++
			default:
				others++
			}
		}
	}
	if fell == 0 || others > 0 {
		r.t.Errorf("%d answers for the bucket came from the fallback, %d for others", fell, others)
	}
}

// The rights that the advice names are enough, and the advice is given.
func TestAdvisedRightsAreEnough(t *testing.T) {
	t.Parallel()
	r := prepareRig(t, usual, true)
	r.do("ACL", "SETUSER", "agent", "reset", "on", ">secret", "+@connection")
	r.start()
	r.await(recovery, "the advice", func() bool { return r.redis.Status().Mend != "" })
	advice, rights, _ := strings.Cut(r.redis.Status().Mend, "ACL SETUSER name ")
	if rights == "" {
		t.Fatalf("no command in %q", advice)
	}
	r.do("ACL", append([]string{"SETUSER", "agent", "reset", "on", ">secret"}, strings.Fields(rights)...)...)
	r.do("ACL", "LOG", "RESET") // what was refused before
	r.await(recovery, "leasing with the rights of the advice", r.leasing)
	if s := r.redis.Status(); s.State != "ok" {
		t.Errorf("Status %+v", s)
	}
	if log := r.do("ACL", "LOG"); strings.Contains(log, "select") || strings.Contains(log, "hello") {
		t.Errorf("rights are missing:\n%s", log)
	}
}

func (r *rig) key(policy, key string) string {
	return r.redis.key(&bucket.Question{Policy: policy, Key: key, Rule: question(key).Rule})
}

// quietLevel returns what Redis has for the quiet key: its level, and what hosts
// may still use.
func (r *rig) quietLevel() (level, outstanding float64) {
	raw := r.do("GET", r.key("quiet", r.quiet))
	if len(raw) < 51+24 {
		return quietSize, 0
	}
	return double(raw[51:]), double(raw[3+2*8:])
}

// paid reports whether Redis comes to have taken off the quiet key exactly what was
// admitted to it.
func (r *rig) paid(within time.Duration) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if level, out := r.quietLevel(); out == 0 && math.Abs(quietSize-level-float64(r.quietSpent)) < 0.9 {
			return true
		}
	}
	return false
}

// acquireQuiet admits a call of the quiet key and returns where from.
func (r *rig) acquireQuiet() limiter.Source {
	r.t.Helper()
	d := r.try("quiet", r.quiet)
	if !d.Allowed {
		r.t.Errorf("the quiet key was denied: %+v", d)
	}
	r.quietSpent++
	return d.Source
}

// pickQuiet finds a key whose first calls Redis took off it one for one. Time-outs
// of a machine too busy may spoil some.
func (r *rig) pickQuiet() {
	r.t.Helper()
	for i := range 5 {
		r.quiet, r.quietSpent = fmt.Sprint("q", i), 0
		for range quietCalls {
			r.acquireQuiet()
		}
		if r.paid(time.Second) {
			return
		}
	}
	r.t.Fatalf("Redis and the agent disagree about the quiet key even while Redis answers: %d admitted", r.quietSpent)
}

func (r *rig) spendQuietLocally() {
	r.t.Helper()
	for range 5 {
		if from := r.acquireQuiet(); from != limiter.FromFallback {
			r.t.Errorf("the quiet key was answered from %v, want the fallback", from)
		}
	}
}

// spendShare takes all that the fallback gives of a full bucket: its share.
func (r *rig) spendShare() {
	r.t.Helper()
	allowed, began := 0, time.Now()
	for range hotLimit {
		if r.try("hot", "fresh").Allowed {
			allowed++
		}
	}
	least := localPart * hotLimit
	most := least + localPart*hotLimit*time.Since(began).Seconds() + 1
	if float64(allowed) < least || float64(allowed) > most {
		r.t.Errorf("the fallback admitted %d of %d calls, want %.0f to %.0f", allowed, hotLimit, least, most)
	}
}

// leasing reports that Redis answers, and that calls get their answers from it.
func (r *rig) leasing() bool {
	if r.redis.Status().State != "ok" {
		return false
	}
	d := r.try("hot", "probe")
	return d.Source == limiter.FromRedis || d.Source == limiter.FromLease
}

// run lets time pass: the length of a fault, or of a stretch of load.
func (r *rig) run(d time.Duration) { time.Sleep(d) }
