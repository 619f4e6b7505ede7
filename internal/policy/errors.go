// What is wrong with a file, where, and what was probably meant.

package policy

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Error is one problem at one place of a file. Line and Column count from 1.
type Error struct {
	File         string
	Line, Column int
	Message      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors is every problem found, in file order: at most 20 of the configuration,
// and behind them at most 10 of each list file and one that counts the rest.
type Errors []*Error

func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find an *Error.
func (es Errors) Unwrap() []error {
	all := make([]error, len(es))
	for i, e := range es {
		all[i] = e
	}
	return all
}

const maxErrors = 20

func (es Errors) sort() {
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

func (es Errors) sorted() Errors {
	es.sort()
	return es[:min(len(es), maxErrors)]
}

// most returns the first n of es, and one that counts those left out, which are
// more by beyond than es has.
func (es Errors) most(n, beyond int) Errors {
	es.sort()
	if len(es) <= n {
		return es
	}
	next := *es[n]
	next.Message = fmt.Sprintf("and %d more", len(es)-n+beyond)
	return append(slices.Clone(es[:n]), &next)
}

// nearest returns the name with the fewest edits from word, the first of several,
// or "" when that would change more than a third of it. Words of one or two
// letters are near to nothing.
func nearest(word string, names iter.Seq[string]) string {
	best, least := "", len(word)/3+1
	for name := range names {
		if d := edits(word, name, least); d < least {
			best, least = name, d
		}
	}
	return best
}

// edits counts the insertions, deletions, changes and swaps of neighbours that
// turn a into b, or returns limit when there are that many or more.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(b) > maxName {
		return limit
	}
	var rows [3][maxName + 1]int // the row before last, the last, and this one, in turn
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, last, older := &rows[i%3], &rows[(i+2)%3], &rows[(i+1)%3]
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least >= limit {
			return limit
		}
	}
	return min(limit, rows[len(a)%3][len(b)])
}

// didYouMean is the end of a message about an unknown word.
func didYouMean(word string, names []string) string {
	if n := nearest(word, slices.Values(names)); n != "" {
		return fmt.Sprintf(": did you mean '%s'?", n)
	}
	return ": allowed are " + strings.Join(names, ", ")
}
