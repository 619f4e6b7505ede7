// Package conformance drives the clients of all languages through the same cases,
// so that they cannot drift apart. README.md tells how to add one.
package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slack is how far past its budget a call may end on a machine that is busy with
// other things; a budget that is longer may be exceeded by itself. What is promised
// is 5 ms: TestConformance reports by how much each client was late.
const slack = 250 * time.Millisecond

const defaultTimeoutMS = 50

// patientRuns is how often a case is run again in which nothing was wrong but that a
// call was late: a client that is late by itself is so every time.
const patientRuns = 3

// calls are what a failure is tried with.
var calls = []string{"acquire", "peek", "acquire_all", "refund", "reset"}

var modes = []string{"allow", "deny", "raise"}

func TestConformance(t *testing.T) {
	file := loadCases(t)
	found := commands(t)
	for _, language := range languages {
		if command, ok := found[language]; ok {
			t.Run(language, func(t *testing.T) { testLanguage(t, file, language, command) })
		}
	}
}

func testLanguage(t *testing.T, file *caseFile, language string, command []string) {
	t.Parallel() // most of the time is spent waiting
	s := &suite{file: file, driver: startDriver(t, language, command)}
	defer func() { s.driver.end(t) }()
	run := func(name string, test func(d *dialogue)) {
		t.Run(name, func(t *testing.T) {
			d := s.attempt(t, test)
			for again := 0; again < patientRuns && len(d.overdue) > 0 && !t.Failed(); again++ {
				t.Logf("once more, for the machine may have been busy: %v", d.overdue)
				d = s.attempt(t, test)
			}
			for _, what := range d.overdue {
				t.Error(what)
			}
			if d.lost {
				s.driver = startDriver(t, language, command)
			}
		})
	}
	for _, c := range file.Cases {
		run(c.ID, func(d *dialogue) { d.runCase(&c) })
	}
	for _, f := range file.Failures {
		for _, mode := range modes {
			run(fmt.Sprintf("C-20-%s/%s", f.ID, mode), func(d *dialogue) { d.runFailure(&f, mode) })
		}
	}
	if slices.Sort(s.late); len(s.late) > 0 {
		t.Logf("%d calls used up their budget: half of them %v past it, one in a hundred %v, at most %v",
			len(s.late), s.late[len(s.late)/2], s.late[len(s.late)*99/100], s.late[len(s.late)-1])
	}
}

func (s *suite) attempt(t *testing.T, test func(d *dialogue)) *dialogue {
	d := &dialogue{suite: s, t: t, timeouts: map[string]int{}, saved: map[string]float64{}}
	test(d)
	return d
}

// suite is what the cases of one language share.
type suite struct {
	file   *caseFile
	driver *driver
	keys   int             // how many were made up
	late   []time.Duration // how far past its budget each call ended that used it up
}

// dialogue is one case.
type dialogue struct {
	*suite
	t        *testing.T
	agent    *fakeAgent
	path     string
	timeouts map[string]int // of each client that was opened, in milliseconds
	saved    map[string]float64
	lost     bool     // the driver has to be started anew
	overdue  []string // calls that ended too late
}

func (d *dialogue) runCase(c *testCase) {
	if c.Socket == "real" {
		d.path = realAgent(d.t)
	} else {
		d.fake(c.Socket, script{c.Answers, c.Cycle, d.file.Replies}, c.Seen.Repeats)
	}
	open := map[string]any{"do": "open", "client": "a", "address": d.path, "timeout_ms": 2000.0, "on_unavailable": "raise"}
	maps.Copy(open, c.Client)
	d.take(&step{Ask: open, Want: map[string]any{"ok": true}})
	d.run(c.Steps)
	d.close()
	if d.agent != nil {
		d.check(&c.Seen)
	}
}

func (d *dialogue) runFailure(f *failure, mode string) {
	d.fake(f.Socket, script{answers: f.Answers, replies: d.file.Replies}, 0)
	timeout := f.TimeoutMS
	if timeout == 0 {
		timeout = 2000
	}
	d.take(&step{
		Ask:  map[string]any{"do": "open", "client": "a", "address": d.path, "timeout_ms": float64(timeout), "on_unavailable": mode},
		Want: map[string]any{"ok": true},
	})
	for _, call := range calls {
		s := step{Ask: map[string]any{"do": call}, Want: f.outcome(call, mode)}
		if f.Waits {
			s.AtLeastMS = timeout - 2
		}
		if f.Always || mode == "raise" {
			s.MessageHas = f.MessageHas
		}
		d.take(&s)
	}
	d.close()
}

