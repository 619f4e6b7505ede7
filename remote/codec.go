// The packed form in which an ask travels to a script and a grant comes back:
// little-endian doubles, in the order of the script's unpack and pack.

package remote

import (
	"encoding/binary"
	"fmt"
	"math"

	"rlsidecar/internal/bucket"
)

const (
	grantHead  = 11 // doubles
	grantLevel = 2  // for each limit of an algorithm with levels
	grantElse  = 4  // of others
)

// AppendAsk appends the argument of the script that asks a of a bucket of rule r.
func AppendAsk(dst []byte, r *bucket.Rule, a *bucket.Ask) []byte {
	dst = appendDoubles(dst,
		bit(a.Reset), float64(a.Debit), float64(a.Refund),
		float64(a.Epoch), float64(a.Slot), float64(a.Recorded), float64(a.Keep), float64(a.Return),
		float64(a.Queued), float64(a.Need), float64(a.Unit),
		bit(a.Lease), a.Rate, a.Seen, a.Lead, a.Arrived, a.Since, float64(r.N))
	for _, l := range r.Limits[:r.N] {
		dst = appendDoubles(dst, float64(l.Count), float64(l.Period.Microseconds()), float64(l.Burst))
	}
	switch r.Algorithm {
	case bucket.SlidingWindow:
		return appendDoubles(dst, a.Age, float64(r.Parts))
	case bucket.SlidingLog:
		return appendDoubles(dst, a.Age)
	case bucket.Concurrency:
		return appendDoubles(dst, float64(a.Agent), float64(a.Seq), float64(a.InUse), a.Holding, a.Waited)
	}
	return appendDoubles(dst, float64(r.Refill()), float64(r.Borrow), bit(a.Paced), a.Patience)
}

func parseGrant(reply string, r *bucket.Rule) (bucket.Grant, error) {
	size := grantHead + grantElse
	if r.Levelled() {
		size = grantHead + r.N*grantLevel
	}
	if len(reply) != 8*size {
		return bucket.Grant{}, fmt.Errorf("the script answered %d bytes for a %s of %d limits, expected %d", len(reply), r.Algorithm, r.N, 8*size)
	}
	x := func(i int) float64 {
		return math.Float64frombits(binary.LittleEndian.Uint64([]byte(reply[8*i : 8*i+8])))
	}
	flags := int(x(4))
	g := bucket.Grant{
		Permits: int64(x(0)), Direct: int64(x(1)), Epoch: int64(x(2)), Slot: int64(x(3)),
		Void: flags&1 != 0, Scarce: flags&2 != 0, Others: flags&4 != 0,
		Horizon: x(5), Interval: x(6), Hosts: x(7), Granted: x(8), Life: x(9), Delay: x(10),
	}
	if !r.Levelled() {
		g.Outlook = bucket.Outlook{Free: x(11), Want: x(12), Soon: int64(x(13)), Full: int64(x(14))}
		return g, nil
	}
	for i := range r.N {
		g.Outlook.Levels[i] = bucket.Level{Permits: x(grantHead + 2*i), At: int64(x(grantHead + 1 + 2*i)), Burst: r.Limits[i].Burst}
	}
	return g, nil
}

// refusal is the error of a single key.
type refusal string

func (e refusal) Error() string { return string(e) }

// RedisError tells that the text is Redis's own.
func (refusal) RedisError() {}

// keyError returns the error that stands in the place of a key's reply, or nil.
func keyError(reply any) error {
	if words, is := reply.([]any); is && len(words) == 1 {
		return refusal(fmt.Sprint(words[0]))
	}
	return nil
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func appendDoubles(dst []byte, all ...float64) []byte {
	for _, x := range all {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(x))
	}
	return dst
}
