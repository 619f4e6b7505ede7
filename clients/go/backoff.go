// When to try an agent again that is not there.

package rlsidecar

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// The pause after a failed connect is random, up to a bound that doubles with each.
const (
	firstPause   = 25 * time.Millisecond
	longestPause = time.Second
)

// backoff spaces out connects, so that no agent costs next to nothing and one that
// comes back is not stormed.
type backoff struct {
	mu     sync.Mutex // mu guards the fields that follow
	bound  time.Duration
	next   time.Time
	reason error
}

// pause returns why nobody was reached, while it is too early to try again.
func (b *backoff) pause(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reason == nil || !now.Before(b.next) {
		return nil
	}
	return fmt.Errorf("%w; next try in %v", b.reason, b.next.Sub(now).Round(time.Millisecond))
}

// note takes down how a connect ended. Only one that nobody could have answered
// counts as failed: a slow agent is there.
func (b *backoff) note(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.bound, b.reason = 0, nil
	case errors.Is(err, ErrNotRunning):
		b.bound = min(max(2*b.bound, firstPause), longestPause)
		b.next, b.reason = now.Add(rand.N(b.bound)), err
	}
}

// unreachable is the kind of a failed connect.
func unreachable(err error) error {
	var refused syscall.Errno
	if errors.As(err, &refused) && refused != syscall.EAGAIN {
		return unavailable(ErrNotRunning, err)
	}
	return err
}
