// Package planted proves the gate: it builds neokv with a mistake that is planted in the source, and tells from trials
// how often the gate finds it.
package planted

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"neokv.dev/bench/gate"
	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// A Kind is a mistake: changes of places in this module's source, with which neokv is built. No other build can have
// the mistake. Without changes it is the same build.
type Kind struct {
	Name  string
	Does  string
	Parts []string // of the check, those that are tried
	// Figure is what the mistake makes worse, as findings name it; empty for the same build.
	Figure string
	Edits  []Edit
	// Wanted is how many of Of trials must find the mistake; of the same build, how many must fail at most.
	Wanted, Of int
}

// Edit is a change of a file of the source.
type Edit struct {
	File     string // from the root of the module
	Was, Now string // Was is there once; without it the file is new
}

//go:embed testdata/slower.go
var files embed.FS

// slower is the source of what wastes so many percent of the CPU time while pipelines have so many commands.
func slower(percent, pipelines int) []Edit {
	text, err := files.ReadFile("testdata/slower.go")
	if err != nil {
		panic(err)
	}
	is := "const percent, pipelines = 5, 1\n"
	if strings.Count(string(text), is) != 1 {
		panic("testdata/slower.go has another share")
	}
	return []Edit{
		{"neokv/internal/server/slower.go", "", strings.Replace(string(text), is,
			fmt.Sprintf("const percent, pipelines = %d, %d\n", percent, pipelines), 1)},
		{pipelineFile, taken, "\n\tpipelined.Store(int64(len(c.cmds)))" + taken},
	}
}

const (
	pipelineFile = "neokv/internal/server/pipeline.go"
	taken        = "\n\tnow := c.exec.arrived.UnixNano()\n"
	runs         = "\t\tif c.run(); c.exec.pop != nil {\n"
	openFile     = "neokv/internal/engine/engine.go"
	opened       = "\n\te.options = pebbleOptions(o, share, &e.events)\n\te.options.EnsureDefaults()\n"
)

