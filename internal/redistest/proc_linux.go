// What Linux offers to be sure about a child process: that it can't outlive the
// tests, and that it has really stopped.

package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent has the kernel kill the child when the test binary dies without
// running its cleanups, as it does on -timeout.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stopped tells whether a SIGSTOP has taken effect: the state is the first field
// after the command's name, which is in parentheses.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, fields, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(fields, []byte("T"))
}
