package tune

import (
	"fmt"
	"os"
	"path/filepath"

	"neokv.dev/workloads"
)

// Near returns loads near that of the plan: values and clients twice and half as large and many, and reads that are
// twice and half as frequent as before beside writes. Where the workload has sizes of its own, or only reads or only
// writes, there are fewer. It writes workload files into the folder of the Local.
func (m *Local) Near() (out []Variant, err error) {
	load := m.Plan.Load
	w, err := workloads.Find(load.Workload)
	if err != nil {
		return nil, err
	}
	sizes := func(valueSize int) string {
		s, err := workloads.NewSource(w, workloads.SourceOptions{Records: 1, Elements: load.Elements, ValueSize: valueSize,
			Clients: 1})
		if err != nil {
			return ""
		}
		return s.ValueSizes()
	}
	scaled := func(n int, factor float64) int { return max(1, int(float64(n)*factor)) }
	for _, x := range []struct {
		factor float64
		word   string
	}{{2, "twice"}, {0.5, "half"}} {
		if size := scaled(load.ValueSize, x.factor); sizes(size) != sizes(load.ValueSize) {
			l := load
			l.ValueSize = size
			out = append(out, Variant{fmt.Sprintf("values %s as large", x.word), l})
		}
		if clients := scaled(load.Clients, x.factor); clients != load.Clients {
			l := load
			l.Clients = clients
			out = append(out, Variant{fmt.Sprintf("%s as many clients", x.word), l})
		}
		if text, ok := w.Shifted(x.factor); ok {
			l := load
			l.Workload = filepath.Join(m.Dir, fmt.Sprintf("reads-%s.yaml", x.word))
			if err := os.WriteFile(l.Workload, text, 0o600); err != nil {
				return nil, err
			}
			out = append(out, Variant{fmt.Sprintf("reads %s as frequent", x.word), l})
		}
	}
	return out, nil
}
