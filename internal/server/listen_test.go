// Tests of the socket in the file system.

package server

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

func TestListenModeAndGroup(t *testing.T) {
	own := strconv.Itoa(os.Getgid())
	tests := []struct {
		name string
		cfg  ListenConfig
		mode os.FileMode
	}{
		{"default", ListenConfig{}, 0o660},
		{"mode", ListenConfig{Mode: 0o606}, 0o606},
		{"wide open", ListenConfig{Mode: 0o777}, 0o777},
		{"group", ListenConfig{Group: own}, 0o660},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a", "b", "s")
			tt.cfg.Path = path
			ln, err := Listen(tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			fi, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if fi.Mode() != tt.mode|os.ModeSocket {
				t.Errorf("mode %v, want %v", fi.Mode(), tt.mode)
			}
			if gid := fi.Sys().(*syscall.Stat_t).Gid; int(gid) != os.Getgid() {
				t.Errorf("gid %d, want %s", gid, own)
			}
			if err := ln.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(path); !os.IsNotExist(err) {
				t.Errorf("after Close: %v, want no file", err)
			}
		})
	}
}

func TestListenOtherGroup(t *testing.T) {
	gid := os.Getgid() + 1
	path := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(ListenConfig{Path: path, Group: strconv.Itoa(gid)})
	if os.Geteuid() != 0 {
		if err == nil {
			t.Fatal("a foreign group was given")
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("a failed Listen left its socket: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := fi.Sys().(*syscall.Stat_t).Gid; int(got) != gid {
		t.Errorf("gid %d, want %d", got, gid)
	}
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	link := filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	long := "/" + strings.Repeat("x", maxPath)
	tests := []struct {
		name string
		cfg  ListenConfig
		want string
	}{
		{"108 bytes", ListenConfig{Path: long}, "at most 107"},
		{"a file", ListenConfig{Path: file}, "regular file"},
		{"a folder", ListenConfig{Path: dir}, "directory"},
		{"a link", ListenConfig{Path: link}, "symbolic link"},
		{"a file for a folder", ListenConfig{Path: filepath.Join(file, "s")}, "socket folder"},
		{"group", ListenConfig{Path: filepath.Join(dir, "s"), Group: "no such group"}, "leave group out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := Listen(tt.cfg)
			if err == nil {
				ln.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
		})
	}
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}

func TestListenLongestPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("x", maxPath-len(dir)-1))
	ln, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
}

func TestListenLiveAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := Listen(ListenConfig{Path: path}); err == nil || !strings.Contains(err.Error(), "another agent is serving") {
		t.Errorf("error %v", err)
	}
	if alive, err := answers(path); !alive || err != nil {
		t.Errorf("the live agent: %v, %v", alive, err)
	}
}

// A backlog that is full refuses to connect with EAGAIN: its agent is busy, not dead.
func TestListenFullBacklog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(c)
		if err := unix.Connect(c, &unix.SockaddrUnix{Name: path}); err == unix.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Listen(ListenConfig{Path: path}); err == nil || !strings.Contains(err.Error(), "another agent is serving") {
		t.Errorf("error %v", err)
	}
}

func TestListenReplacesDeadSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	ln, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dial(t, path)
}

// Of many agents started on one dead socket, one serves and all others say so.
func TestListenRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			ln, err := Listen(ListenConfig{Path: path})
			if err == nil {
				won.Add(1)
				t.Cleanup(func() { ln.Close() })
			} else if !strings.Contains(err.Error(), "another agent is serving") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d agents serve", won.Load())
	}
}

func TestListenLockedFolder(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	synctest.Test(t, func(t *testing.T) {
		if _, err := Listen(ListenConfig{Path: filepath.Join(dir, "s")}); err == nil || !strings.Contains(err.Error(), "cannot lock it") {
			t.Errorf("error %v", err)
		}
	})
}

// A listener that another file took the place of leaves that file alone.
func TestCloseLeavesSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	next, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	dial(t, path)
}
