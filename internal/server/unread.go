// This file remembers which permits a peer may not know of: those in replies that it
// had not asked anything after.

package server

import (
	"sync"
	"sync/atomic"
)

// unread is the permits granted over a connection since its last request. When the
// connection ends and the replies were not all read, nobody will ever release them.
type unread struct {
	any atomic.Bool

	mu      sync.Mutex // guards permits
	permits []uint64
}

func (u *unread) add(permit uint64) {
	if permit == 0 {
		return
	}
	u.mu.Lock()
	u.permits = append(u.permits, permit)
	u.any.Store(true)
	u.mu.Unlock()
}

// take returns the permits and forgets them.
func (u *unread) take() []uint64 {
	if !u.any.Load() {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	permits := u.permits
	u.permits = nil
	u.any.Store(false)
	return permits
}
