// This file puts the agent's socket into the file system, and takes it away
// again, without ever stealing the place of an agent that still serves.

package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// DefaultPath is where clients look when they are told nothing else.
	DefaultPath = "/run/rlsidecar/rlsidecar.sock"
	// DefaultMode lets the owner and the group connect.
	DefaultMode os.FileMode = 0o660

	maxPath      = 107 // sockaddr_un holds 108 bytes, the last one is 0
	lockPatience = 2 * time.Second
	lockPause    = 10 * time.Millisecond
)

// ListenConfig says where the socket lies and who may connect.
type ListenConfig struct {
	Path  string      // at most 107 bytes once absolute; "" means DefaultPath
	Mode  os.FileMode // permission bits; 0 means DefaultMode
	Group string      // name or number of the owning group; "" leaves the agent's own
}

// Listener is the agent's listening socket.
type Listener struct {
	*net.UnixListener
	path  string
	inode os.FileInfo
	once  sync.Once
	err   error
}

// Listen creates the socket. A missing folder is created with mode 0755. A dead
// socket at the path is replaced; a live one, or anything that is no socket, is
// left alone and refused.
func Listen(cfg ListenConfig) (*Listener, error) {
	path, err := socketPath(cfg.Path)
	if err != nil {
		return nil, err
	}
	gid, err := groupID(cfg.Group)
	if err != nil {
		return nil, err
	}
	unlock, err := lockFolder(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := makeWay(path); err != nil {
		return nil, err
	}
	mode := cfg.Mode.Perm()
	if mode == 0 {
		mode = DefaultMode
	}
	return bind(path, mode, gid)
}

// Close takes the socket file away, if it is still this listener's, and then
// stops listening. In this order nobody can have replaced the file meanwhile:
// until the end the path leads to a live agent. Further calls do nothing.
func (l *Listener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.inode) {
			l.err = os.Remove(l.path)
		}
		l.err = errors.Join(l.err, l.UnixListener.Close())
	})
	return l.err
}

func socketPath(path string) (string, error) {
	if path == "" {
		path = DefaultPath
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("socket path %q: %w", path, err)
	}
	if len(abs) > maxPath {
		return "", fmt.Errorf("socket path %q has %d bytes: a Unix socket's path may have at most %d; use a shorter folder, such as /run/rlsidecar", abs, len(abs), maxPath)
	}
	return abs, nil
}

// groupID returns -1 for "".
func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("socket group %q: this host has no such group; write the name of an existing one or its number, or leave group out", name)
	}
	return strconv.Atoi(g.Gid)
}

// lockFolder holds off other agents starting on a socket in the same folder.
// The lock dies with the process, so it cannot be left behind.
func lockFolder(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("socket folder %s: %w; create it for the agent's user (under systemd: RuntimeDirectory=rlsidecar), or choose another path (socket.path, --socket)", dir, err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("socket folder %s: %w", dir, err)
	}
	for end := time.Now().Add(lockPatience); ; time.Sleep(lockPause) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || time.Now().After(end) {
			f.Close()
			return nil, fmt.Errorf("socket folder %s: cannot lock it: %w; is another agent starting there?", dir, err)
		}
	}
}

// makeWay leaves nothing at path, or says why it must stay.
func makeWay(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket path: %w", err)
	}
	if fi.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("socket path %s: there is a %s already; move it away or choose another path", path, kindOf(fi.Mode()))
	}
	alive, err := answers(path)
	if err != nil {
		return fmt.Errorf("socket path %s: cannot tell whether an agent serves there: %w", path, err)
	}
	if alive {
		return fmt.Errorf("another agent is serving on %s; stop it first or choose another path", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("socket path %s: cannot remove the dead socket: %w", path, err)
	}
	return nil
}

func kindOf(m os.FileMode) string {
	switch m.Type() {
	case 0:
		return "regular file"
	case os.ModeDir:
		return "directory"
	case os.ModeSymlink:
		return "symbolic link"
	}
	return "file of another kind"
}

// answers reports whether somebody listens at path. A full backlog is a live,
// busy agent.
func answers(path string) (bool, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err {
	case nil, unix.EAGAIN:
		return true, nil
	case unix.ECONNREFUSED, unix.ENOENT:
		return false, nil
	default:
		return false, err
	}
}

// bind makes the socket closed to everybody else, and opens it to those meant
// only once its group is right. The umask is the process's: files other
// goroutines create in this moment get narrower permissions, never wider ones.
func bind(path string, mode os.FileMode, gid int) (*Listener, error) {
	old := unix.Umask(0o177)
	ul, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("socket path %s: %w", path, err)
	}
	ul.SetUnlinkOnClose(false)
	l := &Listener{UnixListener: ul, path: path}
	if l.inode, err = os.Lstat(path); err == nil {
		err = admit(path, mode, gid)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func admit(path string, mode os.FileMode, gid int) error {
	if gid >= 0 {
		if err := os.Chown(path, -1, gid); err != nil {
			return fmt.Errorf("socket group %d: %w; the agent's user must be a member of that group", gid, err)
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("socket mode %#o: %w", mode, err)
	}
	return nil
}
