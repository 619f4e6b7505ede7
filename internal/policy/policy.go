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
	// "~<period in ms>", with an "i" behind it for interval refill: such a bucket
	// is named by its key and the period, so that a caller who changes the count
	// or the burst stays in the same bucket.
	Name   string
	ID     unique.Handle[string] // of Name: equal across reloads
	Inline bool                  // a caller's own limit
	Index  int                   // place in Set.Policies; 0 when Inline
	Rule   bucket.Rule           // for keys without an override
	Exact  bool                  // every call asks Redis
	Shadow bool                  // observes, never denies
	Down   Down                  // while Redis does not answer

	overrides     []bucket.Rule // numbered by overrideKeys
	overrideKeys  matcher
	exempt, block matcher
}

// Down says how a policy answers while Redis does not.
type Down struct {
	Mode  DownMode
	Share float64 // DownLocal: this host's part of the limit, 0 < Share <= 1; 0 is auto
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
// allocate.
func (p *Policy) Resolve(key []byte) (*bucket.Rule, Verdict) {
	rule := &p.Rule
	if i := p.overrideKeys.first(key); i >= 0 {
		rule = &p.overrides[i]
	}
	switch {
	case p.block.first(key) >= 0:
		return rule, Blocked
	case p.exempt.first(key) >= 0:
		return rule, Exempt
	}
	return rule, Limited
}
