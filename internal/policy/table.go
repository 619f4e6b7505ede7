// The configuration as a table for people, as `rlsidecar check` prints it.

package policy

import (
	"fmt"
	"io"
	"maps"
	"slices"
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
	fmt.Fprintln(t, "\nPOLICY\tALGORITHM\tLIMIT\tBURST\tCONSISTENCY\tREDIS DOWN\tMODE\tAPPS\tOVERRIDES\tEXEMPT\tBLOCK")
	for _, p := range c.Policies.ordered {
		limits, bursts := ShowRule(&p.Rule)
		apps := c.Policies.AppNames(p)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", p.Name, p.Rule.Algorithm, limits, bursts,
			either(p.Exact, "exact", "leased"), p.Down, either(p.Shadow, "shadow", "enforce"), either(apps == "", "all", apps),
			p.countOverrides(), count(p.exempt), count(p.block))
	}
	return t.Flush()
}

func (p *Policy) countOverrides() (n int) {
	for _, o := range p.overrides {
		n += o.keys.n
	}
	return n
}

func count(lists []*matcher) (n int) {
	for _, m := range lists {
		n += m.n
	}
	return n
}

func (c *Config) writeSettings(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "hash\t%s\n", c.Hash)
	fmt.Fprintf(t, "socket\t%s mode %04o%s\n", c.Socket.Path, c.Socket.Mode, labelled(" group ", c.Socket.Group))
	fmt.Fprintf(t, "redis\t%s\n", c.Redis.describe())
	fmt.Fprintf(t, "admin\t%s%s\n", either(c.Admin.Listen == "", "off", c.Admin.Listen), either(c.Admin.Pprof, " with pprof", ""))
	fmt.Fprintf(t, "cache\t%d buckets\n", c.Cache.MaxBuckets)
	fmt.Fprintf(t, "inline limits\t%s\n", either(c.Policies.noInline, "off", "on"))
	c.Policies.apps.write(t)
	for _, l := range c.lists {
		fmt.Fprintf(t, "list file\t%s: %d entries\n", l.path, l.entries)
	}
	return t.Flush()
}

func (a *apps) write(w io.Writer) {
	for app, name := range a.names {
		fmt.Fprintf(w, "app\t%s%s%s\n", name, members(" uids ", a.uids, app), members(" gids ", a.gids, app))
	}
	if a.trust {
		fmt.Fprintln(w, "trust client app\ton")
	}
}

// members lists the ids of an application behind label, or nothing when it has none.
func members(label string, of map[uint32]int, app int) string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if of[id] == app {
			ids = append(ids, strconv.FormatUint(uint64(id), 10))
		}
	}
	return labelled(label, strings.Join(ids, ","))
}

func (r *Redis) describe() string {
	if r == nil {
		return "none: standalone"
	}
	db := ""
	if r.DB != 0 {
		db = strconv.Itoa(r.DB)
	}
	return fmt.Sprintf("%s timeout %s prefix %s%s%s%s%s%s%s", r, showPeriod(r.Timeout), r.KeyPrefix, labelled(" db ", db),
		labelled(" username ", r.Username), labelled(" password from ", r.Password.String()),
		labelled(" sentinels' username ", r.SentinelUsername), labelled(" sentinels' password from ", r.SentinelPassword.String()),
		labelled(" ", r.TLS.describe()))
}

// String says where the password stands, "" when nowhere.
func (s Secret) String() string {
	return either(s.Env == "", s.File, "the variable "+s.Env)
}

func (t *TLS) describe() string {
	if t == nil {
		return ""
	}
	return "TLS" + labelled(" ca ", t.CA) + labelled(" certificate ", t.Cert) + labelled(" key ", t.Key) + labelled(" server name ", t.ServerName)
}

// String returns the mode, and behind local the share and its oversubscription.
func (d Down) String() string {
	if d.Mode != DownLocal {
		return d.Mode.String()
	}
	share, times := "auto", ""
	if d.Share > 0 {
		share = plain(d.Share)
	}
	if d.Oversubscribe > 1 {
		times = " x" + plain(d.Oversubscribe)
	}
	return "local " + share + times
}

func plain(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// ShowRule writes the limits of r as a policy file does, with what its algorithm
// adds to them, and their bursts, "none" where the algorithm has none.
func ShowRule(r *bucket.Rule) (limits, bursts string) {
	if r.Algorithm == bucket.Concurrency {
		return fmt.Sprintf("%d at once, %s each", r.Limits[0].Count, showPeriod(r.Limits[0].Period)), "none"
	}
	var l, b []string
	for _, limit := range r.Limits[:r.N] {
		l = append(l, showLimit(limit)+either(r.Interval, " at once", ""))
		b = append(b, strconv.FormatInt(limit.Burst, 10))
	}
	return strings.Join(l, ", ") + showSettings(r), either(r.Algorithm.Bursts(), strings.Join(b, ", "), "none")
}

func showSettings(r *bucket.Rule) string {
	switch {
	case r.Borrow > 0:
		return fmt.Sprintf(", borrow %d", r.Borrow)
	case r.FirstUse:
		return " from the first use"
	case r.Algorithm == bucket.SlidingWindow && r.Parts != bucket.DefaultParts:
		return fmt.Sprintf(" in %d buckets", r.Parts)
	}
	return ""
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func labelled(label, s string) string { return either(s == "", "", label+s) }
