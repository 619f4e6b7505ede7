// Command conformance drives the Go client for the suite in internal/conformance:
// questions as lines of JSON come in, one line of answer each goes out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/protocol"
)

func main() {
	clients := clients{}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		answer, err := json.Marshal(clients.answer(line))
		if err != nil {
			answer = fmt.Appendf(nil, `{"error":"other","message":%q}`, err)
		}
		os.Stdout.Write(append(answer, '\n'))
	}
}

// question is what the suite asks; fields that are left out are nil or empty.
type question struct {
	Do, Client, Key, Call string
	Address               string
	TimeoutMS             *int64 `json:"timeout_ms"`
	OnUnavailable         string `json:"on_unavailable"`
	Env                   map[string]*string
	Limit                 limit
	Cost                  *int64
	WaitMS                int64 `json:"wait_ms"`
	Items                 []item
	Keys                  []string
	Threads, Calls        int
	MS                    int64
}

type clients map[string]*rlsidecar.Client

type object map[string]any

func (cs clients) answer(line []byte) object {
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return failed(err, 0)
	}
	switch q.Do {
	case "open":
		return cs.open(&q)
	case "sleep":
		time.Sleep(time.Duration(q.MS) * time.Millisecond)
		return object{"ok": true}
	case "fds":
		return descriptors()
	}
	c, ok := cs[q.Client]
	if !ok {
		return failed(fmt.Errorf("client %q: never opened", q.Client), 0)
	}
	switch q.Do {
	case "close":
		c.Close()
		return object{"ok": true}
	case "many":
		return many(c, &q)
	}
	start := time.Now()
	got, err := ask(c, &q)
	elapsed := time.Since(start).Microseconds()
	if err != nil {
		return failed(err, elapsed)
	}
	got["elapsed_us"] = elapsed
	return got
}

func (cs clients) open(q *question) object {
	for name, value := range q.Env {
		if value == nil {
			os.Unsetenv(name)
		} else {
			os.Setenv(name, *value)
		}
	}
	var opts []rlsidecar.Option
	if q.TimeoutMS != nil {
		opts = append(opts, rlsidecar.WithTimeout(time.Duration(*q.TimeoutMS)*time.Millisecond))
	}
	if q.OnUnavailable != "" {
		opts = append(opts, rlsidecar.WithOnUnavailable(rlsidecar.OnUnavailable(q.OnUnavailable)))
	}
	c, err := rlsidecar.New(q.Address, opts...)
	if err != nil {
		return failed(err, 0)
	}
	if old := cs[q.Client]; old != nil {
		old.Close()
	}
	cs[q.Client] = c
	return object{"ok": true}
}

func descriptors() object {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return failed(err, 0)
	}
	return object{"fds": len(open)}
}

// ask makes the call that a question is about.
func ask(c *rlsidecar.Client, q *question) (object, error) {
	ctx, opts := context.Background(), q.options()
	switch q.Do {
	case "acquire":
		return decided(c.Acquire(ctx, q.Limit.Limit, q.Key, opts...))
	case "peek":
		return decided(c.Peek(ctx, q.Limit.Limit, q.Key, opts...))
	case "refund":
		return done(c.Refund(ctx, q.Limit.Limit, q.Key, opts...))
	case "reset":
		return done(c.Reset(ctx, q.Limit.Limit, q.Key, opts...))
	case "acquire_all":
		return all(c.AcquireAll(ctx, asks(q.Items), opts...))
	}
	return nil, fmt.Errorf("do %q: unknown", q.Do)
}

func (q *question) options() (opts []rlsidecar.CallOption) {
	if q.Cost != nil {
		opts = append(opts, rlsidecar.Cost(*q.Cost))
	}
	if q.WaitMS != 0 {
		opts = append(opts, rlsidecar.Wait(time.Duration(q.WaitMS)*time.Millisecond))
	}
	if q.TimeoutMS != nil {
		opts = append(opts, rlsidecar.Timeout(time.Duration(*q.TimeoutMS)*time.Millisecond))
	}
	return opts
}

