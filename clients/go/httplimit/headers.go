// What a response says about the limit.

package httplimit

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	rlsidecar "rlsidecar/clients/go"
)

// Style is how a response says what is left of the limit. Each says Retry-After, too,
// when the request was denied and can ever be allowed. Times are whole seconds from
// now, rounded up. A decision that the agent did not make says nothing but Retry-After.
type Style int

const (
	// XRateLimit says X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	XRateLimit Style = iota
	// IETF says RateLimit-Policy and RateLimit, as draft-ietf-httpapi-ratelimit-headers-10.
	IETF
	// Silent says Retry-After alone.
	Silent
)

func (s Style) set(h http.Header, l rlsidecar.Limit, d rlsidecar.Decision) {
	if !d.Allowed && d.RetryAfter != rlsidecar.Never {
		h.Set("Retry-After", strconv.FormatInt(max(1, seconds(d.RetryAfter)), 10))
	}
	if d.Source == rlsidecar.FromClient || d.Limit == 0 {
		return
	}
	switch s {
	case XRateLimit:
		setX(h, d)
	case IETF:
		add(h, "RateLimit-Policy", fmt.Sprintf("%s;q=%d%s", quoted(l.String()), d.Limit, window(l)))
		add(h, "RateLimit", fmt.Sprintf("%s;r=%d;t=%d", quoted(l.String()), d.Remaining, seconds(d.ResetAfter)))
	}
}

// setX leaves what stands there when that limit has less left.
func setX(h http.Header, d rlsidecar.Decision) {
	left, err := strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64)
	if err == nil && left <= d.Remaining && d.Allowed {
		return
	}
	h.Set("X-RateLimit-Limit", strconv.FormatInt(d.Limit, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(seconds(d.ResetAfter), 10))
}

// add appends an item to a list in one field.
func add(h http.Header, name, item string) {
	if before := h.Get(name); before != "" {
		item = before + ", " + item
	}
	h.Set(name, item)
}

// window is left out when it is shorter than a second, or known to the agent only.
func window(l rlsidecar.Limit) string {
	if l.Window() < time.Second {
		return ""
	}
	return fmt.Sprintf(";w=%d", seconds(l.Window()))
}

func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// quoted is a string of structured fields, which has printable ASCII only.
func quoted(name string) string {
	printable := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable) + `"`
}
