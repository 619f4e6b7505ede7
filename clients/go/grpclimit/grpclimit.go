// Package grpclimit limits the calls of a gRPC server by the agent on its host. It is
// a module of its own, so that nobody but its users depends on gRPC.
//
//	limit := grpclimit.New(client, rlsidecar.Policy("api"))
//	grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// A call that is denied ends with status ResourceExhausted, and a RetryInfo detail
// when it can ever be allowed. One that nobody decided about is served: that is up to
// the client, see rlsidecar.WithOnUnavailable.
package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	rlsidecar "rlsidecar/clients/go"
)

// Option changes a Limiter under construction.
type Option func(*Limiter)

// Key sets whom a call is counted for, given its full method such as
// "/shop.Orders/List": 1 to 1024 bytes. A call whose key is empty is not limited.
// Without it that is the address the connection comes from, without the port.
func Key(of func(ctx context.Context, method string) string) Option {
	return func(l *Limiter) { l.key = of }
}

// Cost sets how many permits a call takes, 1 and more. Without it that is 1.
func Cost(of func(ctx context.Context, method string) int64) Option {
	return func(l *Limiter) { l.cost = of }
}

// Limiter takes permits of one limit for each call of a server. A stream is one call.
type Limiter struct {
	client *rlsidecar.Client
	limit  rlsidecar.Limit
	key    func(ctx context.Context, method string) string
	cost   func(ctx context.Context, method string) int64
}

// New returns a Limiter that takes permits of limit.
func New(client *rlsidecar.Client, limit rlsidecar.Limit, opts ...Option) *Limiter {
	l := &Limiter{client: client, limit: limit, key: address, cost: one}
	for _, o := range opts {
		o(l)
	}
	return l
}

// Unary is a grpc.UnaryServerInterceptor.
func (l *Limiter) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := l.check(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

// Stream is a grpc.StreamServerInterceptor.
func (l *Limiter) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := l.check(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(server, stream)
}

// check returns the status that a call ends with, nil if it may go through.
func (l *Limiter) check(ctx context.Context, method string) error {
	key := l.key(ctx, method)
	if key == "" {
		return nil
	}
	d, err := l.client.Acquire(ctx, l.limit, key, rlsidecar.Cost(l.cost(ctx, method)))
	switch {
	case err != nil:
		return failed(ctx, method, err)
	case !d.Allowed:
		return denied(d)
	}
	return nil
}

func failed(ctx context.Context, method string, err error) error {
	if errors.Is(err, context.Canceled) {
		return status.FromContextError(err).Err()
	}
	slog.ErrorContext(ctx, "rate limit", "method", method, "error", err)
	if errors.Is(err, rlsidecar.ErrUnavailable) {
		return status.Error(codes.Unavailable, "the rate limit could not be checked")
	}
	return status.Error(codes.Internal, "the rate limit could not be checked")
}

func denied(d rlsidecar.Decision) error {
	s := status.New(codes.ResourceExhausted, "too many calls")
	if d.RetryAfter == rlsidecar.Never {
		return s.Err()
	}
	told, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	if err != nil {
		return s.Err()
	}
	return told.Err()
}

func address(ctx context.Context, _ string) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}

func one(context.Context, string) int64 { return 1 }