func asks(items []item) []rlsidecar.Ask {
	var asks []rlsidecar.Ask
	for _, i := range items {
		asks = append(asks, rlsidecar.Ask(i))
	}
	return asks
}

func decided(d rlsidecar.Decision, err error) (object, error) { return decision(d), err }

func done(ok bool, err error) (object, error) { return object{"ok": ok}, err }

func all(allowed bool, ds []rlsidecar.Decision, err error) (object, error) {
	degraded := false
	decisions := []object{}
	for _, d := range ds {
		degraded = degraded || d.Degraded
		decisions = append(decisions, decision(d))
	}
	return object{"allowed": allowed, "decisions": decisions, "degraded": degraded}, err
}

func decision(d rlsidecar.Decision) object {
	o := object{
		"allowed": d.Allowed, "limit": d.Limit, "remaining": d.Remaining, "source": int(d.Source),
		"reset_after_ms": d.ResetAfter.Milliseconds(), "retry_after_ms": d.RetryAfter.Milliseconds(),
		"degraded": d.Degraded, "shadow": d.Shadow, "permit": nil,
	}
	if d.RetryAfter == rlsidecar.Never {
		o["retry_after_ms"] = -1
	}
	if d.Permit != 0 {
		o["permit"] = d.Permit
	}
	return o
}

func failed(err error, elapsed int64) object {
	return object{"error": kind(err), "message": err.Error(), "elapsed_us": elapsed}
}

func kind(err error) string {
	for _, k := range []struct {
		target error
		name   string
	}{
		{rlsidecar.ErrTimeout, "timeout"},
		{rlsidecar.ErrNotRunning, "not_running"},
		{rlsidecar.ErrProtocol, "protocol"},
	} {
		if errors.Is(err, k.target) {
			return k.name
		}
	}
	if e := (*rlsidecar.Error)(nil); errors.As(err, &e) {
		switch e.Code {
		case protocol.UnknownPolicy, protocol.NotPermitted, protocol.Overloaded, protocol.Internal:
			return e.Code.String()
		case protocol.InvalidArgument:
			return "invalid_request"
		}
	}
	if errors.Is(err, rlsidecar.ErrUnavailable) {
		return "unavailable"
	}
	return "other"
}

// many has each thread ask for the keys in turn and counts the answers that belong
// to another key.
func many(c *rlsidecar.Client, q *question) object {
	var (
		threads            sync.WaitGroup
		wrong, unavailable atomic.Int64
	)
	for thread := range q.Threads {
		threads.Go(func() {
			for call := range q.Calls {
				n := (thread + call) % len(q.Keys)
				d, err := c.Acquire(context.Background(), q.Limit.Limit, q.Keys[n])
				switch {
				case err != nil || d.Degraded:
					unavailable.Add(1)
				case d.Limit != int64(1000+n):
					wrong.Add(1)
				}
			}
		})
	}
	threads.Wait()
	return object{"ok": true, "wrong": wrong.Load(), "unavailable": unavailable.Load()}
}

// limit is a name, a text like "10/minute", or an object.
type limit struct{ rlsidecar.Limit }

func (l *limit) UnmarshalJSON(text []byte) (err error) {
	if text[0] == '"' {
		var written string
		if err := json.Unmarshal(text, &written); err != nil {
			return err
		}
		l.Limit, err = rlsidecar.ParseLimit(written)
		return err
	}
	var inline struct {
		Count, Burst int64
		PeriodMS     int64 `json:"period_ms"`
		Algorithm    rlsidecar.Algorithm
	}
	if err := json.Unmarshal(text, &inline); err != nil {
		return err
	}
	l.Limit = rlsidecar.Per(inline.Count, time.Duration(inline.PeriodMS)*time.Millisecond).
		Burst(inline.Burst).Algorithm(inline.Algorithm)
	return nil
}

// item is [limit, key] or [limit, key, cost].
type item rlsidecar.Ask

func (i *item) UnmarshalJSON(text []byte) error {
	var l limit
	if err := json.Unmarshal(text, &[]any{&l, &i.Key, &i.Cost}); err != nil {
		return err
	}
	i.Limit = l.Limit
	return nil
}
