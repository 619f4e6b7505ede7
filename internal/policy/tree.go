// YAML text into a plain tree with positions. All that is known of the YAML
// library is in this file.

package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The library recurses and has no depth limit of its own, so depth is bounded
// before it parses: of brackets, of dashes on one line, and of indentation.
const (
	maxDepth  = 16
	maxIndent = 200
)

type kind uint8

const (
	kindNull kind = iota
	kindText
	kindInt
	kindFloat
	kindBool
	kindList
	kindMap
)

var kindNames = []string{"nothing", "a string", "a whole number", "a decimal number", "a boolean", "a list", "a mapping"}

func (k kind) String() string { return kindNames[k] }

// node is one value of the file, or a key. Scalars keep their text as written,
// without quotes.
type node struct {
	kind      kind
	line, col int
	text      string
	items     []*node
	fields    []pair
}

type pair struct{ key, value *node }

// named returns the values of the fields of that name: one, unless it is repeated.
// It may be asked of the nil of an empty file.
func (n *node) named(name string) []*node {
	if n == nil {
		return nil
	}
	var values []*node
	for _, f := range n.fields {
		if f.key.text == name {
			values = append(values, f.value)
		}
	}
	return values
}

// scalar reports whether n is written as one word: it may stand for a name.
func (n *node) scalar() bool { return n.kind >= kindText && n.kind <= kindBool }

// show returns the value for a message.
func (n *node) show() string {
	if !n.scalar() {
		return n.kind.String()
	}
	return quote(n.text)
}

// quote puts s in quotes, cut when long, with anything unprintable escaped.
func quote(s string) string {
	const most = 60
	if runes := []rune(s[:min(len(s), 4*most)]); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	s = strings.Trim(fmt.Sprintf("%q", s), `"`)
	return "'" + strings.ReplaceAll(s, `\"`, `"`) + "'"
}

// readTree returns the tree of the one document in data, nil when it is empty.
func readTree(data []byte) (root *node, err *Error) {
	defer func() {
		if v := recover(); v != nil {
			root, err = nil, at(1, 1, "not readable as YAML (%v)", v)
		}
	}()
	if err := checkText(data); err != nil {
		return nil, err
	}
	tokens := lexer.Tokenize(strings.TrimPrefix(string(data), "\ufeff"))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	file, perr := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if perr != nil {
		return nil, syntaxError(perr)
	}
	return document(file)
}

func at(line, col int, format string, a ...any) *Error {
	return &Error{Line: max(line, 1), Column: max(col, 1), Message: fmt.Sprintf(format, a...)}
}

func atToken(tk *token.Token, format string, a ...any) *Error {
	if tk == nil || tk.Position == nil {
		return at(1, 1, format, a...)
	}
	return at(tk.Position.Line, tk.Position.Column, format, a...)
}

// checkText refuses what no text file holds: it tells a wrong file early, and
// keeps terminals that show a message safe.
func checkText(data []byte) *Error {
	if len(data) > MaxFile {
		return at(1, 1, "the file is larger than %d MiB", MaxFile>>20)
	}
	line, col := 1, 1
	for i := 0; i < len(data); col++ {
		r, size := utf8.DecodeRune(data[i:])
		i += size
		switch {
		case r == '\n':
			line, col = line+1, 0
		case r == utf8.RuneError && size == 1:
			return at(line, col, "byte 0x%02x is not UTF-8", data[i-1])
		case r < ' ' && r != '\t' && r != '\r' || r == 0x7f:
			return at(line, col, "control character %U: write it as an escape in double quotes", r)
		}
	}
	return nil
}

func checkTokens(tokens token.Tokens) *Error {
	depth, dashes, line, begun := 0, 0, 0, false
	for _, tk := range tokens {
		if tk.Position.Line != line {
			line, dashes = tk.Position.Line, 0
			if tk.Position.Column > maxIndent && tk.Type != token.CommentType {
				return atToken(tk, "indented by more than %d columns", maxIndent)
			}
		}
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType:
			dashes++
		case token.DocumentHeaderType:
			if begun {
				return secondDocument(tk)
			}
		default:
			if what := refused[tk.Type]; what != "" {
				return atToken(tk, "%s", what)
			}
		}
		begun = begun || tk.Type != token.CommentType
		if depth > maxDepth || dashes > maxDepth {
			return atToken(tk, "nested more than %d deep", maxDepth)
		}
	}
	return nil
}

