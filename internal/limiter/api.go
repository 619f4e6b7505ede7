// Package limiter takes the decision: policy, then what this host knows, then
// Redis or the fallback. The types here are what the server and the admin
// listener see of it.
package limiter

import (
	"time"

	"rlsidecar/internal/policy"
)

// Never is the RetryAfter of a call that can never be allowed: its cost is above
// the capacity.
const Never time.Duration = -1

// Source says where a decision came from. The numbers are the wire's.
type Source uint8

const (
	FromLease      Source = iota // permits leased by this host
	FromRedis                    // asked for this call
	FromDenial                   // a denial remembered on this host
	FromStandalone               // no Redis configured
	FromFallback                 // Redis cannot be reached
	FromList                     // exempt or blocked by a list
	sources
)

// Decision is the answer to one call.
type Decision struct {
	Allowed    bool
	Shadow     bool          // the policy only observes, and would have denied this call
	Limit      int64         // capacity in permits
	Remaining  int64         // 0..Limit, as far as this host knows
	ResetAfter time.Duration // until the bucket is full again
	RetryAfter time.Duration // until this call could be allowed; 0 when allowed, or Never
	Source     Source
	Permit     uint64 // of a concurrency limit: what to Release; 0: none
}

// Call is one question. Policy and Key may alias a read buffer: what the limiter
// keeps it copies.
type Call struct {
	Policy []byte        // name of a policy; nil when Inline is used
	Inline policy.Inline // the caller's own limit, when Policy is nil
	Key    []byte        // 1..1024 bytes
	Cost   int64         // 1..2^53-1; 0 is allowed in Peek
	Wait   time.Duration // how long the caller lets the answer be held for permits to come, 0..MaxWait
	App    []byte        // the application the caller says it is, where policies trust that; nil: none
	Caller *Caller       // may be nil
}

// MaxWait is the longest Call.Wait.
const MaxWait = 60 * time.Second

// Kind is the kind of an Error.
type Kind uint8

const (
	UnknownPolicy Kind = iota + 1
	InvalidArgument
	Unavailable
	Overloaded
	ShuttingDown
	NotPermitted
)

// Error is a call that got no decision.
type Error struct {
	Kind    Kind
	Message string
}

func (e *Error) Error() string { return e.Message }

// Replier receives the answers of calls that could not be answered at once. Its
// methods are called from other goroutines and must not block.
type Replier interface {
	// Decided is called exactly once for a pending call, with the ref it was made with.
	Decided(ref uint32, d Decision, err *Error)
	// Gone reports that nobody waits any more: the call may be decided with any error.
	Gone() bool
}

// AllReplier receives the answer of a pending AcquireAll.
type AllReplier interface {
	AllDecided(ref uint32, allowed bool, d []Decision, err *Error)
	Gone() bool
}
