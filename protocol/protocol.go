// Package protocol is the wire between an application and the agent:
// MessagePack-RPC over a Unix stream socket, its bounds, its messages and its
// errors. README.md states the contract; testdata/golden.json shows its bytes.
//
// Both ends read with a Scanner, which finds where a message ends and refuses
// what is over a bound before anything is allocated, and then with ParseRequest
// or ParseResponse. Parsed values alias the buffer they were read from: they are
// good until it is written to again.
package protocol

import "fmt"

// The bounds of a message and of what is in it.
const (
	MaxMessage = 64 << 10 // bytes in one message
	MaxDepth   = 8        // arrays and maps inside one another; the message itself is the first
	MaxLen     = 1024     // items in an array, pairs in a map

	MaxKey      = 1024 // bytes in a key, at least 1
	MaxPolicy   = 128  // bytes in the name of a policy, an algorithm or an application, at least 1
	MaxItems    = 32   // calls in one acquire_all, at least 1
	MaxCost     = 1<<53 - 1
	MaxInFlight = 1024 // calls of one connection not answered yet
	MaxWaitMS   = 60_000

	MaxCount    = 1_000_000_000          // permits per period, and burst, of an inline limit
	MaxPeriodMS = 366 * 24 * 3600 * 1000 // period of an inline limit, at least 1
	MaxPeriodS  = MaxPeriodMS / 1000     // period of throttle, at least 1
	maxText     = 1024                   // bytes in the message of an error
)

// Code says what became of a call that got no result. A client treats a code it
// does not know as Unavailable, never as a denial.
type Code int

const (
	InvalidRequest Code = iota + 1 // not MessagePack-RPC, wrong shape, over a bound
	UnknownMethod
	UnknownPolicy
	InvalidArgument // a value of the wrong type or out of range
	Unavailable     // Redis cannot be asked, and the policy wants an error then
	Overloaded      // too many calls in flight or waiting
	ShuttingDown
	NotPermitted // the application may not use this policy or method
	Internal     // a bug of the agent
)

var codeNames = [...]string{
	InvalidRequest:  "invalid_request",
	UnknownMethod:   "unknown_method",
	UnknownPolicy:   "unknown_policy",
	InvalidArgument: "invalid_argument",
	Unavailable:     "unavailable",
	Overloaded:      "overloaded",
	ShuttingDown:    "shutting_down",
	NotPermitted:    "not_permitted",
	Internal:        "internal",
}

// String returns the code's name in README.md, or "code N" for an unknown one.
func (c Code) String() string {
	if c < InvalidRequest || c > Internal {
		return fmt.Sprintf("code %d", int(c))
	}
	return codeNames[c]
}

// Error is the error of a reply: [code, message].
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }

func errorf(code Code, format string, a ...any) *Error {
	return &Error{code, fmt.Sprintf(format, a...)}
}

// Method is what a request asks for.
type Method uint8

const (
	Unknown Method = iota
	Acquire
	AcquireAll
	Peek
	Refund
	Release
	Reset
	Throttle
	Info
	Ping
	Explain
)

var methodNames = [...]string{
	Acquire:    "acquire",
	AcquireAll: "acquire_all",
	Peek:       "peek",
	Refund:     "refund",
	Release:    "release",
	Reset:      "reset",
	Throttle:   "throttle",
	Info:       "info",
	Ping:       "ping",
	Explain:    "explain",
}

// Methods returns the wire names of all methods.
func Methods() []string { return append([]string(nil), methodNames[1:]...) }

// String returns the method's wire name, "" for Unknown.
func (m Method) String() string {
	if int(m) >= len(methodNames) {
		return ""
	}
	return methodNames[m]
}

func methodOf(name []byte) Method {
	switch string(name) {
	case "acquire":
		return Acquire
	case "acquire_all":
		return AcquireAll
	case "peek":
		return Peek
	case "refund":
		return Refund
	case "release":
		return Release
	case "reset":
		return Reset
	case "throttle":
		return Throttle
	case "info":
		return Info
	case "ping":
		return Ping
	case "explain":
		return Explain
	}
	return Unknown
}

// Inline is a limit that the caller brings along instead of a policy's name.
type Inline struct {
	Count     int64  // permits per period, 1..MaxCount
	PeriodMS  int64  // 1..MaxPeriodMS
	Burst     int64  // capacity in permits, 1..MaxCount; 0 when not given: Count
	Algorithm []byte // nil when not given; the name is not checked here
}

// Call is one question to one bucket.
type Call struct {
	Policy []byte // 1..MaxPolicy bytes; nil when Inline is used
	Inline Inline
	Key    []byte // 1..MaxKey bytes
	Cost   int64  // 1..MaxCost; 0 is allowed in peek
}

// Options are the named parameters of acquire and acquire_all.
type Options struct {
	WaitMS int64  // how long the agent may hold the reply for permits to come, 0..MaxWaitMS
	App    []byte // the calling application, 1..MaxPolicy bytes; nil when not given
}

// ThrottleCall is one question in the words of redis-cell: MaxBurst+1 permits at
// most, refilled with Count per PeriodS.
type ThrottleCall struct {
	Key      []byte // 1..MaxKey bytes
	MaxBurst int64  // 0..MaxCount-1
	Count    int64  // 1..MaxCount
	PeriodS  int64  // 1..MaxPeriodS
	Quantity int64  // 0..MaxCost; 0 consumes nothing, as redis-cell has it
}

// Decision is the answer to one call.
type Decision struct {
	Allowed      bool
	Limit        int64  // capacity in permits
	Remaining    int64  // 0..Limit, as far as the agent knows
	ResetAfterMS int64  // until the bucket is full again
	RetryAfterMS int64  // until this call could be allowed; 0 when allowed, -1 when it never can
	Source       uint8  // 0 lease, 1 redis, 2 remembered denial, 3 standalone, 4 fallback, 5 list
	Flags        uint8  // FlagShadow
	Permit       uint64 // what to release, for concurrency limits; 0: none
}

// FlagShadow in Decision.Flags: the policy only observes, and would have denied.
const FlagShadow = 1
