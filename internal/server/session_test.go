// Tests of frame processing, without I/O.

package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rlsidecar/internal/limiter"
	"rlsidecar/protocol"
)

// bare returns a session that can answer everything but late replies.
func bare(d Decider) *session {
	return &session{
		d: d, out: &outbox{}, answered: true,
		info: func() map[string]any { return map[string]any{"version": "1"} },
	}
}

type list = []any
type dict = map[string]any

func TestAnswers(t *testing.T) {
	inline := list{10, 1500}
	tests := []struct {
		name, want string // want is the reply without [1, 7, ...]
		frame      []byte
	}{
		{"allowed", "<nil> [true 100 99 1000 0 0 0]", request(7, "acquire", "api", "k")},
		{"denied, rounded up", "<nil> [false 100 0 1000 250 2 0]", request(7, "acquire", "api", "denied", 3)},
		{"never", "<nil> [false 5 0 0 -1 0 0]", request(7, "acquire", "api", "never")},
		{"shadow", "<nil> [true 5 0 0 0 1 1]", request(7, "acquire", "api", "shadow")},
		{"inline", "<nil> [true 100 99 1000 0 0 0]", request(7, "acquire", inline, "k")},
		{"algorithm", "<nil> [true 100 99 1000 0 0 0]", request(7, "acquire", list{1, 1, 0, "token_bucket"}, "k")},
		{"no algorithm", `[4 algorithm "magic" of an inline limit: allowed are token_bucket, leaky_bucket, fixed_window, sliding_window, sliding_log, concurrency] <nil>`, request(7, "acquire", list{1, 1, 0, "magic"}, "k")},
		{"peek", "<nil> [true 100 99 1000 0 0 0]", request(7, "peek", "api", "k", 0)},
		{"refund", "<nil> true", request(7, "refund", "api", "k")},
		{"refund refused", "[8 told so] <nil>", request(7, "refund", "api", "kind 6")},
		{"reset", "<nil> true", request(7, "reset", "api", "k")},
		{"reset refused", "[8 told so] <nil>", request(7, "reset", "api", "kind 6")},
		{"release", "<nil> true", request(7, "release", 7)},
		{"release of nothing", "<nil> false", request(7, "release", 8)},
		{"ping", "<nil> pong", request(7, "ping")},
		{"info", "<nil> map[version:1]", request(7, "info")},
		{"all", "<nil> [true [[true 100 99 1000 0 0 0] [true 100 99 1000 0 0 0]]]", request(7, "acquire_all", list{list{"a", "k"}, list{"b", "l", 2}})},
		{"all, one denied", "<nil> [false [[true 100 99 1000 0 0 0] [false 100 0 1000 250 2 0]]]", request(7, "acquire_all", list{list{"a", "k"}, list{"b", "denied"}})},
		{"all refused", "[6 told so] <nil>", request(7, "acquire_all", list{list{"a", "kind 4"}})},
		{"throttle", "<nil> [0 100 99 -1 1]", request(7, "throttle", "k", 15, 30, 60)},
		{"throttle denied", "<nil> [1 100 0 1 1]", request(7, "throttle", "denied", 15, 30, 60)},
		{"throttle never", "<nil> [1 5 0 -1 0]", request(7, "throttle", "never", 15, 30, 60, 17)},
		{"throttle looks", "<nil> [0 100 0 -1 1]", request(7, "throttle", "denied", 15, 30, 60, 0)},
		{"throttle refused", "[8 told so] <nil>", request(7, "throttle", "kind 6", 15, 30, 60)},
		{"throttle look refused", "[8 told so] <nil>", request(7, "throttle", "kind 6", 15, 30, 60, 0)},
		{"unknown policy", "[3 told so] <nil>", request(7, "acquire", "api", "kind 1")},
		{"invalid", "[4 told so] <nil>", request(7, "acquire", "api", "kind 2")},
		{"unavailable", "[5 told so] <nil>", request(7, "acquire", "api", "kind 3")},
		{"overloaded", "[6 told so] <nil>", request(7, "acquire", "api", "kind 4")},
		{"shutting down", "[7 told so] <nil>", request(7, "acquire", "api", "kind 5")},
		{"not permitted", "[8 told so] <nil>", request(7, "acquire", "api", "kind 6")},
		{"a kind too low", "[9 told so] <nil>", request(7, "acquire", "api", "kind 0")},
		{"a kind too high", "[9 told so] <nil>", request(7, "acquire", "api", "kind 9")},
		{"unknown option", "<nil> [true 100 99 1000 0 0 0]", request(7, "acquire", "api", "k", 1, dict{"colour": list{1}})},
		{"unknown parameter", "<nil> pong", request(7, "ping", 1, "x", nil)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := bare(&fake{})
			used, p := s.answer(0, tt.frame)
			if used != len(tt.frame) || p != needsMore {
				t.Errorf("used %d of %d bytes, progress %d", used, len(tt.frame), p)
			}
			if got, want := show(s.reply), "[1 7 "+tt.want+"]"; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// Errors that protocol finds are passed on, and the next call is answered.
func TestErrorLeavesSessionUsable(t *testing.T) {
	bad := [][]byte{
		request(7, "no such method"),
		request(7, "acquire", "api"),
		request(7, "acquire", "api", "k", -1),
		request(7, "acquire", "api", "k", 1, dict{"wait_ms": -1}),
		request(7, "acquire_all", list{}),
		request(7, "throttle", "k", 1, 0, 1),
		request(7, "release"),
		request(7, "peek"),
		request(7, "reset", 5, "k"),
		request(7, "refund", "api", ""),
	}
	for _, frame := range bad {
		s := bare(&fake{})
		if used, p := s.answer(0, append(frame, request(8, "ping")...)); p != needsMore || used == 0 {
			t.Fatalf("%s: progress %d", show(frame), p)
		}
		pong := protocol.AppendPong(nil, 8)
		failure, ok := strings.CutSuffix(string(s.reply), string(pong))
		if got := show([]byte(failure)); !ok || !strings.HasPrefix(got, "[1 7 [") || !strings.HasSuffix(got, "] <nil>]") {
			t.Errorf("%s: got %s, then pong %v", show(frame), got, ok)
		}
	}
}

func TestCallsAsked(t *testing.T) {
	tests := []struct {
		want  []string
		frame []byte
	}{
		{[]string{"acquire policy=api inline=token_bucket 0 0s 0 key=k cost=1 wait=0s app="}, request(1, "acquire", "api", "k")},
		{[]string{"acquire policy=api inline=token_bucket 0 0s 0 key=k cost=5 wait=250ms app=shop"}, request(1, "acquire", "api", "k", 5, dict{"wait_ms": 250, "app": "shop"})},
		{[]string{"acquire policy= inline=token_bucket 10 1.5s 10 key=k cost=1 wait=0s app="}, request(1, "acquire", list{10, 1500}, "k")},
		{[]string{"acquire policy= inline=token_bucket 10 1.5s 30 key=k cost=1 wait=0s app="}, request(1, "acquire", list{10, 1500, 30}, "k")},
		{[]string{"peek policy=api inline=token_bucket 0 0s 0 key=k cost=0 wait=0s app="}, request(1, "peek", "api", "k", 0)},
		{[]string{"reset policy=api inline=token_bucket 0 0s 0 key=k cost=1 wait=0s app="}, request(1, "reset", "api", "k")},
		{[]string{"refund policy=api inline=token_bucket 0 0s 0 key=k cost=2 wait=0s app="}, request(1, "refund", "api", "k", 2)},
		{[]string{"acquire policy= inline=token_bucket 30 1m0s 16 key=k cost=1 wait=0s app="}, request(1, "throttle", "k", 15, 30, 60)},
		{[]string{"acquire policy= inline=token_bucket 1 1s 1 key=k cost=9 wait=0s app="}, request(1, "throttle", "k", 0, 1, 1, 9)},
		{[]string{"peek policy= inline=token_bucket 30 1m0s 16 key=k cost=0 wait=0s app="}, request(1, "throttle", "k", 15, 30, 60, 0)},
		{[]string{
			"all policy=a inline=token_bucket 0 0s 0 key=k cost=1 wait=20ms app=",
			"all policy= inline=token_bucket 3 1s 3 key=l cost=2 wait=20ms app=",
		}, request(1, "acquire_all", list{list{"a", "k"}, list{list{3, 1000}, "l", 2}}, dict{"wait_ms": 20})},
		{[]string{"refund policy=api inline=token_bucket 0 0s 0 key=k cost=2 wait=0s app="}, protocol.AppendNotification(nil, "refund", "api", "k", 2)},
		{nil, protocol.AppendNotification(nil, "acquire", "api", "k")},
		{nil, protocol.AppendNotification(nil, "refund", "api")},
		{[]string{"acquire policy= inline=sliding_log 10 1.5s 10 key=k cost=1 wait=0s app="}, request(1, "acquire", list{10, 1500, 0, "sliding_log"}, "k")},
		{[]string{"release policy= inline=token_bucket 0 0s 0 key= cost=4 wait=0s app="}, protocol.AppendNotification(nil, "release", 4)},
		{nil, protocol.AppendNotification(nil, "hello", dict{"a": 1})},
	}
	for _, tt := range tests {
		f := &fake{record: true}
		s := bare(f)
		if _, p := s.answer(0, tt.frame); p != needsMore {
			t.Fatalf("%s: progress %d", show(tt.frame), p)
		}
		if !slices.Equal(f.seen, tt.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", show(tt.frame), f.seen, tt.want)
		}
		if notification := tt.frame[1] == 2; notification && len(s.reply) > 0 {
			t.Errorf("%s is a notification: got reply %s", show(tt.frame), show(s.reply))
		}
	}
}

func TestMillis(t *testing.T) {
	tests := map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, limiter.Never: -1,
		1<<63 - 1: 9223372036855,
	}
	for d, want := range tests {
		if got := millis(d); got != want {
			t.Errorf("millis(%d) = %d, want %d", d, got, want)
		}
	}
}

// Replies are written when there are enough, however many requests are left.
func TestRepliesAreBounded(t *testing.T) {
	s := bare(&fake{})
	s.info = func() map[string]any { return map[string]any{"long": strings.Repeat("x", 1000)} }
	in := []byte(strings.Repeat(string(request(7, "info")), 7000))
	answered := 0
	for p := hasEnough; p == hasEnough; {
		var used int
		used, p = s.answer(0, in)
		if len(s.reply) > enoughReplies+2000 {
			t.Fatalf("%d bytes of replies", len(s.reply))
		}
		in, answered = in[used:], answered+strings.Count(string(s.reply), "long")
		s.reply = s.reply[:0]
	}
	if answered != 7000 || len(in) > 0 {
		t.Errorf("%d answered, %d bytes left", answered, len(in))
	}
}

func TestAllocations(t *testing.T) {
	frames := map[string][]byte{
		"G1":          unhex("940007a76163717569726593a3617069a7757365723a343201"),
		"inline":      request(7, "acquire", list{10, 1500, 20}, "k"),
		"wait":        request(7, "acquire", "api", "k", 1, dict{"wait_ms": 5}),
		"peek":        request(7, "peek", "api", "k"),
		"throttle":    request(7, "throttle", "k", 15, 30, 60),
		"refund":      request(7, "refund", "api", "k"),
		"ping":        request(7, "ping"),
		"at once":     request(7, "acquire", "api", "denied"),
		"refund note": protocol.AppendNotification(nil, "refund", "api", "k"),
	}
	for name, frame := range frames {
		s := bare(&fake{})
		in := append(slices.Clone(frame), frame...)
		n := testing.AllocsPerRun(100, func() {
			s.reply = s.reply[:0]
			if used, _ := s.answer(0, in); used != len(in) {
				t.Fatal("not all was answered")
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkAnswerG1(b *testing.B) {
	s := bare(&fake{})
	in := unhex("940007a76163717569726593a3617069a7757365723a343201")
	b.ReportAllocs()
	for b.Loop() {
		s.reply = s.reply[:0]
		s.answer(0, in)
	}
}

// The frame function survives anything, and never says more than it was asked.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"940007a76163717569726593a3617069a7757365723a343201",
		"9302a6726566756e6493a3617069a7757365723a343201",
		"9400ce7fffffffa470696e6790",
		"940007db7fffffff", "dd7fffffff", "940007a161c1",
	} {
		f.Add(unhex(s), uint8(3))
	}
	f.Add(request(1, "acquire_all", list{list{"a", "k"}, list{"b", "l", 2}}), uint8(1))
	f.Add(request(1, "throttle", "k", 15, 30, 60, 0), uint8(2))
	f.Add(request(1, "acquire", list{10, 1500, 20, "token_bucket"}, "k", 1, dict{"wait_ms": 5}), uint8(7))
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		whole := feed(bare(quiet{}), in, len(in)+1)
		split := feed(bare(quiet{}), in, int(step)+1)
		// In pieces, a message may be refused before its id has arrived.
		if !strings.HasPrefix(string(whole), string(split)) {
			t.Fatalf("in one go %x, by %d %x", whole, int(step)+1, split)
		}
		var scan protocol.Scanner
		replies := 0
		for rest := whole; len(rest) > 0; replies++ {
			n, err := scan.Next(rest)
			if n == 0 {
				t.Fatalf("%x is no whole reply: %v", rest, err)
			}
			if _, err := protocol.ParseResponse(rest[:n]); err != nil {
				t.Fatalf("%x: %v", rest[:n], err)
			}
			rest = rest[n:]
		}
		if n := messages(in); replies > n {
			t.Fatalf("%d replies to %d messages", replies, n)
		}
	})
}

// messages returns how many messages in starts with, the broken one included.
func messages(in []byte) (n int) {
	for scan := (protocol.Scanner{}); ; n++ {
		size, err := scan.Next(in)
		if err != nil {
			return n + 1
		}
		if size == 0 {
			return n
		}
		in = in[size:]
	}
}

// feed gives in to s as a connection does, so many bytes at a time, and returns
// all replies.
func feed(s *session, in []byte, step int) (replies []byte) {
	var box inbox
	for len(in) > 0 {
		n := copy(box.room(), in[:min(step, len(in))])
		if n == 0 {
			panic(fmt.Sprint("no room, with bytes held: ", box.n))
		}
		box.n += n
		in = in[n:]
		for p := hasEnough; p == hasEnough; {
			var used int
			used, p = s.answer(0, box.filled())
			box.drop(used)
			replies = append(replies, s.reply...)
			s.reply = s.reply[:0]
			if p == isBroken {
				return replies
			}
		}
	}
	return replies
}

// quiet answers everything at once.
type quiet struct{ *fake }

func (quiet) Acquire(time.Duration, *limiter.Call, limiter.Replier, uint32) (limiter.Decision, bool, *limiter.Error) {
	return g3, false, nil
}

func (quiet) Peek(time.Duration, *limiter.Call, limiter.Replier, uint32) (limiter.Decision, bool, *limiter.Error) {
	return g4, false, nil
}

func (quiet) Reset(time.Duration, *limiter.Call, limiter.Replier, uint32) (bool, *limiter.Error) {
	return false, nil
}

func (quiet) Refund(time.Duration, *limiter.Call) *limiter.Error { return nil }

func (quiet) AcquireAll(_ time.Duration, calls []limiter.Call, _ limiter.AllReplier, _ uint32) (bool, []limiter.Decision, bool, *limiter.Error) {
	return true, make([]limiter.Decision, len(calls)), false, nil
}
