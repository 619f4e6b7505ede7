// node is one Redis server, as the agent uses it: what waits to be sent there, the
// pipelines in flight, and whether it answers.

package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"rlsidecar/internal/bucket"
)

type node struct {
	r         *Redis
	addr      string
	connect   func() *redis.Client
	client    atomic.Pointer[redis.Client]
	health    health
	heard     atomic.Int64  // Unix ns when it last answered a script
	keeps     atomic.Uint32 // the most slots in a row that it keeps in a cluster, first and last: 16 bits each
	attempted chan struct{} // closed after the first try to reach it
	gone      chan struct{} // closed by close
	work      sync.WaitGroup
	worn      bool // the client was in use when the node was lost; of run alone

	// mu guards the fields that follow. It is a leaf: push is called with a shard
	// locked.
	mu      sync.Mutex
	pending []*bucket.Question
	busy    int // pipelines in flight
	closed  bool
}

func (r *Redis) newNode(addr string, connect func() *redis.Client) *node {
	n := &node{r: r, addr: addr, connect: connect, attempted: make(chan struct{}), gone: make(chan struct{})}
	log := r.o.Log
	if r.clustered() {
		log = log.With("node", addr)
	}
	n.health.init(log)
	n.renew()
	return n
}

// push has q sent. It is false when that makes no sense now.
func (n *node) push(q *bucket.Question) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || !n.health.up.Load() {
		return false
	}
	n.pending = append(n.pending, q)
	if n.busy < pipelines {
		n.busy++
		n.work.Go(n.drain)
	}
	return true
}

// drain sends pipelines until nothing is pending.
func (n *node) drain() {
	for batch := n.take(); batch != nil; batch = n.take() {
		if !n.health.up.Load() {
			for _, q := range batch {
				q.Answer(q, bucket.Grant{}, errAway)
			}
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), n.r.o.Timeout)
		n.send(ctx, batch, false, resends)
		cancel()
	}
}

func (n *node) take() []*bucket.Question {
	n.mu.Lock()
	defer n.mu.Unlock()
	size := min(len(n.pending), maxBatch)
	if size == 0 {
		n.busy--
		return nil
	}
	batch := n.pending[:size:size]
	n.pending = n.pending[size:]
	if len(n.pending) == 0 {
		n.pending = nil
	}
	return batch
}

// send asks a batch, and again what did not run: where the script was missing, once it
// is loaded; where the slot is another node's, there. Somebody may flush the scripts
// meanwhile, or move slots, but not for ever: it is tried again so many times.
func (n *node) send(ctx context.Context, batch []*bucket.Question, asking bool, again int) {
	missing, elsewhere := n.exec(ctx, batch, asking, again > 0)
	if len(missing) > 0 {
		if err := n.load(ctx, scriptsOf(missing)); err != nil {
			n.didNotRun(missing, err)
		} else {
			n.send(ctx, missing, asking, again-1)
		}
	}
	for to, moved := range elsewhere {
		if !to.once {
			n.r.outdated()
		}
		if other := n.r.nodeAt(to.addr); other != nil {
			other.send(ctx, moved, to.once, again-1)
		} else {
			n.didNotRun(moved, errAway)
		}
	}
}

// didNotRun answers questions that cannot be asked because of err.
func (n *node) didNotRun(batch []*bucket.Question, err error) {
	f := n.r.classify(err)
	f.lost = false
	for _, q := range batch {
		n.refuse(q, err, f)
	}
}

// place is where a node sends those who ask for a slot that it does not keep.
type place struct {
	addr string
	once bool
}

// exec runs one pipeline and answers its questions, but for those that did not run and
// may be sent again.
func (n *node) exec(ctx context.Context, batch []*bucket.Question, asking, again bool) (missing []*bucket.Question, elsewhere map[place][]*bucket.Question) {
	pipe := n.client.Load().Pipeline()
	calls := n.r.calls(ctx, batch)
	for _, c := range calls {
		if asking {
			pipe.Do(ctx, "asking")
		}
		_ = pipe.Process(ctx, c.once)
	}
	started := time.Now()
	_, _ = pipe.Exec(ctx) // each command has its own error
	took := time.Since(started)
	n.r.scripts.Add(uint64(len(calls)))
	n.r.asks.Add(uint64(len(batch)))
	if n.r.o.Observe != nil {
		n.r.o.Observe(len(batch), took)
	}
	for _, c := range calls {
		replies, err := c.once.Slice()
		if err == nil {
			n.answer(c, replies)
			continue
		}
		addr, once, moved := redirected(err, n.addr)
		moved = moved && n.r.clustered()
		switch {
		case again && redis.HasErrorPrefix(err, "NOSCRIPT"):
			missing = append(missing, c.questions...)
		case again && moved:
			if elsewhere == nil {
				elsewhere = map[place][]*bucket.Question{}
			}
			to := place{addr, once}
			elsewhere[to] = append(elsewhere[to], c.questions...)
		default:
			n.failed(c, err)
		}
	}
	return missing, elsewhere
}

