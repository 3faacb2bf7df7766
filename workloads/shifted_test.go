package workloads

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A shifted workload is a workload file with other shares: more of what only reads, less of the rest.
func TestShifted(t *testing.T) {
	for _, w := range All() {
		text, ok := w.Shifted(2)
		reads, writes := 0.0, 0.0
		for _, op := range w.Ops {
			if op.Reads {
				reads += op.Share
			} else {
				writes += op.Share
			}
		}
		if ok != (reads > 0 && writes > 0) {
			t.Errorf("%s: shifted: %v, reads %g, writes %g", w.Name, ok, reads, writes)
		}
		if !ok {
			continue
		}
		path := filepath.Join(t.TempDir(), "shifted.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		shifted, err := Find(path)
		if err != nil {
			t.Errorf("%s: %v", w.Name, err)
			continue
		}
		for i, op := range shifted.Ops {
			want := w.Ops[i].Share
			if op.Reads {
				want *= 2
			}
			if want /= 2*reads + writes; op.Name != w.Ops[i].Name || math.Abs(op.Share-want) > 1e-9 {
				t.Errorf("%s: %s has a share of %g; want %s, %g", w.Name, op.Name, op.Share, w.Ops[i].Name, want)
			}
		}
	}
}
