// What errors say, what is skipped, and that the hot path allocates nothing. The
// values themselves are in testdata/golden.json.

package protocol

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// request encodes an acquire with any parameters and reads its envelope back.
func request(t testing.TB, method string, params ...any) Request {
	t.Helper()
	r, _, err := ParseRequest(AppendRequest(nil, 7, method, params...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestErrorsNameValueAndRange(t *testing.T) {
	long := strings.Repeat("x", 2000)
	tests := []struct {
		method string
		params []any
		want   string
	}{
		{"acquire", []any{"api", "k", -1}, "invalid_argument: cost -1: allowed are 1 to 9007199254740991"},
		{"acquire", []any{"api", "k", uint64(1<<64 - 1)}, "invalid_argument: cost 18446744073709551615: allowed are 1 to 9007199254740991"},
		{"acquire", []any{"api", "k", 1.5}, "invalid_argument: cost 1.5 (a float): allowed are 1 to 9007199254740991"},
		{"acquire", []any{"api", "k", nil}, "invalid_argument: cost nil: allowed are 1 to 9007199254740991"},
		{"acquire", []any{"api", "k", []int{1, 2}}, "invalid_argument: cost (an array of 2): allowed are 1 to 9007199254740991"},
		{"peek", []any{"api", "k", -5}, "invalid_argument: cost -5: allowed are 0 to 9007199254740991"},
		{"acquire", []any{"api", "", 1}, `invalid_argument: key "": allowed is a str or bin of 1 to 1024 bytes`},
		{"acquire", []any{"api", long, 1}, `invalid_argument: key "` + long[:64] + `"... of 2000 bytes: allowed is a str or bin of 1 to 1024 bytes`},
		{"acquire", []any{"api", true, 1}, `invalid_argument: key true: allowed is a str or bin of 1 to 1024 bytes`},
		{"acquire", []any{"api\n" + long[:128], "k", 1}, `invalid_argument: limit "api?` + long[:60] + `"... of 132 bytes: allowed is a policy's name of 1 to 128 bytes, or [count, period_ms, burst, algorithm]`},
		{"acquire", []any{[]int{0, 1}, "k", 1}, "invalid_argument: count 0: allowed are 1 to 1000000000"},
		{"acquire", []any{"api", "k", 1, map[string]any{"wait_ms": 60001}}, "invalid_argument: wait_ms 60001: allowed are 0 to 60000"},
		{"acquire", []any{"api"}, "invalid_request: 1 parameters: at least 2 are needed, limit and key"},
		{"acquire_all", nil, "invalid_request: 0 parameters: acquire_all needs calls"},
		{"acquire_all", []any{[]any{[]any{"api", "k"}, []any{"api", "k", 0}}}, "invalid_argument: calls[1]: cost 0: allowed are 1 to 9007199254740991"},
		{"throttle", []any{"k", 1, 1, 0}, "invalid_argument: period_s 0: allowed are 1 to 31622400"},
		{"throttle", []any{"k", 1, 1}, "invalid_request: 3 parameters: throttle needs key, max_burst, count and period_s"},
		{"release", []any{-1}, "invalid_argument: permit -1: allowed is 0 to 18446744073709551615"},
	}
	for _, tt := range tests {
		r := request(t, tt.method, tt.params...)
		err := readParams(&r)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s %v:\n got %v\nwant %s", tt.method, tt.params, err, tt.want)
		}
	}
}

func TestBoundsAtTheirEdges(t *testing.T) {
	calls := func(n int) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = []any{"api", "k"}
		}
		return []any{list}
	}
	s := func(n int) string { return strings.Repeat("s", n) }
	tests := []struct {
		name     string
		method   string
		in, past []any
	}{
		{"key", "acquire", []any{"api", s(MaxKey)}, []any{"api", s(MaxKey + 1)}},
		{"policy", "acquire", []any{s(MaxPolicy), "k"}, []any{s(MaxPolicy + 1), "k"}},
		{"cost", "acquire", []any{"api", "k", int64(MaxCost)}, []any{"api", "k", int64(MaxCost + 1)}},
		{"refund's cost", "refund", []any{"api", "k", 1}, []any{"api", "k", 0}},
		{"peek's cost", "peek", []any{"api", "k", 0}, []any{"api", "k", -1}},
		{"items", "acquire_all", calls(MaxItems), calls(MaxItems + 1)},
		{"wait", "acquire", []any{"api", "k", 1, map[string]any{"wait_ms": MaxWaitMS}}, []any{"api", "k", 1, map[string]any{"wait_ms": MaxWaitMS + 1}}},
		{"app", "acquire", []any{"api", "k", 1, map[string]any{"app": s(MaxPolicy)}}, []any{"api", "k", 1, map[string]any{"app": s(MaxPolicy + 1)}}},
		{"wait of all", "acquire_all", append(calls(1), map[string]any{"wait_ms": 1}), append(calls(1), map[string]any{"wait_ms": -1})},
		{"count", "acquire", []any{[]any{MaxCount, 1}, "k"}, []any{[]any{MaxCount + 1, 1}, "k"}},
		{"period", "acquire", []any{[]any{1, int64(MaxPeriodMS)}, "k"}, []any{[]any{1, int64(MaxPeriodMS + 1)}, "k"}},
		{"burst", "acquire", []any{[]any{1, 1, MaxCount}, "k"}, []any{[]any{1, 1, MaxCount + 1}, "k"}},
		{"algorithm", "acquire", []any{[]any{1, 1, 0, s(MaxPolicy)}, "k"}, []any{[]any{1, 1, 0, s(MaxPolicy + 1)}, "k"}},
		{"max_burst", "throttle", []any{"k", MaxCount - 1, 1, 1}, []any{"k", MaxCount, 1, 1}},
		{"max_burst 0", "throttle", []any{"k", 0, 1, 1}, []any{"k", -1, 1, 1}},
		{"throttle's count", "throttle", []any{"k", 0, MaxCount, 1}, []any{"k", 0, MaxCount + 1, 1}},
		{"period_s", "throttle", []any{"k", 0, 1, MaxPeriodS}, []any{"k", 0, 1, MaxPeriodS + 1}},
		{"quantity", "throttle", []any{"k", 0, 1, 1, 0}, []any{"k", 0, 1, 1, -1}},
		{"throttle's key", "throttle", []any{s(MaxKey), 0, 1, 1}, []any{s(MaxKey + 1), 0, 1, 1}},
	}
	for _, tt := range tests {
		in, past := request(t, tt.method, tt.in...), request(t, tt.method, tt.past...)
		if err := readParams(&in); err != nil {
			t.Errorf("%s, at the edge: %v", tt.name, err)
		}
		if err := readParams(&past); err == nil || err.Code != InvalidArgument {
			t.Errorf("%s, one past: %v, want invalid_argument", tt.name, err)
		}
	}
}