// Kinds are all mistakes. The parts that are tried are those that are to find them.
func Kinds() []Kind {
	counts, timed := []string{"counts"}, []string{"timed"}
	return []Kind{
		{"late-replies", "each reply comes 200 us later", timed, "p50", []Edit{
			{pipelineFile, "\t\tif !c.out.flush() || !c.account() {\n",
				"\t\ttime.Sleep(200 * time.Microsecond)\n\t\tif !c.out.flush() || !c.account() {\n"}}, 18, 20},
		{"two-allocations", "two allocations more per command", counts, "allocations", []Edit{
			{pipelineFile, taken, "\n\tfor range c.cmds {\n\t\tplanted.Store(new([16]byte))\n\t\t" +
				"planted.Store(new([16]byte))\n\t}" + taken},
			{pipelineFile, "// command is one command of a pipeline.\n",
				"var planted atomic.Pointer[[16]byte]\n\n// command is one command of a pipeline.\n"},
			{pipelineFile, "\t\"strings\"\n", "\t\"strings\"\n\t\"sync/atomic\"\n"}}, 18, 20},
		{"global-lock", "pipelines of 16 run one after the other", timed, "p50", []Edit{
			{pipelineFile, runs, "\t\tif len(c.cmds) == 16 {\n\t\t\tplanted.Lock()\n\t\t}\n\t\tlocked := len(c.cmds) == 16\n" +
				"\t\tc.run()\n\t\tif locked {\n\t\t\tplanted.Unlock()\n\t\t}\n\t\tif c.exec.pop != nil {\n"},
			{pipelineFile, "// command is one command of a pipeline.\n",
				"var planted sync.Mutex\n\n// command is one command of a pipeline.\n"},
			{pipelineFile, "\t\"strings\"\n", "\t\"strings\"\n\t\"sync\"\n"}}, 18, 20},
		{"no-row-cache", "the row cache is off", counts, "row cache answers", []Edit{
			{openFile, "newRowCache(share.Rows)", "newRowCache(0)"}}, 18, 20},
		{"slower-commands", "each command takes 2.5 us more of CPU time", timed, "CPU", []Edit{
			{pipelineFile, taken, "\n\tfor end := time.Now().Add(time.Duration(len(c.cmds)) * 2500); " +
				"time.Now().Before(end); {\n\t}" + taken}}, 18, 20},
		{"flushes", "memtables are flushed early", counts, "flush bytes", []Edit{
			{openFile, opened, opened + "\tgo func() {\n\t\tfor ; !e.fs.closing.Load(); " +
				"time.Sleep(20 * time.Millisecond) {\n\t\t\t_ = e.Flush()\n\t\t}\n\t}()\n"},
			{openFile, "import (\n", "import (\n\t\"time\"\n"}}, 18, 20},
		{"compactions", "tables are compacted although nothing asks for it", counts, "compaction bytes", []Edit{
			{openFile, opened, opened + "\tgo func() {\n\t\tfor ; !e.fs.closing.Load(); " +
				"time.Sleep(20 * time.Millisecond) {\n\t\t\t_ = e.db.Compact(context.Background(), []byte{0}, " +
				"[]byte{0xff}, false)\n\t\t}\n\t}()\n"},
			{openFile, "import (\n", "import (\n\t\"context\"\n\t\"time\"\n"}}, 18, 20},
		{"block-reads", "blocks are not kept in the cache", counts, "block reads", []Edit{
			{openFile, "pebble.NewCache(share.Cache)", "pebble.NewCache(1)"}}, 18, 20},
		{"slower-5-p1", "wastes 5 % of CPU time at pipelines of 1", timed, "CPU", slower(5, 1), 18, 20},
		{"slower-5-p16", "wastes 5 % of CPU time at pipelines of 16", timed, "CPU", slower(5, 16), 18, 20},
		{"slower-3-p1", "wastes 3 % of CPU time at pipelines of 1", timed, "CPU", slower(3, 1), 12, 20},
		{"slower-3-p16", "wastes 3 % of CPU time at pipelines of 16", timed, "CPU", slower(3, 16), 12, 20},
		// It syncs what an entry has changed, although the entry itself is in the log, synced. That is exactly one sync
		// more per entry with one store and one client; other syncs of several may be one.
		{"more-syncs", "one sync more per entry", counts, "syncs", []Edit{
			{"neokv/internal/region/apply.go", "\n\tif err := b.Commit(false)", "\n\tif err := b.Commit(true)"}}, 18,
			20},
		// It adds a record that nobody reads to each batch.
		{"more-bytes", "2 % more bytes of the WAL", counts, "WAL bytes", []Edit{
			{"neokv/internal/engine/batch.go", "return e.viewPool.change(func() error { return e.db.Apply(b, opts) })",
				"if err := b.LogData(make([]byte, b.Len()/57), nil); err != nil {\n\t\treturn err\n\t}\n\t" +
					"return e.viewPool.change(func() error { return e.db.Apply(b, opts) })"}}, 18, 20},
		{Name: "same", Does: "nothing: the build beside itself", Parts: []string{"counts", "timed"}, Of: 60},
	}
}

// Overlay returns the files of the source with the changes, from the root of the module, and their names there.
func (k Kind) Overlay(root string) (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range k.Edits {
		if e.Was == "" {
			texts[e.File] = e.Now
			continue
		}
		if _, known := texts[e.File]; !known {
			text, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, err
			}
			texts[e.File] = string(text)
		}
		if n := strings.Count(texts[e.File], e.Was); n != 1 {
			return nil, fmt.Errorf("%s: %s has %d times %q, want once", k.Name, e.File, n, e.Was)
		}
		texts[e.File] = strings.Replace(texts[e.File], e.Was, e.Now, 1)
	}
	return texts, nil
}

