// How limits and times are written: 5/minute, 1_000/250ms, 20ms.

package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"rlsidecar/internal/bucket"
)

const day = 24 * time.Hour

type unit struct {
	name string
	size time.Duration
}

var units = []unit{
	{"ms", time.Millisecond},
	{"s", time.Second}, {"second", time.Second}, {"seconds", time.Second},
	{"m", time.Minute}, {"min", time.Minute}, {"minute", time.Minute}, {"minutes", time.Minute},
	{"h", time.Hour}, {"hour", time.Hour}, {"hours", time.Hour},
	{"d", day}, {"day", day}, {"days", day},
}

// parseLimit reads "N/unit" or "N/<number><unit>"; spaces around the slash are
// allowed. Burst is N.
func parseLimit(s string) (bucket.Limit, error) {
	var l bucket.Limit
	count, period, slash := strings.Cut(s, "/")
	if !slash {
		return l, errors.New("no period: write N/period, such as 5/second or 100/10s")
	}
	count, period = strings.TrimSpace(count), strings.TrimSpace(period)
	n, ok := parseCount(count)
	if !ok || n < 1 || n > bucket.MaxCount {
		return l, fmt.Errorf("count %s: allowed are whole numbers 1 to %d", quote(count), bucket.MaxCount)
	}
	if period == "" {
		return l, errors.New("no period behind the slash: write N/period, such as 5/second or 100/10s")
	}
	number := period
	if !digits(period[:1]) {
		number = "1" + period
	}
	d, err := parsePeriod(number)
	if err != nil {
		return l, err
	}
	if d < bucket.MinPeriod || d > bucket.MaxPeriod {
		return l, fmt.Errorf("period %s: allowed are %s to %s", quote(period), showPeriod(bucket.MinPeriod), showPeriod(bucket.MaxPeriod))
	}
	return bucket.Limit{Count: n, Period: d, Burst: n}, nil
}

// parsePeriod reads "<number><unit>". It does not overflow: what is beyond a
// Duration is its largest.
func parsePeriod(s string) (time.Duration, error) {
	name := strings.TrimLeft(s, "0123456789_")
	n, ok := parseCount(s[:len(s)-len(name)])
	switch {
	case !ok || strings.HasPrefix(name, "."):
		return 0, errors.New("write a whole number and a unit, such as 250ms, 10s or 5m")
	case name == "":
		return 0, fmt.Errorf("no unit: write %sms, %ss or %sm", s, s, s)
	}
	u, err := findUnit(strings.TrimSpace(name))
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64/int64(u) {
		return math.MaxInt64, nil
	}
	return time.Duration(n) * u, nil
}

func findUnit(name string) (time.Duration, error) {
	names := make([]string, len(units))
	for i, u := range units {
		if u.name == name {
			return u.size, nil
		}
		names[i] = u.name
	}
	return 0, fmt.Errorf("unknown unit %s%s", quote(name), didYouMean(name, names))
}

// showPeriod writes d with the largest unit that divides it.
func showPeriod(d time.Duration) string {
	for _, u := range []unit{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if d >= u.size && d%u.size == 0 {
			return strconv.FormatInt(int64(d/u.size), 10) + u.name
		}
	}
	return d.String()
}

// showLimit writes l as the file would, without its burst.
func showLimit(l bucket.Limit) string {
	period := showPeriod(l.Period)
	for _, u := range units {
		if u.size == l.Period && len(u.name) > 3 || u.size == day && l.Period == day && u.name == "day" {
			period = u.name
			break
		}
	}
	return fmt.Sprintf("%d/%s", l.Count, period)
}
