// histogram keeps latencies in little memory and without allocating.

package main

import (
	"math"
	"math/bits"
	"time"
)

const (
	fineBits = 6 // a class is at most 1/64 of its values wide
	fine     = 1 << fineBits
	maxShift = 29 // the last class ends at 2^36 ns, 68 s
	classes  = fine * (maxShift + 2)
)

// histogram counts durations in classes that grow with them: below 64 ns each
// nanosecond has its own, then every power of two is cut in 64. The zero
// histogram is ready to use; it belongs to one goroutine.
type histogram struct {
	counts [classes]uint64
	n      uint64
	max    time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.counts[class(d)]++
	h.n++
	h.max = max(h.max, d)
}

func class(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < fine {
		return int(v)
	}
	shift := bits.Len64(v) - fineBits - 1
	return min(fine*shift+int(v>>shift), classes-1)
}

// longest returns the longest duration of class i.
func longest(i int) time.Duration {
	if i < fine {
		return time.Duration(i)
	}
	shift := i/fine - 1
	return time.Duration((fine+i%fine+1)<<shift - 1)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile returns what the share q, 0..1, of all durations did not exceed, less
// than 1/64 too long; 0 when there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.n)))
	seen := uint64(0)
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= rank {
			return min(longest(i), h.max)
		}
	}
	return h.max
}
