// Whatever the bytes: no panic, no read past the end, and the same answer as
// msgpack v5 gives where that can be asked safely.

package protocol

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// seeds gives f every golden message, the bad ones too, and two in a row.
func seeds(f *testing.F, add func([]byte)) {
	g := loadGolden(f)
	for i, m := range g.Good {
		add(m.Hex)
		add(append(bytes.Clone(m.Hex), g.Good[0].Hex...))
		add(m.Hex[:len(m.Hex)*(i%8)/8])
	}
	for _, m := range g.Bad {
		add(m.Hex)
	}
}

// frames is everything a Scanner finds in data, and how it ends: "more" or "bad".
// pick says how much of what is left arrives next.
func frames(t *testing.T, data []byte, pick func(left int) int) (sizes []int, last string) {
	var s Scanner
	start, end := 0, 0
	for {
		n, err := s.Next(data[start:end:end])
		switch {
		case n < 0 || n > end-start || n > 0 && err != nil || n > MaxMessage:
			t.Fatalf("Next: %d, %v of %d bytes", n, err, end-start)
		case err != nil:
			return sizes, "bad"
		case n > 0:
			sizes = append(sizes, n)
			start += n
			if start < end {
				continue
			}
		case end-start >= MaxMessage:
			t.Fatalf("waits for more than %d bytes", end-start)
		}
		if end == len(data) {
			return sizes, "more"
		}
		end += pick(len(data) - end)
	}
}

func FuzzScanner(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b, uint64(len(b))) })
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		sizes, last := frames(t, data, func(left int) int { return left })
		rng := rand.New(rand.NewPCG(seed, 0))
		for _, pick := range []func(int) int{
			func(int) int { return 1 },
			func(left int) int { return 1 + rng.IntN(left) },
		} {
			pieces, end := frames(t, data, pick)
			if end != last || len(pieces) != len(sizes) {
				t.Fatalf("whole: %v, then %s; in pieces: %v, then %s", sizes, last, pieces, end)
			}
			for i := range sizes {
				if pieces[i] != sizes[i] {
					t.Fatalf("whole: %v; in pieces: %v", sizes, pieces)
				}
			}
		}
		for _, n := range sizes {
			if got := referenceSize(data); got != n {
				t.Fatalf("%x: %d bytes, msgpack says %d", data, n, got)
			}
			data = data[n:]
		}
		if last == "more" && len(data) > 0 && referenceSize(data) != 0 {
			t.Fatalf("%x: wants more, msgpack says %d bytes", data, referenceSize(data))
		}
	})
}

// referenceSize is the size of the first value in data as msgpack v5 sees it, 0
// when it cannot tell. Data must have passed a Scanner: msgpack trusts headers.
func referenceSize(data []byte) int {
	r := bytes.NewReader(data)
	if msgpack.NewDecoder(r).Skip() != nil {
		return 0
	}
	return len(data) - r.Len()
}

func FuzzRequest(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, data []byte) {
		ParseRequest(data)
		var s Scanner
		n, err := s.Next(data)
		if err != nil || n == 0 {
			return
		}
		got, want := decodeOwn(data[:n]), decodeReference(data[:n])
		if !got.equal(want) {
			t.Fatalf("%x:\n own %+v\n ref %+v", data[:n], got, want)
		}
	})
}

// decoded is all that a request can say. Code is 0 when there is no error.
type decoded struct {
	fatal, notification bool
	code                Code
	id                  uint32
	name                string
	calls               []Call
	options             Options
	throttle            ThrottleCall
	permit              uint64
}

func (d decoded) equal(e decoded) bool {
	if d.fatal || e.fatal {
		return d.fatal == e.fatal
	}
	if d.code != e.code || d.notification != e.notification || d.id != e.id || d.name != e.name {
		return false
	}
	if d.code != 0 {
		return true
	}
	same := len(d.calls) == len(e.calls) && d.permit == e.permit && d.options.WaitMS == e.options.WaitMS &&
		bytes.Equal(d.options.App, e.options.App) && sameThrottle(d.throttle, e.throttle)
	for i := 0; same && i < len(d.calls); i++ {
		same = sameCall(d.calls[i], e.calls[i])
	}
	return same
}

