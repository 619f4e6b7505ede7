// A real gRPC server and client, limited by a real agent.

package grpclimit

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	rlsidecar "rlsidecar/clients/go"
)

// startAgent starts an agent without Redis, built from this tree.
func startAgent(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary, path, config := filepath.Join(dir, "rlsidecar"), filepath.Join(dir, "s"), filepath.Join(dir, "c.yaml")
	build := exec.Command("go", "build", "-o", binary, "./cmd/rlsidecar")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(config, []byte("policies:\n  calls: {limit: 2/hour}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(binary, "serve", "--config", config, "--socket", path, "--log-level", "warn")
	agent.Stderr = os.Stderr
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		agent.Process.Signal(os.Interrupt)
		agent.Wait()
	})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if nc, err := net.Dial("unix", path); err == nil {
			nc.Close()
			return path
		}
		if time.Now().After(deadline) {
			t.Fatal("the agent does not listen")
		}
	}
}

// startServer serves gRPC's health service behind l and returns a client of it.
func startServer(t *testing.T, l *Limiter) grpc_health_v1.HealthClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(l.Unary), grpc.StreamInterceptor(l.Stream))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

func newClient(t *testing.T, path string, opts ...rlsidecar.Option) *rlsidecar.Client {
	t.Helper()
	c, err := rlsidecar.New(path, append([]rlsidecar.Option{rlsidecar.WithTimeout(5 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func check(t *testing.T, c grpc_health_v1.HealthClient) error {
	_, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	return err
}

func watch(t *testing.T, c grpc_health_v1.HealthClient) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func byMethod(_ context.Context, method string) string { return method }

func TestCallsAreDenied(t *testing.T) {
	client := newClient(t, startAgent(t))
	server := startServer(t, New(client, rlsidecar.Policy("calls"), Key(byMethod)))
	for name, call := range map[string]func(*testing.T, grpc_health_v1.HealthClient) error{"unary": check, "stream": watch} {
		for n := range 2 {
			if err := call(t, server); err != nil {
				t.Errorf("%s %d: %v", name, n, err)
			}
		}
		s := status.Convert(call(t, server))
		if s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 {
			t.Fatalf("%s: %v, %v", name, s, s.Details())
		}
		wait := s.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration()
		if wait <= 20*time.Minute || wait > 30*time.Minute {
			t.Errorf("%s: retry after %v, want half an hour less what has passed", name, wait)
		}
	}
	if err := check(t, startServer(t, New(client, rlsidecar.Policy("calls")))); err != nil {
		t.Errorf("by address: %v", err)
	}
	never := New(client, rlsidecar.Policy("calls"), Cost(func(context.Context, string) int64 { return 3 }))
	if s := status.Convert(check(t, startServer(t, never))); s.Code() != codes.ResourceExhausted || len(s.Details()) != 0 {
		t.Errorf("a cost above the capacity: %v, %v", s, s.Details())
	}
	unknown := New(client, rlsidecar.Policy("nothing"))
	if code := status.Code(check(t, startServer(t, unknown))); code != codes.Internal {
		t.Errorf("an unknown policy: %v", code)
	}
	nobody := New(client, rlsidecar.Policy("nothing"), Key(func(context.Context, string) string { return "" }))
	if err := check(t, startServer(t, nobody)); err != nil {
		t.Errorf("no key: %v", err)
	}
}

func TestWithoutAgent(t *testing.T) {
	for mode, want := range map[rlsidecar.OnUnavailable]codes.Code{
		rlsidecar.Allow: codes.OK, rlsidecar.Deny: codes.ResourceExhausted, rlsidecar.Raise: codes.Unavailable,
	} {
		client := newClient(t, filepath.Join(t.TempDir(), "s"), rlsidecar.WithOnUnavailable(mode))
		server := startServer(t, New(client, rlsidecar.Policy("calls")))
		for name, err := range map[string]error{"unary": check(t, server), "stream": watch(t, server)} {
			if code := status.Code(err); code != want {
				t.Errorf("%s, %s: %v, want %v", mode, name, code, want)
			}
		}
	}
}
