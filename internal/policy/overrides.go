// Other rules for some keys of a policy.

package policy

import (
	"slices"

	"rlsidecar/internal/bucket"
)

// overrides is a list of keys and the rule of each. Rules are kept once: a list of
// a million keys has few different ones.
type overrides struct {
	keys  *matcher
	of    []uint32 // by number of the entry, the place of its rule in rules
	rules []bucket.Rule
}

// find returns the rule of the first entry that matches, or nil.
func (o *overrides) find(s *subject) *bucket.Rule {
	if i := o.keys.first(s); i != none {
		return &o.rules[o.of[i]]
	}
	return nil
}

// ruling collects overrides.
type ruling struct {
	keys   collector
	places []place  // of the entries
	of     []uint32 // as in overrides
	rules  []bucket.Rule
	byRule map[bucket.Rule]uint32
}

// place is where an override stands, for a warning.
type place struct {
	key       string
	line, col int32
}

func newRuling() *ruling {
	return &ruling{keys: collector{ordered: true}, byRule: map[bucket.Rule]uint32{}}
}

// add appends an override, whose key stands at line and col.
func (r *ruling) add(key string, line, col int, rule bucket.Rule) error {
	if err := r.keys.add(key); err != nil {
		return err
	}
	i, is := r.byRule[rule]
	if !is {
		i = uint32(len(r.rules))
		r.byRule[rule] = i
		r.rules = append(r.rules, rule)
	}
	r.of = append(r.of, i)
	r.places = append(r.places, place{key, int32(line), int32(col)})
	return nil
}

// done returns the overrides, and warns of those that can never match.
func (r *ruling) done(c *checker) *overrides {
	keys, covered := r.keys.matcher()
	for _, i := range covered {
		p := r.places[i]
		c.warn(&node{line: int(p.line), col: int(p.col)}, "override %s can never match: an earlier one covers it", quote(p.key))
	}
	return &overrides{keys, slices.Clone(r.of), slices.Clone(r.rules)}
}
