package neokv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/cluster"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Inspection says what is in a data folder, and what is wrong there.
type Inspection struct {
	Dir     string                `json:"dir"`
	Format  int                   `json:"format"`
	Cluster string                `json:"cluster"`        // its id
	Copy    string                `json:"copy,omitempty"` // the backup's id if the folder was made as one
	Shape   settings.ClusterKnobs `json:"shape"`          // stores, replicas, and regions at first
	Start   uint64                `json:"start"`          // the last one of the cluster here, 0 before the first
	Closed  bool                  `json:"closed"`         // the last start ended cleanly, or the folder is a backup
	Stores  []InspectedStore      `json:"stores"`
	Types   map[string]int64      `json:"types"`    // keys by type, each once, however many replicas there are
	Keys    int64                 `json:"keys"`     // of all types, expired ones too
	Expire  int64                 `json:"expiring"` // keys with an expiry
	Largest []InspectedKey        `json:"largest"`  // keys, the largest first
	Wrong   []Damage              `json:"wrong"`
}

// InspectedStore says what a store's folder holds.
type InspectedStore struct {
	Store     int                 `json:"store"`
	Bytes     int64               `json:"bytes"` // of its files
	Tables    int                 `json:"tables"`
	Regions   []InspectedRegion   `json:"regions"`
	Keyspaces []InspectedKeyspace `json:"keyspaces"`
	Unnamed   int64               `json:"unnamed"` // bytes of elements of deleted keys that wait to be reclaimed
}

// InspectedRegion is a replica as a store has it.
type InspectedRegion struct {
	Region  int    `json:"region"`
	Slots   string `json:"slots"`
	Version uint64 `json:"version"` // of the bounds
	Phase   string `json:"phase"`   // serves, frozen or absorbed
	Applied uint64 `json:"applied"` // the index of the log up to which the data is
	Logged  uint64 `json:"logged"`  // where the log ends: the next start applies the rest, as far as a majority has it
}

// InspectedKeyspace says what a store has in a keyspace.
type InspectedKeyspace struct {
	Name   string `json:"name"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`  // of keys and values, before compression
	Tables int64  `json:"tables"` // bytes in tables, an estimate
}

// InspectedKey is a key of a client.
type InspectedKey struct {
	Key      string `json:"key"`
	Slot     int    `json:"slot"`
	Type     string `json:"type"`
	Bytes    int64  `json:"bytes"`    // of its record and its elements, with their keys
	Elements uint64 `json:"elements"` // of a string: bytes
}

// Damage is something that is wrong in a data folder.
type Damage struct {
	Store int    `json:"store,omitempty"` // 0: of no single store
	File  string `json:"file,omitempty"`
	What  string `json:"what"`
	Lost  string `json:"lost,omitempty"` // what the file holds
}

func (d Damage) String() string {
	text := d.What
	if d.File != "" && !strings.Contains(text, d.File) {
		text = d.File + ": " + text
	}
	if d.Lost != "" {
		text += "; lost with it: " + d.Lost
	}
	return text
}

// Inspect looks at a data folder, or a backup, that no cluster uses: what a start needs of it, all checksums, how large
// what is in it is, and the largest keys, most at most. Keys are those of the data as it is; the next start first
// applies what the logs have beyond. It changes nothing there. It reads every file once or twice, and needs memory for
// the write-ahead logs alone. What is wrong in the folder is in the Inspection; an error says that there is none.
func Inspect(ctx context.Context, dir string, most int) (x Inspection, err error) {
	if ctx == nil {
		return x, ErrNilContext
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return x, fmt.Errorf("inspect: %w", err)
	}
	lock, err := cluster.LockToRead(dir)
	if err != nil {
		return x, fmt.Errorf("inspect: %w", err)
	}
	defer func() {
		lock.Close()
		if err != nil {
			err = fmt.Errorf("inspect: %w", err)
		}
	}()
	i := &inspector{x: &x, fs: disk.ReadOnly(), dir: dir}
	x = Inspection{Dir: dir, Stores: []InspectedStore{}, Types: make(map[string]int64), Largest: []InspectedKey{},
		Wrong: []Damage{}}
	return x, i.run(ctx, most, &x)
}

// inspector looks at a folder.
type inspector struct {
	x   *Inspection
	fs  *disk.FS
	dir string

	mu  sync.Mutex
	bad []error // what an engine has found damaged
}

func (i *inspector) wrong(d Damage) {
	if d.File != "" {
		if in, err := filepath.Rel(i.dir, d.File); err == nil && filepath.IsLocal(in) {
			d.File = in
		}
	}
	if !slices.Contains(i.x.Wrong, d) {
		i.x.Wrong = append(i.x.Wrong, d)
	}
}

