// Demand estimates how fast a bucket's permits are asked for on this host.

package localcache

import (
	"math"
	"time"
)

const (
	demandWindow = 0.25 // s
	demandBin    = 5 * time.Millisecond
)

// demand is an exponentially weighted rate with its weight kept, so that it is
// right from the first bin on, and is given as a lower confidence bound: one call
// never earns a lease. Its zero value has seen nothing.
type demand struct {
	last         time.Duration // end of the last folded bin
	cost, calls  float32       // decayed sums
	weight       float32       // s of observation they stand for
	binCost, bin float32       // since last
	rate         float32       // permits/s
}

// observe counts a call, and starts afresh after silence, so that a jump is seen
// at once.
func (d *demand) observe(now time.Duration, cost int64) {
	if now-d.last >= demandBin {
		d.fold(now)
		if d.calls < 0.3 {
			d.cost, d.calls, d.weight = 0, 0, 0
		}
	}
	d.binCost += float32(cost)
	d.bin++
}

func (d *demand) fold(now time.Duration) {
	if now <= d.last {
		return
	}
	w := float32(math.Exp(-(now - d.last).Seconds() / demandWindow))
	d.cost = d.cost*w + d.binCost
	d.calls = d.calls*w + d.bin
	d.weight = d.weight*w + demandWindow*(1-w)
	d.binCost, d.bin, d.last = 0, 0, now
	d.rate = 0
	if d.calls > 1 {
		d.rate = d.cost / max(d.weight, 0.002) * (1 - 1/float32(math.Sqrt(float64(d.calls))))
	}
}