func TestUnknownMethod(t *testing.T) {
	frame := AppendNotification(nil, "borrow\x00"+strings.Repeat("w", 100))
	r, fatal, err := ParseRequest(frame)
	if want := "unknown method: borrow?" + strings.Repeat("w", 57); fatal || err == nil || err.Message != want {
		t.Errorf("fatal %v, %v; want %s", fatal, err, want)
	}
	if !r.Notification {
		t.Error("not known as a notification")
	}
}

func TestParamsEndWhereTheyEnd(t *testing.T) {
	for _, frame := range []string{"950007a470696e6792010203", "9402a470696e6792010203", "940007a470696e67920102", "9302a470696e67920102"} {
		r, _, err := ParseRequest(unhex(frame))
		if err != nil || r.Len != 2 || !bytes.Equal(r.Params, []byte{1, 2}) {
			t.Errorf("%s: %d parameters %x, %v; want 0102", frame, r.Len, r.Params, err)
		}
	}
}

func TestCallsAppend(t *testing.T) {
	first := Call{Policy: []byte("first"), Key: []byte("k"), Cost: 1}
	good := request(t, "acquire_all", []any{[]any{"api", "k"}, []any{"api", "k", 2, "later"}})
	got, err := good.Calls([]Call{first}, nil)
	if err != nil || len(got) != 3 || string(got[0].Policy) != "first" || got[2].Cost != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	bad := request(t, "acquire_all", []any{[]any{"api", "k"}, []any{"api"}})
	if got, err := bad.Calls([]Call{first}, nil); err == nil || len(got) != 1 {
		t.Errorf("%d calls after %v, want 1", len(got), err)
	}
}

func TestOptionsAreOfThisCall(t *testing.T) {
	o := Options{WaitMS: 5, App: []byte("other")}
	c := Call{Inline: Inline{Count: 5}, Cost: 9}
	r := request(t, "acquire", "api", "k")
	if err := r.Call(&c, &o); err != nil || o.WaitMS != 0 || o.App != nil || c.Cost != 1 || c.Inline.Count != 0 {
		t.Errorf("%+v, %+v, %v: left from the call before", c, o, err)
	}
}

