// This file tells who is at the other end of a connection.

package server

import (
	"log/slog"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer is the process that connected, as the kernel noted it at connect: it
// stays the same when the connection is inherited or passed on. The pid is 0
// across pid namespaces, and may be another process's by now: good for log
// lines only, never for permission.
type Peer struct {
	Known    bool
	UID, GID uint32
	PID      int32
}

// PeerOf returns an unknown peer for connections that are no Unix sockets.
func PeerOf(nc net.Conn) (p Peer) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return p
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return p
	}
	raw.Control(func(fd uintptr) {
		if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p = Peer{true, u.Uid, u.Gid, u.Pid}
		}
	})
	return p
}

// LogValue makes a peer readable in a log line.
func (p Peer) LogValue() slog.Value {
	if !p.Known {
		return slog.StringValue("unknown")
	}
	return slog.GroupValue(slog.Int("uid", int(p.UID)), slog.Int("gid", int(p.GID)), slog.Int("pid", int(p.PID)))
}
