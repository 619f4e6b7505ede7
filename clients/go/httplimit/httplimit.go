// Package httplimit limits the requests of a net/http server by the agent on its
// host, and tells the callers in the usual headers.
//
//	limited := httplimit.Limit(client, rlsidecar.Policy("api"))
//	http.ListenAndServe(addr, limited(mux))
//
// A request that is denied gets status 429. One that nobody decided about is
// served: that is up to the client, see rlsidecar.WithOnUnavailable.
package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	rlsidecar "rlsidecar/clients/go"
)

// Option changes a middleware under construction.
type Option func(*limiter)

// Key sets whom a request is counted for: 1 to 1024 bytes. A request whose key is
// empty is not limited. Without it that is the address the connection comes from,
// without the port; behind a proxy that is the proxy, and a header that the proxy
// sets is the better key.
func Key(of func(*http.Request) string) Option { return func(l *limiter) { l.key = of } }

// Cost sets how many permits a request takes, 1 and more. Without it that is 1.
func Cost(of func(*http.Request) int64) Option { return func(l *limiter) { l.cost = of } }

// Headers sets what the responses say about the limit. Without it they say it as XRateLimit.
func Headers(style Style) Option { return func(l *limiter) { l.style = style } }

// Denied sets what answers requests that are denied, with the headers set already.
// Without it that is status 429 and a line of text.
func Denied(h http.Handler) Option { return func(l *limiter) { l.denied = h } }

// Failed sets what answers requests about which the client returned an error.
// Without it that is status 503 when nobody decided, which a client in mode Raise
// returns, and status 500 for a mistake such as an unknown policy; both are logged.
func Failed(answer func(http.ResponseWriter, *http.Request, error)) Option {
	return func(l *limiter) { l.failed = answer }
}

// Limit returns a middleware that takes permits of limit for each request before
// its handler runs. The response passes through untouched, so handlers may flush,
// hijack and redirect as ever; a header that the handler sets itself stays.
//
// A limit of the caller's own is counted by key and period, whatever its number: give
// two middlewares with different limits of one period different keys.
//
// Several of them may stand one behind the other: IETF lists the limits of all, the
// others tell of the one with the least left.
func Limit(client *rlsidecar.Client, limit rlsidecar.Limit, opts ...Option) func(http.Handler) http.Handler {
	l := &limiter{client: client, limit: limit, key: address, cost: one, style: XRateLimit,
		denied: http.HandlerFunc(tooMany), failed: fail}
	for _, o := range opts {
		o(l)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.serve(w, r, next) })
	}
}

type limiter struct {
	client *rlsidecar.Client
	limit  rlsidecar.Limit
	key    func(*http.Request) string
	cost   func(*http.Request) int64
	style  Style
	denied http.Handler
	failed func(http.ResponseWriter, *http.Request, error)
}

func (l *limiter) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key := l.key(r)
	if key == "" {
		next.ServeHTTP(w, r)
		return
	}
	d, err := l.client.Acquire(r.Context(), l.limit, key, rlsidecar.Cost(l.cost(r)))
	if errors.Is(err, context.Canceled) {
		return // the caller has left
	}
	if err != nil {
		l.failed(w, r, err)
		return
	}
	l.style.set(w.Header(), l.limit, d)
	r = r.WithContext(context.WithValue(r.Context(), decisionKey{}, d))
	if d.Allowed {
		next.ServeHTTP(w, r)
	} else {
		l.denied.ServeHTTP(w, r)
	}
}

type decisionKey struct{}

// Decision returns the decision of the middleware that stands nearest before the
// handler; ok is false when there is none, or the request was not limited.
func Decision(r *http.Request) (d rlsidecar.Decision, ok bool) {
	d, ok = r.Context().Value(decisionKey{}).(rlsidecar.Decision)
	return d, ok
}

func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func one(*http.Request) int64 { return 1 }

func tooMany(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "too many requests", http.StatusTooManyRequests)
}

func fail(w http.ResponseWriter, r *http.Request, err error) {
	slog.ErrorContext(r.Context(), "rate limit", "path", r.URL.Path, "error", err)
	if errors.Is(err, rlsidecar.ErrUnavailable) {
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	http.Error(w, "internal error", http.StatusInternalServerError)
}
