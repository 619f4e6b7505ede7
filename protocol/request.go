// What the agent reads: requests, notifications and their parameters.

package protocol

import "math"

// Request is a request or a notification. Its bytes alias the frame.
type Request struct {
	ID           uint32 // 0 in a notification
	Notification bool
	Method       Method
	Name         []byte // the method as it was written
	Params       []byte // the encoded parameters, one after the other
	Len          int    // how many there are
}

// ParseRequest reads one message of the size that Scanner.Next returned.
//
// A fatal error says that this is not MessagePack-RPC: the connection is to be
// closed, after the error was sent if MsgID(frame) tells to whom. An unknown
// method is an error that is not fatal, and one to keep silent about when
// r.Notification is set.
func ParseRequest(frame []byte) (r Request, fatal bool, err *Error) {
	if err := r.envelope(frame); err != nil {
		return r, true, err
	}
	r.Method = methodOf(r.Name)
	if r.Method == Unknown {
		return r, false, errorf(UnknownMethod, "unknown method: %s", Printable(r.Name))
	}
	return r, false, nil
}

func (r *Request) envelope(frame []byte) *Error {
	p := reader{frame}
	items, ok := p.array()
	if !ok {
		return malformed("message", p.b, "an array: [0, msgid, method, params]")
	}
	kind, ok := p.integer(0, 2)
	if !ok || kind == 1 {
		return malformed("message type", p.b, "0 for a request, 2 for a notification")
	}
	r.Notification = kind == 2
	if !r.Notification {
		id, ok := p.integer(0, math.MaxUint32)
		if !ok {
			return malformed("msgid", p.b, "0 to 4294967295")
		}
		r.ID = uint32(id)
	}
	if need := r.form(); items < need {
		return errorf(InvalidRequest, "message of %d items: this type has at least %d", items, need)
	}
	if r.Name, ok = p.bytes(0, MaxMessage); !ok {
		return malformed("method", p.b, "a str or bin")
	}
	if r.Len, ok = p.array(); !ok {
		return malformed("params", p.b, "an array")
	}
	r.Params = p.b
	if items > r.form() {
		r.trim(p)
	}
	return nil
}

// form is the number of items that the message must have.
func (r *Request) form() int {
	if r.Notification {
		return 3
	}
	return 4
}

// trim cuts Params where the parameters end and unknown items of the message follow.
func (r *Request) trim(p reader) {
	if p.skip(r.Len) {
		r.Params = r.Params[:len(r.Params)-len(p.b)]
	}
}

// Call reads the parameters of acquire, peek, refund, reset and explain: [limit, key,
// cost=1, opts={}]. Those of reset and explain have no cost: what stands in its place
// is skipped. Options are read when o is not nil. c and o are good only when there is
// no error.
func (r *Request) Call(c *Call, o *Options) *Error {
	p := reader{r.Params}
	n, least := r.Len, int64(1)
	switch r.Method {
	case Reset, Explain:
		n = min(n, 2)
	case Peek:
		least = 0
	}
	if err := p.call(c, n, least); err != nil {
		return err
	}
	if o != nil {
		*o = Options{}
		if r.Len > 3 {
			if n == 2 && !p.skip(1) {
				return cutOff("cost")
			}
			return p.options(o)
		}
	}
	return nil
}

// Calls reads the parameters of acquire_all: [[[limit, key, cost=1], ...],
// opts={}], with 1 to MaxItems calls, which it appends to dst. Options are read
// when o is not nil. After an error dst is returned as it was.
func (r *Request) Calls(dst []Call, o *Options) ([]Call, *Error) {
	if r.Len < 1 {
		return dst, r.missing("calls")
	}
	p := reader{r.Params}
	start := len(dst)
	n, ok := p.array()
	if !ok {
		return dst, invalid("calls", p.b, "an array of 1 to 32 calls")
	}
	if n < 1 || n > MaxItems {
		return dst, errorf(InvalidArgument, "%d calls: allowed are 1 to %d", n, MaxItems)
	}
	for i := range n {
		dst = append(dst, Call{})
		if err := p.item(&dst[start+i]); err != nil {
			return dst[:start], errorf(err.Code, "calls[%d]: %s", i, err.Message)
		}
	}
	if o != nil {
		*o = Options{}
		if r.Len > 1 {
			if err := p.options(o); err != nil {
				return dst[:start], err
			}
		}
	}
	return dst, nil
}

// item takes one [limit, key, cost=1] of acquire_all.
func (r *reader) item(c *Call) *Error {
	n, ok := r.array()
	if !ok {
		return invalid("call", r.b, "an array: [limit, key, cost]")
	}
	if err := r.call(c, n, 1); err != nil {
		return err
	}
	if n > 3 && !r.skip(n-3) {
		return cutOff("call")
	}
	return nil
}

