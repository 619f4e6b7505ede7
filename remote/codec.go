// The packed form in which an ask travels to lease.lua and a grant comes back:
// little-endian doubles, in the order of the script's unpack and pack.

package remote

import (
	"encoding/binary"
	"fmt"
	"math"

	"rlsidecar/internal/bucket"
)

const (
	grantHead  = 9 * 8
	grantLevel = 2 * 8
)

// AppendAsk appends the argument of lease.lua that asks a of a bucket of rule r.
func AppendAsk(dst []byte, r *bucket.Rule, a *bucket.Ask) []byte {
	for _, x := range [...]float64{
		bit(a.Reset), float64(a.Debit), float64(a.Refund),
		float64(a.Epoch), float64(a.Slot), float64(a.Recorded), float64(a.Keep), float64(a.Return),
		float64(a.Queued), float64(a.Need), float64(a.Unit),
		bit(a.Lease), a.Rate, a.Seen, a.Lead, a.Arrived, a.Since, float64(r.N),
	} {
		dst = appendDouble(dst, x)
	}
	for _, l := range r.Limits[:r.N] {
		for _, x := range [...]float64{float64(l.Count), float64(l.Period.Microseconds()), float64(l.Burst), bit(l.Interval)} {
			dst = appendDouble(dst, x)
		}
	}
	return dst
}

func parseGrant(reply string, r *bucket.Rule) (bucket.Grant, error) {
	if len(reply) != grantHead+r.N*grantLevel {
		return bucket.Grant{}, fmt.Errorf("the lease script answered %d bytes for a rule of %d limits, expected %d", len(reply), r.N, grantHead+r.N*grantLevel)
	}
	x := func(i int) float64 {
		return math.Float64frombits(binary.LittleEndian.Uint64([]byte(reply[8*i : 8*i+8])))
	}
	flags := int(x(4))
	g := bucket.Grant{
		Permits: int64(x(0)), Direct: int64(x(1)), Epoch: int64(x(2)), Slot: int64(x(3)),
		Void: flags&1 != 0, Scarce: flags&2 != 0, Others: flags&4 != 0,
		Horizon: x(5), Interval: x(6), Hosts: x(7), Granted: x(8),
	}
	for i := range r.N {
		g.Levels[i] = bucket.Level{Permits: x(9 + 2*i), At: int64(x(10 + 2*i)), Burst: r.Limits[i].Burst}
	}
	return g, nil
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func appendDouble(dst []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(x))
}
