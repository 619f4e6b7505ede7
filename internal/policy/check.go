// Reading typed values out of the tree, and collecting what is wrong with them.

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checker walks a tree. Every problem is recorded with its place and the walk
// goes on, so that one run shows them all.
type checker struct {
	file     string
	errs     Errors
	warnings Errors
	beyond   int    // problems that were not kept
	shared   bool   // Redis is configured
	shelf    *shelf // nil in a list file
	apps     *apps
}

// enough bounds what is kept of a file that is wrong everywhere.
const enough = 1000

func (c *checker) fail(n *node, format string, a ...any) {
	if len(c.errs) == enough {
		c.beyond++
		return
	}
	c.errs = append(c.errs, &Error{c.file, n.line, n.col, fmt.Sprintf(format, a...)})
}

func (c *checker) failures() int { return len(c.errs) + c.beyond }

func (c *checker) warn(n *node, format string, a ...any) {
	if len(c.warnings) < enough {
		c.warnings = append(c.warnings, &Error{c.file, n.line, n.col, fmt.Sprintf(format, a...)})
	}
}

// field is one name a mapping may have, and what reads its value.
type field struct {
	name string
	read func(name string, n *node)
}

// keep is a field that is read later, with others.
func keep(name string, into **node) field {
	return field{name, func(_ string, n *node) { *into = n }}
}

// object reads the mapping n, whose name is what.
func (c *checker) object(what string, n *node, fields ...field) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	c.each(what, n, func(key, value *node) {
		i := slices.Index(names, key.text)
		if i < 0 {
			c.fail(key, "unknown field %s%s", quote(key.text), didYouMean(key.text, names))
			return
		}
		fields[i].read(key.text, value)
	})
}

// each calls read for every pair of the mapping n, except repeated and empty ones.
func (c *checker) each(what string, n *node, read func(key, value *node)) {
	if !c.is(what, n, kindMap) {
		return
	}
	seen := make(map[string]*node, len(n.fields))
	for _, f := range n.fields {
		switch first := seen[f.key.text]; {
		case first != nil:
			c.fail(f.key, "%s is given twice: first on line %d", quote(f.key.text), first.line)
		case f.value.kind == kindNull:
			c.fail(f.value, "%s is empty: give a value or remove it", quote(f.key.text))
			seen[f.key.text] = f.key
		default:
			seen[f.key.text] = f.key
			read(f.key, f.value)
		}
	}
}

// is reports whether n is of kind k, and fails otherwise.
func (c *checker) is(what string, n *node, k kind) bool {
	if n.kind == k {
		return true
	}
	if n.scalar() {
		c.fail(n, "%s must be %s, not %s %s", what, k, n.kind, n.show())
	} else {
		c.fail(n, "%s must be %s, not %s", what, k, n.kind)
	}
	return false
}

func (c *checker) text(into *string, check func(string) error) func(string, *node) {
	return func(name string, n *node) {
		if !c.is(name, n, kindText) {
			return
		}
		if err := check(n.text); err != nil {
			c.fail(n, "%s %s: %v", name, n.show(), err)
			return
		}
		*into = n.text
	}
}

func (c *checker) boolean(set func(bool)) func(string, *node) {
	return func(name string, n *node) {
		if n.kind != kindBool {
			c.fail(n, "%s must be true or false, not %s", name, n.show())
			return
		}
		set(strings.EqualFold(n.text, "true"))
	}
}

// choice reads one of names, and passes on its index.
func (c *checker) choice(names []string, set func(int)) func(string, *node) {
	return func(name string, n *node) {
		if !n.scalar() {
			c.is(name, n, kindText)
			return
		}
		i := slices.Index(names, n.text)
		if i < 0 {
			c.fail(n, "unknown %s %s%s", name, n.show(), didYouMean(n.text, names))
			return
		}
		set(i)
	}
}

// integer reads a decimal number, in which underscores may group digits.
func (c *checker) integer(name string, n *node, lo, hi int64) (int64, bool) {
	if !c.is(name, n, kindInt) {
		return 0, false
	}
	v, ok := parseCount(n.text)
	if !ok || v < lo || v > hi {
		c.fail(n, "%s %s: allowed are whole numbers %d to %d", name, n.show(), lo, hi)
		return 0, false
	}
	return v, true
}

func (c *checker) number(lo, hi int64, set func(int64)) func(string, *node) {
	return func(name string, n *node) {
		if v, ok := c.integer(name, n, lo, hi); ok {
			set(v)
		}
	}
}

func (c *checker) duration(into *time.Duration, lo, hi time.Duration) func(string, *node) {
	return func(name string, n *node) {
		if !n.scalar() {
			c.is(name, n, kindText)
			return
		}
		d, err := parsePeriod(n.text)
		switch {
		case err != nil:
			c.fail(n, "%s %s: %v", name, n.show(), err)
		case d < lo || d > hi:
			c.fail(n, "%s %s: allowed are %s to %s", name, n.show(), showPeriod(lo), showPeriod(hi))
		default:
			*into = d
		}
	}
}

// parseCount reads digits, grouped by underscores or not. A number beyond int64
// is not one.
func parseCount(s string) (int64, bool) {
	for part := range strings.SplitSeq(s, "_") {
		if !digits(part) {
			return 0, false
		}
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	return v, err == nil
}
