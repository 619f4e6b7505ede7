// Package policy holds the rules: what the YAML file says, checked and frozen
// into a Set that any number of goroutines may read, and its reload.
package policy

import (
	"unique"

	"rlsidecar/internal/bucket"
)

// Policy is one named rule. It is immutable: a reload makes new ones.
type Policy struct {
	// Name is 1..128 of [A-Za-z0-9_./-]. Of a caller's own limit it is
	// "~<period in ms>", with ":<algorithm>" behind it unless that is token_bucket:
	// such a bucket is named by its key, the period and the algorithm, so that a
	// caller who changes the count or the burst stays in the same bucket.
	Name   string
	ID     unique.Handle[string] // of Name: equal across reloads
	Inline bool                  // a caller's own limit
	Index  int                   // place in Set.Policies; 0 when Inline
	Rule   bucket.Rule           // for keys without an override
	Exact  bool                  // every call asks Redis
	Shadow bool                  // observes, never denies
	Down   Down                  // while Redis does not answer

	// The lists of the configuration, and behind each that of a file.
	overrides     []*overrides
	exempt, block []*matcher
	listed        bool // any of them has an entry
	networks      bool // any of them has a network

	admitted appSet // when empty, every caller
}

// Down says how a policy answers while Redis does not.
type Down struct {
	Mode          DownMode
	Share         float64 // DownLocal: this host's part of the limit, 0 < Share <= 1; 0 is auto
	Oversubscribe float64 // DownLocal: what Share is multiplied with, 1..10; 0 is 1
}

// Part returns which part of the limit this host has, above 0 up to 1: auto is what
// it would be by itself, and counts where no Share was chosen.
func (d Down) Part(auto float64) float64 {
	if d.Share > 0 {
		auto = d.Share
	}
	return min(1, auto*max(1, d.Oversubscribe))
}

// DownMode is the kind of answer given while Redis does not answer.
type DownMode uint8

const (
	DownLocal DownMode = iota // limit on this host alone, to its share
	DownAllow                 // allow every call
	DownDeny                  // deny every call
	DownError                 // answer every call with an error
)

var downModes = []string{"local", "allow", "deny", "error"}

// String returns the mode as the file spells it.
func (m DownMode) String() string { return downModes[m] }

// Verdict says what the lists of a policy make of a key.
type Verdict uint8

const (
	Limited Verdict = iota // on no list: the rule decides
	Exempt                 // allowed, uncounted
	Blocked                // denied, whatever the rule says
)

// Resolve returns the rule for key and what the lists say of it. The rule is
// that of the first override in file order that matches, else the policy's own.
// A key on both lists is blocked. The rule must not be changed. It does not
// allocate, and takes no longer for a list of a million keys and networks than a
// few cache misses; only entries with * or ? are tried one by one.
func (p *Policy) Resolve(key []byte) (*bucket.Rule, Verdict) {
	if !p.listed {
		return &p.Rule, Limited
	}
	s := subject{key: key}
	if p.networks {
		s.spell()
	}
	switch rule := p.rule(&s); {
	case onAny(p.block, &s):
		return rule, Blocked
	case onAny(p.exempt, &s):
		return rule, Exempt
	default:
		return rule, Limited
	}
}

func (p *Policy) rule(s *subject) *bucket.Rule {
	for _, o := range p.overrides {
		if rule := o.find(s); rule != nil {
			return rule
		}
	}
	return &p.Rule
}

func onAny(lists []*matcher, s *subject) bool {
	for _, m := range lists {
		if m.first(s) != none {
			return true
		}
	}
	return false
}

// summarize notes what kinds of entries the lists have.
func (p *Policy) summarize() {
	for _, m := range p.matchers() {
		p.listed = p.listed || m.n > 0
		p.networks = p.networks || m.hasNetworks()
	}
}

func (p *Policy) matchers() []*matcher {
	var all []*matcher
	for _, o := range p.overrides {
		all = append(all, o.keys)
	}
	all = append(all, p.exempt...)
	return append(all, p.block...)
}
