// CL.THROTTLE as redis-cell publishes it: the numbers of its README and of its own
// tests, and many more that its algorithm, written out again here, gives. The calls
// go over a socket to a limiter whose clock only the test moves.

package server

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
	"rlsidecar/internal/limiter"
	"rlsidecar/internal/policy"
	"rlsidecar/protocol"
)

// cell is a bucket as redis-cell keeps it: one instant, in whole nanoseconds, up to
// which all that was asked for has been paid.
type cell struct{ paid time.Duration }

// throttle is what the command replies at now.
func (c *cell) throttle(now time.Duration, maxBurst, count, periodS, quantity int64) [5]int64 {
	each := time.Duration(periodS) * time.Second / time.Duration(count)
	room := each * time.Duration(maxBurst+1)
	paid := max(now, c.paid)
	reply := [5]int64{0, maxBurst + 1, 0, -1, 0}
	next := paid + each*time.Duration(quantity)
	if early := next - room - now; early > 0 {
		reply[0] = 1
		if each*time.Duration(quantity) <= room {
			reply[3] = wholeSeconds(early)
		}
	} else {
		paid = next
		c.paid = next
	}
	if free := room - (paid - now); free > -each {
		reply[2] = int64(free / each)
	}
	reply[4] = wholeSeconds(paid - now)
	return reply
}

// wholeSeconds rounds up, a begun millisecond not counting as begun: redis-cell
// since its pull request 58; before, it cut seconds off.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second >= time.Millisecond {
		s++
	}
	return s
}

// script is an authority in process: the algorithms of package bucket, without a
// network.
type script struct {
	now     func() time.Duration
	running sync.WaitGroup

	mu     sync.Mutex // guards states
	states map[string]*bucket.State
}

func (s *script) Home(_, _ string) uint16 { return 0 }
func (s *script) Reachable(uint16) bool   { return true }
func (s *script) Degraded() bool          { return false }

func (s *script) Ask(q *bucket.Question) {
	s.running.Go(func() {
		s.mu.Lock()
		name := q.Policy + ":" + q.Key
		if s.states[name] == nil {
			s.states[name] = &bucket.State{}
		}
		g := s.states[name].Apply(q.Rule, s.now().Microseconds(), &q.Ask)
		s.mu.Unlock()
		q.Answer(q, g, nil)
	})
}

// teller is a client of a limiter whose clock stands still between its calls.
type teller struct {
	*client
	shared  bool
	clock   atomic.Int64
	limiter *limiter.Limiter
	script  *script
}

