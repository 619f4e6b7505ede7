// This file reads sockets with one system call less than net.Conn.Read needs.

package server

import (
	"io"
	"net"
	"os"
	"syscall"
)

// ReadAll reads from nc into what room returns, which must not be empty, and tells
// took how many bytes came, until took says that it is done; then it returns nil. It
// returns io.EOF when the peer has ended, and what else ends the reading.
//
// net.Conn.Read tries to read before it waits, which of a peer that is asked one
// thing at a time finds nothing every other time. Here a read that does not fill
// its room has emptied the socket, and what comes after it wakes this goroutine:
// the runtime watches sockets edge-triggered, and forgets no edge within one call
// of RawConn.Read. But last bytes and the end of the peer may come as one edge: a
// write would find that out, so where took was silent the socket is read again.
func ReadAll(nc net.Conn, room func() []byte, took func(n int) (done, silent bool)) error {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return readPlainly(nc, room, took)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var end error
	err = raw.Read(func(fd uintptr) (done bool) {
		done, end = readEmpty(int(fd), room, took)
		return done
	})
	if err != nil {
		return err
	}
	return end
}

// readEmpty reads until there is nothing left for now, or for good.
func readEmpty(fd int, room func() []byte, took func(n int) (done, silent bool)) (done bool, err error) {
	for {
		space := room()
		n, err := syscall.Read(fd, space)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return false, nil
		case err != nil:
			return true, os.NewSyscallError("read", err)
		case n == 0:
			return true, io.EOF
		default:
			if done, silent := took(n); done {
				return true, nil
			} else if n < len(space) && !silent {
				return false, nil
			}
		}
	}
}

func readPlainly(nc net.Conn, room func() []byte, took func(n int) (done, silent bool)) error {
	for {
		n, err := nc.Read(room())
		if n > 0 {
			if done, _ := took(n); done {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}