func sameCall(a, b Call) bool {
	return bytes.Equal(a.Policy, b.Policy) && bytes.Equal(a.Key, b.Key) && a.Cost == b.Cost &&
		bytes.Equal(a.Inline.Algorithm, b.Inline.Algorithm) && a.Inline.Count == b.Inline.Count &&
		a.Inline.PeriodMS == b.Inline.PeriodMS && a.Inline.Burst == b.Inline.Burst
}

func sameThrottle(a, b ThrottleCall) bool {
	return bytes.Equal(a.Key, b.Key) && a.MaxBurst == b.MaxBurst && a.Count == b.Count &&
		a.PeriodS == b.PeriodS && a.Quantity == b.Quantity
}

func decodeOwn(frame []byte) (d decoded) {
	r, fatal, err := ParseRequest(frame)
	d = decoded{fatal: fatal, notification: r.Notification, id: r.ID, name: string(r.Name)}
	if err == nil {
		switch r.Method {
		case Acquire, Peek, Refund, Reset:
			d.calls = make([]Call, 1)
			err = r.Call(&d.calls[0], &d.options)
		case AcquireAll:
			d.calls, err = r.Calls(nil, &d.options)
		case Throttle:
			err = r.Throttle(&d.throttle)
		case Release:
			d.permit, err = r.Permit()
		}
	}
	if err != nil {
		d.code = err.Code
	}
	return d
}

// reference decodes with the primitives of msgpack v5, value by value. A refusal
// is a panic with its code, so that the decoding reads like the contract.
type reference struct{ *msgpack.Decoder }

type notRPC struct{}

func decodeReference(frame []byte) (d decoded) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case notRPC:
			d.fatal = true
		case Code:
			d.code = v
		default:
			panic(v)
		}
	}()
	r := reference{msgpack.NewDecoder(bytes.NewReader(frame))}
	items := r.array(notRPC{})
	kind := r.integer(0, 2, notRPC{})
	d.notification = kind == 2
	if kind == 1 || d.notification && items < 3 || !d.notification && items < 4 {
		panic(notRPC{})
	}
	if !d.notification {
		d.id = uint32(r.integer(0, math.MaxUint32, notRPC{}))
	}
	d.name = string(r.bytes(0, MaxMessage, notRPC{}))
	r.params(&d, r.array(notRPC{}))
	return d
}

func (r reference) params(d *decoded, n int) {
	least := map[string]int{"acquire": 2, "peek": 2, "refund": 2, "reset": 2, "acquire_all": 1, "throttle": 4, "release": 1, "info": 0, "ping": 0}
	need, known := least[d.name]
	if !known {
		panic(UnknownMethod)
	}
	if n < need {
		panic(InvalidRequest)
	}
	switch d.name {
	case "reset":
		d.calls = []Call{r.call(2, 1)}
	case "peek":
		d.calls = []Call{r.call(min(n, 3), 0)}
	case "acquire", "refund":
		d.calls = []Call{r.call(min(n, 3), 1)}
	case "acquire_all":
		d.calls = r.items()
	case "throttle":
		d.throttle = ThrottleCall{r.bytes(1, MaxKey, InvalidArgument), r.integer(0, MaxCount-1, InvalidArgument),
			r.integer(1, MaxCount, InvalidArgument), r.integer(1, MaxPeriodS, InvalidArgument), 1}
		if n > 4 {
			d.throttle.Quantity = r.integer(0, MaxCost, InvalidArgument)
		}
	case "release":
		d.permit = r.permit()
	}
	optionsAt := map[string]int{"acquire": 3, "peek": 3, "refund": 3, "reset": 3, "acquire_all": 1}
	if at, ok := optionsAt[d.name]; ok && n > at {
		if d.name == "reset" { // it has no cost
			r.skip(1)
		}
		d.options = r.options()
	}
}

func (r reference) items() (calls []Call) {
	n := r.array(InvalidArgument)
	if n < 1 || n > MaxItems {
		panic(InvalidArgument)
	}
	for range n {
		m := r.array(InvalidArgument)
		if m < 2 {
			panic(InvalidRequest)
		}
		calls = append(calls, r.call(min(m, 3), 1))
		r.skip(m - 3)
	}
	return calls
}

