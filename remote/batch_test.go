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

	"rlsidecar/internal/bucket"
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

// sizes records the asks of each pipeline.
type sizes struct {
	mu  sync.Mutex
	all []int
}

func (s *sizes) observe(asks int, _ time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, asks)
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
	if asks, calls := r.Asks(), r.Scripts(); asks != pipelines+later || calls != pipelines+4*maxBatch/maxKeys {
		t.Errorf("%d asks in %d calls, want %d in %d", asks, calls, pipelines+later, pipelines+4*maxBatch/maxKeys)
	}
}

// A failure in the middle belongs to its question alone.
func TestReplyBelongsToItsQuestion(t *testing.T) {
	f := redistest.StartFake(t, fakeAuthority(func(key string, _ int) (string, redistest.Action) {
		permits, _ := strconv.Atoi(strings.TrimPrefix(key, "p:"))
		if permits%7 == 3 {
			return failed("WRONGTYPE of key " + key), redistest.Reply
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

// A real Redis: of three keys in one call one is a list, one is somebody's string, and
// the third gets its permit.
func TestBadKeyFailsAlone(t *testing.T) {
	server := redistest.Start(t)
	r := reached(t, server.URL(), leisure)
	for _, name := range bucket.Algorithms() {
		algorithm, _ := bucket.ParseAlgorithm(name)
		qs := three(t, algorithm)
		server.Do(t, "LPUSH", r.key(&qs[0].Question), "x")
		server.Do(t, "SET", r.key(&qs[1].Question), strings.Repeat("not a bucket", 30))
		r.send([]*bucket.Question{&qs[0].Question, &qs[1].Question, &qs[2].Question})
		for i, want := range []string{"WRONGTYPE", "FOREIGN", ""} {
			if err := fmt.Sprint(qs[i].err); want != "" && (!strings.HasPrefix(err, want) || qs[i].outcome() != "refused") {
				t.Errorf("%s: %s is %s, %v; want %s", algorithm, qs[i].Key, qs[i].outcome(), err, want)
			}
		}
		if qs[2].err != nil || qs[2].grant.Permits != 1 {
			t.Errorf("%s: %s got %+v, %v", algorithm, qs[2].Key, qs[2].grant, qs[2].err)
		}
		if !r.Reachable(0) || !strings.Contains(r.Status().Bucket, "FOREIGN") {
			t.Errorf("%s: Status is %+v", algorithm, r.Status())
		}
	}
}

// A Redis without memory refuses all keys of a call: nothing of it was written, the
// agent is told so, and each has its permit when there is room again.
func TestNoMemoryRefusesTheWholeCall(t *testing.T) {
	server := redistest.Start(t)
	r := reached(t, server.URL(), leisure)
	for _, name := range bucket.Algorithms() {
		algorithm, _ := bucket.ParseAlgorithm(name)
		qs := three(t, algorithm)
		batch := []*bucket.Question{&qs[0].Question, &qs[1].Question, &qs[2].Question}
		server.Do(t, "CONFIG", "SET", "maxmemory", "1")
		r.send(batch)
		server.Do(t, "CONFIG", "SET", "maxmemory", "0")
		for _, q := range qs {
			if q.outcome() != "refused" || !strings.Contains(q.err.Error(), "OOM") {
				t.Errorf("%s: %s is %s, %v; want OOM", algorithm, q.Key, q.outcome(), q.err)
			}
		}
		if s := r.Status(); s.State != "failing" || !strings.Contains(s.Mend, "maxmemory") {
			t.Errorf("%s: Status is %+v", algorithm, s)
		}
		r.node().reach(t.Context())
		for i := range qs {
			qs[i].done = make(chan struct{})
		}
		r.send(batch)
		for _, q := range qs {
			if q.err != nil || q.grant.Permits != 1 || q.grant.Granted != 1 {
				t.Errorf("%s: %s got %+v, %v", algorithm, q.Key, q.grant, q.err)
			}
		}
	}
}

// three are questions of one call about buckets of an algorithm.
func three(t *testing.T, a bucket.Algorithm) (qs []*asked) {
	t.Helper()
	rule, err := bucket.Rule{Algorithm: a}.With(bucket.Limit{Count: 100, Period: time.Second, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		q := question(fmt.Sprint(a, i))
		q.Rule, q.Ask.Agent, q.Ask.Seq = &rule, 1, 1
		qs = append(qs, q)
	}
	return qs
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
		n := r.node()
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.closed
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