// call takes the first n of limit, key and cost, and no more than these three.
func (r *reader) call(c *Call, n int, least int64) *Error {
	*c = Call{Cost: 1}
	if n < 2 {
		return errorf(InvalidRequest, "%d parameters: at least 2 are needed, limit and key", n)
	}
	var ok bool
	if c.Policy, ok = r.bytes(1, MaxPolicy); !ok {
		if err := r.limit(c); err != nil {
			return err
		}
	}
	if c.Key, ok = r.bytes(1, MaxKey); !ok {
		return invalid("key", r.b, "a str or bin of 1 to 1024 bytes")
	}
	if n > 2 {
		if c.Cost, ok = r.integer(least, MaxCost); !ok {
			return outOfRange("cost", r.b, least, MaxCost)
		}
	}
	return nil
}

// limit takes an inline limit: [count, period_ms, burst=0, algorithm].
func (r *reader) limit(c *Call) *Error {
	n, ok := r.array()
	if !ok {
		return invalid("limit", r.b, "a policy's name of 1 to 128 bytes, or [count, period_ms, burst, algorithm]")
	}
	if n < 2 {
		return errorf(InvalidArgument, "limit of %d items: at least 2 are needed, count and period_ms", n)
	}
	l := &c.Inline
	if l.Count, ok = r.integer(1, MaxCount); !ok {
		return outOfRange("count", r.b, 1, MaxCount)
	}
	if l.PeriodMS, ok = r.integer(1, MaxPeriodMS); !ok {
		return outOfRange("period_ms", r.b, 1, MaxPeriodMS)
	}
	if n > 2 {
		if l.Burst, ok = r.integer(0, MaxCount); !ok {
			return outOfRange("burst", r.b, 0, MaxCount)
		}
	}
	if n > 3 {
		if l.Algorithm, ok = r.bytes(1, MaxPolicy); !ok {
			return invalid("algorithm", r.b, "a str or bin of 1 to 128 bytes")
		}
	}
	if n > 4 && !r.skip(n-4) {
		return cutOff("limit")
	}
	return nil
}

// options takes the map of named parameters. An empty array is an empty map:
// some languages cannot tell them apart.
func (r *reader) options(o *Options) *Error {
	n, ok := r.container(true)
	if !ok {
		if items, ok := r.array(); ok && items == 0 {
			return nil
		}
		return invalid("opts", r.b, "a map")
	}
	for range n {
		name, ok := r.bytes(0, MaxMessage)
		if !ok && !r.skip(1) {
			return cutOff("opts")
		}
		if err := r.option(o, name); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) option(o *Options, name []byte) *Error {
	var ok bool
	switch string(name) {
	case "wait_ms":
		if o.WaitMS, ok = r.integer(0, MaxWaitMS); !ok {
			return outOfRange("wait_ms", r.b, 0, MaxWaitMS)
		}
	case "app":
		if o.App, ok = r.bytes(1, MaxPolicy); !ok {
			return invalid("app", r.b, "a str or bin of 1 to 128 bytes")
		}
	default:
		if !r.skip(1) {
			return cutOff("opts")
		}
	}
	return nil
}

// Throttle reads the parameters of throttle: [key, max_burst, count, period_s,
// quantity=1].
func (r *Request) Throttle(t *ThrottleCall) *Error {
	if r.Len < 4 {
		return r.missing("key, max_burst, count and period_s")
	}
	p := reader{r.Params}
	*t = ThrottleCall{Quantity: 1}
	var ok bool
	if t.Key, ok = p.bytes(1, MaxKey); !ok {
		return invalid("key", p.b, "a str or bin of 1 to 1024 bytes")
	}
	if t.MaxBurst, ok = p.integer(0, MaxCount-1); !ok {
		return outOfRange("max_burst", p.b, 0, MaxCount-1)
	}
	if t.Count, ok = p.integer(1, MaxCount); !ok {
		return outOfRange("count", p.b, 1, MaxCount)
	}
	if t.PeriodS, ok = p.integer(1, MaxPeriodS); !ok {
		return outOfRange("period_s", p.b, 1, MaxPeriodS)
	}
	if r.Len > 4 {
		if t.Quantity, ok = p.integer(0, MaxCost); !ok {
			return outOfRange("quantity", p.b, 0, MaxCost)
		}
	}
	return nil
}

// Permit reads the parameter of release: [permit].
func (r *Request) Permit() (uint64, *Error) {
	if r.Len < 1 {
		return 0, r.missing("permit")
	}
	p := reader{r.Params}
	v, ok := p.unsigned()
	if !ok {
		return 0, invalid("permit", p.b, "0 to 18446744073709551615")
	}
	return v, nil
}

func (r *Request) missing(names string) *Error {
	return errorf(InvalidRequest, "%d parameters: %s needs %s", r.Len, r.Method, names)
}

func malformed(what string, value []byte, want string) *Error {
	return errorf(InvalidRequest, "%s %s: allowed is %s", what, describe(value), want)
}

func invalid(what string, value []byte, want string) *Error {
	return errorf(InvalidArgument, "%s %s: allowed is %s", what, describe(value), want)
}

func outOfRange(what string, value []byte, lo, hi int64) *Error {
	return errorf(InvalidArgument, "%s %s: allowed are %d to %d", what, describe(value), lo, hi)
}

func cutOff(what string) *Error {
	return errorf(InvalidRequest, "%s: cut off", what)
}
