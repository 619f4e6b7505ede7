// The algorithms once more, as simply as they can be said: in whole milliseconds and
// whole numbers, without leases. What the limiter says is compared with them.

package limiter

import "time"

// model is one bucket. Times are milliseconds and never run backwards; only use and
// refund change it.
type model interface {
	covers(at, cost int64) bool
	left(at int64) int64
	full(at int64) bool
	use(at, n int64)
	refund(at, n int64)
}

// tokens is a token bucket; a permit is period parts.
type tokens struct {
	count, period, cap int64
	missing, at        int64 // parts
}

func (m *tokens) lacks(at int64) int64       { return max(0, m.missing-(at-m.at)*m.count) }
func (m *tokens) covers(at, cost int64) bool { return m.cap*m.period-m.lacks(at) >= cost*m.period }
func (m *tokens) left(at int64) int64        { return (m.cap*m.period - m.lacks(at)) / m.period }
func (m *tokens) full(at int64) bool         { return m.lacks(at) == 0 }
func (m *tokens) use(at, n int64)            { m.missing, m.at = m.lacks(at)+n*m.period, at }
func (m *tokens) refund(at, n int64)         { m.missing, m.at = max(0, m.lacks(at)-n*m.period), at }

// both is two limits at once.
type both [2]model

func (m both) covers(at, cost int64) bool { return m[0].covers(at, cost) && m[1].covers(at, cost) }
func (m both) left(at int64) int64        { return min(m[0].left(at), m[1].left(at)) }
func (m both) full(at int64) bool         { return m[0].full(at) && m[1].full(at) }
func (m both) use(at, n int64)            { m[0].use(at, n); m[1].use(at, n) }
func (m both) refund(at, n int64)         { m[0].refund(at, n); m[1].refund(at, n) }

// window is a fixed window, from its first use on or by the clock. It also stands
// for permits that come at once when as many come as there can be.
type window struct {
	period, cap int64
	clock       bool
	start, used int64
}

func (m *window) counted(at int64) int64 {
	if at >= m.start+m.period {
		return 0
	}
	return m.used
}
func (m *window) covers(at, cost int64) bool { return m.left(at) >= cost }
func (m *window) left(at int64) int64        { return m.cap - m.counted(at) }
func (m *window) full(at int64) bool         { return m.counted(at) == 0 }
func (m *window) use(at, n int64) {
	if m.used = m.counted(at); m.used == 0 {
		if m.start = at; m.clock {
			m.start -= at % m.period
		}
	}
	m.used += n
}
func (m *window) refund(at, n int64) { m.used = max(0, m.counted(at)-n) }

// log is each use, or with parts those of each part: then it fades over one.
type log struct {
	period, part, cap int64
	at, n             []int64
}

// used is in parts of a permit: as many as a part has milliseconds.
func (m *log) used(at int64) (sum int64) {
	unit := max(1, m.part)
	for i := range m.at {
		gone := max(0, at-m.at[i]-m.period)
		if m.part == 0 && at >= m.at[i]+m.period {
			gone = 1
		}
		sum += m.n[i] * max(0, unit-gone)
	}
	return sum
}
func (m *log) free(at int64) int64        { return m.cap*max(1, m.part) - m.used(at) }
func (m *log) covers(at, cost int64) bool { return m.free(at) >= cost*max(1, m.part) }
func (m *log) left(at int64) int64        { return max(0, m.free(at)) / max(1, m.part) }
func (m *log) full(at int64) bool         { return m.used(at) == 0 }
func (m *log) use(at, n int64) {
	if m.part > 0 {
		at -= at % m.part
	}
	m.at, m.n = append(m.at, at), append(m.n, n)
}

// refund takes back the oldest of what has not begun to fade.
func (m *log) refund(at, n int64) {
	for i := range m.at {
		if at <= m.at[i]+m.period-max(0, 1-m.part) {
			back := min(n, m.n[i])
			m.n[i] -= back
			n -= back
		}
	}
}

// ten is every algorithm with a limit of ten permits.
var ten = []struct {
	name, fields string
	model        func() model
}{
	{"token_bucket", "limit: 10/second", func() model { return &tokens{count: 10, period: 1000, cap: 10} }},
	{"token_bucket, slow", "limit: 5/minute, burst: 10", func() model { return &tokens{count: 5, period: 60000, cap: 10} }},
	{"token_bucket, two limits", "limit: [10/second, 20/10s]", func() model {
		return both{&tokens{count: 10, period: 1000, cap: 10}, &tokens{count: 20, period: 10000, cap: 20}}
	}},
	{"leaky_bucket", "limit: 10/second, algorithm: leaky_bucket", func() model { return &tokens{count: 10, period: 1000, cap: 10} }},
	{"fixed_window", "limit: 10/second, algorithm: fixed_window", func() model { return &window{period: 1000, cap: 10, clock: true} }},
	{"fixed_window, first use", "limit: 10/second, algorithm: fixed_window, align: first_use", func() model { return &window{period: 1000, cap: 10} }},
	{"sliding_window", "limit: 10/second, algorithm: sliding_window", func() model { return &log{period: 1000, part: 100, cap: 10} }},
	{"sliding_window of 2", "limit: 10/second, algorithm: sliding_window, buckets: 2", func() model { return &log{period: 1000, part: 500, cap: 10} }},
	{"sliding_log", "limit: 10/second, algorithm: sliding_log", func() model { return &log{period: 1000, cap: 10} }},
}

// until returns the milliseconds from at until it is so, or -1 if that takes more
// than an hour.
func until(at int64, so func(at int64) bool) int64 {
	for k := int64(0); k < time.Hour.Milliseconds(); k++ {
		if so(at + k) {
			return k
		}
	}
	return -1
}
