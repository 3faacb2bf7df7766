package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Mistake is a change of one place in this module's source. A trial builds a neokv with it, so no other build can make
// the mistake.
type Mistake struct {
	name     string
	file     string // from the root of the module
	was, now string // was is there once
}

var (
	// moreSyncs syncs what an entry has changed, although the entry itself is in the log, synced. That is exactly one sync
	// more per entry with one store and one client; other syncs of several may be one.
	moreSyncs = &Mistake{"more-syncs", "neokv/internal/region/apply.go", "return b.Commit(false)", "return b.Commit(true)"}

	// moreBytes adds a record that nobody reads to each batch. With what frames it, the log grows by 2.1 to 2.3 %.
	moreBytes = &Mistake{"more-bytes", "neokv/internal/engine/batch.go",
		"return e.viewPool.change(func() error { return e.db.Apply(b, opts) })",
		`if err := b.LogData(make([]byte, b.Len()/57), nil); err != nil {
		return err
	}
	return e.viewPool.change(func() error { return e.db.Apply(b, opts) })`}
)

// Build builds a neokv with the mistake from the source around dir, into the folder to, and returns its path.
func (m *Mistake) Build(ctx context.Context, dir, to string) (program string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("build with the mistake %s: %w", m.name, err)
		}
	}()
	found := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	found.Dir = dir
	out, err := found.Output()
	root, ours := strings.CutPrefix(strings.TrimSpace(string(out)), "neokv.dev ")
	if err != nil || !ours {
		return "", errors.Join(errors.New("this folder is not in the source of neokv"), err)
	}
	source := filepath.Join(root, filepath.FromSlash(m.file))
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	changed, err := m.plant(string(text))
	if err != nil {
		return "", err
	}
	copied, overlay := filepath.Join(to, m.name+".go"), filepath.Join(to, m.name+".json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: copied}})
	if err == nil {
		err = errors.Join(os.WriteFile(copied, []byte(changed), 0o666), os.WriteFile(overlay, replace, 0o666))
	}
	if err != nil {
		return "", err
	}
	program = filepath.Join(to, "neokv-"+m.name)
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, "./cmd/neokv")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return program, nil
}

// plant returns a source file with the mistake.
func (m *Mistake) plant(text string) (string, error) {
	if n := strings.Count(text, m.was); n != 1 {
		return "", fmt.Errorf("%s has %d times %q, want once", m.file, n, m.was)
	}
	return strings.Replace(text, m.was, m.now, 1), nil
}
