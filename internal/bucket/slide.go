// slide is the algorithms that remember what was used and when: SlidingLog, each
// use, and SlidingWindow, each part of the period.

package bucket

import (
	"math"
	"slices"
)

// mark is permits used together.
type mark struct {
	at int64 // µs; of a SlidingWindow, the start of the part
	n  float64
}

// slide is the uses of one Limit, oldest first. A mark counts in full for a
// period; then it fades out over the width of a part, or at once in a SlidingLog.
//
// A use may be marked later than it was, never earlier: it then counts for longer
// than it must, and what is free is never more than the truth.
type slide struct {
	marks  []mark
	sum    float64 // of marks
	latest int64   // of a log: no mark comes before it
}

// span is what a slide is measured by, in µs.
type span struct{ period, part int64 }

func (r *Rule) span(i int) span {
	period := r.Limits[i].Period.Microseconds()
	return span{period, r.part(period)}
}

// add marks permits as used at a time; one before the last mark's counts from there.
func (s *slide) add(w span, at int64, permits float64) {
	if permits <= 0 {
		return
	}
	if w.part > 0 {
		at -= at % w.part
	} else {
		at = max(at, s.latest)
		s.latest = at
	}
	s.sum += permits
	if last := len(s.marks) - 1; last >= 0 && s.marks[last].at >= at {
		s.marks[last].n += permits
		return
	}
	s.marks = append(s.marks, mark{at, permits})
}

// forget drops the marks that no longer count.
func (s *slide) forget(w span, now int64) {
	gone := 0
	for gone < len(s.marks) && now >= s.marks[gone].at+w.period+w.part {
		s.sum -= s.marks[gone].n
		gone++
	}
	if gone == len(s.marks) {
		s.marks, s.sum = s.marks[:0], 0
	} else if gone > 0 {
		s.marks = s.marks[gone:]
	}
}

// used returns what counts at now.
func (s *slide) used(w span, now int64) float64 {
	used := s.sum
	for _, m := range s.marks {
		over := now - m.at - w.period
		if over <= 0 {
			break
		}
		used -= m.n * float64(over) / float64(w.part)
	}
	return used
}

// undo takes permits back, of those that count in full the oldest: nobody tells when
// they were used, and the marks that stay must not be earlier than the uses that do.
func (s *slide) undo(w span, now int64, permits float64) {
	i := 0
	for i < len(s.marks) && now > s.marks[i].at+w.period {
		i++
	}
	for permits > 0 && i < len(s.marks) {
		n := min(permits, s.marks[i].n)
		s.marks[i].n -= n
		s.sum -= n
		permits -= n
		if s.marks[i].n == 0 {
			s.marks = slices.Delete(s.marks, i, i+1)
		}
	}
}

// wait returns the microseconds until permits have come back since now, given
// that so many are used now.
func (s *slide) wait(w span, now int64, permits float64) int64 {
	if permits <= slack {
		return 0
	}
	for _, m := range s.marks {
		left, from := m.n, m.at+w.period
		if over := now - from; over > 0 {
			left -= m.n * float64(over) / float64(w.part)
			from = now
		}
		if permits <= left+slack {
			fade := 0.0
			if w.part > 0 && m.n > 0 {
				fade = min(permits/m.n*float64(w.part), float64(m.at+w.period+w.part-from))
			}
			return max(1, from-now+int64(math.Ceil(fade)))
		}
		permits -= left
	}
	if last := len(s.marks) - 1; last >= 0 {
		return max(1, s.marks[last].at+w.period+w.part-now)
	}
	return 0
}

// slides is one slide for each limit of a Rule.
type slides [MaxLimits]slide

// add marks permits as used at a time, now or before it.
func (ss *slides) add(r *Rule, now, at int64, permits float64) {
	for i := range r.N {
		ss[i].add(r.span(i), at, permits)
	}
	ss.forget(r, now)
}

func (ss *slides) forget(r *Rule, now int64) {
	for i := range r.N {
		ss[i].forget(r.span(i), now)
	}
}

func (ss *slides) undo(r *Rule, now int64, permits float64) {
	for i := range r.N {
		ss[i].undo(r.span(i), now, permits)
	}
}

// free returns what the limit with the least has left, when so much is out.
func (ss *slides) free(r *Rule, share float64, now, out int64) float64 {
	free := math.Inf(1)
	for i := range r.N {
		free = min(free, r.Rate(i, share).Cap-float64(out)-ss[i].used(r.span(i), now))
	}
	return free
}

// wait returns the microseconds until want permits are free. What is out does not
// come back by itself: it is taken to be used now.
func (ss *slides) wait(r *Rule, share float64, now, out int64, want float64) int64 {
	var wait int64
	for i := range r.N {
		w := r.span(i)
		cap := r.Rate(i, share).Cap
		short := min(want, cap) - (cap - float64(out) - ss[i].used(w, now))
		if short > ss[i].used(w, now)+slack {
			wait = max(wait, w.period+w.part)
			continue
		}
		wait = max(wait, ss[i].wait(w, now, short))
	}
	return wait
}

// full returns the microseconds until nothing used counts any more.
func (ss *slides) full(r *Rule, now int64) int64 {
	var wait int64
	for i := range r.N {
		if last := len(ss[i].marks) - 1; last >= 0 {
			w := r.span(i)
			wait = max(wait, ss[i].marks[last].at+w.period+w.part-now)
		}
	}
	return wait
}

// reshape carries uses over to a rule with another number of limits: each limit
// starts with the most uses of any.
func (ss *slides) reshape(r *Rule, had int) {
	if had == r.N {
		return
	}
	most := 0
	for i := 1; i < had; i++ {
		if ss[i].sum > ss[most].sum {
			most = i
		}
	}
	all := ss[most]
	for i := range r.N {
		ss[i] = slide{slices.Clone(all.marks), all.sum, all.latest}
	}
}

// resume marks what o says is used, each limit's so that it is free when all is.
func (ss *slides) resume(r *Rule, share float64, now int64, o *Outlook) {
	for i := range r.N {
		w := r.span(i)
		cap := r.Rate(i, share).Cap
		used := cap - min(cap, max(0, share*float64(o.Left(r, now))))
		ss[i].add(w, max(0, min(now, o.Full-w.period-w.part)), used)
	}
	ss.forget(r, now)
}
