// check tells whether a configuration file is good, and what it says.

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"rlsidecar/internal/policy"
)

func check(args []string, out, errs io.Writer) int {
	f := flag.NewFlagSet("check", flag.ContinueOnError)
	const about = "Checks a configuration file as the agent would at start. Exit status 0: good, and its\npolicies are shown; 1: refused, and every problem is shown as file:line:column; 2: no such file."
	rest, status, ok := parse(f, args, about, []string{"FILE"}, out, errs)
	if !ok {
		return status
	}
	config, err := policy.Load(rest[0])
	if err != nil {
		fmt.Fprintln(errs, err)
		if invalid := (policy.Errors)(nil); errors.As(err, &invalid) {
			return exitNo
		}
		return exitError
	}
	for _, w := range config.Warnings {
		fmt.Fprintln(errs, "warning:", w)
	}
	if err := config.WriteTable(out); err != nil {
		return complain(errs, "check", err)
	}
	return exitOK
}
