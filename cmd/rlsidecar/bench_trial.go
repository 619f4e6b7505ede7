// trial is one measurement: workers that make calls as fast as they may, a time to
// warm up, and then a time that counts.

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"rlsidecar/internal/limiter"
	"rlsidecar/protocol"
)

// grace is how long replies are waited for when the time is up.
const grace = 2 * time.Second

// trial's clock is nanoseconds since it was made. A call belongs to the
// measurement when it began between begin and end, whenever it was answered: what
// began before and is answered after makes up for it, and no slow call is left out
// for being slow.
type trial struct {
	base  time.Time
	begin int64        // the warm-up is over
	end   atomic.Int64 // no call begins any more
}

func newTrial(warmup, duration time.Duration) *trial {
	t := &trial{base: time.Now(), begin: int64(warmup)}
	t.end.Store(int64(warmup + duration))
	return t
}

func (t *trial) now() int64 { return int64(time.Since(t.base)) }

func (t *trial) over(now int64) bool { return now >= t.end.Load() }

func (t *trial) counts(from int64) bool { return from >= t.begin && from < t.end.Load() }

// seconds is how long the part that counts was.
func (t *trial) seconds() float64 { return float64(max(0, t.end.Load()-t.begin)) / 1e9 }

// worker makes calls in run until the trial is over, each answered one into its
// tally. expire makes a run that still waits for replies end soon.
type worker interface {
	run() error
	expire()
	result() *tally
}

// tally is what one worker has seen. Only answered is read while it works.
type tally struct {
	answered atomic.Uint64 // decisions, warm-up included
	latency  histogram
	allowed  uint64
	denied   uint64
	sources  [limiter.FromList + 2]uint64 // the last: all that are not known
	errors   [protocol.Internal + 1]uint64
	message  string // of the first error
	silent   uint64 // calls that got no reply
}

func (t *tally) decided(allowed bool, source uint8) {
	if allowed {
		t.allowed++
	} else {
		t.denied++
	}
	t.sources[min(int(source), len(t.sources)-1)]++
}

func (t *tally) failed(code protocol.Code, message string) {
	if code < 0 || int(code) >= len(t.errors) {
		code = protocol.Unavailable
	}
	t.errors[code]++
	if t.message == "" {
		t.message = message
	}
}

func (t *tally) merge(o *tally) {
	t.latency.merge(&o.latency)
	t.allowed += o.allowed
	t.denied += o.denied
	t.silent += o.silent
	for i, n := range o.sources {
		t.sources[i] += n
	}
	for i, n := range o.errors {
		t.errors[i] += n
	}
	if t.message == "" {
		t.message = o.message
	}
}

// run has all workers work, tells p, and calls measured when the warm-up is over
// and when the time is up. It ends early when ctx or all workers do. The error is
// the first that made a worker give up.
func (t *trial) run(ctx context.Context, workers []worker, p *progress, measured func()) (*tally, error) {
	results := make(chan error, len(workers))
	ended := make(chan struct{})
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() { results <- w.run() })
	}
	go func() { all.Wait(); close(ended) }()
	if t.wait(ctx, ended, t.begin, workers, p) {
		measured()
		t.wait(ctx, ended, t.end.Load(), workers, p)
	}
	t.end.Store(min(t.end.Load(), t.now()))
	p.done()
	measured()
	for _, w := range workers {
		w.expire()
	}
	<-ended
	sum := &tally{}
	var err error
	for _, w := range workers {
		sum.merge(w.result())
		if e := <-results; err == nil {
			err = e
		}
	}
	return sum, err
}

// wait reports whether the time until came before ctx or the workers ended.
func (t *trial) wait(ctx context.Context, ended <-chan struct{}, until int64, workers []worker, p *progress) bool {
	up := time.NewTimer(time.Duration(until - t.now()))
	defer up.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-up.C:
			return true
		case <-ended:
			return t.now() >= until // both, when this was late
		case <-ctx.Done():
			return false
		case <-tick.C:
			n := uint64(0)
			for _, w := range workers {
				n += w.result().answered.Load()
			}
			p.show(time.Since(t.base), n)
		}
	}
}

// progress is a line about the last second: rewritten on a terminal, else a new
// one every five seconds.
type progress struct {
	w        io.Writer
	terminal bool
	shown    bool
	at       time.Duration
	n        uint64
}

const plainEvery = 5 * time.Second

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// show is told how many decisions there were until now.
func (p *progress) show(now time.Duration, n uint64) {
	every := plainEvery
	if p.terminal {
		every = 0
	}
	if now-p.at < every-time.Second/2 {
		return
	}
	line := fmt.Sprintf("%4.0fs %12.0f decisions/s", now.Seconds(), float64(n-p.n)/(now-p.at).Seconds())
	p.at, p.n = now, n
	if p.terminal {
		fmt.Fprintf(p.w, "\r%s", line)
		p.shown = true
		return
	}
	fmt.Fprintln(p.w, line)
}

func (p *progress) done() {
	if p.shown {
		fmt.Fprintln(p.w)
	}
}
