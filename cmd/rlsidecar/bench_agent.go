// What bench sees of the process it measures: its own counters, and the time it
// spent on processors.

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/internal/server"
)

// watched is the process at the other end of the socket, looked at when the
// measurement begins and when it ends.
type watched struct {
	client *rlsidecar.Client
	path   string
	echo   bool
	pid    int32 // 0: not known
	seen   []sight
}

type sight struct {
	processor float64 // s; -1: not readable
	scripts   float64 // -1: not told
}

// watch connects, and makes sure that it is an agent that answers, unless it is
// said to be an echo.
func watch(address string, echo bool) (*watched, error) {
	path, err := rlsidecar.SocketPath(address)
	if err != nil {
		return nil, err
	}
	nc, err := net.Dial("unix", path)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no agent at %s: start one with rlsidecar serve --socket %s, or give its --address", path, path)
	}
	if err != nil {
		return nil, err
	}
	a := &watched{path: path, echo: echo, pid: server.PeerOf(nc).PID}
	nc.Close()
	if a.client, err = rlsidecar.New(path, rlsidecar.WithTimeout(grace), rlsidecar.WithOnUnavailable(rlsidecar.Raise)); err != nil {
		return nil, err
	}
	if _, err := a.scripts(); err != nil {
		a.Close()
		return nil, fmt.Errorf("what answers at %s is no agent: %w", path, err)
	}
	return a, nil
}

func (a *watched) Close() error { return a.client.Close() }

func (a *watched) look() {
	s := sight{processor: processorTime(a.pid), scripts: -1}
	if n, err := a.scripts(); err == nil {
		s.scripts = n
	}
	a.seen = append(a.seen, s)
}

// report adds what happened between the two looks.
func (a *watched) report(r *report) {
	if a.echo {
		r.Sources = map[string]uint64{"echo": r.Decisions}
	}
	if len(a.seen) != 2 || r.Decisions == 0 {
		return
	}
	was, is := a.seen[0], a.seen[1]
	if was.scripts >= 0 && is.scripts >= 0 && !a.echo {
		v := 1000 * (is.scripts - was.scripts) / float64(r.Decisions)
		r.RedisScriptsPer1000 = &v
	}
	if was.processor >= 0 && is.processor >= 0 {
		v := 1e6 * (is.processor - was.processor) / float64(r.Decisions)
		r.AgentMicros = &v
	}
}

// scripts asks the agent how many scripts it has sent to Redis.
func (a *watched) scripts() (float64, error) {
	if a.echo {
		return 0, nil
	}
	result, err := a.client.Info(context.Background())
	if err != nil {
		return 0, err
	}
	stats, _ := result["stats"].(map[string]any)
	return strconv.ParseFloat(fmt.Sprint(stats["redis_scripts"]), 64)
}

const ticksPerSecond = 100 // what Linux tells programs, on every machine

// processorTime returns the seconds that a process has spent on processors, -1
// when that cannot be read.
func processorTime(pid int32) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return -1
	}
	// The name of the program may hold anything, but is the last in parentheses.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return -1
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticksPerSecond
}
