// What both ends write: requests, notifications and replies, each in the
// shortest encoding.

package protocol

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
)

// AppendDecision appends the reply to acquire and peek.
func AppendDecision(dst []byte, id uint32, d *Decision) []byte {
	return appendDecision(appendReply(dst, id), d)
}

// AppendAll appends the reply to acquire_all.
func AppendAll(dst []byte, id uint32, allowed bool, ds []Decision) []byte {
	dst = append(appendReply(dst, id), 0x92, boolByte(allowed))
	dst = appendArrayLen(dst, len(ds))
	for i := range ds {
		dst = appendDecision(dst, &ds[i])
	}
	return dst
}

// AppendThrottle appends the reply to throttle: limited (0 or 1), limit,
// remaining, seconds to retry after (-1: allowed), seconds until full again.
func AppendThrottle(dst []byte, id uint32, r [5]int64) []byte {
	dst = append(appendReply(dst, id), 0x95)
	for _, v := range r {
		dst = appendInt(dst, v)
	}
	return dst
}

// AppendTrue appends the reply to refund, release and reset.
func AppendTrue(dst []byte, id uint32) []byte { return AppendBool(dst, id, true) }

// AppendBool appends the reply to release.
func AppendBool(dst []byte, id uint32, v bool) []byte {
	return append(appendReply(dst, id), boolByte(v))
}

// AppendPong appends the reply to ping.
func AppendPong(dst []byte, id uint32) []byte {
	return append(appendReply(dst, id), "\xa4pong"...)
}

// AppendError appends an error as the reply. A message over 1024 bytes is cut.
func AppendError(dst []byte, id uint32, code Code, msg string) []byte {
	dst = appendInt(append(dst, 0x94, 1), int64(id))
	dst = appendInt(append(dst, 0x92), int64(code))
	return append(appendString(dst, cut(msg, maxText)), 0xc0)
}

// AppendInfo appends the reply to info, a map, or to explain, pairs of strings. What
// cannot be encoded within the bounds becomes an Internal error.
func AppendInfo(dst []byte, id uint32, info any) []byte {
	start := len(dst)
	b, err := marshal(info)
	if err != nil {
		return AppendError(dst, id, Internal, "info: "+err.Error())
	}
	dst = append(appendReply(dst, id), b...)
	var s Scanner
	if _, err := s.Next(dst[start:]); err != nil {
		return AppendError(dst[:start], id, Internal, "info: "+err.Error())
	}
	return dst
}

// AppendAcquire appends an acquire request. Nothing is checked: the agent does.
// o may be nil.
func AppendAcquire(dst []byte, id uint32, c *Call, o *Options) []byte {
	return AppendCall(dst, id, Acquire, c, o)
}

// AppendCall appends a request for acquire, peek, refund or reset. o may be nil; a
// wait is of use to acquire only.
func AppendCall(dst []byte, id uint32, m Method, c *Call, o *Options) []byte {
	dst = appendRequest(dst, id, m.String())
	switch {
	case m == Reset && o.empty():
		return appendTarget(append(dst, 0x92), c)
	case o.empty():
		return appendCost(append(dst, 0x93), c)
	}
	return appendOptions(appendCost(append(dst, 0x94), c), o)
}

// AppendAcquireAll appends an acquire_all request. o may be nil.
func AppendAcquireAll(dst []byte, id uint32, calls []Call, o *Options) []byte {
	dst = appendRequest(dst, id, AcquireAll.String())
	if o.empty() {
		dst = append(dst, 0x91)
	} else {
		dst = append(dst, 0x92)
	}
	dst = appendArrayLen(dst, len(calls))
	for i := range calls {
		dst = appendCost(append(dst, 0x93), &calls[i])
	}
	if o.empty() {
		return dst
	}
	return appendOptions(dst, o)
}

// AppendRequest appends a request with any parameters. When one of them cannot be
// encoded, dst is returned as it was.
func AppendRequest(dst []byte, id uint32, method string, params ...any) []byte {
	return appendParams(dst, appendRequest(dst, id, method), params)
}

// AppendNotification is AppendRequest without an id: there will be no reply.
func AppendNotification(dst []byte, method string, params ...any) []byte {
	return appendParams(dst, appendString(append(dst, 0x93, 2), method), params)
}