func (r reference) call(n int, least int64) (c Call) {
	if msgpcode.IsFixedArray(r.peek()) || r.peek() == msgpcode.Array16 || r.peek() == msgpcode.Array32 {
		c.Inline = r.inline()
	} else {
		c.Policy = r.bytes(1, MaxPolicy, InvalidArgument)
	}
	c.Key, c.Cost = r.bytes(1, MaxKey, InvalidArgument), 1
	if n > 2 {
		c.Cost = r.integer(least, MaxCost, InvalidArgument)
	}
	return c
}

func (r reference) inline() (l Inline) {
	n := r.array(InvalidArgument)
	if n < 2 {
		panic(InvalidArgument)
	}
	l.Count, l.PeriodMS = r.integer(1, MaxCount, InvalidArgument), r.integer(1, MaxPeriodMS, InvalidArgument)
	if n > 2 {
		l.Burst = r.integer(0, MaxCount, InvalidArgument)
	}
	if n > 3 {
		l.Algorithm = r.bytes(1, MaxPolicy, InvalidArgument)
	}
	r.skip(n - 4)
	return l
}

func (r reference) options() (o Options) {
	if r.peek() == msgpcode.FixedArrayLow {
		return o
	}
	if c := r.peek(); !msgpcode.IsFixedMap(c) && c != msgpcode.Map16 && c != msgpcode.Map32 {
		panic(InvalidArgument)
	}
	n, err := r.DecodeMapLen()
	must(err)
	for range n {
		name := ""
		if isBytes(r.peek()) {
			name = string(r.bytes(0, MaxMessage, InvalidArgument))
		} else {
			r.skip(1)
		}
		switch name {
		case "wait_ms":
			o.WaitMS = r.integer(0, MaxWaitMS, InvalidArgument)
		case "app":
			o.App = r.bytes(1, MaxPolicy, InvalidArgument)
		default:
			r.skip(1)
		}
	}
	return o
}

func (r reference) permit() uint64 {
	if c := r.peek(); c == msgpcode.Uint64 {
		v, err := r.DecodeUint64()
		must(err)
		return v
	}
	return uint64(r.integer(0, math.MaxInt64, InvalidArgument))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (r reference) peek() byte {
	c, err := r.PeekCode()
	if err != nil {
		panic(notRPC{})
	}
	return c
}

func (r reference) skip(n int) {
	for ; n > 0; n-- {
		must(r.Skip())
	}
}

func (r reference) array(refusal any) int {
	if c := r.peek(); !msgpcode.IsFixedArray(c) && c != msgpcode.Array16 && c != msgpcode.Array32 {
		panic(refusal)
	}
	n, err := r.DecodeArrayLen()
	must(err)
	return n
}

func (r reference) integer(lo, hi int64, refusal any) int64 {
	c := r.peek()
	if !msgpcode.IsFixedNum(c) && (c < msgpcode.Uint8 || c > msgpcode.Int64) {
		panic(refusal)
	}
	var v int64
	if c == msgpcode.Uint64 {
		u, err := r.DecodeUint64()
		must(err)
		if u > math.MaxInt64 {
			panic(refusal)
		}
		v = int64(u)
	} else {
		var err error
		v, err = r.DecodeInt64()
		must(err)
	}
	if v < lo || v > hi {
		panic(refusal)
	}
	return v
}

func isBytes(c byte) bool { return msgpcode.IsString(c) || msgpcode.IsBin(c) }

func (r reference) bytes(lo, hi int, refusal any) []byte {
	if !isBytes(r.peek()) {
		panic(refusal)
	}
	b, err := r.DecodeBytes()
	must(err)
	if len(b) < lo || len(b) > hi {
		panic(refusal)
	}
	return b
}

// FuzzResponse: what a client reads never panics, and a decision that was read
// and written is read the same again.
func FuzzResponse(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseResponse(data)
		if err != nil || r.Err != nil {
			return
		}
		ParseAll(r.Result)
		ParseThrottle(r.Result)
		ParseBool(r.Result)
		ParseInfo(r.Result)
		var d, again Decision
		if ParseDecision(r.Result, &d) != nil {
			return
		}
		r, err = ParseResponse(AppendDecision(nil, r.ID, &d))
		if err != nil || ParseDecision(r.Result, &again) != nil || again != d {
			t.Fatalf("%+v read again is %+v, %v", d, again, err)
		}
	})
}
