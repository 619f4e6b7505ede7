// The servers that are asked, and how one call of each is made.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/protocol"
)

// call makes the n-th call, for one of 100 keys.
type call func(n int) error

const config = `
redis: {url: "unix://%s"}
policies:
  api: {limit: 1000000000/second}
`

const bucket = `
local rate, capacity, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local state = redis.call('HMGET', KEYS[1], 'level', 'at')
local level, at = tonumber(state[1]) or capacity, tonumber(state[2]) or now
level = math.min(capacity, level + math.max(0, now - at) * rate)
local allowed = level >= cost
if allowed then level = level - cost end
redis.call('HSET', KEYS[1], 'level', level, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate) + 1000)
return {allowed and 1 or 0, math.floor(level)}
`

// servers are a Redis, an agent that leases from it, and an echo, in a folder of
// their own.
type servers struct {
	dir     string
	running []*exec.Cmd
}

func start(agent string) (s *servers, err error) {
	dir, err := os.MkdirTemp("", "rlbench")
	if err != nil {
		return nil, err
	}
	s = &servers{dir: dir}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	file := s.path("c.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, s.path("redis")), 0o600); err != nil {
		return nil, err
	}
	if err := s.run("redis", "redis-server", "--port", "0", "--unixsocket", s.path("redis"), "--dir", dir, "--save", ""); err != nil {
		return nil, err
	}
	if err := s.run("agent", agent, "serve", "--config", file, "--socket", s.path("agent"), "--log-level", "warn"); err != nil {
		return nil, err
	}
	return s, s.run("ping", agent, "bench", "echo", "--socket", s.path("ping"))
}

func (s *servers) path(name string) string { return filepath.Join(s.dir, name) }

// run starts a server and waits for its socket.
func (s *servers) run(name, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	s.running = append(s.running, cmd)
	for range 1000 {
		if nc, err := net.Dial("unix", s.path(name)); err == nil {
			return nc.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%s: no socket within 10 s", program)
}

func (s *servers) stop() {
	for _, cmd := range slices.Backward(s.running) {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}
	os.RemoveAll(s.dir)
}

var request = protocol.AppendAcquire(nil, 7, &protocol.Call{Policy: []byte("api"), Key: []byte("user:42"), Cost: 1}, nil)

func (s *servers) caller(name string) (one call, end func() error, err error) {
	switch name {
	case "agent":
		return s.agent()
	case "ping":
		return s.ping()
	}
	return s.redis()
}

func key(n int) string { return "user:" + strconv.Itoa(n%100) }

func (s *servers) agent() (call, func() error, error) {
	client, err := rlsidecar.New(s.path("agent"), rlsidecar.WithTimeout(10*time.Second), rlsidecar.WithOnUnavailable(rlsidecar.Raise))
	if err != nil {
		return nil, nil, err
	}
	ctx, limit := context.Background(), rlsidecar.Policy("api")
	return func(n int) error {
		d, err := client.Acquire(ctx, limit, key(n))
		if err == nil && !d.Allowed {
			err = errors.New("denied")
		}
		return err
	}, client.Close, nil
}

// ping keeps a connection per caller, as many as are in use at once.
func (s *servers) ping() (call, func() error, error) {
	idle := sync.Pool{New: func() any {
		nc, err := net.Dial("unix", s.path("ping"))
		if err != nil {
			return err
		}
		return nc
	}}
	return func(int) error {
		nc, ok := idle.Get().(net.Conn)
		if !ok {
			return errors.New("cannot connect to the echo")
		}
		defer idle.Put(nc)
		if _, err := nc.Write(request); err != nil {
			return err
		}
		var buf [64]byte
		_, err := io.ReadFull(nc, buf[:len(request)])
		return err
	}, func() error { return nil }, nil
}

func (s *servers) redis() (call, func() error, error) {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: s.path("redis"), PoolSize: 8})
	ctx, script := context.Background(), redis.NewScript(bucket)
	if err := script.Load(ctx, client).Err(); err != nil {
		return nil, nil, err
	}
	return func(n int) error {
		return client.EvalSha(ctx, script.Hash(), []string{"bench:" + key(n)}, 1e6, 1e9, 1).Err()
	}, client.Close, nil
}
