// A clock stepped while its server runs: scripts see it, and time-outs don't.

package redistest

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	c := NewClock(t)
	s := Start(t, WithClock(c))
	for _, step := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Microsecond} {
		c.Set(t, step)
		reply := s.Do(t, "EVAL", "return redis.call('TIME')[1]", "0")
		seconds, err := strconv.ParseInt(reply, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Unix(seconds, 0).Sub(time.Now().Add(step)).Abs(); off > 5*time.Second {
			t.Errorf("set to %v, the script's time is %v off", step, off)
		}
	}
	c.Set(t, time.Hour)
	s.Do(t, "SET", "k", "v", "EX", "60")
	c.Set(t, 2*time.Hour)
	if got := s.Do(t, "GET", "k"); got != "(nil)" || !strings.HasPrefix(s.Do(t, "PING"), "PONG") {
		t.Errorf("an hour later a key of a minute is %q", got)
	}
}
