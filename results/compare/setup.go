package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/results"
)

// setupOf says what two sides were and what was sent to them: what a reader must know before the figures mean anything.
func setupOf(a, b []*results.Header) (out []Condition) {
	values := func(headers []*results.Header, i int) string {
		var all []string
		for _, h := range headers {
			all = append(all, h.Conditions()[i].Value)
		}
		return listed(all)
	}
	for i, c := range a[0].Conditions() {
		if c.Name == "date" {
			text := dates(slices.Concat(a, b))
			out = append(out, Condition{c.Name, text, text})
			continue
		}
		if both := (Condition{c.Name, values(a, i), values(b, i)}); both.A != "" || both.B != "" {
			out = append(out, both)
		}
	}
	return out
}

// dates prints when runs began.
func dates(headers []*results.Header) string {
	earlier := func(x, y *results.Header) int { return x.Started.Compare(y.Started) }
	from := slices.MinFunc(headers, earlier).Started.UTC()
	to := slices.MaxFunc(headers, earlier).Started.UTC()
	const day, minute = "2006-01-02 15:04", "15:04"
	switch text := from.Format(day); {
	case text == to.Format(day):
		return text + " UTC"
	case from.Format(time.DateOnly) == to.Format(time.DateOnly):
		return text + " to " + to.Format(minute) + " UTC"
	default:
		return text + " to " + to.Format(day) + " UTC"
	}
}

// mostListed is how many values of one condition are listed.
const mostListed = 4

// listed prints the values that there are, each once.
func listed(values []string) string {
	var out []string
	for _, v := range values {
		if v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	if more := len(out) - mostListed; more > 0 {
		out = append(out[:mostListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

func orNone(value string) string { return cmp.Or(value, "(none)") }

// inTurn returns the command of ab that would measure two sides in turn, or says how to do it without.
func inTurn(a, b *Runs) string {
	const byHand = "run neokv bench for A and B in turn, at least six times each"
	h := &a.Files[0].Header
	if len(h.Groups) != 1 || h.Schedule != nil || h.Search != "" || h.Verify || h.LoadedBefore ||
		h.Groups[0].OneNode || h.Groups[0].OneSlot || h.Groups[0].Records == 0 {
		return byHand // ab has no such loads
	}
	armA, armB := arm(h, &b.Files[0].Header), arm(&b.Files[0].Header, h)
	if armA == armB {
		return byHand
	}
	g := h.Groups[0]
	words := []string{"neokv", "ab", "--a", armA, "--b", armB, "--workload", g.Workload, "--clients",
		strconv.Itoa(g.Clients), "--pipeline", strconv.Itoa(g.Pipeline), "--records", strconv.FormatUint(g.Records, 10)}
	if g.Rate != "" {
		words = append(words, "--rate", g.Rate)
	}
	if g.Elements > 0 {
		words = append(words, "--elements", strconv.Itoa(g.Elements))
	}
	if _, err := strconv.Atoi(g.ValueBytes); err == nil {
		words = append(words, "--value-size", g.ValueBytes)
	}
	if h.Cluster.InMemory {
		words = append(words, "--mem")
	}
	words = append(words, "--block", h.Duration.String(), "--warmup", h.Warmup.String())
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " '\"$*?(){}[];&|<>\\") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// arm returns what ab needs to know of the target of h, where that differs from the target of other.
func arm(h, other *results.Header) string {
	if !h.Cluster.InProcess {
		return "target=" + strings.Join(h.Target.Addrs, ",")
	}
	var words []string
	if h.Profile != other.Profile && h.Profile != "" {
		words = append(words, "profile="+h.Profile)
	}
	if h.Build.Commit != other.Build.Commit && h.Build.Commit != "" {
		words = append(words, "revision="+h.Build.Commit)
	}
	for name, value := range h.Settings {
		if other.Settings[name] != value {
			words = append(words, name+"="+value)
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}
