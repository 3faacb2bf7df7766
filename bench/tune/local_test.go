package tune

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/tuning"
)

// What a cluster does after a load counts as part of it.
func TestWhatIsLeftCounts(t *testing.T) {
	s := &results.Summary{Seconds: 3, Work: results.Work{"process_cpu_us": 60_000}}
	s.Groups = make([]results.GroupSummary, 1)
	s.Groups[0].Total.Count, s.Groups[0].Total.PerSecond = 3000, 1000
	h := &results.Header{Groups: []results.ClientGroup{{}}}
	left := drained{took: time.Second, cpu: 30_000, written: 4 << 20, entries: 1 << 20}
	got := map[string]float64{}
	for _, f := range figures(s, h, left, 1<<30) {
		got[f.Name] = f.Value
	}
	for name, want := range map[string]float64{"throughput": 750, "CPU": 30, tuning.WriteAmplification: 4,
		tuning.Memory: 1 << 30, tuning.Drain: 1e6} {
		if math.Abs(got[name]-want) > 1e-6*want {
			t.Errorf("%s is %g, want %g", name, got[name], want)
		}
	}
	left.entries = 1000
	for _, f := range figures(s, h, left, 1) {
		if f.Name == tuning.WriteAmplification {
			t.Error("a load that writes nothing has a write amplification")
		}
	}
}

// A copy has the same files as the original, shares no file with it that anybody writes to, and has no files of others.
func TestCloneTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for name, text := range map[string]string{"store-1/engine/000001.sst": "table", "store-1/engine/000002.log": "log",
		"cluster.json": "{}"} {
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := cloneTree(from, to); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"store-1/engine/000002.log", "cluster.json"} {
		if err := os.WriteFile(filepath.Join(to, name), []byte("changed"), 0); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(from, name)); err != nil || string(text) == "changed" {
			t.Errorf("%s of the original is %q, %v", name, text, err)
		}
	}
	if err := os.Remove(filepath.Join(to, "store-1/engine/000001.sst")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(from, "store-1/engine/000001.sst")); err != nil || string(text) != "table" {
		t.Errorf("the table of the original is %q, %v", text, err)
	}
	err := dropPages(from)
	if (err == nil) != (runtime.GOOS == "linux") {
		t.Errorf("drop the pages: %v", err)
	}
}