// refused are the parts of YAML that a file of rules does not need and that make
// it hard to read or to bound.
var refused = map[token.Type]string{
	token.AnchorType:     "YAML anchors are not supported: write the value out (a text that begins with '&' needs quotes)",
	token.AliasType:      "YAML aliases are not supported: write the value out (a text that begins with '*' needs quotes)",
	token.MergeKeyType:   "YAML merge keys are not supported: write the fields out",
	token.TagType:        "YAML tags are not supported: write the plain value (a text that begins with '!' needs quotes)",
	token.MappingKeyType: "YAML's '? key' form is not supported: write 'key: value'",
	token.DirectiveType:  "YAML directives are not supported: remove the line (a text that begins with '%' needs quotes)",
}

func syntaxError(err error) *Error {
	var ye yaml.Error
	if errors.As(err, &ye) {
		return atToken(ye.GetToken(), "YAML syntax: %s", strings.ReplaceAll(ye.GetMessage(), "\t", `\t`))
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return at(1, 1, "YAML syntax: %s", first)
}

func secondDocument(tk *token.Token) *Error {
	return atToken(tk, "a second YAML document: keep one per file")
}

func document(file *ast.File) (*node, *Error) {
	if len(file.Docs) > 1 {
		second := file.Docs[1]
		tk := second.Start
		if tk == nil && second.Body != nil {
			tk = second.Body.GetToken()
		}
		return nil, secondDocument(tk)
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, nil
	}
	n, err := convert(file.Docs[0].Body, &node{line: 1, col: 1})
	if err != nil || n.kind == kindNull {
		return nil, err
	}
	return n, nil
}

// convert returns the tree below v. What has no position gets that of near.
func convert(v ast.Node, near *node) (*node, *Error) {
	n := &node{line: near.line, col: near.col}
	if v == nil {
		return n, nil
	}
	if tk := v.GetToken(); tk != nil && tk.Position != nil && tk.Type != token.ImplicitNullType {
		n.line, n.col = max(tk.Position.Line, 1), max(tk.Position.Column, 1)
	}
	switch v := v.(type) {
	case *ast.NullNode:
		n.text = "null"
	case *ast.MappingNode:
		return n, n.mapping(v.Values, v.IsFlowStyle)
	case *ast.MappingValueNode:
		return n, n.mapping([]*ast.MappingValueNode{v}, false)
	case *ast.SequenceNode:
		return n, n.list(v.Values)
	case *ast.LiteralNode:
		n.kind, n.text = kindText, v.Value.Value
	default:
		return n, n.word(v)
	}
	return n, nil
}

func (n *node) mapping(values []*ast.MappingValueNode, flow bool) *Error {
	n.kind = kindMap
	for _, mv := range values {
		key, err := convert(mv.Key, n)
		if err != nil {
			return err
		}
		if key.kind == kindList || key.kind == kindMap {
			return at(key.line, key.col, "a field name must be a word, not %s", key.kind)
		}
		value, err := convert(mv.Value, key)
		if err != nil {
			return err
		}
		n.fields = append(n.fields, pair{key, value})
	}
	if len(n.fields) > 0 && !flow { // the library gives the place of the first colon
		n.line, n.col = n.fields[0].key.line, n.fields[0].key.col
	}
	return nil
}

func (n *node) list(values []ast.Node) *Error {
	n.kind = kindList
	for _, v := range values {
		item, err := convert(v, n)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	return nil
}

func (n *node) word(v ast.Node) *Error {
	tk := v.GetToken()
	if tk == nil {
		return at(n.line, n.col, "%s is not supported here", v.Type())
	}
	n.text = tk.Value
	switch v.(type) {
	case *ast.StringNode:
		n.kind = kindText
		if tk.Type == token.StringType && digits(n.text) {
			n.kind = kindInt // too large for the library
		}
	case *ast.IntegerNode:
		n.kind = kindInt
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind = kindFloat
	case *ast.BoolNode:
		n.kind = kindBool
	default:
		return at(n.line, n.col, "%s is not supported here", v.Type())
	}
	return nil
}
