// Health: whether Redis can be asked, why not, and what to mend. Faults that pass
// by themselves are told from those that somebody must mend: the calls are
// answered the same way, but a misconfiguration never looks like an outage.

package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

type faultKind uint8

const (
	transient faultKind = iota
	permanent
	ofBucket     // of one key alone
	ofConnection // of one connection among others that work
)

// fault is what an error says of Redis.
type fault struct {
	kind   faultKind
	lost   bool // the script may have run
	silent bool // nothing was heard: it may be this host or one connection
	reason string
	mend   string
}

// Status is the health of Redis, for people. With several nodes, it is that of the one
// that fares worst.
type Status struct {
	Node    string        // its address, or the name of the sentinels' master
	State   string        // "starting", "ok", "degraded" (passes by itself), "failing" (somebody must mend it)
	Reason  string        // "" when ok
	Mend    string        // what to do, when failing
	For     time.Duration // in this state
	Bucket  string        // the last fault of a single key, if any
	Warning string        // of what may go wrong though all is well; "": nothing known
}

type health struct {
	up   atomic.Bool
	lost chan struct{} // capacity 1: up became false
	log  *slog.Logger

	// mu guards the fields that follow. It is a leaf.
	mu         sync.Mutex
	state      string
	fault      fault
	since      time.Time
	bucket     string
	bucketSaid time.Time
	warning    string
}

func (h *health) init(log *slog.Logger) {
	h.lost = make(chan struct{}, 1)
	h.log, h.state, h.since = log, "starting", time.Now()
}

// fail takes in that Redis cannot be used. It is logged when that is news.
func (h *health) fail(f fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state := "degraded"
	if f.kind == permanent {
		state = "failing"
	}
	if h.state != state || h.state == "failing" && h.fault.reason != f.reason {
		if state == "failing" {
			h.log.Error("Redis refuses to work: answering from local limits", "reason", f.reason, "mend", f.mend)
		} else {
			h.log.Warn("Redis cannot be reached: answering from local limits", "reason", f.reason)
		}
		h.state, h.since = state, time.Now()
	}
	h.fault = f
	if h.up.Swap(false) {
		select {
		case h.lost <- struct{}{}:
		default:
		}
	}
}

func (h *health) recover() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.lost:
	default:
	}
	if h.state != "ok" {
		h.log.Info("Redis answers: leasing from it", "after", time.Since(h.since).Round(time.Millisecond))
	}
	h.state, h.fault, h.since = "ok", fault{}, time.Now()
	h.up.Store(true)
}

// bucketFault takes in that one key cannot be used. It is logged once a minute.
func (h *health) bucketFault(key string, f fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bucket = fmt.Sprintf("%.200q: %s; %s", key, f.reason, f.mend)
	if time.Since(h.bucketSaid) > time.Minute {
		h.bucketSaid = time.Now()
		h.log.Error("Redis refuses one bucket: answering it from its local limit", "key", fmt.Sprintf("%.200q", key), "reason", f.reason, "mend", f.mend)
	}
}

// warn takes in what may go wrong. It is logged when that is news.
func (h *health) warn(warning string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if warning != "" && warning != h.warning {
		h.log.Warn(warning)
	}
	h.warning = warning
}

func (h *health) status(node string) Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Status{Node: node, State: h.state, Reason: h.fault.reason, Mend: h.fault.mend, For: time.Since(h.since), Bucket: h.bucket, Warning: h.warning}
}

