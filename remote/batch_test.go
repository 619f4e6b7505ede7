// Batching: few pipelines however many ask, each reply to its question, a pool that
// is warm before the first call, and an orderly end.

package remote

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rlsidecar/internal/redistest"
)

// gate holds asks back until it is opened.
type gate struct {
	held, most atomic.Int64
	open       chan struct{}
	once       sync.Once
}

// startGated runs a fake whose asks a gate holds back. The gate opens before the
// fake ends, which waits for what it holds.
func startGated(t *testing.T) (*gate, *redistest.Fake) {
	t.Helper()
	g := &gate{open: make(chan struct{})}
	f := redistest.StartFake(t, fakeAuthority(g.answer))
	t.Cleanup(g.release)
	return g, f
}

// fill has each pipeline hold one question.
func (g *gate) fill(t *testing.T, r *Redis) []*asked {
	t.Helper()
	var qs []*asked
	for i := range pipelines {
		qs = append(qs, askMany(r, i, i+1)...)
		await(t, leisure, "one more pipeline in flight", func() bool { return g.held.Load() == int64(i+1) })
	}
	return qs
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// answer holds an ask, and then grants as many permits as the key is numbered.
func (g *gate) answer(key string, _ int) (string, redistest.Action) {
	n := g.held.Add(1)
	for was := g.most.Load(); n > was && !g.most.CompareAndSwap(was, n); was = g.most.Load() {
	}
	<-g.open
	g.held.Add(-1)
	permits, _ := strconv.Atoi(strings.TrimPrefix(key, "p:"))
	return granted(int64(permits)), redistest.Reply
}

// sizes records the scripts of each pipeline.
type sizes struct {
	mu  sync.Mutex
	all []int
}

func (s *sizes) observe(scripts int, _ time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, scripts)
}

func (s *sizes) sorted() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.all)
	slices.Sort(out)
	return out
}

func askMany(r *Redis, from, to int) []*asked {
	var qs []*asked
	for i := from; i < to; i++ {
		q := question(strconv.Itoa(i))
		qs = append(qs, q)
		r.Ask(&q.Question)
	}
	return qs
}

func TestManyAsksFewPipelines(t *testing.T) {
	s := &sizes{}
	g, f := startGated(t)
	r := reached(t, f.URL(), leisure)
	r.o.Observe = s.observe
	qs := g.fill(t, r)
	const later = 3*maxBatch + 50
	qs = append(qs, askMany(r, pipelines, pipelines+later)...)
	if n := g.most.Load(); n != pipelines {
		t.Errorf("%d pipelines in flight, want %d", n, pipelines)
	}
	g.release()
	for i, q := range qs {
		q.wait(t)
		if q.err != nil || q.grant.Permits != int64(i) {
			t.Fatalf("question %d got %d permits, %v", i, q.grant.Permits, q.err)
		}
	}
	if n := g.most.Load(); n != pipelines {
		t.Errorf("%d pipelines in flight at most, want %d", n, pipelines)
	}
	want := fmt.Sprint(append(slices.Repeat([]int{1}, pipelines), 50, maxBatch, maxBatch, maxBatch))
	await(t, leisure, "pipelines of "+want, func() bool { return fmt.Sprint(s.sorted()) == want })
	if got := r.Scripts(); got != pipelines+later {
		t.Errorf("Scripts is %d, want %d", got, pipelines+later)
	}
}

// A failure in the middle belongs to its question alone.
func TestReplyBelongsToItsQuestion(t *testing.T) {
	f := redistest.StartFake(t, fakeAuthority(func(key string, _ int) (string, redistest.Action) {
		permits, _ := strconv.Atoi(strings.TrimPrefix(key, "p:"))
		if permits%7 == 3 {
			return says("WRONGTYPE of key " + key)
		}
		return granted(int64(permits)), redistest.Reply
	}))
	r := reached(t, f.URL(), leisure)
	for i, q := range askMany(r, 0, 1000) {
		q.wait(t)
		if i%7 == 3 {
			if q.outcome() != "refused" || !strings.Contains(q.err.Error(), "p:"+q.Key) {
				t.Errorf("question %d: %s, %v", i, q.outcome(), q.err)
			}
		} else if q.err != nil || q.grant.Permits != int64(i) {
			t.Errorf("question %d got %d permits, %v", i, q.grant.Permits, q.err)
		}
	}
}

// Connections are made, and greeted, before Redis counts as reachable: no call pays
// for a handshake, however many pipelines the first calls need.
func TestPoolIsWarm(t *testing.T) {
	for range 20 { // a pool that is warm by luck is cold some of the times
		g, f := startGated(t)
		r := reached(t, f.URL(), leisure)
		accepted, greeted := f.Accepted(), f.Count("hello")
		if accepted < pipelines || greeted < pipelines {
			t.Fatalf("%d connections, %d greetings before the first ask, want %d", accepted, greeted, pipelines)
		}
		qs := g.fill(t, r)
		if f.Accepted() != accepted || f.Count("hello") != greeted {
			t.Fatalf("the first asks made %d connections and %d greetings", f.Accepted()-accepted, f.Count("hello")-greeted)
		}
		g.release()
		for _, q := range qs {
			q.wait(t)
		}
	}
}

func TestCloseWaitsForWhatIsInFlight(t *testing.T) {
	g, f := startGated(t)
	r := reached(t, f.URL(), leisure)
	qs := append(g.fill(t, r), askMany(r, pipelines, 200)...)
	closed := make(chan error)
	go func() { closed <- r.Close() }()
	await(t, leisure, "later asks are refused", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.closed
	})
	late := question("late")
	r.Ask(&late.Question)
	late.wait(t)
	if got := late.outcome(); got != "refused" {
		t.Errorf("an ask after Close: %s", got)
	}
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v with %d pipelines in flight", err, g.held.Load())
	default:
	}
	g.release()
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, q := range qs {
		q.wait(t)
		if q.err != nil {
			t.Errorf("question %s: %v", q.Key, q.err)
		}
	}
}
