// Lists in files of their own: an entry a line, beside those in the configuration.

package policy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"rlsidecar/internal/bucket"
)

// MaxList is the largest list file, in bytes.
const MaxList = 64 << 20

const maxPerList = 10 // problems shown of one list file, and warnings

// The fields of a policy that name a list file.
const (
	exemptFile    = "exempt_file"
	blockFile     = "block_file"
	overridesFile = "overrides_file"
)

// shelf is the list files of one load. Each is read once, and made into a matcher
// once, however many policies name it.
type shelf struct {
	folder string // where relative paths begin
	read   func(path string) ([]byte, error)
	byPath map[string]*listFile
	files  []*listFile // in the order they are named
}

type listFile struct {
	path      string
	text      string
	err       error // why it could not be read
	sum       [sha256.Size]byte
	check     checker // collects what is wrong with it
	entries   *matcher
	overrides map[template]*overrides
}

// template is what the overrides of a file take from their policy.
type template struct {
	rule   bucket.Rule
	hold   time.Duration
	leased bool
}

func newShelf(config string, read func(path string) ([]byte, error)) *shelf {
	return &shelf{folder: filepath.Dir(config), read: read, byPath: map[string]*listFile{}}
}

func readList(path string) ([]byte, error) {
	data, err := readFile(path, MaxList)
	if err == nil && len(data) > MaxList {
		err = fmt.Errorf("is larger than %d MiB", MaxList>>20)
	}
	return data, err
}

// open returns the file of that path, which it reads when it is new.
func (s *shelf) open(path string) *listFile {
	path = within(s.folder, path)
	if f := s.byPath[path]; f != nil {
		return f
	}
	f := &listFile{path: path, check: checker{file: path}, overrides: map[template]*overrides{}}
	data, err := s.read(path)
	if f.err = withoutPath(err); err == nil {
		f.sum, f.text = sha256.Sum256(data), strings.TrimPrefix(string(data), "\ufeff")
	}
	s.byPath[path] = f
	s.files = append(s.files, f)
	return f
}

// within returns path, which begins at folder unless it is absolute.
func within(folder, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(folder, path)
}

func withoutPath(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// listPaths returns the list files that the policies below root name, each once.
func listPaths(root *node, folder string) []string {
	var paths []string
	for _, policies := range root.named("policies") {
		for _, policy := range policies.fields {
			for _, f := range policy.value.fields {
				if path := within(folder, f.value.text); isListField(f.key.text) && isPath(f.value) && !slices.Contains(paths, path) {
					paths = append(paths, path)
				}
			}
		}
	}
	return paths
}

func isListField(name string) bool {
	return name == exemptFile || name == blockFile || name == overridesFile
}

func isPath(n *node) bool { return n.kind == kindText && checkListPath(n.text) == nil }

func checkListPath(path string) error {
	if path == "" {
		return errors.New("name a file")
	}
	return printable(path)
}

// list opens the file that a policy names, or says why that is not possible.
func (c *checker) list(name string, n *node) *listFile {
	path := ""
	if c.text(&path, checkListPath)(name, n); path == "" {
		return nil
	}
	f := c.shelf.open(path)
	if f.err != nil {
		c.fail(n, "%s %s: %v", name, quote(f.path), f.err)
		return nil
	}
	f.check.shared = c.shared
	return f
}

// entryFile adds the entries of the file that n names to a policy's lists.
func (c *checker) entryFile(name string, n *node, into *[]*matcher) {
	if f := c.list(name, n); f != nil {
		*into = append(*into, f.matcher())
	}
}

// matcher returns the matcher of a file of entries.
func (f *listFile) matcher() *matcher {
	if f.entries != nil {
		return f.entries
	}
	var all collector
	for place, line := range f.lines() {
		if err := all.add(line); err != nil {
			f.check.fail(&place, "%v", err)
		}
	}
	f.entries, _ = all.matcher()
	return f.entries
}

// overrideFile adds the overrides of the file that n names to p. A file in which
// something is wrong already is not read again for another policy: it would be said
// twice.
func (c *checker) overrideFile(n *node, p *Policy, base shape) {
	f := c.list(overridesFile, n)
	if f == nil {
		return
	}
	t := template{base.rule, base.hold, base.leased}
	o := f.overrides[t]
	if o == nil && len(f.check.errs) == 0 {
		o = f.ruled(base)
		f.overrides[t] = o
	}
	if o != nil {
		p.overrides = append(p.overrides, o)
	}
}

// ruled reads a file of overrides: on each line a limit, perhaps a burst, and
// behind them the key. Most lines have one of a few limits, so what their text
// means is kept in known.
func (f *listFile) ruled(base shape) *overrides {
	r := newRuling()
	known := map[string]bucket.Rule{}
	for at, line := range f.lines() {
		spec, key := cutKey(line)
		if key == "" {
			f.check.fail(&at, "no key: write LIMIT KEY, such as 100/second vip:42")
			continue
		}
		rule, is := known[spec]
		if !is {
			before := f.check.failures()
			rule = f.check.rule(base.from(&at, spec))
			if f.check.failures() > before {
				continue
			}
			known[strings.Clone(spec)] = rule
		}
		at.col += len(spec)
		if err := r.add(key, at.line, at.col, rule); err != nil {
			f.check.fail(&at, "key: %v", err)
		}
	}
	return r.done(&f.check)
}

const burstIs = "burst="

// cutKey cuts a line where its key begins.
func cutKey(line string) (spec, key string) {
	key = afterWord(line)
	if strings.HasPrefix(key, burstIs) {
		key = afterWord(key)
	}
	return line[:len(line)-len(key)], key
}

func afterWord(s string) string {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return ""
	}
	return strings.TrimLeft(s[i:], " \t")
}

