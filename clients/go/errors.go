// What a call can fail with, and which failures mean that nobody decided.

package rlsidecar

import (
	"context"
	"errors"
	"fmt"

	"rlsidecar/protocol"
)

var (
	// ErrUnavailable is what every error is, by errors.Is, after which the
	// application has to decide alone. It wraps the cause.
	ErrUnavailable = errors.New("rlsidecar: agent unavailable")

	// ErrClosed is the cause after Close.
	ErrClosed = errors.New("the client is closed")
)

// Error is an error that the agent answered with.
type Error struct {
	Code    protocol.Code
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("rlsidecar: %s: %s", e.Code, e.Message) }

// Is makes an Error that is not the caller's fault ErrUnavailable. That includes
// the codes which this client does not know.
func (e *Error) Is(target error) bool {
	if target != ErrUnavailable {
		return false
	}
	switch e.Code {
	case protocol.InvalidRequest, protocol.UnknownMethod, protocol.UnknownPolicy,
		protocol.InvalidArgument, protocol.NotPermitted:
		return false
	}
	return true
}

func invalidf(format string, a ...any) error {
	return &Error{protocol.InvalidArgument, fmt.Sprintf(format, a...)}
}

func unavailable(cause error) error { return fmt.Errorf("%w: %w", ErrUnavailable, cause) }

// failure is the error of a call that got no reply. A caller that gave up itself
// is told just that.
func failure(caller context.Context, cause error) error {
	if errors.Is(caller.Err(), context.Canceled) {
		return caller.Err()
	}
	return unavailable(cause)
}
