package results

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"
)

// NewHeader returns a header with the machine, the build and the command line filled in. A caller that boots a cluster
// calls it afterwards, so that the header has the settings of the Go runtime that are in force then.
func NewHeader() Header {
	return Header{
		Format: Format, Started: time.Now().UTC(), Build: thisBuild(), Machine: thisMachine(),
	}
}

func thisMachine() Machine {
	cpu, os, kernel, memory := systemFacts()
	gc := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(gc)
	return Machine{
		CPU: cpu, Cores: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0), GCPercent: int(gc[0].Value.Uint64()),
		MemoryBytes: memory, OS: os, Kernel: kernel, Arch: runtime.GOARCH,
	}
}

// String names the commit, with a + if there were uncommitted changes, or else the version.
func (b Build) String() string {
	switch commit := "commit " + b.Commit[:min(len(b.Commit), 12)]; {
	case b.Commit == "":
		return "version " + b.Version
	case b.Modified:
		return commit + "+"
	default:
		return commit
	}
}

// String names the machine.
func (m Machine) String() string {
	words := []string{cmp.Or(m.CPU, "unknown CPU"), Plural(int64(m.Cores), "core")}
	if m.MemoryBytes > 0 {
		words = append(words, fmt.Sprintf("%.1f GiB", float64(m.MemoryBytes)/(1<<30)))
	}
	if system := strings.Join(strings.Fields(m.OS+" "+m.Kernel+" "+m.Arch), " "); system != "" {
		words = append(words, system)
	}
	return strings.Join(words, ", ")
}

// recordedModules are the libraries whose versions change what a benchmark measures.
var recordedModules = []string{
	"github.com/HdrHistogram/hdrhistogram-go",
	"github.com/cockroachdb/pebble/v2",
	"github.com/lni/dragonboat/v4",
	"github.com/tidwall/redcon",
}

func thisBuild() Build {
	b := Build{Version: "unknown", Go: runtime.Version(), Modules: map[string]string{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	for _, m := range info.Deps {
		if slices.Contains(recordedModules, m.Path) {
			b.Modules[m.Path] = m.Version
		}
	}
	if b.Commit == "" {
		b.Commit, b.Modified = workTree(info.Main.Path)
	}
	return b
}

// workTree asks git for the commit of the current folder, since `go run` leaves it out of the binary. It returns a
// commit only in the work tree of the program itself, since the current folder may belong to another project.
func workTree(module string) (commit string, modified bool) {
	if module == "" {
		return "", false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	git := func(args ...string) string {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	top := git("rev-parse", "--show-toplevel")
	mod, err := os.ReadFile(filepath.Join(top, "go.mod"))
	if top == "" || err != nil || !strings.HasPrefix(string(mod), "module "+module+"\n") {
		return "", false
	}
	return git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no") != ""
}

// DataFolder says where the data was and what a sync costs there.
type DataFolder struct {
	Path       string        `json:"path,omitempty"`
	FileSystem string        `json:"file_system,omitempty"`
	SyncP50    time.Duration `json:"fdatasync_p50_ns,omitempty"`
}

// RAMDisk reports whether the folder is in memory, so that a sync makes nothing durable.
func (d DataFolder) RAMDisk() bool { return d.FileSystem == "tmpfs" || d.FileSystem == "ramfs" }

// Bounds of the probe: enough samples for a median, and a time that keeps a slow disk from delaying the run.
const (
	probeSyncs = 64
	probeTime  = time.Second
	probeBytes = 4 << 10
)

// ProbeFolder finds out the type of the file system of a folder and what a sync costs there: the median over appends of
// 4 KiB to a file of its own, each followed by a sync. It stops after 64 of them or a second.
func ProbeFolder(path string) (DataFolder, error) {
	d := DataFolder{Path: path}
	var err error
	if d.FileSystem, err = fileSystem(path); err != nil {
		return d, fmt.Errorf("file system of %s: %w", path, err)
	}
	f, err := os.CreateTemp(path, "sync-probe-*")
	if err != nil {
		return d, fmt.Errorf("sync probe: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, probeBytes)
	var took []time.Duration
	for begin := time.Now(); len(took) < probeSyncs && (len(took) == 0 || time.Since(begin) < probeTime); {
		if _, err := f.Write(block); err != nil {
			return d, fmt.Errorf("sync probe: %w", err)
		}
		t := time.Now()
		if err := syncData(f); err != nil {
			return d, fmt.Errorf("sync probe: %w", err)
		}
		took = append(took, time.Since(t))
	}
	slices.Sort(took)
	d.SyncP50 = took[len(took)/2]
	return d, nil
}
