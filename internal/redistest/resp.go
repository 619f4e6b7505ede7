// The little of the Redis wire format that Server.Do and Fake need. It shares no
// code with the client library, so that a fault of the library can't hide itself.

package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const maxLen = 16 << 20 // of a string or an array; past it, nothing is allocated

var errProtocol = errors.New("not RESP")

// ReplyError is an error reply of a server, without the leading "-".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Simple, Error, Int, Bulk, Nil and Array build what a Handle returns: a status
// ("OK"), an error that starts with its code ("LOADING ..."), an integer, a string
// of any bytes, null, and an array of replies built by these functions.
func Simple(s string) string { return "+" + s + "\r\n" }

func Error(s string) string { return "-" + s + "\r\n" }

func Int(n int64) string { return fmt.Sprintf(":%d\r\n", n) }

func Bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func Nil() string { return "$-1\r\n" }

func Array(replies ...string) string {
	return fmt.Sprintf("*%d\r\n%s", len(replies), strings.Join(replies, ""))
}

// value is one RESP value: items of an array, text of anything else.
type value struct {
	kind  byte // one of + - : $ *, or 0 for null
	text  string
	items []value
}

func readValue(r *bufio.Reader) (value, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return value{}, err
	}
	line, ok := strings.CutSuffix(line, "\r\n")
	if !ok || line == "" {
		return value{}, fmt.Errorf("%w: line %q", errProtocol, line)
	}
	v := value{kind: line[0], text: line[1:]}
	switch v.kind {
	case '+', '-', ':':
		return v, nil
	case '$', '*':
		return readSized(r, v)
	}
	return value{}, fmt.Errorf("%w: line %q", errProtocol, line)
}

// readSized reads what follows the header of a string or an array.
func readSized(r *bufio.Reader, v value) (value, error) {
	n, err := strconv.Atoi(v.text)
	if err != nil || n < -1 || n > maxLen {
		return value{}, fmt.Errorf("%w: length %q, want -1..%d", errProtocol, v.text, maxLen)
	}
	if n == -1 {
		return value{text: "(nil)"}, nil
	}
	if v.kind == '$' {
		buf := make([]byte, n+len("\r\n"))
		_, err := io.ReadFull(r, buf)
		return value{kind: '$', text: string(buf[:n])}, err
	}
	for range n {
		item, err := readValue(r)
		if err != nil {
			return value{}, err
		}
		v.items = append(v.items, item)
	}
	return v, nil
}

// String is the value as Server.Do returns it.
func (v value) String() string {
	if v.kind != '*' {
		return v.text
	}
	lines := make([]string, len(v.items))
	for i, item := range v.items {
		lines[i] = item.String()
	}
	return strings.Join(lines, "\n")
}

// readCommand reads an array of strings, at least one.
func readCommand(r *bufio.Reader) ([]string, error) {
	v, err := readValue(r)
	if err != nil {
		return nil, err
	}
	var words []string
	for _, item := range v.items {
		if item.kind == '$' {
			words = append(words, item.text)
		}
	}
	if len(words) == 0 || len(words) < len(v.items) {
		return nil, fmt.Errorf("%w: a command is an array of strings, got %q", errProtocol, v)
	}
	return words, nil
}

func roundTrip(rw io.ReadWriter, r *bufio.Reader, args []string) (string, error) {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = Bulk(a)
	}
	if _, err := io.WriteString(rw, Array(words...)); err != nil {
		return "", err
	}
	v, err := readValue(r)
	if err == nil && v.kind == '-' {
		return "", ReplyError(v.text)
	}
	return v.String(), err
}