func TestPrintable(t *testing.T) {
	tests := []struct{ in, want string }{
		{"api", "api"},
		{"a\x00b\nc\x1b[31m", "a?b?c?[31m"},
		{"\xff\xfe", "??"},
		{"☃ ok", "☃ ok"},
		{"\u202egnp", "?gnp"},
		{strings.Repeat("x", 63) + "☃", strings.Repeat("x", 63)},
		{strings.Repeat("x", 100), strings.Repeat("x", 64)},
	}
	for _, tt := range tests {
		if got := Printable([]byte(tt.in)); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestAppendErrorIsBounded(t *testing.T) {
	frame := AppendError(nil, 7, Internal, strings.Repeat("☃", 50_000))
	r, err := ParseResponse(frame)
	if err != nil || r.Err == nil || r.Err.Code != Internal {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := len(r.Err.Message); n > maxText || n < maxText-3 || !utf8.ValidString(r.Err.Message) {
		t.Errorf("message of %d bytes, valid UTF-8: %v", n, utf8.ValidString(r.Err.Message))
	}
}

func TestAppendInfo(t *testing.T) {
	for name, info := range map[string]any{"too big": strings.Repeat("x", MaxMessage), "no encoding": func() {}} {
		r, err := ParseResponse(AppendInfo(nil, 7, info))
		if err != nil || r.ID != 7 || r.Err == nil || r.Err.Code != Internal {
			t.Errorf("%s: %+v, %v; want internal", name, r, err)
		}
	}
	type stats struct {
		Denied uint64 `msgpack:"denied"`
	}
	r, err := ParseResponse(AppendInfo([]byte{}, 7, map[string]any{"stats": stats{1 << 40}, "methods": Methods()}))
	if err != nil {
		t.Fatal(err)
	}
	info, err := ParseInfo(r.Result)
	if err != nil || info["stats"].(map[string]any)["denied"] != uint64(1<<40) || len(info["methods"].([]any)) != len(Methods()) {
		t.Errorf("%v, %v", info, err)
	}
}

func TestAppendRequestThatCannotBe(t *testing.T) {
	if got := AppendRequest([]byte("before"), 7, "acquire", func() {}); string(got) != "before" {
		t.Errorf("%q", got)
	}
}

func TestNames(t *testing.T) {
	for i, name := range Methods() {
		if m := methodOf([]byte(name)); m != Method(i+1) || m.String() != name {
			t.Errorf("%s: %d, %s", name, m, m)
		}
	}
	if Unknown.String() != "" || Method(200).String() != "" {
		t.Error("a name for what is no method")
	}
	for code, want := range map[Code]string{1: "invalid_request", 9: "internal", 0: "code 0", 10: "code 10", -1: "code -1"} {
		if code.String() != want {
			t.Errorf("%d: %s, want %s", int(code), code, want)
		}
	}
	if e := (&Error{NotPermitted, "no"}); e.Error() != "not_permitted: no" {
		t.Error(e)
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	var (
		s     Scanner
		c     Call
		o     Options
		th    ThrottleCall
		out   = make([]byte, 0, 4096)
		calls = make([]Call, 0, MaxItems)
		ds    = make([]Decision, MaxItems)
	)
	full := AppendCall(nil, 7, Acquire, &Call{Inline: Inline{60, 60000, 10, []byte("token_bucket")}, Key: []byte("k"), Cost: 1 << 40},
		&Options{WaitMS: 500, App: []byte("shop")})
	all := AppendRequest(nil, 7, "acquire_all", []any{[]any{"api", "k", 1}, []any{"api", "j", 1, "later"}}, map[string]any{"trace": []int{1}})
	throttle := AppendRequest(nil, 7, "throttle", "k", 1, 1, 1, 1)
	read := func(frame []byte) Request {
		n, err := s.Next(frame)
		if err != nil || n != len(frame) {
			t.Fatal(n, err)
		}
		r, _, perr := ParseRequest(frame)
		if perr != nil {
			t.Fatal(perr)
		}
		return r
	}
	tests := map[string]func() *Error{
		"acquire": func() *Error {
			out = AppendDecision(out[:0], 7, &allowedReply)
			r := read(acquireFrame)
			return r.Call(&c, &o)
		},
		"acquire with all there is": func() *Error {
			r := read(full)
			return r.Call(&c, &o)
		},
		"acquire_all": func() (err *Error) {
			out = AppendAll(out[:0], 1<<31, true, ds)
			r := read(all)
			calls, err = r.Calls(calls[:0], &o)
			return err
		},
		"throttle": func() *Error {
			out = AppendThrottle(out[:0], 7, [5]int64{0, 16, 15, -1, 2})
			r := read(throttle)
			return r.Throttle(&th)
		},
		"the client's side": func() *Error {
			var d Decision
			out = AppendAcquire(out[:0], 7, &c, &o)
			out = AppendDecision(out[:0], 7, &allowedReply)
			r, err := ParseResponse(out)
			if err == nil {
				err = ParseDecision(r.Result, &d)
			}
			if err != nil || d != allowedReply {
				t.Fatal(d, err)
			}
			return nil
		},
	}
	for name, run := range tests {
		if n := testing.AllocsPerRun(100, func() {
			if err := run(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestParsedBytesCannotGrowIntoTheFrame(t *testing.T) {
	frame := bytes.Clone(acquireFrame)
	r, _, _ := ParseRequest(frame)
	var c Call
	if err := r.Call(&c, nil); err != nil {
		t.Fatal(err)
	}
	_ = append(c.Policy, "overwritten"...)
	if !bytes.Equal(frame, acquireFrame) {
		t.Errorf("frame is now %q", frame)
	}
}