// outcome is what a call without a decision has to give.
func (f *failure) outcome(call, mode string) map[string]any {
	if mode == "raise" || f.Always {
		var kinds []any
		for _, e := range f.Error {
			kinds = append(kinds, e)
		}
		return map[string]any{"error": kinds}
	}
	allowed := mode == "allow"
	switch call {
	case "refund", "reset":
		return map[string]any{"ok": false}
	case "acquire_all":
		one := map[string]any{"allowed": allowed, "degraded": true, "source": -1.0}
		return map[string]any{"allowed": allowed, "degraded": true, "decisions": []any{one, one}}
	}
	return map[string]any{"allowed": allowed, "degraded": true, "source": -1.0, "permit": nil}
}

func (d *dialogue) fake(socket string, s script, repeats int) {
	d.agent = newFakeAgent(d.t, s, repeats)
	d.agent.client = d.driver.cmd.Process
	d.path = d.agent.path
	if err := d.agent.put(socket); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dialogue) run(steps []step) {
	for i := range steps {
		if d.lost {
			return
		}
		d.take(&steps[i])
	}
}

func (d *dialogue) take(s *step) {
	switch {
	case s.Repeat > 0:
		for range s.Repeat {
			if d.run(s.Steps); d.t.Failed() {
				return
			}
		}
	case s.Agent != "":
		d.command(s)
	case s.ExpectConnections != nil:
		d.equal("connections", d.agent.seen().connections, s.ExpectConnections)
	case s.EventuallyMS > 0:
		d.eventually(s)
	case s.Near != "":
		d.near(s)
	default:
		d.judge(s, d.ask(s))
	}
}

// command tells the agent to do something, perhaps later.
func (d *dialogue) command(s *step) {
	if s.AfterMS == 0 {
		if err := d.agent.act(s.Agent); err != nil {
			d.t.Fatal(err)
		}
		return
	}
	d.agent.open.Go(func() {
		time.Sleep(time.Duration(s.AfterMS) * time.Millisecond)
		if err := d.agent.act(s.Agent); err != nil {
			d.t.Error(err)
		}
	})
}

