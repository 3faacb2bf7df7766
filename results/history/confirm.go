package history

import (
	"slices"
	"strconv"
	"strings"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// confirm fills in how to measure the runs on both sides of a change in turn.
func (c *ChangePoint) confirm(after, by *TrendRun) {
	a, b := revision(after), revision(by)
	own, odd := false, false
	for _, f := range c.Differ {
		if !f.OfSetting() || f.Name == "profile" {
			continue
		}
		own, odd = true, odd || strings.ContainsAny(f.Values[0]+f.Values[1], " \"")
		a, b = a+word(f.Name, f.Values[0]), b+word(f.Name, f.Values[1])
	}
	h := by.header
	switch {
	case !h.Cluster.InProcess:
		c.Unconfirmed = "the target was not a cluster of bench's own"
	case after.header.Build.Modified || by.header.Build.Modified:
		c.Unconfirmed = "a build had uncommitted changes"
	case after.Commit == "" || by.Commit == "":
		c.Unconfirmed = "the commit of a build is unknown"
	case after.Commit == by.Commit && !own:
		c.Unconfirmed = "commit and settings are the same: something else has changed"
	case odd:
		c.Unconfirmed = "a setting differs whose value ab cannot take"
	case len(h.Groups) > 1 || len(h.Groups) == 1 && !sendable(&h.Groups[0]):
		c.Unconfirmed = "ab cannot send this load, which is of several groups, of a file, of one node or slot, or of a " +
			"workload that is another one now"
	default:
		c.Confirm = append([]string{"ab", "--a", strings.TrimSpace(a), "--b", strings.TrimSpace(b)}, loadFlags(h)...)
	}
}

// sendable reports whether ab sends what the group did: a workload that this program has, with the same contents.
func sendable(g *results.ClientGroup) bool {
	if g.OneNode || g.OneSlot || !slices.Contains(workloads.Names(), g.Workload) {
		return false
	}
	w, err := workloads.Find(g.Workload)
	return err == nil && (g.Content == nil || g.Content.SHA256 == results.ContentOf(w.Text).SHA256)
}

func revision(r *TrendRun) string { return "revision=" + r.Commit }

// word returns a setting as a word of an arm; nothing if the run does not have the setting.
func word(name, value string) string {
	if value == "" {
		return ""
	}
	return " " + name + "=" + value
}

// loadFlags returns the flags of ab that send the load of a run.
func loadFlags(h *results.Header) (args []string) {
	flag := func(name, value string) {
		if value != "" && value != "0" {
			args = append(args, "--"+name, value)
		}
	}
	flag("profile", h.Profile)
	if h.Cluster.InMemory {
		args = append(args, "--mem")
	}
	for _, g := range h.Groups {
		flag("workload", g.Workload)
		flag("clients", strconv.Itoa(g.Clients))
		flag("pipeline", strconv.Itoa(g.Pipeline))
		flag("rate", g.Rate)
		flag("records", strconv.FormatUint(g.Records, 10))
		flag("elements", strconv.Itoa(g.Elements))
		if _, err := strconv.Atoi(g.ValueBytes); err == nil { // else the workload says which sizes there are
			flag("value-size", g.ValueBytes+"B")
		}
	}
	return args
}

// ToConfirm says with which command both sides of a change are measured in turn, or why with none.
func (c *ChangePoint) ToConfirm() string {
	if c.Confirm == nil {
		return "cannot be confirmed by ab: " + c.Unconfirmed
	}
	return "to confirm: " + CommandLine(c.Confirm)
}

// CommandLine returns a command line of neokv for a shell.
func CommandLine(args []string) string {
	var b strings.Builder
	b.WriteString("neokv")
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$`*?[](){}<>|&;#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		b.WriteString(" " + a)
	}
	return b.String()
}