// Build builds neokv with the mistake, into a folder, and returns the path of the program.
func (k Kind) Build(ctx context.Context, root, dir string) (program string, err error) {
	texts, err := k.Overlay(root)
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(dir, k.Name+"-"); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range texts {
		changed := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(changed, []byte(text), 0o666); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = changed
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay, program := filepath.Join(dir, "overlay"), filepath.Join(dir, "neokv")
	if err := os.WriteFile(overlay, text, 0o666); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, "./cmd/neokv")
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: go build: %w: %s", k.Name, err, out)
	}
	return program, nil
}

// Trial is one check of a build with a mistake: a line of a file to which sittings append.
type Trial struct {
	At      time.Time       `json:"at"`
	Kind    string          `json:"kind"`
	Commit  string          `json:"commit"` // of the source that was changed
	Machine results.Machine `json:"machine"`
	Load    float64         `json:"load"` // average of the minute before
	Budget  time.Duration   `json:"budget_ns,omitempty"`
	Seed    uint64          `json:"seed,omitempty"` // of the timed part
	Verdict gate.Conclusion `json:"verdict"`
	Worse   []string        `json:"worse,omitempty"` // case: figure
}

// found reports whether the trial has found the mistake by the figure that it makes worse. The same build has none, and
// found reports whether the check failed.
func (t *Trial) found(k *Kind) bool {
	return t.Verdict == gate.Regression && (k.Figure == "" || slices.ContainsFunc(t.Worse, func(worse string) bool {
		return strings.HasSuffix(worse, ": "+k.Figure)
	}))
}

// add takes the outcome of a part in.
func (t *Trial) add(o *gate.Outcome) {
	if o.Seed != 0 {
		t.Seed = o.Seed
	}
	if o.Verdict == gate.Regression || o.Verdict == gate.Inconclusive && t.Verdict == gate.Pass {
		t.Verdict = o.Verdict
	}
	for _, f := range slices.Concat(o.Counts, o.Timed) {
		if f.Gates && f.Verdict == compare.Worse {
			t.Worse = append(t.Worse, f.Case+": "+f.Figure)
		}
	}
}

// tally returns how many trials are of the kind, and how many of them caught it.
func (k *Kind) tally(trials []Trial) (n, caught int) {
	for i := range trials {
		if t := &trials[i]; t.Kind == k.Name {
			if n++; t.found(k) {
				caught++
			}
		}
	}
	return n, caught
}

// ReadTrials reads trials with planted mistakes.
func ReadTrials(r io.Reader) ([]Trial, error) {
	return gate.ReadTrials(r, "planted mistakes", func(t *Trial) bool { return t.Kind != "" })
}

// Table is a table in Markdown: what finds each kind, how often, with what bound, and what is demanded.
func Table(trials []Trial) string {
	var rows [][]string
	for _, k := range Kinds() {
		n, hits := k.tally(trials)
		by := map[string]int{} // trials in which some case shows the figure
		for _, t := range trials {
			seen := map[string]bool{}
			for _, w := range t.Worse {
				figure := w[strings.LastIndex(w, ": ")+2:]
				if t.Kind == k.Name && !seen[figure] {
					seen[figure] = true
					by[figure]++
				}
			}
		}
		var figures []string
		for _, f := range slices.Sorted(maps.Keys(by)) {
			figures = append(figures, fmt.Sprintf("%s %d of %d", f, by[f], n))
		}
		wanted, bound := fmt.Sprintf("%d of %d", k.Wanted, k.Of), "-"
		if n > 0 && k.Figure == "" {
			bound = fmt.Sprintf("at most %.0f %%", 100*compare.AtMost(hits, n))
		} else if n > 0 {
			bound = fmt.Sprintf("at least %.0f %%", 100*compare.AtLeast(hits, n))
		}
		rows = append(rows, []string{k.Name, k.Does, strings.Join(figures, ", "),
			fmt.Sprintf("%d of %d", hits, n), bound, wanted})
	}
	return results.MarkdownTable([]string{"kind", "what it does", "caught by", "rate", "bound",
		"demanded"}, 6, 0, rows)
}
