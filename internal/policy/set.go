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
	apps     *apps

	// inline remembers the policies made of callers' limits. A map once stored
	// is never written: adding to it stores a copy, so a hit takes no lock.
	inline atomic.Pointer[map[Inline]*Policy]
}

// Inline is a limit that a caller brings. Of a bucket.Concurrency limit Period is
// the longest hold.
type Inline struct {
	Algorithm bucket.Algorithm
	Limit     bucket.Limit
}

func newSet(ordered []*Policy, inline bool, a *apps) *Set {
	s := &Set{byName: make(map[string]*Policy, len(ordered)), ordered: ordered, noInline: !inline, apps: a}
	for i, p := range ordered {
		p.Index = i
		s.byName[p.Name] = p
	}
	s.inline.Store(&map[Inline]*Policy{})
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
// while Redis is down, open to all applications. It fails with ErrInlineOff, or
// when in is out of the ranges of bucket.Rule or its period is not in whole
// milliseconds. The same limit mostly gives the same Policy, without allocating.
func (s *Set) Inline(in Inline) (*Policy, error) {
	if p := (*s.inline.Load())[in]; p != nil {
		return p, nil
	}
	if s.noInline {
		return nil, ErrInlineOff
	}
	p, err := in.policy()
	if err != nil {
		return nil, fmt.Errorf("inline limit: %w", err)
	}
	return s.remember(in, p), nil
}

func (in Inline) policy() (*Policy, error) {
	if names := bucket.Algorithms(); int(in.Algorithm) >= len(names) {
		return nil, fmt.Errorf("algorithm %d: allowed are 0 to %d", in.Algorithm, len(names)-1)
	}
	rule, err := bucket.Rule{Algorithm: in.Algorithm}.With(in.Limit)
	if err != nil {
		return nil, err
	}
	if in.Limit.Period%time.Millisecond != 0 {
		return nil, fmt.Errorf("period %v: give whole milliseconds", in.Limit.Period)
	}
	name := "~" + strconv.FormatInt(in.Limit.Period.Milliseconds(), 10)
	if in.Algorithm != bucket.TokenBucket {
		name += ":" + in.Algorithm.String()
	}
	return &Policy{Name: name, ID: unique.Make(name), Inline: true, Rule: rule}, nil
}

// remember keeps p unless there is one already or no room is left, and returns
// the policy to use.
func (s *Set) remember(in Inline, p *Policy) *Policy {
	for {
		old := s.inline.Load()
		if was := (*old)[in]; was != nil {
			return was
		}
		if len(*old) >= maxInline {
			return p
		}
		grown := make(map[Inline]*Policy, len(*old)+1)
		maps.Copy(grown, *old)
		grown[in] = p
		if s.inline.CompareAndSwap(old, &grown) {
			return p
		}
	}
}
