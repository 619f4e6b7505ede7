// Which entry of a list a key meets: exact text, glob, address or network.

package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

const (
	maxPattern = 1024 // bytes: the longest key there is
	maxGlobs   = 1000 // per list: they are tried one after the other
)

// matcher finds the first entry that matches a key. Entries are numbered from 0
// in the order they were added; in a list without order all have the number 0.
// Exact entries cost one map lookup and networks one binary search, however many
// there are. Globs are tried in order.
type matcher struct {
	exact map[string]uint32
	globs []numbered
	v4    spans[addr4]
	v6    spans[addr6]
	n     int // entries, repeated ones too
}

// numbered is the text of an entry and its number.
type numbered struct {
	text   string
	number uint32
}

// subject is a key to be matched, and the address it spells, if any.
type subject struct {
	key  []byte
	addr netip.Addr
}

func (s *subject) spell() {
	if a, ok := parseAddr(s.key); ok {
		s.addr = a
	}
}

func (m *matcher) hasNetworks() bool { return len(m.v4.from) > 0 || len(m.v6.from) > 0 }

// first returns the number of the first entry that matches, or none.
func (m *matcher) first(s *subject) uint32 {
	best, ok := m.exact[string(s.key)]
	if !ok {
		best = none
	}
	switch {
	case s.addr.Is4():
		best = min(best, m.v4.find(as4(s.addr)))
	case s.addr.IsValid():
		best = min(best, m.v6.find(as6(s.addr)))
	}
	for i := range m.globs {
		g := &m.globs[i]
		if g.number >= best {
			break
		}
		if globMatch(g.text, s.key) {
			return g.number
		}
	}
	return best
}

// collector gathers the entries of a list, from which it makes a matcher.
type collector struct {
	ordered bool // the first match counts; otherwise any does
	exact   []numbered
	globs   []numbered
	v4      []span[addr4]
	v6      []span[addr6]
	covered []uint32
	n       int
}

// add appends an entry; it may keep the text until the matcher is made.
func (c *collector) add(entry string) error {
	if entry == "" || len(entry) > maxPattern {
		return fmt.Errorf("an entry of %d bytes: allowed are 1 to %d", len(entry), maxPattern)
	}
	network, isNetwork, err := parseNetwork(entry)
	if err != nil {
		return err
	}
	var number uint32
	if c.ordered {
		number = uint32(c.n)
	}
	switch {
	case isNetwork && network.Addr().Is4():
		c.v4 = append(c.v4, span4(network, number))
	case isNetwork:
		c.v6 = append(c.v6, span6(network, number))
	case strings.ContainsAny(entry, "*?"):
		err = c.addGlob(entry, number)
	default:
		c.exact = append(c.exact, numbered{entry, number})
	}
	if err == nil {
		c.n++
	}
	return err
}

func (c *collector) addGlob(entry string, number uint32) error {
	if len(c.globs) == maxGlobs {
		return fmt.Errorf("more than %d entries with * or ?: use a prefix and one *, exact keys or networks", maxGlobs)
	}
	for _, g := range c.globs {
		if g.text == entry || g.text == "*" {
			c.covered = append(c.covered, number)
			return nil
		}
	}
	c.globs = append(c.globs, numbered{strings.Clone(entry), number})
	return nil
}

// matcher returns the matcher of the entries, and the numbers of those of an
// ordered list that can never be the first, as far as that is cheap to tell.
func (c *collector) matcher() (m *matcher, covered []uint32) {
	m = &matcher{globs: c.globs, n: c.n}
	covered = c.covered
	var more []uint32
	m.v4, more = newSpans(c.v4)
	covered = append(covered, more...)
	m.v6, more = newSpans(c.v6)
	covered = append(covered, more...)
	return m, append(covered, c.keys(m)...)
}

// keys puts the exact entries into m, their text in one piece: that of the list
// they are from can go.
func (c *collector) keys(m *matcher) (covered []uint32) {
	const most = 1 << 20 // comparisons of keys with globs
	size := 0
	for _, e := range c.exact {
		size += len(e.text)
	}
	var text strings.Builder
	text.Grow(size)
	m.exact = make(map[string]uint32, len(c.exact))
	thorough := c.ordered && len(c.exact)*len(c.globs) <= most
	for _, e := range c.exact {
		s := subject{key: []byte(e.text)}
		s.spell()
		_, is := m.exact[e.text]
		if is || thorough && m.first(&s) < e.number {
			covered = append(covered, e.number)
			continue
		}
		text.WriteString(e.text)
		m.exact[text.String()[text.Len()-len(e.text):]] = e.number
	}
	return covered
}

// globMatch reports whether key matches pattern, where * is any run of bytes and
// ? any one byte. It takes at most len(pattern) * len(key) steps.
func globMatch(pattern string, key []byte) bool {
	p, k := 0, 0
	star, resume := -1, 0
	for k < len(key) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, k
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == key[k]):
			p, k = p+1, k+1
		case star >= 0:
			resume++
			p, k = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
