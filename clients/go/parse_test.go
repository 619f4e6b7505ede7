// Limits as people write them.

package rlsidecar

import (
	"testing"
	"time"
)

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]Limit{
		"login":       Policy("login"),
		"shop/2nd":    Policy("shop/2nd"),
		"10/minute":   PerMinute(10),
		"1_000 / 10s": Per(1000, 10*time.Second),
		"20/250ms":    Per(20, 250*time.Millisecond),
		"3/2days":     Per(3, 48*time.Hour),
	} {
		if got, err := ParseLimit(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"10/fortnight", "10/0s", "99999999999999999999/s"} {
		if got, err := ParseLimit(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}
