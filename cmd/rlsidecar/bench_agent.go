// What bench sees of the process it measures: its own counters, and the time it
// spent on processors.

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rlsidecar/internal/server"
	"rlsidecar/protocol"
)

// watched is the process at the other end of the socket, looked at when the
// measurement begins and when it ends.
type watched struct {
	nc   net.Conn
	path string
	echo bool
	pid  int32 // 0: not known
	seen []sight
}

type sight struct {
	processor float64 // s; -1: not readable
	scripts   float64 // -1: not told
}

// watch connects, and makes sure that it is an agent that answers, unless it is
// said to be an echo.
func watch(address string, echo bool) (*watched, error) {
	if address == "" {
		address = os.Getenv("RLSIDECAR_ADDRESS")
	}
	if address == "" {
		address = server.DefaultPath
	}
	a := &watched{path: strings.TrimPrefix(address, "unix://"), echo: echo}
	nc, err := net.Dial("unix", a.path)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no agent at %s: start one with rlsidecar serve --socket %s, or give its --address", a.path, a.path)
	}
	if err != nil {
		return nil, err
	}
	a.nc, a.pid = nc, peerPID(nc)
	if _, err := a.scripts(); err != nil {
		nc.Close()
		return nil, fmt.Errorf("what answers at %s is no agent: %w", a.path, err)
	}
	return a, nil
}

func (a *watched) Close() error { return a.nc.Close() }

func peerPID(nc net.Conn) (pid int32) {
	raw, err := nc.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = u.Pid
		}
	})
	return pid
}

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
	result, err := a.info()
	if err != nil {
		return 0, err
	}
	stats, _ := result["stats"].(map[string]any)
	return strconv.ParseFloat(fmt.Sprint(stats["redis_scripts"]), 64)
}

func (a *watched) info() (map[string]any, error) {
	a.nc.SetDeadline(time.Now().Add(grace))
	if _, err := a.nc.Write(protocol.AppendRequest(nil, 0, protocol.Info.String())); err != nil {
		return nil, err
	}
	var scan protocol.Scanner
	buf := make([]byte, 0, protocol.MaxMessage)
	for {
		n, err := a.nc.Read(buf[len(buf):cap(buf)])
		if err != nil {
			return nil, err
		}
		buf = buf[:len(buf)+n]
		if n, err = scan.Next(buf); err != nil {
			return nil, err
		}
		if n > 0 {
			return infoOf(buf[:n])
		}
	}
}

func infoOf(frame []byte) (map[string]any, error) {
	r, err := protocol.ParseResponse(frame)
	if err != nil {
		return nil, err
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return protocol.ParseInfo(r.Result)
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
