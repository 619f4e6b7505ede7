// Limits as people write them, for flags and configuration.

package rlsidecar

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var written = regexp.MustCompile(`^(\d[\d_]*)\s*/\s*(\d*)\s*([a-z]+)$`)

var units = map[string]time.Duration{
	"ms": time.Millisecond,
	"s":  time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
}

// ParseLimit reads a limit such as "10/minute" or "1000/250ms"; whatever does not
// begin like one is the name of a policy.
func ParseLimit(s string) (Limit, error) {
	parts := written.FindStringSubmatch(s)
	if parts == nil {
		return Policy(s), nil
	}
	count, err := strconv.ParseInt(strings.ReplaceAll(parts[1], "_", ""), 10, 64)
	if err != nil {
		return Limit{}, fmt.Errorf("limit %q: %q is no count", s, parts[1])
	}
	unit, known := units[parts[3]]
	if !known {
		return Limit{}, fmt.Errorf("limit %q: unknown unit %q: there are ms, s, second, m, minute, h, hour, d, day", s, parts[3])
	}
	n := int64(1)
	if parts[2] != "" {
		if n, err = strconv.ParseInt(parts[2], 10, 32); err != nil || n < 1 {
			return Limit{}, fmt.Errorf("limit %q: %q periods: allowed are 1 and more", s, parts[2])
		}
	}
	return Per(count, time.Duration(n)*unit), nil
}