// eventually asks until the answer is the one wanted.
func (d *dialogue) eventually(s *step) {
	deadline := time.Now().Add(time.Duration(s.EventuallyMS) * time.Millisecond)
	for !d.lost {
		got := d.ask(s)
		if matches(s.Want, got) || time.Now().After(deadline) {
			d.judge(s, got)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// near compares a number with one that was saved. A collector may still be at work.
func (d *dialogue) near(s *step) {
	const room = 4
	want := d.saved[s.Near]
	var got float64
	for range 20 {
		got, _ = d.ask(s)["fds"].(float64)
		if got <= want+room {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	d.t.Errorf("%v descriptors, %v before", got, want)
}

// ask sends the question of a step, with what it leaves out filled in.
func (d *dialogue) ask(s *step) map[string]any {
	question := d.complete(s.Ask)
	start := time.Now()
	got, err := d.driver.ask(question)
	if err != nil {
		d.lost = true
		d.t.Fatalf("%v: %v\n%s", question, err, d.driver.stderr.Bytes())
	}
	if took := time.Since(start); s.TookAtMostMS > 0 && took > time.Duration(s.TookAtMostMS)*time.Millisecond {
		d.t.Errorf("%v took %v, allowed are %d ms", question, took, s.TookAtMostMS)
	}
	d.measure(s, question, got)
	return got
}

func (d *dialogue) complete(ask map[string]any) map[string]any {
	q := maps.Clone(ask)
	setDefault(q, "client", "a")
	for name, value := range q {
		if text, ok := value.(string); ok {
			q[name] = strings.ReplaceAll(text, "{path}", d.path)
		}
	}
	switch q["do"] {
	case "open":
		d.opened(q)
	case "acquire", "peek", "refund", "reset":
		setDefault(q, "limit", "api")
		setDefault(q, "key", d.newKey())
	case "acquire_all":
		setDefault(q, "items", []any{[]any{"api", d.newKey(), 1}, []any{"login", d.newKey(), 1}})
	case "many":
		setDefault(q, "limit", "api")
		q["keys"] = numbered(q["keys"])
	}
	return q
}

func setDefault(q map[string]any, name string, value any) {
	if _, given := q[name]; !given {
		q[name] = value
	}
}

func (d *dialogue) newKey() string {
	d.keys++
	return fmt.Sprintf("k%d", d.keys)
}

// numbered makes n keys "k0", "k1", ...
func numbered(n any) []string {
	keys := make([]string, int(n.(float64)))
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i)
	}
	return keys
}

// opened completes the environment and remembers the time-out that the client will have.
func (d *dialogue) opened(q map[string]any) {
	name := q["client"].(string)
	d.timeouts[name] = defaultTimeoutMS
	env, _ := q["env"].(map[string]any)
	env = maps.Clone(env)
	for variable, value := range env {
		text, _ := value.(string)
		if value != nil {
			env[variable] = strings.ReplaceAll(text, "{path}", d.path)
		}
		if ms, err := strconv.Atoi(text); err == nil && variable == "RLSIDECAR_TIMEOUT_MS" {
			d.timeouts[name] = ms
		}
	}
	if env != nil {
		q["env"] = env
	}
	if ms, ok := q["timeout_ms"].(float64); ok {
		d.timeouts[name] = int(ms)
	}
}

// budget is how long the call may take, 0 if it is none.
func (d *dialogue) budget(q map[string]any) time.Duration {
	switch q["do"] {
	case "acquire", "peek", "refund", "reset", "acquire_all":
	default:
		return 0
	}
	ms := d.timeouts[q["client"].(string)]
	if own, ok := q["timeout_ms"].(float64); ok {
		ms = int(own)
	}
	if wait, ok := q["wait_ms"].(float64); ok {
		ms += int(wait)
	}
	return time.Duration(ms) * time.Millisecond
}

// measure holds the time that the call took against its budget.
func (d *dialogue) measure(s *step, q, got map[string]any) {
	budget := d.budget(q)
	if budget == 0 {
		return
	}
	us, ok := got["elapsed_us"].(float64)
	if !ok {
		d.t.Errorf("%v: %v has no elapsed_us", q, got)
		return
	}
	took := time.Duration(us) * time.Microsecond
	if over := took - budget; over > 0 {
		d.late = append(d.late, over)
	}
	most := budget + max(slack, budget)
	if s.AtMostMS > 0 {
		most = time.Duration(s.AtMostMS) * time.Millisecond
	}
	verdict := fmt.Sprintf("%v took %v of a budget of %v, allowed are %d ms to %v", q, took, budget, s.AtLeastMS, most)
	switch {
	case took > most:
		d.overdue = append(d.overdue, verdict)
	case took < time.Duration(s.AtLeastMS)*time.Millisecond:
		d.t.Error(verdict)
	}
}

// judge compares an answer with what was wanted of it.
func (d *dialogue) judge(s *step, got map[string]any) {
	d.t.Helper()
	if s.Want != nil && !matches(s.Want, got) {
		d.t.Errorf("%v\n got %v\nwant %v", s.Ask, got, s.Want)
	}
	if s.MessageHas != "" {
		message, _ := got["message"].(string)
		if part := strings.ReplaceAll(s.MessageHas, "{path}", d.path); !strings.Contains(message, part) {
			d.t.Errorf("%v: the message %q does not have %q", s.Ask, message, part)
		}
	}
	if s.Save != "" {
		d.saved[s.Save], _ = got["fds"].(float64)
	}
	if s.Saw != nil {
		if last := d.agent.seen().last; !matches(map[string]any(s.Saw), last) {
			d.t.Errorf("%v\nsent %v\nwant %v", s.Ask, last, s.Saw)
		}
	}
}

// close closes the clients that were opened and clears the environment.
func (d *dialogue) close() {
	env := map[string]any{}
	for _, variable := range []string{"ADDRESS", "TIMEOUT_MS", "ON_UNAVAILABLE", "DISABLE"} {
		env["RLSIDECAR_"+variable] = nil
	}
	d.ask(&step{Ask: map[string]any{"do": "open", "client": "a", "address": d.path, "env": env}})
	for name := range d.timeouts {
		d.ask(&step{Ask: map[string]any{"do": "close", "client": name}})
	}
}

func (d *dialogue) check(want *seen) {
	d.t.Helper()
	got := d.agent.seen()
	d.equal("connections", got.connections, want.Connections)
	d.equal("requests", got.requests, want.Requests)
	if want.FirstMsgIDs != nil && got.firstIDs < *want.FirstMsgIDs {
		d.t.Errorf("%d different first msgids, want at least %d", got.firstIDs, *want.FirstMsgIDs)
	}
}

func (d *dialogue) equal(what string, got int, want *int) {
	d.t.Helper()
	if want != nil && got != *want {
		d.t.Errorf("%d %s, want %d", got, what, *want)
	}
}

type sight struct {
	connections, requests, firstIDs int
	last                            map[string]any
}

func (a *fakeAgent) seen() sight {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := sight{connections: a.connections, requests: len(a.requests), firstIDs: len(a.firstIDs)}
	if len(a.requests) > 0 {
		s.last = a.requests[len(a.requests)-1].shape
	}
	return s
}
