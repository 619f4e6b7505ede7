// The drivers: a program for each client, asked line by line.

package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is how long a driver may take for one answer before it counts as hung.
const patience = 2 * time.Minute

// languages in the order in which they are run. RLSIDECAR_DRIVER_<NAME> is the
// command line of each, split at spaces; Go's is built here.
var languages = []string{"go", "python", "python_async", "java", "java_async", "php"}

// driver is the running program of one language.
type driver struct {
	language string
	cmd      *exec.Cmd
	in       io.WriteCloser
	lines    chan []byte // closed when the driver is gone
	stderr   bytes.Buffer
}

// commands returns the command line of each language that can be run.
func commands(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{"go": {buildGoDriver(t)}}
	var missing []string
	for _, language := range languages {
		variable := "RLSIDECAR_DRIVER_" + strings.ToUpper(language)
		if line := strings.Fields(os.Getenv(variable)); len(line) > 0 {
			found[language] = line
		} else if found[language] == nil {
			missing = append(missing, variable)
		}
	}
	switch {
	case len(missing) == 0:
	case os.Getenv("RLSIDECAR_DRIVERS") == "all":
		t.Errorf("not set: %v", missing)
	default:
		t.Logf("not run, for these are not set: %v", missing)
	}
	return found
}

func buildGoDriver(t *testing.T) string {
	return build(t, "rlsidecar/clients/go/conformance", "driver")
}

func build(t *testing.T, pkg, name string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", binary, pkg).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// startDriver runs one. As root it is run without the right to open what its user
// may not, for the case of the socket that is forbidden.
func startDriver(t *testing.T, language string, command []string) *driver {
	t.Helper()
	if os.Geteuid() == 0 {
		command = append([]string{"setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all", "--"}, command...)
	}
	d := &driver{language: language, cmd: exec.Command(command[0], command[1:]...), lines: make(chan []byte)}
	d.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RLSIDECAR_") && !strings.HasPrefix(v, "RLSIDECAR_DRIVER")
	})
	d.cmd.Dir, d.cmd.Stderr = "../..", &d.stderr
	in, err := d.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.in = in
	if err := d.cmd.Start(); err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	go d.read(out)
	return d
}

func (d *driver) read(out io.Reader) {
	defer close(d.lines)
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		d.lines <- line
	}
}

// end closes the driver's input, upon which it has to exit with 0.
func (d *driver) end(t *testing.T) {
	t.Helper()
	d.in.Close()
	hung := time.AfterFunc(10*time.Second, func() { d.cmd.Process.Kill() })
	defer hung.Stop()
	for line := range d.lines {
		t.Errorf("the driver wrote what nobody asked for: %s", line)
	}
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("the driver ended: %v\n%s", err, d.stderr.Bytes())
	}
}

// ask sends one question and returns the answer.
func (d *driver) ask(question map[string]any) (map[string]any, error) {
	line, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	if _, err := d.in.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("the driver does not read: %w", err)
	}
	select {
	case line, ok := <-d.lines:
		if !ok {
			return nil, fmt.Errorf("the driver is gone")
		}
		var answer map[string]any
		if err := json.Unmarshal(line, &answer); err != nil {
			return nil, fmt.Errorf("the driver wrote %q: %w", line, err)
		}
		return answer, nil
	case <-time.After(patience):
		d.cmd.Process.Kill()
		return nil, fmt.Errorf("no answer within %v", patience)
	}
}
