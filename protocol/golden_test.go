// The golden messages, both ways: what is read from the bytes, written again,
// must be what a general MessagePack encoder makes of the stated meaning, and the
// bytes themselves where they are canonical.

package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"testing"
)

type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

type goldenMessage struct {
	ID        string
	Kind      string
	Canonical bool
	MsgID     uint32
	Method    string
	Params    []any
	As        string
	Result    any
	Error     []any
	Hex       hexBytes
}

type badMessage struct {
	ID, Reader, Why string
	Must            any // "close" or a code
	MsgID           *uint32
	Hex             hexBytes
}

type goldenFile struct {
	Format int
	Good   []goldenMessage
	Bad    []badMessage
}

func loadGolden(t testing.TB) (g goldenFile) {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if err := dec.Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

// Note and other texts for people are in the file too.
func (g *goldenMessage) UnmarshalJSON(text []byte) error {
	type plain goldenMessage
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode((*plain)(g)); err != nil {
		return err
	}
	for i := range g.Params {
		g.Params[i] = integers(g.Params[i])
	}
	g.Result = integers(g.Result)
	for i := range g.Error {
		g.Error[i] = integers(g.Error[i])
	}
	return nil
}

// integers replaces the numbers in a JSON value by int64.
func integers(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			panic(err)
		}
		return n
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = integers(v[k])
		}
	}
	return v
}

func TestGoldenGood(t *testing.T) {
	g := loadGolden(t)
	if g.Format != 1 || len(g.Good) < 47 {
		t.Fatalf("format %d with %d messages", g.Format, len(g.Good))
	}
	for _, m := range g.Good {
		t.Run(m.ID, func(t *testing.T) {
			var s Scanner
			if n, err := s.Next(m.Hex); n != len(m.Hex) || err != nil {
				t.Fatalf("Next: %d, %v; want %d", n, err, len(m.Hex))
			}
			if m.Kind == "response" {
				goldenResponse(t, m)
			} else {
				goldenRequest(t, m)
			}
		})
	}
}

func goldenRequest(t *testing.T, m goldenMessage) {
	r, fatal, err := ParseRequest(m.Hex)
	if m.ID == "unknown-notification" {
		if fatal || err == nil || err.Code != UnknownMethod {
			t.Fatalf("ParseRequest: fatal %v, %v", fatal, err)
		}
	} else if err != nil {
		t.Fatalf("ParseRequest: %v", err)
	}
	if r.ID != m.MsgID || string(r.Name) != m.Method || r.Notification != (m.Kind == "notification") {
		t.Fatalf("got %+v", r)
	}
	if id, ok := MsgID(m.Hex); id != m.MsgID || ok == r.Notification {
		t.Errorf("MsgID: %d, %v", id, ok)
	}
	if m.Method == "release" {
		if text, ok := m.Params[0].(string); ok {
			m.Params[0], _ = strconv.ParseUint(text, 10, 64)
		}
	}
	sameBytes(t, "read and written", rewrite(t, &r, m), AppendRequest(nil, m.MsgID, m.Method, m.Params...))
	if !m.Canonical {
		return
	}
	if m.Kind == "notification" {
		sameBytes(t, "written", AppendNotification(nil, m.Method, m.Params...), m.Hex)
	} else {
		sameBytes(t, "written", rewrite(t, &r, m), m.Hex)
	}
}

// rewrite reads the parameters of r and writes them as a request again.
func rewrite(t *testing.T, r *Request, m goldenMessage) []byte {
	var (
		o   Options
		err *Error
		out []byte
	)
	switch r.Method {
	case Acquire, Peek, Refund, Reset:
		var c Call
		err = r.Call(&c, &o)
		out = AppendCall(nil, r.ID, r.Method, &c, &o)
	case AcquireAll:
		var cs []Call
		cs, err = r.Calls(nil, &o)
		out = AppendAcquireAll(nil, r.ID, cs, &o)
	case Throttle:
		var c ThrottleCall
		err = r.Throttle(&c)
		out = AppendRequest(nil, r.ID, m.Method, string(c.Key), c.MaxBurst, c.Count, c.PeriodS, c.Quantity)
	case Release:
		var permit uint64
		permit, err = r.Permit()
		out = AppendRequest(nil, r.ID, m.Method, permit)
	default:
		out = AppendRequest(nil, r.ID, m.Method, m.Params...)
	}
	if err != nil {
		t.Fatalf("parameters: %v", err)
	}
	return out
}