func (i *inspector) run(ctx context.Context, most int, x *Inspection) error {
	i.x = x
	r, err := cluster.ReadRemains(i.fs, i.dir)
	if err != nil {
		return err
	}
	x.Format, x.Cluster, x.Copy, x.Start, x.Closed = r.Format, r.Cluster, r.Copy, r.Start, r.Closed
	for _, err := range r.Refused {
		i.wrong(Damage{What: err.Error()})
	}
	if r.Damaged != nil {
		i.wrong(Damage{File: filepath.Join(i.dir, cluster.RecordName), What: r.Damaged.Error(),
			Lost: "the shape of the cluster, and which stores took part in its starts"})
	}
	x.Shape = r.Shape
	if err := r.ReplayJournal(); err != nil {
		i.wrong(Damage{What: err.Error(), Lost: "the last writes of all stores"})
	}
	var open []*store.Inspection
	defer func() {
		for _, s := range open {
			if s != nil {
				s.Close()
			}
		}
	}()
	for _, n := range r.Places {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		open = append(open, i.store(n))
	}
	return i.contents(ctx, open, most)
}

// store looks at a store's folder, and opens its database. It returns nil if it cannot.
func (i *inspector) store(n *cluster.Place) *store.Inspection {
	id := int(n.ID())
	at := n.At()
	s := InspectedStore{Store: id, Regions: []InspectedRegion{}, Keyspaces: []InspectedKeyspace{}}
	defer func() { i.x.Stores = append(i.x.Stores, s) }()
	if err := n.Failure(); err != nil {
		i.wrong(Damage{Store: id, What: err.Error(), Lost: "what the store has promised to the others"})
	}
	for _, dir := range slices.Compact([]string{at.Store, at.Logs}) {
		if dir == at.Engine {
			continue
		}
		filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				if info, err := d.Info(); err == nil {
					s.Bytes += info.Size()
				}
			}
			return nil
		})
	}
	i.listed(id, at)
	damaged := i.tables(id, at.Engine)
	db, wrong, err := n.Inspect(i.note)
	if err != nil {
		d := Damage{Store: id, What: fmt.Sprintf("store %d cannot be opened: %v", id, line(err)),
			Lost: "all that the store has"}
		if m := missingTable.FindStringSubmatch(d.What); m != nil {
			d.File, d.What = filepath.Join(at.Engine, m[1]+".sst"), "it is missing, and the manifest has it"
		}
		i.wrong(d)
	}
	var used []engine.Table
	if db != nil {
		if used, err = db.Tables(); err != nil {
			i.wrong(Damage{Store: id, What: fmt.Sprintf("store %d: %v", id, line(err))})
		}
	}
	s.Tables = len(used)
	for _, file := range slices.Sorted(maps.Keys(damaged)) {
		d := Damage{Store: id, File: filepath.Join(at.Engine, file), What: damaged[file].Error()}
		lost := lostWith(used, file)
		if lost == "" && db != nil {
			continue // nobody needs the file
		}
		d.Lost = lost
		i.wrong(d)
	}
	for _, err := range wrong {
		i.wrong(Damage{Store: id, What: fmt.Sprintf("store %d: %v", id, line(err))})
	}
	if db == nil {
		return nil
	}
	for _, r := range db.Regions {
		s.Regions = append(s.Regions, InspectedRegion{Region: int(r.ID), Slots: r.Slots.String(), Version: r.Version,
			Phase:   [...]string{keys.Serving: "serves", keys.Frozen: "frozen", keys.Absorbed: "absorbed"}[r.Phase],
			Applied: r.Applied, Logged: r.Logged})
	}
	return db
}

// missingTable is what Pebble says of a table that is not there.
var missingTable = regexp.MustCompile(`file (\d+) \(type sstable\) unknown`)

func (i *inspector) note(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.bad = append(i.bad, err)
}

// found returns what note was told since the last call.
func (i *inspector) found() (bad []error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	bad, i.bad = i.bad, nil
	return bad
}

