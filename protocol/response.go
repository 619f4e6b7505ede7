// What a client reads: replies and their results.

package protocol

import (
	"errors"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"
)

// Response is the reply to one request. Its bytes alias the frame.
type Response struct {
	ID           uint32
	Notification bool   // the agent sent no reply but a notification: to be ignored
	Err          *Error // nil when there is a result
	Result       []byte // one encoded value; nil when there is an error
}

// ParseResponse reads one message of the size that Scanner.Next returned. After
// an error nothing more of the connection can be trusted.
func ParseResponse(frame []byte) (Response, error) {
	var r Response
	p := reader{frame}
	items, ok := p.array()
	if !ok {
		return r, refuse("reply", p.b, "an array: [1, msgid, error, result]")
	}
	kind, ok := p.integer(1, 2)
	if !ok {
		return r, refuse("message type", p.b, "1 for a reply, 2 for a notification")
	}
	if kind == 2 {
		r.Notification = true
		return r, nil
	}
	if items < 4 {
		return r, fmt.Errorf("reply of %d items: it has at least 4", items)
	}
	id, ok := p.integer(0, math.MaxUint32)
	if !ok {
		return r, refuse("msgid", p.b, "0 to 4294967295")
	}
	r.ID = uint32(id)
	return r, r.outcome(p)
}

// outcome reads what follows the msgid: error, result.
func (r *Response) outcome(p reader) error {
	if len(p.b) > 0 && p.b[0] == 0xc0 {
		p.b = p.b[1:]
		r.Result = p.b
		if !p.skip(1) {
			return errors.New("reply: cut off")
		}
		r.Result = r.Result[:len(r.Result)-len(p.b)]
		return nil
	}
	n, ok := p.array()
	if !ok || n < 2 {
		return refuse("error", p.b, "[code, message]")
	}
	code, ok := p.integer(math.MinInt32, math.MaxInt32)
	if !ok {
		return refuse("error code", p.b, "an integer")
	}
	msg, ok := p.bytes(0, MaxMessage)
	if !ok {
		return refuse("error message", p.b, "a str")
	}
	r.Err = &Error{Code(code), string(msg)}
	return nil
}

// ParseDecision reads the result of acquire and peek.
func ParseDecision(result []byte, d *Decision) error {
	p := reader{result}
	return p.decision(d)
}

// ParseAll reads the result of acquire_all: whether all were allowed, and the
// decisions in the order of the calls.
func ParseAll(result []byte) (allowed bool, ds []Decision, err error) {
	p := reader{result}
	if n, ok := p.array(); !ok || n < 2 {
		return false, nil, refuse("result", result, "[allowed, decisions]")
	}
	allowed, ok := p.boolean()
	if !ok {
		return false, nil, refuse("allowed", p.b, "true or false")
	}
	n, ok := p.array()
	if !ok || n > MaxItems {
		return false, nil, refuse("decisions", p.b, "an array of up to 32")
	}
	ds = make([]Decision, n)
	for i := range ds {
		if err := p.decision(&ds[i]); err != nil {
			return false, nil, fmt.Errorf("decisions[%d]: %w", i, err)
		}
	}
	return allowed, ds, nil
}

// ParseThrottle reads the result of throttle, as AppendThrottle has it.
func ParseThrottle(result []byte) (r [5]int64, err error) {
	p := reader{result}
	if n, ok := p.array(); !ok || n < len(r) {
		return r, refuse("result", result, "an array of 5 integers")
	}
	for i := range r {
		v, ok := p.integer(-1, math.MaxInt64)
		if !ok {
			return r, refuse("result", p.b, "an array of 5 integers")
		}
		r[i] = v
	}
	return r, nil
}

// ParseBool reads the result of refund, release and reset.
func ParseBool(result []byte) (bool, error) {
	p := reader{result}
	v, ok := p.boolean()
	if !ok {
		return false, refuse("result", result, "true or false")
	}
	return v, nil
}

// ParseInfo reads the result of info.
func ParseInfo(result []byte) (m map[string]any, err error) {
	err = parseCold(result, &m)
	return m, err
}

// ParseExplain reads the result of explain: names and values.
func ParseExplain(result []byte) (pairs [][2]string, err error) {
	err = parseCold(result, &pairs)
	return pairs, err
}

// parseCold reads a result that is not worth a decoder of its own. What msgpack
// allocates is bounded, because the value is whole and within the bounds of a
// message by then.
func parseCold(result []byte, into any) error {
	if p := (reader{result}); !p.skip(1) {
		return errors.New("not a whole value")
	}
	return msgpack.Unmarshal(result, into)
}

// amounts are the integers that follow allowed in a Decision.
var amounts = [4]struct {
	name  string
	least int64
}{{"limit", 0}, {"remaining", 0}, {"reset_after_ms", 0}, {"retry_after_ms", -1}}

// decision takes a Decision, and skips what a newer agent appended to it.
func (r *reader) decision(d *Decision) error {
	*d = Decision{}
	n, ok := r.array()
	if !ok || n < 7 {
		return refuse("decision", r.b, "an array of at least 7 items")
	}
	if d.Allowed, ok = r.boolean(); !ok {
		return refuse("allowed", r.b, "true or false")
	}
	var v [len(amounts)]int64
	for i, f := range amounts {
		if v[i], ok = r.integer(f.least, math.MaxInt64); !ok {
			return refuse(f.name, r.b, fmt.Sprintf("%d or more", f.least))
		}
	}
	d.Limit, d.Remaining, d.ResetAfterMS, d.RetryAfterMS = v[0], v[1], v[2], v[3]
	return r.decisionTail(d, n)
}

func (r *reader) decisionTail(d *Decision, n int) error {
	source, ok := r.integer(0, math.MaxUint8)
	if !ok {
		return refuse("source", r.b, "0 to 255")
	}
	flags, ok := r.integer(0, math.MaxUint8)
	if !ok {
		return refuse("flags", r.b, "0 to 255")
	}
	d.Source, d.Flags = uint8(source), uint8(flags)
	if n > 7 {
		if d.Permit, ok = r.unsigned(); !ok && !r.skip(1) {
			return errors.New("decision: cut off")
		}
	}
	if n > 8 && !r.skip(n-8) {
		return errors.New("decision: cut off")
	}
	return nil
}

func refuse(what string, value []byte, want string) error {
	return fmt.Errorf("%s %s: allowed is %s", what, describe(value), want)
}
