// Command rlsidecar is the agent and the tools around it: one file a subcommand.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	rlsidecar "rlsidecar/clients/go"
)

// command is a subcommand. run returns the exit status.
type command struct {
	name, args, summary string
	run                 func(args []string, out, errs io.Writer) int
}

var commands []command

func init() {
	commands = []command{
		{"serve", "", "run the agent", serve},
		{"check", "FILE", "check a configuration file and show its policies", check},
		{"acquire", "POLICY KEY", "ask the agent for permits; exit 0 allowed, 1 denied, 2 error", acquire},
		{"hold", "POLICY KEY -- COMMAND", "run a command while holding a permit", hold},
		{"explain", "POLICY KEY", "show what the agent knows of a key", explain},
		{"bench", "", "put the agent under load and measure it", bench},
		{"version", "", "print the version", version},
	}
}

const (
	exitOK = iota
	exitNo
	exitError
)

func main() {
	os.Exit(dispatch(os.Args[1:], os.Stdout, os.Stderr))
}

func dispatch(args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		usage(errs)
		return exitError
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(out)
		return exitOK
	case "-version", "--version":
		return version(nil, out, errs)
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(args[1:], out, errs)
		}
	}
	fmt.Fprintf(errs, "rlsidecar: unknown command %q: see rlsidecar help\n", args[0])
	return exitError
}

func usage(w io.Writer) {
	fmt.Fprint(w, "rlsidecar answers \"may this go through?\" on a Unix socket, from permits leased from Redis.\n\nUsage: rlsidecar COMMAND [FLAGS] [ARGUMENTS]\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-27s %s\n", c.name+" "+c.args, c.summary)
	}
	fmt.Fprint(w, "\nrlsidecar COMMAND --help describes the flags of a command.\n")
}

// parse reads a command's flags, which may stand before and after its arguments,
// and checks the number of these. When it is not ok the command ends with status.
func parse(f *flag.FlagSet, args []string, about string, names []string, out, errs io.Writer) (rest []string, status int, ok bool) {
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	for {
		err := f.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			help(f, about, names, out)
			return nil, exitOK, false
		}
		if err != nil {
			fmt.Fprintf(errs, "rlsidecar %s: %v: see rlsidecar %s --help\n", f.Name(), err, f.Name())
			return nil, exitError, false
		}
		if f.NArg() == 0 {
			break
		}
		rest = append(rest, f.Arg(0))
		args = f.Args()[1:]
	}
	if len(rest) != len(names) {
		fmt.Fprintf(errs, "rlsidecar %s: %d arguments: wanted are %d %v: see rlsidecar %s --help\n", f.Name(), len(rest), len(names), names, f.Name())
		return nil, exitError, false
	}
	return rest, exitOK, true
}

func help(f *flag.FlagSet, about string, names []string, out io.Writer) {
	fmt.Fprintf(out, "Usage: rlsidecar %s [FLAGS]", f.Name())
	for _, n := range names {
		fmt.Fprintf(out, " %s", n)
	}
	fmt.Fprintf(out, "\n\n%s\n\nFlags:\n", about)
	f.SetOutput(out)
	f.PrintDefaults()
}

func complain(errs io.Writer, name string, err error) int {
	if answered := (*rlsidecar.Error)(nil); errors.As(err, &answered) {
		err = errors.New(answered.Message)
	}
	fmt.Fprintf(errs, "rlsidecar %s: %v\n", name, err)
	return exitError
}

// release is set when a release is built.
var release = ""

func versionName() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func version(args []string, out, errs io.Writer) int {
	f := flag.NewFlagSet("version", flag.ContinueOnError)
	if _, status, ok := parse(f, args, "Prints the version.", nil, out, errs); !ok {
		return status
	}
	fmt.Fprintln(out, "rlsidecar", versionName())
	return exitOK
}
