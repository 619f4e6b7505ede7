// The policies part of the file. A new field of a policy is one more entry in
// checker.policy.

package policy

import (
	"cmp"
	"slices"
	"strconv"
	"time"
	"unique"

	"rlsidecar/internal/bucket"
)

var algorithms = []string{"token_bucket"}

func (c *checker) policies(n *node) []*Policy {
	var list []*Policy
	c.each("policies", n, func(key, value *node) {
		if !made(key.text, maxName, "_./-") {
			c.fail(key, "policy name %s: allowed are 1 to %d of A-Z a-z 0-9 _ . / -", quote(key.text), maxName)
			return
		}
		list = append(list, c.policy(key, value))
	})
	return list
}

func (c *checker) policy(key, n *node) *Policy {
	p := &Policy{Name: key.text, ID: unique.Make(key.text)}
	s := shape{owner: key, in: n}
	var overrides *node
	c.object("policy "+quote(key.text), n,
		keep("limit", &s.limit),
		keep("burst", &s.burst),
		field{"algorithm", c.choice(algorithms, func(int) {})},
		field{"refill", c.choice([]string{"continuous", "interval"}, func(i int) { s.interval = i == 1 })},
		field{"consistency", c.choice([]string{"leased", "exact"}, func(i int) { p.Exact = i == 1 })},
		field{"when_redis_is_down", func(name string, n *node) { c.down(name, n, &p.Down) }},
		field{"mode", c.choice([]string{"enforce", "shadow"}, func(i int) { p.Shadow = i == 1 })},
		keep("overrides", &overrides),
		field{"exempt", func(name string, n *node) { c.entries(name, n, &p.exempt) }},
		field{"block", func(name string, n *node) { c.entries(name, n, &p.block) }},
	)
	if n.kind != kindMap {
		return p
	}
	s.leased = !p.Exact
	p.Rule = c.rule(s)
	if overrides != nil {
		c.overrides(overrides, p, s)
	}
	return p
}

// shape is what a rule is made of, in a policy or an override.
type shape struct {
	owner, in    *node // the name it belongs to, and the mapping
	limit, burst *node
	interval     bool
	leased       bool
}

// rule returns the rule of s, its limits sorted by period, or the zero Rule when
// something is wrong with it.
func (c *checker) rule(s shape) bucket.Rule {
	if s.limit == nil && has(s.in, "limit") {
		return bucket.Rule{} // empty: said already
	}
	if s.limit == nil {
		c.fail(s.owner, "%s has no limit: add limit: N/period, such as 5/second", quote(s.owner.text))
		return bucket.Rule{}
	}
	before := len(c.errs)
	limits := c.limits(s.limit)
	c.bursts(s, limits)
	if len(c.errs) > before {
		return bucket.Rule{}
	}
	for i := range limits {
		limits[i].Interval = s.interval
		if s.leased && c.shared {
			c.warnShort(s, limits[i])
		}
	}
	slices.SortFunc(limits, func(a, b bucket.Limit) int {
		return cmp.Or(cmp.Compare(a.Period, b.Period), cmp.Compare(a.Count, b.Count))
	})
	rule, err := bucket.NewRule(limits...)
	if err != nil {
		c.fail(s.limit, "limit: %v", err)
	}
	return rule
}

func (c *checker) limits(n *node) []bucket.Limit {
	if n.kind != kindList {
		return []bucket.Limit{c.limit(n)}
	}
	if len(n.items) < 1 || len(n.items) > bucket.MaxLimits {
		c.fail(n, "limit is a list of %d: allowed are 1 to %d", len(n.items), bucket.MaxLimits)
		return nil
	}
	limits := make([]bucket.Limit, len(n.items))
	for i, item := range n.items {
		l := c.limit(item)
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

func (c *checker) limit(n *node) bucket.Limit {
	if !n.scalar() {
		c.is("limit", n, kindText)
		return bucket.Limit{}
	}
	l, err := parseLimit(n.text)
	if err != nil {
		c.fail(n, "limit %s: %v", n.show(), err)
	}
	return l
}

// bursts sets the burst of each limit when the file gives them.
func (c *checker) bursts(s shape, limits []bucket.Limit) {
	n := s.burst
	switch {
	case n == nil:
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
	if fill >= 10*time.Millisecond {
		return
	}
	c.warn(s.limit, "limit %s with burst %d fills in %v, below 10ms: every call asks Redis; raise burst to %d or more to answer from memory",
		showLimit(l), l.Burst, fill, burstOf(l, 20*time.Millisecond))
}

// burstOf returns the burst that takes d to fill.
func burstOf(l bucket.Limit, d time.Duration) int64 {
	return max(1, int64(float64(l.Count)*float64(d)/float64(l.Period)+0.999))
}

func (c *checker) down(name string, n *node, into *Down) {
	mode := c.choice(downModes, func(i int) { into.Mode = DownMode(i) })
	switch {
	case n.scalar():
		mode(name, n)
		return
	case n.kind != kindMap:
		c.fail(n, "%s must be a mode or {mode: ..., share: ...}, not %s", name, n.kind)
		return
	}
	var share *node
	c.object(name, n, field{"mode", mode}, keep("share", &share))
	if share == nil {
		return
	}
	if into.Mode != DownLocal {
		c.fail(share, "share is only for mode: local, not %s: remove it", into.Mode)
		return
	}
	c.share(share, into)
}

func (c *checker) share(n *node, into *Down) {
	if n.scalar() && n.text == "auto" {
		return
	}
	v, err := strconv.ParseFloat(n.text, 64)
	if n.kind != kindInt && n.kind != kindFloat || err != nil || !(v > 0 && v <= 1) {
		c.fail(n, "share %s: allowed are auto, or a number above 0 up to 1", n.show())
		return
	}
	into.Share = v
}

func (c *checker) overrides(n *node, p *Policy, base shape) {
	if !c.is("overrides", n, kindList) {
		return
	}
	for _, item := range n.items {
		var key *node
		s := base
		s.in, s.limit, s.burst = item, nil, nil
		c.object("an override", item, keep("key", &key), keep("limit", &s.limit), keep("burst", &s.burst))
		if item.kind != kindMap {
			continue
		}
		if key == nil {
			c.fail(item, "an override has no key: add key: TEXT, where * stands for any text and ? for one byte")
			continue
		}
		s.owner = key
		rule := c.rule(s)
		if c.entry("key", key, &p.overrideKeys) {
			c.warn(key, "override %s can never match: an earlier one covers it", key.show())
		}
		p.overrides = append(p.overrides, rule)
	}
}

func (c *checker) entries(name string, n *node, into *matcher) {
	if !c.is(name, n, kindList) {
		return
	}
	for _, item := range n.items {
		c.entry(name, item, into)
	}
}

// entry adds one text of a list, and reports whether earlier ones cover it.
func (c *checker) entry(name string, n *node, into *matcher) (covered bool) {
	if !n.scalar() {
		c.is("an entry of "+name, n, kindText)
		return false
	}
	covered, err := into.add(n.text)
	if err != nil {
		c.fail(n, "%s: %v", name, err)
	}
	return covered
}
