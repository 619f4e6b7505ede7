// The policies part of the file. A new field of a policy is one more entry in
// checker.policy.

package policy

import (
	"slices"
	"strconv"
	"time"
	"unique"

	"rlsidecar/internal/bucket"
)

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
	s := shape{owner: key, in: n, hold: defaultHold}
	known := true
	var overrides, overrideFile *node
	own := c.settings(&s)
	c.object("policy "+quote(key.text), n, slices.Concat([]field{
		keep("limit", &s.limit),
		keep("burst", &s.burst),
		{"algorithm", func(name string, n *node) { known = c.algorithm(name, n, &s.rule.Algorithm) }},
	}, own.fields(), []field{
		{"consistency", c.choice([]string{"leased", "exact"}, func(i int) { p.Exact = i == 1 })},
		{"when_redis_is_down", func(name string, n *node) { c.down(name, n, &p.Down) }},
		{"mode", c.choice([]string{"enforce", "shadow"}, func(i int) { p.Shadow = i == 1 })},
		{"apps", func(name string, n *node) { c.admitted(name, n, &p.admitted) }},
		keep("overrides", &overrides),
		keep(overridesFile, &overrideFile),
		{"exempt", func(name string, n *node) { c.entries(name, n, &p.exempt) }},
		{exemptFile, func(name string, n *node) { c.entryFile(name, n, &p.exempt) }},
		{"block", func(name string, n *node) { c.entries(name, n, &p.block) }},
		{blockFile, func(name string, n *node) { c.entryFile(name, n, &p.block) }},
	})...)
	if n.kind != kindMap || !known {
		return p
	}
	own.read(c, s.rule.Algorithm)
	s.leased = !p.Exact
	p.Rule = c.rule(s)
	if overrides != nil {
		c.overrides(overrides, p, s)
	}
	if overrideFile != nil {
		c.overrideFile(overrideFile, p, s)
	}
	p.summarize()
	return p
}

func (c *checker) algorithm(name string, n *node, into *bucket.Algorithm) (known bool) {
	c.choice(bucket.Algorithms(), func(i int) { *into, known = bucket.Algorithm(i), true })(name, n)
	return known
}

// setting is a field that only one algorithm has. It is read when the algorithm is known.
type setting struct {
	field
	only  bucket.Algorithm
	value *node
}

type settings []*setting

func (c *checker) settings(s *shape) settings {
	rule := &s.rule
	return settings{
		{field: field{"refill", c.choice([]string{"continuous", "interval"}, func(i int) { rule.Interval = i == 1 })}, only: bucket.TokenBucket},
		{field: field{"borrow", c.number(0, bucket.MaxCount, func(v int64) { rule.Borrow = v })}, only: bucket.TokenBucket},
		{field: field{"align", c.choice([]string{"clock", "first_use"}, func(i int) { rule.FirstUse = i == 1 })}, only: bucket.FixedWindow},
		{field: field{"buckets", c.number(bucket.MinParts, bucket.MaxParts, func(v int64) { rule.Parts = uint8(v) })}, only: bucket.SlidingWindow},
		{field: field{"max_hold", c.duration(&s.hold, time.Second, bucket.MaxPeriod)}, only: bucket.Concurrency},
	}
}

func (own settings) fields() []field {
	fields := make([]field, len(own))
	for i, s := range own {
		fields[i] = keep(s.name, &s.value)
	}
	return fields
}

func (own settings) read(c *checker, a bucket.Algorithm) {
	for _, s := range own {
		switch {
		case s.value == nil:
		case s.only != a:
			c.fail(s.value, "%s is only for %s, not %s: remove it, or write algorithm: %s", s.name, s.only, a, s.only)
		default:
			s.field.read(s.name, s.value)
		}
	}
}

func (c *checker) down(name string, n *node, into *Down) {
	mode := c.choice(downModes, func(i int) { into.Mode = DownMode(i) })
	switch {
	case n.scalar():
		mode(name, n)
		return
	case n.kind != kindMap:
		c.fail(n, "%s must be a mode or {mode: ..., share: ..., oversubscribe: ...}, not %s", name, n.kind)
		return
	}
	var share, times *node
	c.object(name, n, field{"mode", mode}, keep("share", &share), keep("oversubscribe", &times))
	if c.onlyLocal("share", share, into.Mode) {
		c.share(share, into)
	}
	if c.onlyLocal("oversubscribe", times, into.Mode) {
		c.oversubscribe(times, into)
	}
}

// onlyLocal reports whether the field n is there, and fails where it means nothing.
func (c *checker) onlyLocal(name string, n *node, mode DownMode) bool {
	if n != nil && mode != DownLocal {
		c.fail(n, "%s is only for mode: local, not %s: remove it", name, mode)
	}
	return n != nil && mode == DownLocal
}

func (c *checker) share(n *node, into *Down) {
	if n.scalar() && n.text == "auto" {
		return
	}
	v, ok := n.real()
	if !ok || !(v > 0 && v <= 1) {
		c.fail(n, "share %s: allowed are auto, or a number above 0 up to 1", n.show())
		return
	}
	into.Share = v
}

func (c *checker) oversubscribe(n *node, into *Down) {
	v, ok := n.real()
	switch {
	case !ok || !(v >= 1 && v <= maxOversubscribe):
		c.fail(n, "oversubscribe %s: allowed are numbers 1 to %d", n.show(), maxOversubscribe)
	case into.Share*v > 1:
		c.warn(n, "oversubscribe %s of share %s is more than the limit, and each host has no more than all of it: %.3g would do", plain(v), plain(into.Share), 1/into.Share)
	}
	into.Oversubscribe = v
}

// maxOversubscribe is how many times its share a host may have at most.
const maxOversubscribe = 10

// real returns the number that n is.
func (n *node) real() (v float64, ok bool) {
	v, err := strconv.ParseFloat(n.text, 64)
	return v, err == nil && (n.kind == kindInt || n.kind == kindFloat)
}

func (c *checker) overrides(n *node, p *Policy, base shape) {
	if !c.is("overrides", n, kindList) {
		return
	}
	r := newRuling()
	for _, item := range n.items {
		var key *node
		s := base
		s.in, s.limit, s.burst = item, nil, nil
		c.object("an override", item, keep("key", &key), keep("limit", &s.limit), keep("burst", &s.burst))
		switch {
		case item.kind != kindMap:
			continue
		case key == nil:
			c.fail(item, "an override has no key: add key: TEXT, where * stands for any text and ? for one byte")
			continue
		}
		s.owner = key
		rule := c.rule(s)
		c.entry("key", key, func(text string) error { return r.add(text, key.line, key.col, rule) })
	}
	p.overrides = append(p.overrides, r.done(c))
}

func (c *checker) entries(name string, n *node, into *[]*matcher) {
	if !c.is(name, n, kindList) {
		return
	}
	var all collector
	for _, item := range n.items {
		c.entry(name, item, all.add)
	}
	m, _ := all.matcher()
	*into = append(*into, m)
}

// entry passes on one text of a list.
func (c *checker) entry(name string, n *node, add func(string) error) {
	if !n.scalar() {
		c.is("an entry of "+name, n, kindText)
		return
	}
	if err := add(n.text); err != nil {
		c.fail(n, "%s: %v", name, err)
	}
}