// listed compares the logs and manifests that a store's record lists with their checksums there.
func (i *inspector) listed(id int, at disk.Places) {
	r, err := disk.ReadStoreRecord(vfs.Default, at.Store)
	if err != nil {
		return // survey has told
	}
	for _, l := range r.Files {
		path := filepath.Join(at.Engine, l.Name)
		lost := "which tables and logs the store has"
		if strings.HasSuffix(l.Name, ".log") {
			path, lost = filepath.Join(at.Logs, l.Name), "the last writes of the store, of data and of its Raft log"
		}
		d := Damage{Store: id, File: path, Lost: lost}
		switch got, err := sumOf(path, l.Bytes); {
		case errors.Is(err, fs.ErrNotExist):
			d.What = "it is missing"
		case err != nil:
			d.What = err.Error()
		case got != l.Sum:
			d.What = fmt.Sprintf("its first %d bytes do not read back as they were written", l.Bytes)
		default:
			continue
		}
		i.wrong(d)
	}
}

// sumOf returns the checksum of the first bytes of a file.
func sumOf(path string, size int64) (sum uint32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, 256<<10)
	for left := size; left > 0; {
		n, err := f.Read(buf[:min(int64(len(buf)), left)])
		if n == 0 {
			return 0, fmt.Errorf("it has %d bytes, want %d: %w", size-left, size, err)
		}
		sum = disk.Sum(sum, buf[:n])
		left -= int64(n)
	}
	return sum, nil
}

// tables reads all tables of a store, and returns what is wrong with each that is damaged.
func (i *inspector) tables(id int, dir string) map[string]error {
	damaged := make(map[string]error)
	names, err := vfs.Default.List(dir)
	if err != nil {
		return damaged // there is no database, which OpenInspection finds
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			if err := engine.CheckTable(vfs.Default, filepath.Join(dir, name)); err != nil {
				damaged[name] = err
			}
		}
	}
	return damaged
}

// lostWith says what the tables in a file hold, "" if there are none.
func lostWith(tables []engine.Table, file string) string {
	var parts []string
	for _, t := range tables {
		if t.File != file || len(t.Smallest) == 0 || len(t.Largest) == 0 {
			continue
		}
		part := keys.Keyspace(t.Smallest[0]).String()
		from, errFrom := keys.ParseRedis(t.Smallest)
		to, errTo := keys.ParseRedis(t.Largest)
		if errFrom == nil && errTo == nil {
			part += fmt.Sprintf(" of the slots %d to %d", from.Slot, to.Slot)
		} else if from, _, _, err := keys.ParseRaft(t.Smallest); err == nil {
			if to, _, _, err := keys.ParseRaft(t.Largest); err == nil {
				part += fmt.Sprintf(" of the regions %d to %d", from, to)
			}
		}
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// line is the first line of an error: Pebble's may carry a stack.
func line(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// contents reads all stores. A key counts where its region's replica is furthest.
func (i *inspector) contents(ctx context.Context, open []*store.Inspection, most int) error {
	type replica struct {
		version, applied uint64
		store            int
	}
	var best [topology.SlotCount]replica
	for n, s := range open {
		if s == nil {
			continue
		}
		for _, r := range s.Regions {
			for slot := int(r.Slots.First); r.Phase != keys.Absorbed && slot <= int(r.Slots.Last); slot++ {
				b := &best[slot]
				if b.store == 0 || r.Version > b.version || r.Version == b.version && r.Applied > b.applied {
					*b = replica{r.Version, r.Applied, n + 1}
				}
			}
		}
	}
	missing := 0
	for slot := range best {
		if best[slot].store == 0 {
			missing++
		}
	}
	if missing > 0 {
		i.wrong(Damage{What: fmt.Sprintf("no store has %d of the %d slots", missing, topology.SlotCount)})
	}
	for n, s := range open {
		if s == nil {
			continue
		}
		i.found() // what opening it has found is told already
		c, err := s.Read(ctx, func(slot topology.Slot) bool { return best[slot].store == n+1 }, most)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, err := range append(i.found(), err) {
			if err != nil {
				i.wrong(Damage{Store: n + 1, What: fmt.Sprintf("store %d: %v", n+1, line(err))})
			}
		}
		into := &i.x.Stores[n]
		into.Unnamed = c.Unnamed
		for _, k := range c.Keyspaces {
			into.Keyspaces = append(into.Keyspaces, InspectedKeyspace{k.Keyspace.String(), k.Keys, k.Bytes, k.Tables})
		}
		for name, count := range c.Types {
			i.x.Types[name] += count
			i.x.Keys += count
		}
		i.x.Expire += c.Expiring
		for _, k := range c.Largest {
			i.x.Largest = append(i.x.Largest, InspectedKey{string(k.Key), int(k.Slot), k.Type, k.Bytes, k.Elements})
		}
	}
	slices.SortStableFunc(i.x.Largest, func(a, b InspectedKey) int { return int(b.Bytes - a.Bytes) })
	i.x.Largest = i.x.Largest[:min(len(i.x.Largest), most)]
	return nil
}
