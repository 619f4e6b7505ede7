// The policies in force, found by name or made from a caller's own limit.

package policy

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"time"
	"unique"

	"rlsidecar/internal/bucket"
)

// ErrInlineOff is returned for a caller's own limit when the file says
// inline_limits: false.
var ErrInlineOff = errors.New("inline limits are switched off (inline_limits: false): name a policy instead")

const (
	maxInline = 1024 // remembered inline limits of one Set
	maxName   = 128  // bytes of a policy name
)

// Set is the policies of one file. It is immutable and safe for concurrent use.
type Set struct {
	byName   map[string]*Policy
	ordered  []*Policy
	noInline bool

	// inline remembers the policies made of callers' limits. A map once stored
	// is never written: adding to it stores a copy, so a hit takes no lock.
	inline atomic.Pointer[map[bucket.Limit]*Policy]
}

func newSet(ordered []*Policy, inline bool) *Set {
	s := &Set{byName: make(map[string]*Policy, len(ordered)), ordered: ordered, noInline: !inline}
	for i, p := range ordered {
		p.Index = i
		s.byName[p.Name] = p
	}
	s.inline.Store(&map[bucket.Limit]*Policy{})
	return s
}

// Lookup returns the policy of that name, or nil. It does not allocate.
func (s *Set) Lookup(name []byte) *Policy { return s.byName[string(name)] }

// Policies returns the policies in file order. The slice must not be changed.
func (s *Set) Policies() []*Policy { return s.ordered }

// Nearest returns the policy name most like name, or "" when none is near.
func (s *Set) Nearest(name string) string {
	if len(name) > maxName {
		return ""
	}
	return nearest(name, func(yield func(string) bool) {
		for _, p := range s.ordered {
			if !yield(p.Name) {
				return
			}
		}
	})
}

// Inline returns the policy of a caller's own limit: leased, enforced, local
// while Redis is down. It fails with ErrInlineOff, or when l is out of the ranges
// of bucket.Limit or its period is not in whole milliseconds. The same limit
// mostly gives the same Policy, without allocating.
func (s *Set) Inline(l bucket.Limit) (*Policy, error) {
	if p := (*s.inline.Load())[l]; p != nil {
		return p, nil
	}
	if s.noInline {
		return nil, ErrInlineOff
	}
	p, err := inlinePolicy(l)
	if err != nil {
		return nil, err
	}
	return s.remember(l, p), nil
}

func inlinePolicy(l bucket.Limit) (*Policy, error) {
	rule, err := bucket.NewRule(l)
	if err != nil {
		return nil, fmt.Errorf("inline limit: %w", err)
	}
	if l.Period%time.Millisecond != 0 {
		return nil, fmt.Errorf("inline limit: period %v: give whole milliseconds", l.Period)
	}
	name := "~" + strconv.FormatInt(l.Period.Milliseconds(), 10)
	if l.Interval {
		name += "i"
	}
	return &Policy{Name: name, ID: unique.Make(name), Inline: true, Rule: rule}, nil
}

// remember keeps p unless there is one already or no room is left, and returns
// the policy to use.
func (s *Set) remember(l bucket.Limit, p *Policy) *Policy {
	for {
		old := s.inline.Load()
		if was := (*old)[l]; was != nil {
			return was
		}
		if len(*old) >= maxInline {
			return p
		}
		grown := make(map[bucket.Limit]*Policy, len(*old)+1)
		maps.Copy(grown, *old)
		grown[l] = p
		if s.inline.CompareAndSwap(old, &grown) {
			return p
		}
	}
}