func newTeller(t *testing.T, shared bool) *teller {
	t.Helper()
	config, err := policy.Parse("published.yaml", []byte("policies: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	own := &teller{shared: shared}
	own.clock.Store(int64(time.Hour))
	now := func() time.Duration { return time.Duration(own.clock.Load()) }
	own.script = &script{now: now, states: map[string]*bucket.State{}}
	o := limiter.Options{Clock: now}
	if shared {
		o.Redis = own.script
	}
	own.limiter = limiter.New(config.Policies, o)
	_, path := serve(t, own.limiter, Config{})
	own.client = dial(t, path)
	return own
}

// pass moves the clock, and has the limiter do at each time between what is due then.
func (c *teller) pass(until time.Duration) {
	for quiet := 0; quiet < 2; quiet++ {
		c.script.running.Wait()
		if next := c.limiter.Advance(c.limiter.Now()); next != 0 && next <= until {
			c.clock.Store(max(c.clock.Load(), int64(next)))
			quiet = -1
		}
	}
	c.clock.Store(int64(until))
}

func (c *teller) ask(at time.Duration, key string, maxBurst, count, periodS, quantity int64) [5]int64 {
	c.t.Helper()
	c.pass(time.Hour + at)
	c.send(request(7, "throttle", key, maxBurst, count, periodS, quantity))
	r, err := protocol.ParseResponse(c.reply())
	if err == nil && r.Err != nil {
		err = r.Err
	}
	if err != nil {
		c.t.Fatal(err)
	}
	reply, err := protocol.ParseThrottle(r.Result)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply
}

// overBoth runs a test standalone, and with an authority.
func overBoth(t *testing.T, f func(t *testing.T, c *teller)) {
	for name, shared := range map[string]bool{"standalone": false, "with an authority": true} {
		t.Run(name, func(t *testing.T) { f(t, newTeller(t, shared)) })
	}
}

type throttled struct {
	at       float64 // s
	quantity int64
	reply    [5]int64
}

func TestThrottleGivesThePublishedNumbers(t *testing.T) {
	for _, series := range []struct {
		source                   string
		maxBurst, count, periodS int64
		calls                    []throttled
	}{
		{"redis-cell, README: CL.THROTTLE user123 15 30 60 1", 15, 30, 60, []throttled{
			{0, 1, [5]int64{0, 16, 15, -1, 2}},
		}},
		{"redis-cell, issue 48: one of burst, 3 a minute", 0, 3, 60, []throttled{
			{0, 1, [5]int64{0, 1, 0, -1, 20}}, {1, 1, [5]int64{1, 1, 0, 19, 19}}, {2, 1, [5]int64{1, 1, 0, 18, 18}},
		}},
		{"Dragonfly, CL.THROTTLE USER1 0 1 10 1, less the second that its issue 8288 says is too much", 0, 1, 10, []throttled{
			{0, 1, [5]int64{0, 1, 0, -1, 10}}, {0.001, 1, [5]int64{1, 1, 0, 10, 10}},
		}},
		{"redis-cell, its test it_rate_limits, seconds rounded as its command does", 4, 1, 1, []throttled{
			{0, 6, [5]int64{1, 5, 5, -1, 0}},
			{0, 1, [5]int64{0, 5, 4, -1, 1}},
			{0, 1, [5]int64{0, 5, 3, -1, 2}},
			{0, 1, [5]int64{0, 5, 2, -1, 3}},
			{0, 1, [5]int64{0, 5, 1, -1, 4}},
			{0, 1, [5]int64{0, 5, 0, -1, 5}},
			{0, 1, [5]int64{1, 5, 0, 1, 5}},
			{3, 1, [5]int64{0, 5, 2, -1, 3}},
			{3.1, 1, [5]int64{0, 5, 1, -1, 4}},
			{4, 1, [5]int64{0, 5, 1, -1, 4}},
			{8, 1, [5]int64{0, 5, 4, -1, 1}},
			{9.5, 1, [5]int64{0, 5, 4, -1, 1}},
			{9.5, 0, [5]int64{0, 5, 4, -1, 1}},
			{9.5, 2, [5]int64{0, 5, 2, -1, 3}},
			{9.5, 5, [5]int64{1, 5, 2, 3, 3}},
		}},
	} {
		overBoth(t, func(t *testing.T, c *teller) {
			own := cell{}
			for _, call := range series.calls {
				at := time.Duration(call.at * 1e9).Round(time.Microsecond)
				if r := own.throttle(time.Hour+at, series.maxBurst, series.count, series.periodS, call.quantity); r != call.reply {
					t.Fatalf("%s: at %v the algorithm of this test gives %v for %d, published is %v", series.source, at, r, call.quantity, call.reply)
				}
				if r := c.ask(at, "k", series.maxBurst, series.count, series.periodS, call.quantity); r != call.reply {
					t.Errorf("%s: at %v, quantity %d: got %v, want %v", series.source, at, call.quantity, r, call.reply)
				}
			}
		})
	}
}

// The limits are those whose permits are whole microseconds apart: both sides then
// compute without rounding. Standalone every answer is redis-cell's. With an authority
// an agent remembers a denial for up to an eighth of a second, and knows of a lease
// what the authority does not; what it allows, redis-cell would have allowed.
func TestThrottleIsRedisCell(t *testing.T) {
	limits := [][3]int64{{0, 1, 1}, {0, 3, 60}, {4, 1, 1}, {2, 8, 1}, {5, 1, 600}, {15, 30, 60}, {9, 10, 1}, {99, 100, 60}, {49, 1000, 10}}
	overBoth(t, func(t *testing.T, c *teller) {
		for _, limit := range limits {
			t.Run(fmt.Sprint(limit), func(t *testing.T) {
				m := match{teller: c, t: t, limit: limit, rng: rand.New(rand.NewPCG(1, 2))}
				for i := 0; i < 300 && !t.Failed(); i++ {
					m.call()
				}
				if m.limited < 30 || m.allowed < 30 {
					t.Errorf("%d calls were limited and %d allowed: the test tries little", m.limited, m.allowed)
				}
			})
		}
	})
}

// match is one limit asked of redis-cell's algorithm and of the agent.
type match struct {
	*teller
	t                *testing.T
	limit            [3]int64
	rng              *rand.Rand
	own              cell
	at               time.Duration
	limited, allowed int
}

func (m *match) call() {
	burst, count, period := m.limit[0], m.limit[1], m.limit[2]
	quantity := []int64{0, 1, 1, 1, 2, 5, burst, burst + 1, burst + 2, 1 + m.rng.Int64N(burst+1)}[m.rng.IntN(10)]
	before := m.own
	want := m.own.throttle(time.Hour+m.at, burst, count, period, quantity)
	got := m.ask(m.at, fmt.Sprint(m.limit), burst, count, period, quantity)
	switch late := m.shared && got[0] == 1 && want[0] == 0; {
	case late && got[3] > 1:
		m.t.Errorf("at %v, quantity %d: got %v, want %v, or a denial of under a second", m.at, quantity, got, want)
	case late:
		m.own = before
	case m.shared && got[0] != want[0], !m.shared && got != want:
		m.t.Errorf("at %v, quantity %d: got %v, want %v", m.at, quantity, got, want)
	}
	m.limited += int(got[0])
	m.allowed += 1 - int(got[0])
	m.rest(time.Duration(period) * time.Second / time.Duration(count))
}

// rest lets time go by: none, some, or until a call could be allowed, or nearly.
func (m *match) rest(each time.Duration) {
	switch m.rng.IntN(3) {
	case 0:
		m.at += time.Duration(m.rng.Int64N(int64(3 * each))).Truncate(time.Millisecond)
	case 1:
		wait := m.own.paid - each*time.Duration(m.limit[0]) - time.Hour - m.at
		if wait = wait.Truncate(time.Millisecond); wait >= time.Millisecond {
			m.at += wait - time.Duration(m.rng.IntN(2))*time.Millisecond
		}
	}
}
