// hold runs a command while it holds a permit, for cron jobs and shell scripts: a
// semaphore over all hosts.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// The exit statuses of hold beside its command's own, as sysexits.h has them.
const (
	exitUnavailable = 69
	exitTryLater    = 75
)

func hold(args []string, out, errs io.Writer) int {
	var a taking
	f := flag.NewFlagSet("hold", flag.ContinueOnError)
	a.flags(f)
	const about = "Runs COMMAND if POLICY allows it, and holds a permit of a concurrency limit meanwhile. Exit\n" +
		"status: the command's own; 75: denied; 69: no decision, the command did not run; 2: wrong usage.\n" +
		"The arguments are followed by -- COMMAND [ARGUMENT ...]."
	var command []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, command = args[:i], args[i+1:]
	}
	rest, status, ok := parse(f, args, about, []string{"POLICY", "KEY"}, out, errs)
	if !ok {
		return status
	}
	if len(command) == 0 {
		fmt.Fprintln(errs, "rlsidecar hold: no command: write -- COMMAND behind POLICY KEY")
		return exitError
	}
	client, limit, err := a.open(rest[0])
	if err != nil {
		return complain(errs, "hold", err)
	}
	defer client.Close()
	permit, d, err := client.Hold(context.Background(), limit, rest[1], a.options()...)
	switch {
	case err != nil:
		complain(errs, "hold", err)
		return exitUnavailable
	case !d.Allowed:
		fmt.Fprintf(errs, "rlsidecar hold: denied, retry after %v\n", d.RetryAfter.Round(time.Millisecond))
		return exitTryLater
	}
	defer permit.Release()
	return execute(command, out, errs)
}

// execute runs a command to its end, hands on the signals that would end this
// process, and returns its exit status as a shell does.
func execute(command []string, out, errs io.Writer) int {
	c := exec.Command(command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, out, errs
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer func() {
		signal.Stop(signals)
		close(signals)
	}()
	if err := c.Start(); err != nil {
		fmt.Fprintf(errs, "rlsidecar hold: %v\n", err)
		return 127
	}
	go func() {
		for s := range signals {
			_ = c.Process.Signal(s)
		}
	}()
	var failed *exec.ExitError
	if err := c.Wait(); err != nil && !errors.As(err, &failed) {
		fmt.Fprintf(errs, "rlsidecar hold: %v\n", err)
		return exitUnavailable
	}
	if s, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return c.ProcessState.ExitCode()
}
