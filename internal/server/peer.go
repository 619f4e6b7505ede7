// This file asks the kernel who is at the other end of a connection.

package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"rlsidecar/internal/limiter"
)

// PeerOf returns an unknown peer for connections that are no Unix sockets.
func PeerOf(nc net.Conn) (p limiter.Peer) {
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
			p = limiter.Peer{Known: true, UID: u.Uid, GID: u.Gid, PID: u.Pid}
		}
	})
	return p
}