// from returns s with the limit and the burst of spec, which begins at the place.
func (s shape) from(at *node, spec string) shape {
	s.owner, s.in, s.burst = at, at, nil
	limit, burst, is := strings.Cut(spec, burstIs)
	s.limit = words(at.line, at.col, limit)
	if is {
		s.burst = words(at.line, at.col+len(limit)+len(burstIs), burst)
	}
	return s
}

// words returns the value that text is: a list when it has commas.
func words(line, col int, text string) *node {
	n := &node{kind: kindText, line: line, col: col, text: strings.TrimRight(text, " \t")}
	if _, is := parseCount(n.text); is {
		n.kind = kindInt
	}
	if !strings.Contains(n.text, ",") {
		return n
	}
	n.kind = kindList
	for word := range strings.SplitSeq(n.text, ",") {
		n.items = append(n.items, words(line, col, word))
		col += len(word) + 1
	}
	return n
}

// lines yields the lines that are not blank or a comment, without the space around
// them, and where they begin. Lines that no text has are reported, not yielded.
func (f *listFile) lines() iter.Seq2[node, string] {
	return func(yield func(node, string) bool) {
		number := 0
		for line := range strings.Lines(f.text) {
			number++
			text := strings.TrimLeft(line, " \t")
			place := node{kind: kindText, line: number, col: len(line) - len(text) + 1}
			text = strings.TrimRight(text, " \t\r\n")
			if text == "" || text[0] == '#' {
				continue
			}
			if at, err := checkLine(text); err != nil {
				place.col += at
				f.check.fail(&place, "%v", err)
				continue
			}
			if !yield(place, text) {
				return
			}
		}
	}
}

// checkLine refuses what no text file holds, and a comment where it would become
// part of an entry. at is how many bytes in front are well.
func checkLine(text string) (at int, err error) {
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			return i, fmt.Errorf("byte 0x%02x is not UTF-8", text[i])
		case r < ' ' && r != '\t' || r == 0x7f:
			return i, fmt.Errorf("control character %U: is this a text file?", r)
		case r == '#' && (text[i-1] == ' ' || text[i-1] == '\t'):
			return i, errors.New("a comment needs a line of its own (a key with ' #' in it goes into the configuration)")
		}
	}
	return 0, nil
}

// count returns how many entries the file has, of whatever kind.
func (f *listFile) count() int {
	n := 0
	if f.entries != nil {
		n = f.entries.n
	}
	for _, o := range f.overrides {
		n = max(n, o.keys.n)
	}
	return n
}

// problems returns what is wrong with the file: at most maxPerList, and how many more.
func (f *listFile) problems() Errors {
	return f.check.errs.most(maxPerList, f.check.beyond)
}

func (f *listFile) warnings() Errors {
	return f.check.warnings.most(maxPerList, 0)
}
