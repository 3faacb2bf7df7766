package docs_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"neokv.dev/bench/gate/planted"
	"neokv.dev/neokv"
	"neokv.dev/neokv/counters"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/parameters"
	"neokv.dev/profiles"
	"neokv.dev/workloads"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// The generated part of a document stands between these lines.
const (
	generatedBegin = "<!-- generated: go test ./docs -update -->\n"
	generatedEnd   = "<!-- end of the generated part -->\n"
)

// generated checks that the generated part of a document is want, or, with -update, makes it so.
func generated(t *testing.T, name, want string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), generatedBegin)
	got, tail, ended := strings.Cut(rest, generatedEnd)
	if !ok || !ended {
		t.Fatalf("%s: want the lines %q and %q", name, generatedBegin, generatedEnd)
	}
	if got == want {
		return
	}
	if *update {
		if err := os.WriteFile(name, []byte(head+generatedBegin+want+generatedEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("docs/%s is out of date, run go test ./docs -update; first difference:\n%s", name,
		firstDifference(got, want))
}

// firstDifference returns the first line in which two texts differ, as each has it.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		x, y := "(end)", "(end)"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf("have %s\nwant %s", x, y)
		}
	}
	return "none"
}

// row appends a row of a Markdown table.
func row(b *strings.Builder, cells ...string) {
	for _, c := range cells {
		b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}

func TestKnobs(t *testing.T) {
	base, err := profiles.Resolve(profiles.ValueSources{})
	if err != nil {
		t.Fatal(err)
	}
	var others []*profiles.Resolved
	for _, name := range profiles.Names()[1:] {
		r, err := profiles.Resolve(profiles.ValueSources{Profile: name})
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, r)
	}
	var b strings.Builder
	section := ""
	values := base.Values()
	for i, f := range base.Fields() {
		if s, _, _ := strings.Cut(f.Name, "."); s != section {
			section = s
			fmt.Fprintf(&b, "\n## %s\n\n", section)
			head, line := []string{"setting", "allowed"}, []string{"---", "---"}
			for _, p := range profiles.Names() {
				head, line = append(head, p), append(line, "---")
			}
			row(&b, append(head, "meaning")...)
			row(&b, append(line, "---")...)
		}
		cells := []string{"`" + f.Name + "`", f.Range, values[i].Value}
		for _, r := range others {
			value := r.Values()[i].Value
			if value == values[i].Value {
				value = ""
			}
			cells = append(cells, value)
		}
		row(&b, append(cells, f.Help)...)
	}
	b.WriteString("\n")
	generated(t, "knobs.md", b.String())
}

// counters.md lists the lines of INFO's section neokv.
func TestCounters(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n")
	row(&b, "line", "of", "kind", "meaning")
	row(&b, "---", "---", "---", "---")
	for _, l := range counters.All {
		row(&b, "`"+l.Name+"`", string(l.Scope), string(l.Kind), l.Help)
	}
	b.WriteString("\n")
	generated(t, "counters.md", b.String())
}

// parameters.md lists the parameters of Redis's CONFIG.
func TestParameters(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n")
	row(&b, "parameter", "values", "in Redis", "here", "more")
	row(&b, "---", "---", "---", "---", "---")
	for i := range parameters.All {
		p := &parameters.All[i]
		name, here := "`"+p.Name+"`", string(p.Effect)
		if p.Also != "" {
			name += ", `" + p.Also + "`"
		}
		if p.Here != "" {
			here += ", `" + p.Here + "`"
		}
		value := ""
		if p.Default != "" {
			value = "`" + p.Default + "`"
		}
		row(&b, name, p.Values.String(), value, here, p.Note)
	}
	b.WriteString("\n")
	generated(t, "parameters.md", b.String())
}