// Nodes returns the health of each node that keeps buckets, by address.
func (r *Redis) Nodes() (all []Status) {
	if t := r.topology.Load(); t != nil {
		for _, n := range t.nodes {
			all = append(all, n.health.status(n.addr))
		}
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// Node returns the health of the node that keeps home. The zero Status: none does.
func (r *Redis) Node(home uint16) Status {
	if n := r.topology.Load().of(home); n != nil {
		return n.health.status(n.addr)
	}
	return Status{}
}

// states from the best to the worst.
var states = []string{"ok", "starting", "degraded", "failing"}

// Status returns the health of Redis.
func (r *Redis) Status() Status {
	var worst Status
	all := r.Nodes()
	if r.clustered() {
		all = append(all, r.health.status(""))
	}
	for _, s := range all {
		if worst.State == "" || slices.Index(states, s.State) > slices.Index(states, worst.State) {
			s.Bucket, s.Warning = cmp.Or(s.Bucket, worst.Bucket), cmp.Or(s.Warning, worst.Warning)
			worst = s
		}
	}
	if r.clustered() && worst.Node != "" && worst.Reason != "" {
		worst.Reason = "node " + worst.Node + ": " + worst.Reason
	}
	return worst
}

// warnOfEviction looks whether Redis may forget buckets to save memory, if the agent
// may ask that.
func (n *node) warnOfEviction(ctx context.Context) {
	info, err := n.client.Load().Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	limit, eviction := infoField(info, "maxmemory"), infoField(info, "maxmemory_policy")
	if limit == "" || limit == "0" || eviction == "noeviction" {
		n.health.warn("")
		return
	}
	n.health.warn("Redis may forget buckets when its memory is full, and then they are full again: its maxmemory-policy is " + eviction + ", noeviction is safe")
}

func infoField(info, name string) string {
	_, rest, _ := strings.Cut("\r\n"+info, "\r\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// classify judges an error of go-redis.
func (r *Redis) classify(err error) fault { return classify(err, r.o.Prefix, r.clustered()) }

func classify(err error, prefix string, cluster bool) fault {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return withoutReply(err)
	}
	fill := strings.NewReplacer("PREFIX", prefix, " OTHERS", "")
	if cluster {
		fill = strings.NewReplacer("PREFIX", prefix, "OTHERS", "+cluster|slots +asking")
	}
	text := ofScript(strings.TrimPrefix(reply.Error(), "-"))
	for _, known := range replies {
		if strings.HasPrefix(text, known.prefix) {
			return fault{kind: known.kind, reason: firstLine(text), mend: fill.Replace(known.mend)}
		}
	}
	return fault{kind: permanent, reason: firstLine(text), mend: "the lease script failed: see docs/operations.md, or report it"}
}

// ofScript takes off what Redis before 7 puts before an error raised in a script:
// "ERR Error running script (call to f_SHA): @user_script:9: @user_script: 9: -", and
// what is left of it for the error of a single key: "@user_script: 9: -".
func ofScript(text string) string {
	if !strings.HasPrefix(text, "ERR Error running script") && !strings.HasPrefix(text, "@user_script:") {
		return text
	}
	_, place, found := strings.Cut(text, "@user_script:")
	for found {
		_, text, _ = strings.Cut(place, ": ")
		place, found = strings.CutPrefix(text, "@user_script:")
	}
	return strings.TrimPrefix(text, "-")
}

const rights = "the user lacks rights: ACL SETUSER name ~{PREFIX:* +evalsha +script|load +get +set +getrange +setrange +strlen +pexpire +time +ping +hello +select OTHERS"

const notSingle = "this Redis is a cluster: set redis.mode: cluster"

var replies = []struct {
	prefix string
	kind   faultKind
	mend   string
}{
	{"LOADING", transient, ""}, {"CLUSTERDOWN", transient, ""}, {"MASTERDOWN", transient, ""},
	{"TRYAGAIN", transient, ""}, {"READONLY", transient, ""}, {"BUSY", transient, ""},
	{"ERR max number of clients", transient, ""}, {"NOREPLICAS", transient, ""}, {"NOSCRIPT", transient, ""},
	{"NOAUTH", permanent, "Redis wants a password: set redis.password_file, or put it in redis.url"},
	{"WRONGPASS", permanent, "the user or password is wrong: mend redis.username and redis.password_file, or redis.url"},
	{"ERR AUTH", permanent, "Redis has no password set: take it out of redis.url and redis.password_file"},
	{"ERR invalid password", permanent, "the password is wrong: mend redis.password_file or redis.url"},
	{"NOPERM", permanent, rights},
	{"ERR The user executing the script", permanent, rights}, // Redis 7.0
	{"The user executing the script", permanent, rights},     // before
	{"ERR ACL failure in script", permanent, rights},         // from 7.4 on
	{"OOM", permanent, "Redis is out of memory: raise its maxmemory, or give the limiter a Redis of its own"},
	{"MISCONF", permanent, "Redis cannot write its disk and refuses writes: see its log"},
	{"MOVED", permanent, notSingle}, {"ASK ", permanent, notSingle}, {"CROSSSLOT", permanent, notSingle},
	{"ERR This instance has cluster support disabled", permanent, "this Redis is no cluster: take redis.mode out, or name the cluster's nodes"},
	{"ERR SELECT is not allowed in cluster mode", permanent, "a cluster has database 0 only: take the number out"},
	{"redis: nil", permanent, "the sentinels know no master of that name: mend redis.master"},
	{"ERR DB index", permanent, "redis.url names a database that Redis does not have"},
	{"WRONGTYPE", ofBucket, "another application uses the key: delete it, or choose another redis.key_prefix"},
	{"FOREIGN", ofBucket, "another application or version uses the key: delete it, or choose another redis.key_prefix"},
}

// withoutReply judges an error that is no reply of Redis. Only what failed before
// a byte was sent is sure not to have run.
func withoutReply(err error) fault {
	f := fault{kind: transient, lost: true, silent: true, reason: firstLine(err.Error())}
	var (
		op   *net.OpError
		late net.Error
	)
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		f.lost, f.silent = false, op.Timeout()
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		f.lost = false
	case errors.As(err, &late) && late.Timeout():
		f.reason = "no answer in time"
	case errors.Is(err, io.EOF):
		f.reason = "the connection was closed"
	}
	return f
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
