// Package ab measures two arms in turn on this machine: two configurations, two builds, or NeoKV and any Redis. Every
// block has processes, ports and data of its own, since what one start does to speed lasts as long as its processes.
package ab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"neokv.dev/bench"
	"neokv.dev/bench/children"
)

// Arm is one side: what is started for each of its blocks.
type Arm struct {
	Text string // as the user wrote it
	// Set are settings of NeoKV, name=value; Env are variables of its process.
	Set, Env []string
	// Secrets are settings of NeoKV that only its process may see. ParseArm leaves them in Text, Set and Env.
	Secrets  []string
	Profile  string
	Program  string // the neokv to run; empty for this one
	Revision string // of git: build the neokv to run from it
	// Redis is the durability of a redis-server to start in place of NeoKV; empty for NeoKV. Cluster makes it a Redis
	// Cluster.
	Redis   children.Durability
	Cluster bool
	Targets []string // addresses of what runs already, in place of all that
	// Password is what a connection to a NeoKV or to the Targets must send first, empty for none.
	Password string
}

// ArmForm says what the text of an arm may be.
const ArmForm = "words setting=value, and any of profile=NAME, program=PATH, revision=GIT, env=NAME=VALUE; or " +
	"redis=none|everysec|always [cluster=yes]; or target=HOST:PORT,..."

// ParseArm reads the text of an arm, which may be empty. Its error names everything that is wrong.
func ParseArm(text string) (a Arm, err error) {
	a.Text = strings.Join(strings.Fields(text), " ")
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	seen := map[string]bool{}
	for _, word := range strings.Fields(text) {
		name, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			complain("%s: want name=value", word)
			continue
		}
		if seen[name] && name != "env" {
			complain("%s is there twice", name)
		}
		seen[name] = true
		switch {
		case strings.Contains(name, "."):
			a.Set = append(a.Set, word)
		case name == "profile":
			a.Profile = value
		case name == "program":
			a.Program = value
		case name == "revision":
			a.Revision = value
		case name == "env":
			if !strings.Contains(value, "=") {
				complain("%s: want env=NAME=VALUE", word)
			}
			a.Env = append(a.Env, value)
		case name == "redis":
			a.Redis = children.Durability(value)
			if !slices.Contains(children.Durabilities, a.Redis) {
				complain("%s: want none, everysec or always", word)
			}
		case name == "cluster":
			if a.Cluster = value == "yes"; !a.Cluster && value != "no" {
				complain("%s: want yes or no", word)
			}
		case name == "target":
			for addr := range strings.SplitSeq(value, ",") {
				if err := bench.CheckTarget(addr); err != nil {
					wrong = append(wrong, err)
				}
				a.Targets = append(a.Targets, addr)
			}
		default:
			complain("%s: unknown, want %s", name, ArmForm)
		}
	}
	neokv := len(a.Set) + len(a.Env) + len(a.Profile) + len(a.Program) + len(a.Revision)
	switch {
	case a.Targets != nil && (neokv > 0 || a.Redis != "" || seen["cluster"]):
		complain("target runs already, so it takes no other word")
	case a.Redis != "" && neokv > 0:
		complain("redis takes no other word than cluster")
	case a.Redis == "" && seen["cluster"]:
		complain("cluster is for redis")
	case a.Program != "" && a.Revision != "":
		complain("program and revision exclude each other")
	}
	return a, errors.Join(wrong...)
}

// NeoKV reports whether the arm starts a NeoKV.
func (a Arm) NeoKV() bool { return a.Targets == nil && a.Redis == "" }

func (a Arm) String() string {
	if a.Text == "" {
		return "as it is"
	}
	return a.Text
}

// Startable returns what to start for a block.
func (a Arm) Startable(inMemory bool) children.Startable {
	switch {
	case a.Targets != nil:
		return children.Existing{Addrs: a.Targets, Password: a.Password}
	case a.Redis != "":
		return children.Redis{Cluster: a.Cluster, Durability: a.Redis}
	}
	return children.NeoKV{Program: a.Program, Profile: a.Profile, Set: a.Set, Env: a.Env, Secrets: a.Secrets,
		InMemory: inMemory, Password: a.Password}
}

// Build builds the program of an arm that names a revision of the git repository that dir is in, into the folder to.
func (a *Arm) Build(ctx context.Context, dir, to string) error {
	if a.Revision == "" {
		return nil
	}
	tree, err := os.MkdirTemp(to, "tree-")
	if err != nil {
		return err
	}
	if tree, err = filepath.Abs(tree); err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := command(ctx, dir, "git", "worktree", "add", "--detach", "--force", tree, a.Revision); err != nil {
		return fmt.Errorf("revision %s: %w", a.Revision, err)
	}
	defer command(context.WithoutCancel(ctx), dir, "git", "worktree", "remove", "--force", tree)
	a.Program = filepath.Join(filepath.Dir(tree), "neokv-"+filepath.Base(tree))
	if err := command(ctx, tree, "go", "build", "-o", a.Program, "./cmd/neokv"); err != nil {
		return fmt.Errorf("revision %s: %w", a.Revision, err)
	}
	return nil
}

func command(ctx context.Context, dir, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
