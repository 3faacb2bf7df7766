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
	add := func(name string, of func(h *results.Header) string) {
		c := Condition{name, listed(each(a, of)), listed(each(b, of))}
		if c.A != "" || c.B != "" {
			out = append(out, c)
		}
	}
	add("load", func(h *results.Header) string { return strings.Join(h.Load(), " | ") })
	add("measured", func(h *results.Header) string {
		if h.Duration == 0 {
			return "to the end of the work"
		}
		return fmt.Sprintf("%s after %s of warm-up", h.Duration, h.Warmup)
	})
	add("target", func(h *results.Header) string { return h.What() })
	add("durability", func(h *results.Header) string { return cmp.Or(h.Durability(), "not known") })
	add("machine", func(h *results.Header) string { return h.Machine.String() })
	all := slices.Concat(a, b)
	first := slices.MinFunc(all, func(x, y *results.Header) int { return x.Started.Compare(y.Started) }).Started.UTC()
	last := slices.MaxFunc(all, func(x, y *results.Header) int { return x.Started.Compare(y.Started) }).Started.UTC()
	add("date", func(*results.Header) string { return dates(first, last) })
	add("seed", func(h *results.Header) string { return strconv.FormatUint(h.Seed, 10) })
	return out
}

func each(headers []*results.Header, of func(h *results.Header) string) (out []string) {
	for _, h := range headers {
		out = append(out, of(h))
	}
	return out
}

// dates prints a span of time.
func dates(from, to time.Time) string {
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
	const byHand = "run neokv bench for A and B in turn, at least four times each"
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
