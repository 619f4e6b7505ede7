// Package localcache is what this host knows of its buckets: leases, remembered
// denials, demand, and the local limits used without Redis. No I/O, and the time
// is an argument: a duration on one monotonic clock.
package localcache

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"
	"unique"
	"unsafe"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	shardCount = 64
	maxSwept   = 1000 // of a shard at a time: it is locked meanwhile
)

// Key names a bucket.
type Key struct {
	Policy unique.Handle[string]
	Key    string
}

// Cache holds buckets up to a number, forgetting the least recently used.
//
// It is good for keys that come back. It is no store: what must outlive a bucket
// is handed to the evicted function.
type Cache struct {
	seed   maphash.Seed
	shards [shardCount]Shard
}

// Shard is a part of the keys under one lock.
type Shard struct {
	// Mutex guards the fields that follow and every Bucket of the shard, held by
	// it or evicted from it. It is the only lock of a decision: nothing else is
	// locked while it is held but the leaves named where they are taken.
	sync.Mutex
	lru    *simplelru.LRU[Key, *Bucket]
	most   int   // buckets
	agent  int64 // this process, as the authority of concurrency limits knows it
	counts Counts
	_      [64]byte
}

// Counts are totals since the start; Held is a level. All but the buckets are in
// permits.
type Counts struct {
	Granted, Spent, Returned, Expired uint64
	Held, Evicted                     uint64
}

// New returns a cache of at most max buckets, and at least one a shard. evicted
// is called with the shard locked for each bucket that it forgets.
func New(max int, evicted func(*Bucket)) *Cache {
	c := &Cache{seed: maphash.MakeSeed()}
	agent := 1 + rand.Int64N(1<<53-1)
	for i := range c.shards {
		s := &c.shards[i]
		s.agent, s.most = agent, (max+shardCount-1)/shardCount
		s.lru, _ = simplelru.NewLRU(s.most, func(_ Key, b *Bucket) {
			b.Evicted = true
			evicted(b)
		})
	}
	return c
}

// Shard returns the shard of a key, not locked.
func (c *Cache) Shard(key []byte) *Shard {
	return &c.shards[maphash.Bytes(c.seed, key)%shardCount]
}

// Get returns the bucket of a key, made new and marked used where there is none.
// REQUIRES: s is locked. key is copied when it is kept.
func (s *Shard) Get(policy unique.Handle[string], key []byte) *Bucket {
	if b := s.Peek(policy, key); b != nil {
		return b
	}
	b := &Bucket{Key: Key{policy, string(key)}, shard: s}
	s.spare()
	if s.lru.Add(b.Key, b) {
		s.counts.Evicted++
	}
	return b
}

// spare keeps a bucket from being forgotten while callers hold permits of it: there
// must not be two that say what this host holds. Where all are so, the cache grows.
func (s *Shard) spare() {
	for range maxSwept {
		key, oldest, ok := s.lru.GetOldest()
		if !ok || s.lru.Len() < s.most || oldest.held.inUse == 0 {
			return
		}
		s.lru.Get(key)
	}
	s.most++
	s.lru.Resize(s.most)
}

// Peek returns the bucket of a key and marks it used, or returns nil.
// REQUIRES: s is locked.
func (s *Shard) Peek(policy unique.Handle[string], key []byte) *Bucket {
	b, _ := s.lru.Get(Key{policy, unsafe.String(unsafe.SliceData(key), len(key))})
	return b
}

// Each calls f for every bucket, one shard locked at a time.
func (c *Cache) Each(f func(*Bucket)) {
	for i := range c.shards {
		s := &c.shards[i]
		s.Lock()
		for _, b := range s.lru.Values() {
			f(b)
		}
		s.Unlock()
	}
}

// Sweep forgets the least recently used buckets as far as they tell nothing that a
// new one would not: without it a cache that was once full stays so.
func (c *Cache) Sweep(now time.Duration) {
	for i := range c.shards {
		s := &c.shards[i]
		s.Lock()
		for range maxSwept {
			if _, b, ok := s.lru.GetOldest(); !ok || !b.blank(now) {
				break
			}
			s.lru.RemoveOldest()
		}
		s.Unlock()
	}
}

// Counts adds up the counts of all shards.
func (c *Cache) Counts() Counts {
	var sum Counts
	for i := range c.shards {
		s := &c.shards[i]
		s.Lock()
		sum.Granted += s.counts.Granted
		sum.Spent += s.counts.Spent
		sum.Returned += s.counts.Returned
		sum.Expired += s.counts.Expired
		sum.Evicted += s.counts.Evicted
		sum.Held += uint64(s.lru.Len())
		s.Unlock()
	}
	return sum
}
