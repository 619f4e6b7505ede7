// Question is how an agent and an authority speak: one ask about one bucket,
// answered later.

package bucket

import "errors"

// ErrLost marks an ask that may or may not have run. What it reported must never
// be reported again.
var ErrLost = errors.New("the outcome is unknown")

// ErrRefused marks an ask that did not run.
var ErrRefused = errors.New("not done")

// Question is an Ask on its way.
type Question struct {
	Policy, Key string
	Home        uint16 // which part of the authority keeps the bucket
	Rule        *Rule
	Ask         Ask

	// Answer is called exactly once, from any goroutine. err wraps ErrLost or
	// ErrRefused, or is nil.
	Answer func(q *Question, g Grant, err error)
}