func goldenResponse(t *testing.T, m goldenMessage) {
	r, err := ParseResponse(m.Hex)
	if err != nil {
		t.Fatalf("ParseResponse: %v", err)
	}
	if r.ID != m.MsgID || r.Notification {
		t.Fatalf("got %+v", r)
	}
	var got []byte
	if m.Error != nil {
		if r.Err == nil || r.Result != nil {
			t.Fatalf("got %+v, want an error", r)
		}
		got = AppendError(nil, r.ID, r.Err.Code, r.Err.Message)
	} else {
		got = rewriteResult(t, r, m.As)
	}
	var errorValue any
	if m.Error != nil {
		errorValue = m.Error
	}
	want, err := marshal([]any{1, m.MsgID, errorValue, m.Result})
	if err != nil {
		t.Fatal(err)
	}
	sameBytes(t, "read and written", got, want)
	if m.Canonical {
		sameBytes(t, "written", got, m.Hex)
	}
}

func rewriteResult(t *testing.T, r Response, as string) []byte {
	if r.Err != nil {
		t.Fatalf("got the error %v", r.Err)
	}
	var (
		out []byte
		err error
	)
	switch as {
	case "decision":
		var d Decision
		err = ParseDecision(r.Result, &d)
		out = AppendDecision(nil, r.ID, &d)
	case "all":
		var allowed bool
		var ds []Decision
		allowed, ds, err = ParseAll(r.Result)
		out = AppendAll(nil, r.ID, allowed, ds)
	case "throttle":
		var v [5]int64
		v, err = ParseThrottle(r.Result)
		out = AppendThrottle(nil, r.ID, v)
	case "bool":
		var v bool
		v, err = ParseBool(r.Result)
		out = AppendBool(nil, r.ID, v)
	case "pong":
		out = AppendPong(nil, r.ID)
	case "info":
		var info map[string]any
		info, err = ParseInfo(r.Result)
		out = AppendInfo(nil, r.ID, info)
	default:
		t.Fatalf("as %q: not known to this test", as)
	}
	if err != nil {
		t.Fatalf("result: %v", err)
	}
	return out
}

func sameBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %x\nwant %x", what, got, want)
	}
}

func TestGoldenBad(t *testing.T) {
	for _, m := range loadGolden(t).Bad {
		t.Run(m.ID, func(t *testing.T) {
			read := agentVerdict
			if m.Reader == "client" {
				read = clientVerdict
			}
			want := "close"
			if code, ok := m.Must.(json.Number); ok {
				want = code.String()
			}
			if got := read(t, m.Hex); got != want {
				t.Errorf("%s: got %s, want %s", m.Why, got, want)
			}
			if m.Reader == "client" {
				return
			}
			id, ok := MsgID(m.Hex)
			if ok != (m.MsgID != nil) || ok && id != *m.MsgID {
				t.Errorf("MsgID: %d, %v", id, ok)
			}
		})
	}
}

// agentVerdict tells what an agent does about a message: "close", a code, or "none".
func agentVerdict(t *testing.T, frame []byte) string {
	var s Scanner
	n, err := s.Next(frame)
	if err != nil {
		return "close"
	}
	if n == 0 {
		return "wait"
	}
	r, fatal, perr := ParseRequest(frame[:n])
	if fatal {
		return "close"
	}
	if perr == nil {
		perr = readParams(&r)
	}
	if perr == nil {
		return "none"
	}
	t.Log(perr)
	return strconv.Itoa(int(perr.Code))
}

func readParams(r *Request) *Error {
	var (
		c   Call
		th  ThrottleCall
		o   Options
		err *Error
	)
	switch r.Method {
	case Acquire, Peek, Refund, Reset:
		err = r.Call(&c, &o)
	case AcquireAll:
		_, err = r.Calls(nil, &o)
	case Throttle:
		err = r.Throttle(&th)
	case Release:
		_, err = r.Permit()
	}
	return err
}

// clientVerdict is agentVerdict for a client that waits for a decision.
func clientVerdict(t *testing.T, frame []byte) string {
	var s Scanner
	n, err := s.Next(frame)
	if err == nil && n == 0 {
		return "wait"
	}
	var r Response
	if err == nil {
		r, err = ParseResponse(frame[:n])
	}
	if err == nil && r.Err == nil {
		var d Decision
		err = ParseDecision(r.Result, &d)
	}
	if err == nil {
		return "none"
	}
	t.Log(err)
	return "close"
}