// answer gives each question of a call its part of the reply: a grant, or an error.
func (n *node) answer(c *call, replies []any) {
	if len(replies) != len(c.questions) {
		n.failed(c, fmt.Errorf("the script answered %d asks of %d", len(replies), len(c.questions)))
		return
	}
	n.heard.Store(time.Now().UnixNano())
	for i, q := range c.questions {
		if failure := keyError(replies[i]); failure != nil {
			n.refuse(q, failure, n.r.classify(failure))
			continue
		}
		reply, _ := replies[i].(string) // of another type, it has no length that is right
		n.grant(q, reply)
	}
}

// failed answers the questions of a call that brought only err.
func (n *node) failed(c *call, err error) {
	f := n.judge(err)
	for _, q := range c.questions {
		n.refuse(q, err, f)
	}
}

// judge is classify for a pipeline. One that fails while others are answered says
// nothing of Redis: its connection was cut, or this host was too busy to read the
// reply in time. Redis is given up when it has been silent for longer.
func (n *node) judge(err error) fault {
	f := n.r.classify(err)
	if f.silent && time.Now().UnixNano()-n.heard.Load() < int64(silence*n.r.o.Timeout) {
		f.kind = ofConnection
	}
	return f
}

func (n *node) grant(q *bucket.Question, reply string) {
	g, err := parseGrant(reply, q.Rule)
	if err != nil {
		n.fail(fault{kind: permanent, reason: err.Error(), mend: "another version of the agent may use this key prefix"})
		q.Answer(q, bucket.Grant{}, fmt.Errorf("%w: %w", err, bucket.ErrLost))
		return
	}
	q.Answer(q, g, nil)
}

// refuse answers q with err, and takes in what it says of Redis.
func (n *node) refuse(q *bucket.Question, err error, f fault) {
	switch f.kind {
	case ofBucket:
		n.health.bucketFault(n.r.key(q), f)
	case transient, permanent:
		n.fail(f)
	}
	outcome := bucket.ErrRefused
	if f.lost {
		outcome = bucket.ErrLost
	}
	q.Answer(q, bucket.Grant{}, fmt.Errorf("%w: %w", err, outcome))
}

func (n *node) fail(f fault) {
	n.health.fail(f)
	n.r.outdated()
}

// call is one script call, with the questions that it asks.
type call struct {
	once
	sha       string
	questions []*bucket.Question
}

// calls sorts a batch into script calls.
func (r *Redis) calls(ctx context.Context, batch []*bucket.Question) (all []*call) {
	for _, q := range batch {
		sha := scriptOf(q.Rule.Algorithm).sha
		i := slices.IndexFunc(all, func(c *call) bool { return c.sha == sha && len(c.questions) < r.keys })
		if i < 0 {
			i = len(all)
			all = append(all, &call{sha: sha})
		}
		all[i].questions = append(all[i].questions, q)
	}
	for _, c := range all {
		c.once = r.command(ctx, c.questions)
	}
	return all
}

// once is a command that go-redis never sends twice. It takes a whole pipeline
// with it. (MaxRetries alone does not hold on a cluster; go-redis asks each command
// for this method.)
type once struct{ *redis.Cmd }

// NoRetry tells go-redis that the command must not be repeated.
func (once) NoRetry() bool { return true }

// command is the script call that asks all questions, which are of one script.
func (r *Redis) command(ctx context.Context, questions []*bucket.Question) once {
	args := make([]any, 0, 3+2*len(questions))
	args = append(args, "evalsha", scriptOf(questions[0].Rule.Algorithm).sha, len(questions))
	for _, q := range questions {
		args = append(args, r.key(q))
	}
	for _, q := range questions {
		args = append(args, AppendAsk(nil, q.Rule, &q.Ask))
	}
	c := redis.NewCmd(ctx, args...)
	c.SetFirstKeyPos(3)
	return once{c}
}

// scriptsOf returns the scripts of a batch, each once.
func scriptsOf(batch []*bucket.Question) (all []*script) {
	for _, q := range batch {
		if s := scriptOf(q.Rule.Algorithm); !slices.ContainsFunc(all, func(o *script) bool { return o.sha == s.sha }) {
			all = append(all, s)
		}
	}
	return all
}

