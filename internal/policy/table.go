// The configuration as a table for people, as `rlsidecar check` prints it.

package policy

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"rlsidecar/internal/bucket"
)

// WriteTable writes the agent's settings and then one line per policy, in file
// order. It shows no password.
func (c *Config) WriteTable(w io.Writer) error {
	if err := c.writeSettings(w); err != nil {
		return err
	}
	if len(c.Policies.ordered) == 0 {
		_, err := fmt.Fprintln(w, "\nno policies")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nPOLICY\tLIMIT\tBURST\tCONSISTENCY\tREDIS DOWN\tMODE\tOVERRIDES\tEXEMPT\tBLOCK")
	for _, p := range c.Policies.ordered {
		limits, bursts := ShowRule(&p.Rule)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", p.Name, limits, bursts,
			either(p.Exact, "exact", "leased"), p.Down, either(p.Shadow, "shadow", "enforce"),
			len(p.overrides), p.exempt.n, p.block.n)
	}
	return t.Flush()
}

func (c *Config) writeSettings(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "hash\t%s\n", c.Hash)
	fmt.Fprintf(t, "socket\t%s mode %04o%s\n", c.Socket.Path, c.Socket.Mode, labelled(" group ", c.Socket.Group))
	fmt.Fprintf(t, "redis\t%s\n", c.Redis.describe())
	fmt.Fprintf(t, "admin\t%s%s\n", either(c.Admin.Listen == "", "off", c.Admin.Listen), either(c.Admin.Pprof, " with pprof", ""))
	fmt.Fprintf(t, "cache\t%d buckets\n", c.Cache.MaxBuckets)
	fmt.Fprintf(t, "inline limits\t%s\n", either(c.Policies.noInline, "off", "on"))
	return t.Flush()
}

func (r *Redis) describe() string {
	if r == nil {
		return "none: standalone"
	}
	return fmt.Sprintf("%s timeout %s prefix %s%s%s", r, showPeriod(r.Timeout), r.KeyPrefix,
		labelled(" username ", r.Username), labelled(" password from ", r.PasswordFile))
}

// String returns the mode, and behind local the share.
func (d Down) String() string {
	if d.Mode != DownLocal {
		return d.Mode.String()
	}
	if d.Share == 0 {
		return "local auto"
	}
	return "local " + strconv.FormatFloat(d.Share, 'g', -1, 64)
}

// ShowRule writes the limits of r as a policy file does, and their bursts.
func ShowRule(r *bucket.Rule) (limits, bursts string) {
	var l, b []string
	for _, limit := range r.Limits[:r.N] {
		l = append(l, showLimit(limit)+either(limit.Interval, " at once", ""))
		b = append(b, strconv.FormatInt(limit.Burst, 10))
	}
	return strings.Join(l, ", "), strings.Join(b, ", ")
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func labelled(label, s string) string { return either(s == "", "", label+s) }