// cluster.md lists the faults, as the command line takes them.
func TestFaults(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n")
	row(&b, "text", "what it does", "what ends it")
	row(&b, "---", "---", "---")
	for _, v := range fault.Verbs() {
		form, help, choices, among := v.Usage()
		if choices != "" {
			for i, line := range among {
				among[i] = "`" + strings.TrimSpace(strings.Split(line, "  ")[0]) + "`"
			}
			help += ". " + choices + ": " + strings.Join(among, ", ")
		}
		end := ""
		if f := (fault.Fault{Verb: v}); f.Lasts() {
			end = "`" + f.End().String() + "`"
			for _, word := range strings.Fields(form)[1:] { // OTHERS, or COMMAND|all
				end = strings.Replace(end, " all", " "+strings.TrimSuffix(word, "|all"), 1)
			}
		}
		row(&b, "`"+form+"`", help, end)
	}
	b.WriteString("\nRound trips between the cloud regions of `network`, in milliseconds:\n\n")
	names := fault.CloudRegions()
	row(&b, append([]string{""}, names[:len(names)-1]...)...)
	row(&b, slices.Repeat([]string{"---"}, len(names))...)
	for i, name := range names[1:] {
		cells := append([]string{"`" + name + "`"}, make([]string, len(names)-1)...)
		for j, other := range names[:i+1] {
			delay, err := fault.MatrixDelay(name+" "+other, 1, 2)
			if err != nil {
				t.Fatal(err)
			}
			cells[1+j] = strconv.FormatInt((2 * delay).Milliseconds(), 10)
		}
		row(&b, cells...)
	}
	b.WriteString("\n")
	generated(t, "cluster.md", b.String())
}

// The commands are those that a server names itself, by COMMAND, COMMAND DOCS and NEOKV DOCS.
func TestCommands(t *testing.T) {
	ctx := t.Context()
	neokv.LogRaft(os.Stderr)
	cluster, err := neokv.Start(ctx, neokv.Config{Stores: 1, Regions: 1, InMemory: true, NoSockets: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	client := redis.NewClient(&redis.Options{
		Addr: cluster.ProxyAddr(), Protocol: 2,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return cluster.Dial(ctx, addr) },
	})
	defer client.Close()
	info, err := client.Do(ctx, "COMMAND").Slice()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := client.Do(ctx, "COMMAND", "DOCS").Slice()
	if err != nil {
		t.Fatal(err)
	}
	here, err := client.Do(ctx, "NEOKV", "DOCS").Slice()
	if err != nil {
		t.Fatal(err)
	}
	facts := factsOf(docs)
	for i := 0; i < len(here); i += 2 {
		facts[here[i].(string)]["summary"] = here[i+1].(string)
	}
	rows := map[string][][]string{} // by group
	var groups []string
	addCommands(info, facts, "", func(group string, cells []string) {
		if rows[group] == nil {
			groups = append(groups, group)
		}
		rows[group] = append(rows[group], cells)
	})
	var b strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n", group)
		row(&b, "command", "arity", "flags", "since", "summary")
		row(&b, "---", "---:", "---", "---", "---")
		for _, cells := range rows[group] {
			row(&b, cells...)
		}
	}
	b.WriteString("\n")
	generated(t, "commands.md", b.String())
}

// addCommands goes over what COMMAND answers. A container is left out where it is no command by itself. Subcommands
// belong to the group of their container.
func addCommands(info []any, facts map[string]map[string]string, group string, add func(group string, cells []string)) {
	for _, entry := range info {
		c := entry.([]any)
		name, arity, subs := c[0].(string), c[1].(int64), c[9].([]any)
		f, group := facts[name], group
		if group == "" {
			group = f["group"]
		}
		if len(subs) == 0 || arity == -1 {
			var flags []string
			for _, flag := range c[2].([]any) {
				flags = append(flags, fmt.Sprint(flag))
			}
			add(group, []string{
				"`" + strings.ToUpper(strings.ReplaceAll(name, "|", " ")) + "`", fmt.Sprint(arity),
				strings.Join(flags, " "), f["since"], f["summary"],
			})
		}
		addCommands(subs, facts, group, add)
	}
}

// factsOf reads what COMMAND DOCS answers, the facts of each command by its full name.
func factsOf(docs []any) map[string]map[string]string {
	out := map[string]map[string]string{}
	for i := 0; i < len(docs); i += 2 {
		facts := map[string]string{}
		pairs := docs[i+1].([]any)
		for j := 0; j < len(pairs); j += 2 {
			switch value := pairs[j+1].(type) {
			case string:
				facts[pairs[j].(string)] = value
			case []any:
				if pairs[j] != "subcommands" {
					continue
				}
				for name, f := range factsOf(value) {
					out[name] = f
				}
			}
		}
		out[docs[i].(string)] = facts
	}
	return out
}

