// A cluster: which node keeps which slot, as the cluster says it, and what becomes of
// questions that were sent to the wrong one.
//
// The library's cluster client is not used. It answers a pipeline over several nodes
// when the slowest has answered, so that one hung node would make every call late; and
// it finds a key's node by asking the network where that is not known, which a caller
// who holds a lock cannot wait for.

package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slots        = 16384
	refreshEvery = 30 * time.Second       // while all is well
	refreshSoon  = 500 * time.Millisecond // while a node is lost
	refreshPause = 100 * time.Millisecond // at least, between two
)

// topology says which node keeps a bucket. It never changes once it is in use.
type topology struct {
	nodes []*node
	owner []*node // by slot; nil: there is one node for all
}

// of returns the node of a home, or nil.
func (t *topology) of(home uint16) *node {
	switch {
	case t == nil:
		return nil
	case t.owner == nil:
		return t.nodes[0]
	}
	return t.owner[home]
}

// slotOf is the hash slot of a key: CRC16 (XMODEM) of what stands in its first braces,
// as the Redis Cluster specification has it.
func slotOf(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % slots
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc & 0x8000
			crc <<= 1
			if carry != 0 {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// follow keeps the topology up to date until ctx ends: when a node says that a slot has
// moved, while one is lost, and now and then. attempted as in Run.
func (r *Redis) follow(ctx context.Context, attempted func()) {
	r.refresh(ctx)
	attempted()
	for {
		wait := refreshEvery
		if r.Degraded() {
			wait = refreshSoon
		}
		select {
		case <-ctx.Done():
			return
		case <-r.stale:
		case <-time.After(jittered(wait)):
		}
		r.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(jittered(refreshPause)):
		}
	}
}

func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.75 + 0.5*rand.Float64()))
}

// outdated has the topology be looked at again.
func (r *Redis) outdated() {
	select {
	case r.stale <- struct{}{}:
	default:
	}
}

// refresh takes over the slots as the first node that answers tells them. New masters
// are connected to, and have the scripts, before a bucket is looked for there.
func (r *Redis) refresh(ctx context.Context) {
	ranges, err := r.ranges(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.health.fail(r.classify(err))
		}
		return
	}
	t := &topology{owner: make([]*node, slots)}
	for _, of := range ranges {
		n := r.nodeAt(of.addr)
		if n == nil {
			return
		}
		if !slices.Contains(t.nodes, n) {
			n.keeps.Store(longestOf(ranges, of.addr))
			t.nodes = append(t.nodes, n)
		}
		for s := of.from; s <= of.to; s++ {
			t.owner[s] = n
		}
	}
	for _, n := range t.nodes {
		n.started(ctx)
	}
	r.topology.Store(t)
	r.health.recover()
	r.leave(t.nodes)
}

// slotRange is the slots from..to, which the master at addr keeps.
type slotRange struct {
	from, to int
	addr     string
}

// longestOf returns the longest range of the node at addr, as node.keeps has it.
func longestOf(ranges []slotRange, addr string) uint32 {
	var longest slotRange
	for _, of := range ranges {
		if of.addr == addr && (longest.addr == "" || of.to-of.from > longest.to-longest.from) {
			longest = of
		}
	}
	return uint32(longest.from)<<16 | uint32(longest.to)
}

func within(slot uint16, keeps uint32) bool {
	return slot >= uint16(keeps>>16) && slot <= uint16(keeps)
}

// ranges asks a node that answered last; if none did, all that are known and those that
// were configured, together: many may hang.
func (r *Redis) ranges(ctx context.Context) ([]slotRange, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	up, lost := r.byHealth()
	for _, n := range up {
		if all, err := rangesOf(ctx, n.addr, n.client.Load()); err == nil {
			return all, nil
		}
	}
	type view struct {
		all []slotRange
		err error
	}
	views := make(chan view, len(lost)+len(r.seeds))
	for _, n := range lost {
		go func() {
			all, err := rangesOf(ctx, n.addr, n.client.Load())
			views <- view{all, err}
		}()
	}
	for _, addr := range r.seeds {
		go func() {
			client := redis.NewClient(r.at(addr))
			client.AddHook(counting{r})
			all, err := rangesOf(ctx, addr, client)
			client.Close()
			views <- view{all, err}
		}()
	}
	var failed error
	for range cap(views) {
		v := <-views
		if v.err == nil {
			return v.all, nil
		}
		failed = v.err
	}
	return nil, failed
}

// byHealth sorts the nodes that are known by whether they answered last.
func (r *Redis) byHealth() (up, lost []*node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		if n.health.up.Load() {
			up = append(up, n)
		} else {
			lost = append(lost, n)
		}
	}
	return up, lost
}

var errNoSlots = errors.New("the cluster has given no slots to its nodes yet")

func rangesOf(ctx context.Context, asked string, client *redis.Client) ([]slotRange, error) {
	said, err := client.ClusterSlots(ctx).Result()
	if err != nil {
		return nil, err
	}
	var all []slotRange
	for _, s := range said {
		if len(s.Nodes) > 0 && s.Start >= 0 && s.Start <= s.End && s.End < slots {
			all = append(all, slotRange{s.Start, s.End, resolve(s.Nodes[0].Addr, asked)})
		}
	}
	if len(all) == 0 {
		return nil, errNoSlots
	}
	return all, nil
}

// resolve completes the address of a node, as the node at from said it: a node that
// does not know its own host leaves it out.
func resolve(addr, from string) string {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || host == "?") {
		host, _, _ = net.SplitHostPort(from)
		return net.JoinHostPort(host, port)
	}
	return addr
}

// nodeAt returns the node at addr, which it gets to know if need be; nil after Close.
func (r *Redis) nodeAt(addr string) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[addr]
	if n == nil && !r.closed {
		n = r.newNode(addr, func() *redis.Client { return redis.NewClient(r.at(addr)) })
		r.nodes[addr] = n
		r.work.Go(func() { n.run(r.life) })
	}
	return n
}

// leave forgets the nodes that keep no slots and were not heard of for a while. One
// that slots are on their way to keeps none yet.
func (r *Redis) leave(kept []*node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for addr, n := range r.nodes {
		if !slices.Contains(kept, n) && time.Now().UnixNano()-n.heard.Load() > int64(refreshEvery) {
			delete(r.nodes, addr)
			r.work.Go(n.close)
		}
	}
}

// redirected tells where the node at from sends those who ask for a slot it does not
// keep: for good (MOVED), or for this one time (ASK, while the slot is on its way).
func redirected(err error, from string) (addr string, once, is bool) {
	word, rest, _ := strings.Cut(err.Error(), " ")
	if word != "MOVED" && word != "ASK" {
		return "", false, false
	}
	_, addr, _ = strings.Cut(rest, " ")
	return resolve(addr, from), word == "ASK", addr != ""
}
