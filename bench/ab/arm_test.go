package ab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"neokv.dev/bench"
)

func TestParseArm(t *testing.T) {
	for text, want := range map[string]Arm{
		"": {},
		" engine.memtable_size=4MiB  raft.batch_max_ops=1 ": {
			Text: "engine.memtable_size=4MiB raft.batch_max_ops=1",
			Set:  []string{"engine.memtable_size=4MiB", "raft.batch_max_ops=1"},
		},
		"profile=latency program=./old env=GOGC=50 env=A=": {
			Text:    "profile=latency program=./old env=GOGC=50 env=A=",
			Profile: "latency", Program: "./old", Env: []string{"GOGC=50", "A="},
		},
		"revision=HEAD~1":           {Text: "revision=HEAD~1", Revision: "HEAD~1"},
		"redis=always cluster=yes":  {Text: "redis=always cluster=yes", Redis: "always", Cluster: true},
		"target=a.b:1,127.0.0.1:22": {Text: "target=a.b:1,127.0.0.1:22", Targets: []string{"a.b:1", "127.0.0.1:22"}},
	} {
		if got, err := ParseArm(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string][]string{
		"fast":                           {"fast: want name=value"},
		"redis=yes spead=1 profile=":     {"redis=yes: want none", "spead: unknown", "profile=: want name=value"},
		"program=a revision=b program=c": {"program is there twice", "program and revision exclude"},
		"redis=none a.b=1":               {"redis takes no other word"},
		"cluster=yes":                    {"cluster is for redis"},
		"target=nowhere a.b=1":           {`target "nowhere"`, "target runs already"},
		"env=A":                          {"want env=NAME=VALUE"},
	} {
		_, err := ParseArm(text)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %q in it", text, err, w)
			}
		}
	}
}

// TestBuild builds the program of a revision of a repository.
func TestBuild(t *testing.T) {
	repository, builds := t.TempDir(), t.TempDir()
	file := func(name, text string) {
		t.Helper()
		path := filepath.Join(repository, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)
		if err := command(t.Context(), repository, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	file("go.mod", "module example.org/x\n\ngo 1.24\n")
	for _, says := range []string{"old", "new"} {
		file("cmd/neokv/main.go", "package main\n\nfunc main() { println(\""+says+"\") }\n")
		git("add", ".")
		git("commit", "-q", "-m", says)
	}
	for revision, want := range map[string]string{"HEAD~1": "old\n", "HEAD": "new\n"} {
		arm := Arm{Revision: revision}
		if err := arm.Build(t.Context(), repository, builds); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(arm.Program).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; want %q", revision, out, err, want)
		}
	}
	arm := Arm{Revision: "nosuch"}
	if err := arm.Build(t.Context(), repository, builds); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a revision that does not exist: %v", err)
	}
	trees, err := exec.Command("git", "-C", repository, "worktree", "list").Output()
	if err != nil || strings.Count(string(trees), "\n") != 1 {
		t.Errorf("trees are left behind: %s, %v", trees, err)
	}
}

// TestOrder: the order of a round follows from the seed, and each one comes about as often.
func TestOrder(t *testing.T) {
	for _, control := range []bool{true, false} {
		p := &Plan{Control: control, Load: bench.Options{Seed: 7}}
		const rounds = 6000
		counts := map[string]int{}
		for round := range rounds {
			order := p.order(round)
			if !slices.Equal(order, p.order(round)) {
				t.Fatalf("round %d has another order than before", round)
			}
			counts[fmt.Sprint(order)]++
		}
		want := 2
		if control {
			want = 6
		}
		for order, n := range counts {
			share := rounds / want
			if len(counts) != want || n < share-200 || n > share+200 { // five standard deviations
				t.Errorf("%s came %d times of %d: want %d orders as often", order, n, rounds, want)
			}
		}
	}
}