// README.md shows the example of package neokv, which go test runs.
func TestReadmeShowsTheExample(t *testing.T) {
	code, err := os.ReadFile("../neokv/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, begun := strings.Cut(string(code), "func Example() {\n")
	body, _, ended := strings.Cut(body, "\t// Output:")
	if !begun || !ended {
		t.Fatal("neokv/example_test.go has no Example with an output")
	}
	body = strings.TrimPrefix(strings.ReplaceAll(body, "\n\t", "\n"), "\t")
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "```go\n" + body + "```\n"; !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not show\n%s", want)
	}
}

// README.md has what a new user asks, and docs the rest.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 180 {
		t.Errorf("README.md has %d lines; want at most 180", n)
	}
}

var (
	folderLine = regexp.MustCompile(`(?m)^( *)([a-z/]+)/(?: |$)`)
	verbMade   = regexp.MustCompile(`\b(\w+Command)\(p\)`)
	hidden     = regexp.MustCompile(`//go:linkname|\breflect\.|\bunsafe\.(Add|Pointer|Slice|String)`)
)

// design.md names every package and every verb in its tree of folders, and every file that uses linkname, reflection or
// pointers of package unsafe.
func TestDesignNamesEverything(t *testing.T) {
	text, err := os.ReadFile("design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tree, _ := strings.Cut(string(text), "```\n")
	tree, _, _ = strings.Cut(tree, "```\n")
	named := map[string]bool{}
	var folders []string // around the present line
	for _, m := range folderLine.FindAllStringSubmatch(tree, -1) {
		folders = append(folders[:len(m[1])/2], m[2])
		named[filepath.Join(folders...)] = true
	}
	code := map[string]string{} // by file of cmd/neokv
	err = filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := os.ReadFile(name)
		if dir, file := filepath.Split(name); dir == "../cmd/neokv/" {
			code[file] = string(source)
		}
		if base := "/" + filepath.Base(name) + ")"; hidden.Match(source) && !strings.Contains(string(text), base) {
			t.Errorf("design.md does not name %s, which uses linkname, reflection or unsafe", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range slices.Concat(ground, emulator, load, joined) {
		if !named[p] {
			t.Errorf("design.md does not name package %s", p)
		}
	}
	verbs := verbMade.FindAllStringSubmatch(code["main.go"], -1)
	program := regexp.MustCompile(`\n\S`).Split(tree, 2)[0] // the first folder of the tree
	all := strings.Join(slices.Collect(maps.Values(code)), "")
	for _, m := range verbs {
		use := regexp.MustCompile(`(?s)func ` + m[1] + `\(p process\).*?Use: +"([a-z-]+)`).FindStringSubmatch(all)
		if use == nil || !regexp.MustCompile(`\s`+use[1]+`\b`).MatchString(program) {
			t.Errorf("design.md does not name the verb of %s", m[1])
		}
	}
	if len(verbs) == 0 {
		t.Error("no verbs found")
	}
}

var goBlock = regexp.MustCompile("(?s)```go\n(func .*?)```")

// testing.md shows tests that go test runs, and one for miniredis.
func TestTestingShowsTests(t *testing.T) {
	code, err := os.ReadFile("../neokv/neokvtest/examples_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("testing.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, block := range goBlock.FindAllStringSubmatch(string(page), -1) {
		switch {
		case strings.Contains(block[1], "miniredis.RunT"):
		case strings.Contains(string(code), block[1]):
			shown++
		default:
			t.Errorf("neokvtest/examples_test.go does not have\n%s", block[1])
		}
	}
	if want := strings.Count(string(code), "\nfunc Test"); shown != want {
		t.Errorf("testing.md shows %d of the %d tests of neokvtest/examples_test.go", shown, want)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// Links to files of the repository lead somewhere.
func TestLinks(t *testing.T) {
	names, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, name := range append(names, "../README.md", "../CONTRIBUTING.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: link to %s: there is none", name, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("no links found")
	}
}

func TestWorkloadsAreDocumented(t *testing.T) {
	var b strings.Builder
	row(&b, "name", "what it sends")
	row(&b, "---", "---")
	for _, w := range workloads.All() {
		row(&b, "`"+w.Name+"`", strings.Join(strings.Fields(w.Doc), " "))
	}
	generated(t, "workloads.md", "\n"+b.String()+"\n")
}

var execVariable = regexp.MustCompile(`(?m)^	\{"([A-Z_]+)", `)

// ci.md has every variable that serve --exec sets, and every field that ctl status --json prints.
func TestPipelinesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("ci.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("../cmd/neokv/exec.go")
	if err != nil {
		t.Fatal(err)
	}
	all := execVariable.FindAllStringSubmatch(string(code), -1)
	for _, m := range all {
		if !strings.Contains(string(page), "`"+m[1]+"`") {
			t.Errorf("ci.md does not name the variable %s", m[1])
		}
	}
	for _, of := range []any{neokv.ClusterStatus{}, neokv.StoreStatus{}, neokv.RegionStatus{}, neokv.ReplicaStatus{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("ci.md does not name the field %s of %T", name, of)
			}
		}
	}
	if len(all) < 10 {
		t.Errorf("%d variables found in exec.go", len(all))
	}
}

// programRow is a row of the table in .ci/programs: name, module or package, ports, and a file if it is not Go.
var programRow = regexp.MustCompile(
	`\{name: "(.+?)", of: "(.+?)", ports: "(.+?)", (?:(?:run|work): \w+|(?:file|works): "(.+?)")\}`)

// programs.md has the programs of .ci/programs, and the versions that are pinned there.
func TestProgramsAreDocumented(t *testing.T) {
	const folder = "../.ci/programs/"
	read := func(name string) string {
		text, err := os.ReadFile(folder + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	pinned := read("go.mod") + read("package.json")
	var b strings.Builder
	row(&b, "program", "version", "ports")
	row(&b, "---", "---", "---")
	rows := programRow.FindAllStringSubmatch(read("programs.go"), -1)
	for _, m := range rows {
		name, of, ports, file := m[1], m[2], m[3], m[4]
		version := "Debian's `" + of + "`"
		if filepath.Ext(file) != ".py" {
			pin := regexp.MustCompile(`[\t "]` + regexp.QuoteMeta(of) + `(?: v|": ")([0-9.]+)`).FindStringSubmatch(pinned)
			if pin == nil {
				t.Fatalf("%s: %s has no version in go.mod or package.json", name, of)
			}
			version = pin[1]
		}
		if file == "" {
			name = fmt.Sprintf("[%s](https://pkg.go.dev/%s)", name, of)
		}
		row(&b, name, version, strings.Join(strings.Fields(ports), ", "))
	}
	if len(rows) == 0 {
		t.Fatal("no programs found")
	}
	generated(t, "programs.md", b.String())
}

// TestMistakesAreSought: each mistake of the table in torture.md is planted, and sought by the plan or the test there.
func TestMistakesAreSought(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	plans := map[string]string{}
	for section := range strings.SplitSeq(read("../neokv/internal/sim/plans.txt"), "\n\n") {
		for line := range strings.Lines(section) {
			if name, plan := strings.CutSuffix(strings.TrimRight(line, "\n"), ":"); plan && line[0] != '\t' {
				plans[name] = section
			}
		}
	}
	var tests, planted strings.Builder
	err := filepath.WalkDir("../neokv", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, "_test.go") {
			tests.WriteString(read(path))
		} else if strings.HasSuffix(path, ".go") {
			planted.WriteString(read(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(read("torture.md"), "| mistake | planted as | found by |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			continue // the line below the heading
		}
		rows++
		for name := range strings.SplitSeq(cells[1], ", ") {
			m := regexp.MustCompile("plan `([a-z-]+)`: ([a-z ]+),").FindStringSubmatch(cells[2])
			if m != nil && !strings.Contains(plans[m[1]], "\tfinds "+name+" by "+m[2]+" within ") {
				t.Errorf("plan %s does not find %s by %q", m[1], name, m[2])
			}
			if m == nil && !regexp.MustCompile(`\b`+name+`( =|:) true`).MatchString(tests.String()) {
				t.Errorf("no test plants %s", name)
			}
			if !strings.Contains(planted.String(), name) {
				t.Errorf("there is no mistake %s", name)
			}
		}
		for _, name := range regexp.MustCompile(`\bTest\w+`).FindAllString(cells[2], -1) {
			if !strings.Contains(tests.String(), "func "+name+"(") {
				t.Errorf("there is no test %s", name)
			}
		}
	}
	if rows < 10 {
		t.Errorf("%d rows", rows)
	}
}

// TestPlantedTable: what docs/benchmarks.md says of the trials of the gate is made from their file.
func TestPlantedTable(t *testing.T) {
	text, err := os.ReadFile("../bench/gate/planted/trials.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	trials, err := planted.ReadTrials(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	generated(t, "benchmarks.md", "\n"+planted.Table(trials)+"\n")
}
