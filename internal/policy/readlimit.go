// The limits of a policy or an override, as its algorithm has them.

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rlsidecar/internal/bucket"
)

const defaultHold = time.Minute // of a concurrency policy without max_hold

// shape is what a rule is made of, in a policy or an override.
type shape struct {
	owner, in    *node // the name it belongs to, and the mapping
	limit, burst *node
	rule         bucket.Rule   // the algorithm and its settings, no limits yet
	hold         time.Duration // max_hold
	leased       bool
}

// rule returns the rule of s, its limits sorted by period, or the zero Rule when
// something is wrong with it.
func (c *checker) rule(s shape) bucket.Rule {
	if s.limit == nil && has(s.in, "limit") {
		return bucket.Rule{} // empty: said already
	}
	if s.limit == nil {
		c.fail(s.owner, "%s has no limit: add limit: %s", quote(s.owner.text), s.example())
		return bucket.Rule{}
	}
	before := c.failures()
	limits := c.limits(s)
	c.bursts(s, limits)
	if c.failures() > before {
		return bucket.Rule{}
	}
	for _, l := range limits {
		c.warnShort(s, l)
	}
	slices.SortFunc(limits, func(a, b bucket.Limit) int {
		return cmp.Or(cmp.Compare(a.Period, b.Period), cmp.Compare(a.Count, b.Count))
	})
	rule, err := s.rule.With(limits...)
	if err != nil {
		c.fail(s.limit, "limit: %v", err)
	}
	return rule
}

func (s *shape) concurrency() bool { return s.rule.Algorithm == bucket.Concurrency }

func (s *shape) example() string {
	return either(s.concurrency(), "N, such as 3", "N/period, such as 5/second")
}

func (c *checker) limits(s shape) []bucket.Limit {
	n := s.limit
	if n.kind != kindList || s.concurrency() {
		return []bucket.Limit{c.limit(s, n)}
	}
	if len(n.items) < 1 || len(n.items) > bucket.MaxLimits {
		c.fail(n, "limit is a list of %d: allowed are 1 to %d", len(n.items), bucket.MaxLimits)
		return nil
	}
	limits := make([]bucket.Limit, len(n.items))
	for i, item := range n.items {
		l := c.limit(s, item)
		twin := slices.IndexFunc(limits[:i], func(o bucket.Limit) bool { return l.Period > 0 && o.Period == l.Period })
		if limits[i] = l; twin >= 0 {
			stricter := limits[twin]
			if l.Count < stricter.Count {
				stricter = l
			}
			c.fail(item, "limit %s: there is one of the same period already: keep only the stricter, %s", item.show(), showLimit(stricter))
		}
	}
	return limits
}

func (c *checker) limit(s shape, n *node) bucket.Limit {
	read := parseLimit
	switch {
	case s.concurrency():
		read = s.held
	case s.rule.Algorithm == bucket.SlidingLog:
		read = logged
	}
	if !n.scalar() {
		c.fail(n, "limit must be %s, not %s", s.example(), n.kind)
		return bucket.Limit{}
	}
	l, err := read(n.text)
	if err != nil {
		c.fail(n, "limit %s: %v", n.show(), err)
	}
	return l
}

// held reads the limit of a concurrency policy: how many may be held at once.
func (s *shape) held(text string) (bucket.Limit, error) {
	n, ok := parseCount(text)
	switch {
	case strings.Contains(text, "/"):
		return bucket.Limit{}, errors.New("concurrency has no period: write how many may be held at once, such as 3 (max_hold says how long)")
	case !ok || n < 1 || n > bucket.MaxCount:
		return bucket.Limit{}, fmt.Errorf("allowed are whole numbers 1 to %d, how many may be held at once", bucket.MaxCount)
	}
	return bucket.Limit{Count: n, Period: s.hold, Burst: n}, nil
}

// logged reads the limit of a sliding_log.
func logged(text string) (bucket.Limit, error) {
	l, err := parseLimit(text)
	if err == nil && l.Count > bucket.MaxLogged {
		err = fmt.Errorf("a sliding_log allows up to %d, since it remembers each: write algorithm: sliding_window", bucket.MaxLogged)
	}
	return l, err
}

// bursts sets the burst of each limit when the file gives them.
func (c *checker) bursts(s shape, limits []bucket.Limit) {
	n := s.burst
	switch {
	case n == nil:
	case !s.rule.Algorithm.Bursts():
		c.fail(n, "burst is only for %s and %s, not %s: remove it", bucket.TokenBucket, bucket.LeakyBucket, s.rule.Algorithm)
	case s.limit.kind != kindList && n.kind == kindList:
		c.fail(n, "burst is a list, but limit is not: write one number")
	case s.limit.kind != kindList:
		c.burst(n, limits[:1])
	case n.kind != kindList || len(n.items) != len(s.limit.items):
		c.fail(n, "burst must be a list as long as limit (%d), or be left out", len(s.limit.items))
	default:
		for i := range limits {
			c.burst(n.items[i], limits[i:i+1])
		}
	}
}

func (c *checker) burst(n *node, of []bucket.Limit) {
	if v, ok := c.integer("burst", n, 1, bucket.MaxCount); ok {
		of[0].Burst = v
	}
}

// warnShort points out a bucket that fills so fast that permits are used up
// before a lease of them could pay.
func (c *checker) warnShort(s shape, l bucket.Limit) {
	fill := time.Duration(float64(l.Burst) * float64(l.Period) / float64(l.Count))
	switch {
	case !s.leased || !c.shared || fill >= 10*time.Millisecond:
	case s.rule.Algorithm.Bursts():
		c.warn(s.limit, "limit %s with burst %d fills in %v, below 10ms: every call asks Redis; raise burst to %d or more to answer from memory",
			showLimit(l), l.Burst, fill, burstOf(l, 20*time.Millisecond))
	default:
		c.warn(s.limit, "limit %s has a period below 10ms: every call asks Redis; write %d/20ms to answer from memory", showLimit(l), burstOf(l, 20*time.Millisecond))
	}
}

// burstOf returns the burst that takes d to fill.
func burstOf(l bucket.Limit, d time.Duration) int64 {
	return max(1, int64(float64(l.Count)*float64(d)/float64(l.Period)+0.999))
}
