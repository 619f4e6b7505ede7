// Any number of networks, searched in the time of one binary search.

package policy

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// address is what a network holds: an IPv4 or an IPv6 address, as a number.
type address[A any] interface {
	comparable
	compare(A) int
	next() A // wraps behind the last
}

type addr4 uint32

func as4(a netip.Addr) addr4 { b := a.As4(); return addr4(binary.BigEndian.Uint32(b[:])) }

func (a addr4) compare(b addr4) int { return cmp.Compare(a, b) }
func (a addr4) next() addr4         { return a + 1 }

type addr6 struct{ high, low uint64 }

func as6(a netip.Addr) addr6 {
	b := a.As16()
	return addr6{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (a addr6) compare(b addr6) int {
	if a.high == b.high {
		return cmp.Compare(a.low, b.low)
	}
	return cmp.Compare(a.high, b.high)
}

func (a addr6) next() addr6 {
	a.low++
	if a.low == 0 {
		a.high++
	}
	return a
}

// span is one network, both ends within it, and the number of its entry.
type span[A address[A]] struct {
	first, last A
	entry       uint32
}

func span4(p netip.Prefix, entry uint32) span[addr4] {
	a := as4(p.Addr())
	return span[addr4]{a, a | addr4(uint64(1)<<(32-p.Bits())-1), entry}
}

func span6(p netip.Prefix, entry uint32) span[addr6] {
	first := as6(p.Addr())
	last := first
	if bits := p.Bits(); bits >= 64 {
		last.low |= 1<<(128-bits) - 1 // a shift by 64 gives 0, so all ones
	} else {
		last.high |= 1<<(64-bits) - 1
		last.low = ^uint64(0)
	}
	return span[addr6]{first, last, entry}
}

// none is the entry of an address that no network holds.
const none = ^uint32(0)

// spans tells the lowest entry whose network holds an address. The addresses are
// cut where that changes: piece i begins at from[i], ends before from[i+1], and
// belongs to entry[i]. So networks that lie in others cost no search of their own:
// n networks make at most 2n pieces.
type spans[A address[A]] struct {
	from  []A
	entry []uint32
}

// find returns the entry of a, or none.
func (s *spans[A]) find(a A) uint32 {
	low, high := 0, len(s.from) // pieces before low begin at a or before, those from high on behind it
	for low < high {
		if mid := (low + high) / 2; s.from[mid].compare(a) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return none
	}
	return s.entry[low-1]
}

// cut begins a piece of entry at a: in place of the last one when that begins
// there too, and not at all when that one goes on.
func (s *spans[A]) cut(a A, entry uint32) {
	n := len(s.from)
	if n > 0 && s.from[n-1] == a {
		n--
	}
	s.from, s.entry = s.from[:n], s.entry[:n]
	if n > 0 && s.entry[n-1] == entry || n == 0 && entry == none {
		return
	}
	s.from, s.entry = append(s.from, a), append(s.entry, entry)
}

// newSpans sorts all, and returns its pieces and the entries that lie in an
// earlier one. Networks hold one another or are apart, so those open at an
// address are a stack.
func newSpans[A address[A]](all []span[A]) (s spans[A], covered []uint32) {
	slices.SortFunc(all, func(a, b span[A]) int {
		return cmp.Or(a.first.compare(b.first), b.last.compare(a.last), cmp.Compare(a.entry, b.entry))
	})
	var open []span[A] // its entry is the lowest of all up to it
	closeTop := func() {
		top := open[len(open)-1]
		open = open[:len(open)-1]
		if end := top.last.next(); end.compare(top.last) > 0 {
			s.cut(end, lowest(open))
		}
	}
	for _, n := range all {
		for len(open) > 0 && open[len(open)-1].last.compare(n.first) < 0 {
			closeTop()
		}
		if around := lowest(open); around < n.entry {
			covered = append(covered, n.entry)
			n.entry = around
		}
		open = append(open, n)
		s.cut(n.first, n.entry)
	}
	for len(open) > 0 {
		closeTop()
	}
	s.from, s.entry = slices.Clone(s.from), slices.Clone(s.entry) // without room to grow
	return s, covered
}

func lowest[A address[A]](open []span[A]) uint32 {
	if len(open) == 0 {
		return none
	}
	return open[len(open)-1].entry
}