// load has the node keep scripts. Where SCRIPT is not allowed, they are run without
// any bucket: that does nothing, and Redis keeps what it has run.
func (n *node) load(ctx context.Context, scripts []*script) error {
	client := n.client.Load()
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, s := range scripts {
			p.ScriptLoad(ctx, s.text)
		}
		return nil
	})
	if !redis.HasErrorPrefix(err, "NOPERM") && !redis.HasErrorPrefix(err, "ERR unknown command") {
		return err
	}
	_, refused := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, s := range scripts {
			p.Eval(ctx, s.text, nil)
		}
		return nil
	})
	if refused != nil {
		return err
	}
	return nil
}

// run reaches for the node, and again whenever it is lost, until ctx or the node ends.
func (n *node) run(ctx context.Context) {
	defer n.closeLast()
	n.reach(ctx)
	close(n.attempted)
	for wait := firstProbe; ; wait = probeEvery {
		if n.health.up.Load() {
			if !n.idle(ctx, n.health.lost, nil) {
				return
			}
			wait, n.worn = firstProbe, true
		}
		if !n.idle(ctx, nil, time.After(jittered(wait))) {
			return
		}
		n.reach(ctx)
	}
}

// closeLast closes the client that a try under way made after close had closed its own.
func (n *node) closeLast() {
	select {
	case <-n.gone:
		n.client.Load().Close()
	default:
	}
}

// idle waits for either, and is false when the node is not needed any more.
func (n *node) idle(ctx context.Context, lost <-chan struct{}, due <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-n.gone:
		return false
	case <-lost:
	case <-due:
	}
	return true
}

// started waits until the node has been tried once.
func (n *node) started(ctx context.Context) {
	select {
	case <-n.attempted:
	case <-n.gone:
	case <-ctx.Done():
	}
}

// reach connects, loads the scripts, and marks the node reachable if a whole ask on a
// key of its own is answered within the time a call has.
func (n *node) reach(ctx context.Context) {
	err := n.knock(ctx)
	if err == nil {
		err = n.warm(ctx)
	}
	if err != nil {
		n.unreached(ctx, err)
		return
	}
	q := n.probe()
	ctx, cancel := context.WithTimeout(ctx, n.r.o.Timeout)
	defer cancel()
	probe := n.r.command(ctx, []*bucket.Question{q})
	err = n.client.Load().Process(ctx, probe)
	if replies, _ := probe.Slice(); err == nil && len(replies) == 1 {
		err = keyError(replies[0])
	}
	if err != nil {
		if _, _, moved := redirected(err, n.addr); !moved || !n.r.clustered() {
			n.unreached(ctx, err)
			return
		}
		n.r.outdated()
	}
	n.health.recover()
}

func (n *node) unreached(ctx context.Context, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		n.fail(n.r.classify(err))
	}
}

// knock looks whether somebody answers, be it that we are not let in, and has a new
// client for the node if it was lost: go-redis counts the connections that could not be
// made, over the life of a client, and from the fifth on tries only once a second.
func (n *node) knock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(patience, max(knockTime, 5*n.r.o.Timeout)))
	defer cancel()
	o := n.client.Load().Options()
	n.r.dials.Add(1)
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return err
	}
	if n.worn {
		n.renew()
		n.worn = false
	}
	return nil
}

// renew has a new client for the node, and closes the one it had.
func (n *node) renew() {
	client := n.connect()
	client.AddHook(counting{n.r})
	if old := n.client.Swap(client); old != nil {
		old.Close()
	}
}

// probe is a question about a bucket that nobody uses, and that this node keeps.
func (n *node) probe() *bucket.Question {
	rule, _ := bucket.NewRule(bucket.Limit{Count: 1, Period: time.Second, Burst: 1})
	q := &bucket.Question{Policy: "~probe", Rule: &rule}
	if keeps := n.keeps.Load(); n.r.clustered() {
		for i := 0; !within(slotOf(n.r.key(q)), keeps); i++ {
			q.Key = strconv.Itoa(i)
		}
	}
	return q
}

// warm opens all connections and loads the scripts, with more time than a call
// has: a handshake must not eat a call's budget.
func (n *node) warm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := n.load(ctx, distinct); err != nil {
		return err
	}
	n.warnOfEviction(ctx)
	errs := make(chan error, pipelines)
	for range pipelines {
		conn := n.client.Load().Conn()
		defer conn.Close() // not before all have answered: each is to be another
		go func() { errs <- conn.Ping(ctx).Err() }()
	}
	var all error
	for range pipelines {
		all = errors.Join(all, <-errs)
	}
	return all
}

// close waits for what is in flight, not for ever, and closes the connections.
func (n *node) close() {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.closed = true
	n.mu.Unlock()
	close(n.gone)
	ended := make(chan struct{})
	go func() {
		n.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience): // redis.timeout may be long: break the connections
	}
	n.client.Load().Close()
	<-ended
}