func appendParams(before, dst []byte, params []any) []byte {
	dst = appendArrayLen(dst, len(params))
	for _, p := range params {
		b, err := marshal(p)
		if err != nil {
			return before
		}
		dst = append(dst, b...)
	}
	return dst
}

func marshal(v any) ([]byte, error) {
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	var b buffer
	enc.Reset(&b)
	enc.UseCompactInts(true)
	enc.SetSortMapKeys(true)
	err := enc.Encode(v)
	return b, err
}

// buffer is a bytes.Buffer that can only be written to.
type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

func appendRequest(dst []byte, id uint32, method string) []byte {
	return appendString(appendInt(append(dst, 0x94, 0), int64(id)), method)
}

func appendReply(dst []byte, id uint32) []byte {
	if id < 0x80 {
		return append(dst, 0x94, 1, byte(id), 0xc0)
	}
	return append(appendInt(append(dst, 0x94, 1), int64(id)), 0xc0)
}

func appendTarget(dst []byte, c *Call) []byte {
	if c.Policy != nil {
		dst = appendString(dst, c.Policy)
	} else {
		dst = appendInline(dst, &c.Inline)
	}
	return appendString(dst, c.Key)
}

func appendCost(dst []byte, c *Call) []byte {
	return appendInt(appendTarget(dst, c), c.Cost)
}

func appendInline(dst []byte, l *Inline) []byte {
	items := byte(2)
	if l.Algorithm != nil {
		items = 4
	} else if l.Burst != 0 {
		items = 3
	}
	dst = appendInt(appendInt(append(dst, 0x90|items), l.Count), l.PeriodMS)
	if items > 2 {
		dst = appendInt(dst, l.Burst)
	}
	if items > 3 {
		dst = appendString(dst, l.Algorithm)
	}
	return dst
}

func (o *Options) empty() bool { return o == nil || o.WaitMS == 0 && o.App == nil }

func appendOptions(dst []byte, o *Options) []byte {
	at := len(dst)
	dst = append(dst, 0x80)
	if o.App != nil {
		dst[at]++
		dst = appendString(appendString(dst, "app"), o.App)
	}
	if o.WaitMS != 0 {
		dst[at]++
		dst = appendInt(appendString(dst, "wait_ms"), o.WaitMS)
	}
	return dst
}

func appendDecision(dst []byte, d *Decision) []byte {
	items := byte(7)
	if d.Permit != 0 {
		items = 8
	}
	dst = append(dst, 0x90|items, boolByte(d.Allowed))
	dst = appendInt(dst, d.Limit)
	dst = appendInt(dst, d.Remaining)
	dst = appendInt(dst, d.ResetAfterMS)
	dst = appendInt(dst, d.RetryAfterMS)
	dst = appendInt(appendInt(dst, int64(d.Source)), int64(d.Flags))
	if items == 8 {
		dst = appendUint(dst, d.Permit)
	}
	return dst
}

func boolByte(v bool) byte {
	if v {
		return 0xc3
	}
	return 0xc2
}

func appendInt(dst []byte, v int64) []byte {
	if uint64(v) < 0x80 {
		return append(dst, byte(v))
	}
	return appendWide(dst, v)
}

func appendWide(dst []byte, v int64) []byte {
	if v > 0 {
		return appendUint(dst, uint64(v))
	}
	switch {
	case v >= -32:
		return append(dst, byte(v))
	case v >= -1<<7:
		return append(dst, 0xd0, byte(v))
	case v >= -1<<15:
		return binary.BigEndian.AppendUint16(append(dst, 0xd1), uint16(v))
	case v >= -1<<31:
		return binary.BigEndian.AppendUint32(append(dst, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(v))
}

func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(dst, byte(v))
	case v < 1<<8:
		return append(dst, 0xcc, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
}

func appendString[T string | []byte](dst []byte, s T) []byte {
	switch n := len(s); {
	case n < 32:
		dst = append(dst, 0xa0|byte(n))
	case n < 1<<8:
		dst = append(dst, 0xd9, byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xda), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n))
	}
	return append(dst, s...)
}

func appendArrayLen(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
}

// cut returns at most n bytes of s, and no half of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
