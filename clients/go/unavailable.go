// What becomes of a call that nobody decided: one place for all calls.

package rlsidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// OnUnavailable says what a call does that gets no decision, for whatever reason.
type OnUnavailable string

const (
	Allow OnUnavailable = "allow" // allowed, with Degraded set; the default
	Deny  OnUnavailable = "deny"  // denied, with Degraded set, to be tried again after a second
	Raise OnUnavailable = "raise" // the error is returned

	// Local keeps the limits that callers bring along in this process, as token
	// buckets, with Degraded set. A policy, whose numbers only the agent knows, is
	// allowed as by Allow.
	Local OnUnavailable = "local"
)

var modes = []OnUnavailable{Allow, Deny, Local, Raise}

// logInterval is how far apart a client's lines about calls without a decision are.
const logInterval = 10 * time.Second

// tryAgain is the RetryAfter of a call that Deny denied.
const tryAgain = time.Second

var errDisabled = fmt.Errorf("%w: switched off by %s", ErrUnavailable, disableVariable)

// otherwise decides after err instead of the agent: whether the call is allowed,
// or what error it returns. A mistake of the caller stays an error in every mode.
func (c *Client) otherwise(err error) (allowed bool, raised error) {
	if !errors.Is(err, ErrUnavailable) {
		return false, err
	}
	if c.disabled {
		return true, nil
	}
	c.complaints.add(c.log, err)
	if c.mode == Raise {
		return false, err
	}
	return c.mode != Deny, nil
}

// instead is the decision of a call that the agent gave none for, once otherwise has
// let it be made.
func (c *Client) instead(allowed bool, l Limit, key string, cost int64, take bool) Decision {
	if c.mode == Local && !c.disabled && l.inline {
		return c.buckets.ask(l, key, cost, time.Now(), take)
	}
	return substitute(allowed, l, cost)
}

// insteadOfAll takes from all asks or from none.
func (c *Client) insteadOfAll(allowed bool, asks []Ask) (bool, []Decision) {
	ds := make([]Decision, len(asks))
	for _, take := range []bool{false, true} {
		for i, a := range asks {
			ds[i] = c.instead(allowed, a.Limit, a.Key, a.cost(), take)
		}
		if slices.ContainsFunc(ds, func(d Decision) bool { return !d.Allowed }) {
			return false, ds
		}
	}
	return true, ds
}

// substitute is a decision without counting. A cost above a capacity that is known
// here is never allowed.
func substitute(allowed bool, l Limit, cost int64) Decision {
	d := Decision{Allowed: allowed, Limit: l.capacity(), Source: FromClient, Degraded: true}
	switch {
	case l.inline && cost > d.Limit:
		d.Allowed, d.RetryAfter = false, Never
	case !allowed:
		d.RetryAfter = tryAgain
	}
	return d
}

// complaints are the failures of a client on their way to the log, a line per
// interval.
type complaints struct {
	mu         sync.Mutex // mu guards the fields that follow
	quietUntil time.Time
	untold     int
}

func (s *complaints) add(log *slog.Logger, err error) {
	now := time.Now()
	s.mu.Lock()
	if now.Before(s.quietUntil) {
		s.untold++
		s.mu.Unlock()
		return
	}
	untold := s.untold
	s.untold, s.quietUntil = 0, now.Add(logInterval)
	s.mu.Unlock()
	log.Warn("no decision from the rate-limiting agent", "error", err, "more_since_last_line", untold)
}
