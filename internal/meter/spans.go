// Real hosts cannot say when exactly a permit was used, only before and after which
// moments. What is surely too much can still be told.

package meter

import (
	"cmp"
	"math"
	"slices"

	"rlsidecar/internal/bucket"
)

// Span is the use of one permit at some moment From..To, in µs.
type Span struct{ From, To int64 }

// SpansExcess returns how far uses exceeded limit i of r, which is to be a token
// bucket, at worst: over all intervals, the uses that lie in it from end to end, less
// B + r·Δ. It is 0 whenever there are moments within the spans at which the uses would
// have kept the limit. It takes n·log n steps.
func SpansExcess(r *bucket.Rule, i int, uses []Span) float64 {
	level := newLevel(r, i)
	uses = slices.Clone(uses)
	slices.SortFunc(uses, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	byEnd := make([]int, len(uses))
	for i := range byEnd {
		byEnd[i] = i
	}
	slices.SortStableFunc(byEnd, func(a, b int) int { return cmp.Compare(uses[a].To, uses[b].To) })
	t, most := newHeights(len(uses)), 0.0
	for _, i := range byEnd {
		t.begin(i, level.Rate*float64(uses[i].From))
		t.add(i)
		most = max(most, t.top()-level.Rate*float64(uses[i].To)-level.Capacity)
	}
	return most
}

// heights is, for each place in the order of From, the uses counted since, plus what
// drains before: the highest of them tells the worst interval that ends now. It is a
// tree in an array, the children of node n being 2n and 2n+1, in which a node's most is
// that of its subtree, what was added to the node included.
type heights struct {
	leaves      int
	most, added []float64
}

func newHeights(n int) *heights {
	h := &heights{leaves: 1}
	for h.leaves < n {
		h.leaves *= 2
	}
	h.most = slices.Repeat([]float64{math.Inf(-1)}, 2*h.leaves)
	h.added = make([]float64, 2*h.leaves)
	return h
}

func (h *heights) top() float64 { return h.most[1] }

// begin makes place i one that intervals may begin at.
func (h *heights) begin(i int, height float64) {
	n := i + h.leaves
	h.most[n] = height + h.added[n]
	h.mend(n)
}

// add counts one use for every place up to i.
func (h *heights) add(i int) {
	n := i + h.leaves
	h.raise(n)
	for ; n > 1; n /= 2 {
		if n%2 == 1 {
			h.raise(n - 1)
		}
	}
	h.mend(i + h.leaves)
}

func (h *heights) raise(n int) { h.most[n]++; h.added[n]++ }

// mend brings the ancestors of n, whose lower neighbours may have changed, up to date.
func (h *heights) mend(n int) {
	for n /= 2; n > 0; n /= 2 {
		h.most[n] = max(h.most[2*n], h.most[2*n+1]) + h.added[n]
	}
}
