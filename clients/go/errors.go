// What a call can fail with, and which failures mean that nobody decided.

package rlsidecar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"rlsidecar/protocol"
)

var (
	// ErrUnavailable is what every error is, by errors.Is, after which the
	// application has to decide alone. It wraps the cause.
	ErrUnavailable = errors.New("rlsidecar: agent unavailable")

	// ErrTimeout is the ErrUnavailable of a call that was not answered in time. The
	// permits may have been taken.
	ErrTimeout = fmt.Errorf("%w: not answered in time", ErrUnavailable)

	// ErrNotRunning is the ErrUnavailable of a call that found nobody listening on
	// the socket, or may not connect to it.
	ErrNotRunning = fmt.Errorf("%w: not running", ErrUnavailable)

	// ErrProtocol is the ErrUnavailable of a call whose answer makes no sense, or
	// that the agent does not understand.
	ErrProtocol = fmt.Errorf("%w: not understood", ErrUnavailable)

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
	switch e.Code {
	case protocol.UnknownPolicy, protocol.InvalidArgument, protocol.NotPermitted:
		return false
	case protocol.InvalidRequest, protocol.UnknownMethod:
		return target == ErrProtocol || target == ErrUnavailable
	}
	return target == ErrUnavailable
}

func invalidf(format string, a ...any) error {
	return &Error{protocol.InvalidArgument, fmt.Sprintf(format, a...)}
}

// unavailable is cause as an error of a kind that is ErrUnavailable.
func unavailable(kind, cause error) error {
	if errors.Is(cause, ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", kind, cause)
}

// failure is the error of a call that got no reply. A caller that gave up itself
// is told just that.
func failure(caller context.Context, cause error) error {
	switch {
	case errors.Is(caller.Err(), context.Canceled):
		return caller.Err()
	case errors.Is(cause, context.DeadlineExceeded), errors.Is(cause, os.ErrDeadlineExceeded), errors.Is(cause, syscall.EAGAIN):
		return unavailable(ErrTimeout, cause)
	}
	return unavailable(ErrUnavailable, cause)
}
