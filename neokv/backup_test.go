package neokv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
)

// chain is a client that counts up keys of several regions, in turn, each once the one before is acknowledged. So a
// state of the cluster at one instant has key 0 at least as far as key 1, that at least as far as key 2, and so on, and
// key 0 one further than the last at most.
type chain struct {
	keys  []string
	sent  atomic.Int64 // of the last key: the number that it was sent last
	acked atomic.Int64
}

// run counts until ctx ends. A write of which the outcome is unknown is sent again: it changes nothing if it was there.
func (x *chain) run(ctx context.Context, c *Cluster) error {
	for n := int64(1); ; n++ {
		for i, k := range x.keys {
			if i == len(x.keys)-1 {
				x.sent.Store(n)
			}
			for {
				if ctx.Err() != nil {
					return nil
				}
				_, err := c.Do(ctx, "SET", k, n)
				if err == nil {
					break
				}
				if errors.Is(err, ErrClosed) {
					return err
				}
			}
		}
		x.acked.Store(n)
	}
}

// check compares what a cluster holds with what the client had acknowledged when the backup began, and had sent when it
// had ended.
func (x *chain) check(t *testing.T, c *Cluster, acked, sent int64) {
	t.Helper()
	var all []int64
	for _, k := range x.keys {
		v, err := c.Do(t.Context(), "GET", k)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.ParseInt(fmt.Sprintf("%s", v), 10, 64)
		all = append(all, n)
	}
	first, last := all[0], all[len(all)-1]
	if !slices.IsSortedFunc(all, func(a, b int64) int { return int(b - a) }) || first > last+1 {
		t.Errorf("keys %v hold %v: a later write is there without an earlier one", x.keys, all)
	}
	if last < acked {
		t.Errorf("key %s holds %d; %d was acknowledged before the backup began", x.keys[len(x.keys)-1], last, acked)
	}
	if first > sent+1 {
		t.Errorf("key %s holds %d; %d was the last one sent", x.keys[0], first, sent)
	}
}

// TestBackups makes backups while clients write, regions split and merge, leaders move and stores are killed, and looks
// at what clusters hold that start from them.
func TestBackups(t *testing.T) {
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprintf("logs apart %t", apart), func(t *testing.T) {
			base := t.TempDir()
			s := small()
			if apart {
				s.Engine.WALDir = filepath.Join(base, "wal")
			}
			c := start(t, Config{Stores: 3, Regions: 4, Dir: filepath.Join(base, "data"), NoSockets: true, Settings: s})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			var clients []*chain
			for i := range 4 {
				x := new(chain)
				for k := range 6 {
					x.keys = append(x.keys, fmt.Sprintf("client%d-key%d", i, k*7919))
				}
				clients = append(clients, x)
				wg.Go(func() {
					if err := x.run(ctx, c); err != nil {
						t.Error(err)
					}
				})
			}
			random := rand.New(rand.NewPCG(1, 2))
			wg.Go(func() { // what a fault says does not matter here: some cannot be done at that moment
				for i := 0; ctx.Err() == nil; i++ {
					switch i % 4 {
					case 0:
						doText(ctx, c, fmt.Sprintf("split %d", 1+random.IntN(4)))
					case 1:
						doText(ctx, c, fmt.Sprintf("transfer %d %d", 1+random.IntN(4), 1+random.IntN(3)))
					case 2:
						doText(ctx, c, fmt.Sprintf("merge %d", 1+random.IntN(4)))
					case 3:
						doText(ctx, c, "kill 3")
						doText(ctx, c, "restart 3")
					}
				}
			})
			type taken struct {
				Backup
				acked, sent []int64
			}
			var all []taken
			for i := range 6 {
				for want := clients[0].acked.Load() + 3; clients[0].acked.Load() < want; {
					time.Sleep(time.Millisecond)
				}
				var x taken
				for _, y := range clients {
					x.acked = append(x.acked, y.acked.Load())
				}
				var err error
				if x.Backup, err = c.Backup(ctx, filepath.Join(base, "copies", fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
				for _, y := range clients {
					x.sent = append(x.sent, y.sent.Load())
				}
				if x.Files == 0 || x.Bytes < x.Copied {
					t.Errorf("backup %+v", x.Backup)
				}
				all = append(all, x)
			}
			cancel()
			wg.Wait()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(filepath.Join(base, "*", linksName)); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
			for i, x := range all {
				config := Config{Dir: x.Dir, NoSockets: true}
				if i%2 == 1 {
					image, err := OpenImage(x.Dir)
					if err != nil {
						t.Fatal(err)
					}
					config = Config{From: image, NoSockets: true}
				}
				restored := start(t, config)
				for k, y := range clients {
					y.check(t, restored, x.acked[k], x.sent[k])
				}
				if err := restored.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// fillKeys writes keys to a cluster and flushes one store, so that there are tables and logs.
func fillKeys(t *testing.T, c *Cluster, keys int) {
	t.Helper()
	for i := range keys {
		if _, err := c.Do(t.Context(), "SET", fmt.Sprint("k", i), fmt.Sprint("v", i)); err != nil {
			t.Fatal(err)
		}
		if i == keys/2 {
			for _, n := range c.in.Places() {
				if err := n.Store().Flush(t.Context(), false); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// holds counts the keys that a cluster has of those that fillKeys wrote.
func holds(t *testing.T, c *Cluster, keys int) (n int) {
	t.Helper()
	for i := range keys {
		v, err := c.Do(t.Context(), "GET", fmt.Sprint("k", i))
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%s", v) == fmt.Sprint("v", i) {
			n++
		}
	}
	return n
}

// TestBackupCutShort cuts the power at each sync of a backup. What is left is no backup, by its name or by its mark, or
// a whole one; and the next backup to the same folder succeeds.
func TestBackupCutShort(t *testing.T) {
	c := start(t, Config{Stores: 3, Regions: 3, InMemory: true, NoSockets: true})
	fillKeys(t, c, 50)
	whole, marked, absent := 0, 0, 0
	for at, over := int64(1), false; !over; at++ {
		fsys, random := disk.Mem(), rand.New(rand.NewPCG(uint64(at), 7))
		var left *disk.FS
		fsys.Hook(disk.BeforeSync, func(n int64) {
			if n == at {
				left = fsys.Crash(50, random)
			}
		})
		if _, err := backupTo(t.Context(), c, fsys, "/x/copy"); err != nil {
			t.Fatalf("cut at sync %d: %v", at, err) // behind the fence all succeeds
		}
		if over = left == nil; over { // nothing is lost behind the end
			left = fsys.Crash(0, random)
		}
		image, err := openImage(left, "/x/copy")
		switch {
		case err == nil:
			whole++
			restored := start(t, Config{From: image, NoSockets: true})
			if got := holds(t, restored, 50); got != 50 {
				t.Errorf("cut at sync %d: %d of 50 keys", at, got)
			}
			if err := restored.Close(); err != nil {
				t.Error(err)
			}
			continue
		case over:
			t.Errorf("cut behind the end: %v", err)
		case strings.Contains(err.Error(), "is a backup that did not end"):
			marked++
		case errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(err.Error(), "has no cluster.json"):
			absent++
		default:
			t.Errorf("cut at sync %d: %v", at, err)
		}
		if _, err := openImage(left, "/x/copy"+unfinished); err == nil {
			t.Errorf("cut at sync %d: the unfinished folder opens", at)
		}
		if _, err := backupTo(t.Context(), c, left, "/x/copy"); err != nil {
			t.Errorf("cut at sync %d: the next backup: %v", at, err)
		} else if _, err := openImage(left, "/x/copy"); err != nil {
			t.Errorf("cut at sync %d: the next backup: %v", at, err)
		}
	}
	t.Logf("%d whole, %d marked, %d absent", whole, marked, absent)
	if marked == 0 || absent == 0 {
		t.Errorf("%d marked and %d absent; want some of each", marked, absent)
	}
}

// gateFS lets a test do something when a file is made.
type gateFS struct {
	vfs.FS
	create func(name string) error
}

func (g *gateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.create(name); err != nil {
		return nil, err
	}
	return g.FS.Create(name, category)
}

// TestBackupRefused asks for backups that cannot be.
func TestBackupRefused(t *testing.T) {
	base := t.TempDir()
	c := start(t, Config{Stores: 1, Regions: 1, Dir: filepath.Join(base, "data"), NoSockets: true})
	fillKeys(t, c, 20)
	refused := func(dir, want string) {
		t.Helper()
		if _, err := c.Backup(t.Context(), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("backup to %s: %v; want %q", dir, err, want)
		}
	}
	full := filepath.Join(base, "full")
	if err := errors.Join(os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, "mine"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	refused(full, full+" is not empty")
	if _, err := os.Stat(filepath.Join(full, "mine")); err != nil {
		t.Error(err)
	}
	refused(filepath.Join(base, "data", "store-1", "copy"), "is in the data folder")
	link := filepath.Join(base, "link")
	if err := os.Symlink(filepath.Join(base, "data", "store-1"), link); err != nil {
		t.Fatal(err)
	}
	refused(filepath.Join(link, "copy"), "is in the data folder")
	refused(filepath.Join(full, "mine", "copy"), "not a directory")
	unsynced := small()
	unsynced.Engine.WALSync = "none"
	torn := start(t, Config{Stores: 1, Regions: 1, InMemory: true, NoSockets: true, Settings: unsynced})
	if _, err := torn.Backup(t.Context(), filepath.Join(base, "torn")); err == nil ||
		!strings.Contains(err.Error(), "engine.wal_sync is none") {
		t.Errorf("a backup of files that need not have what is acknowledged: %v", err)
	}

	// A second one at the same time; then the first one is given up.
	ctx, cancel := context.WithCancel(t.Context())
	second := filepath.Join(base, "second")
	_, err := backupTo(ctx, c, &gateFS{vfs.Default, func(name string) error {
		if strings.HasSuffix(name, ".log") {
			short, cancelShort := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancelShort()
			if _, err := c.Backup(short, second); !errors.Is(err, ErrBackup) {
				t.Errorf("a second backup: %v; want %v", err, ErrBackup)
			}
			if _, err := c.Do(t.Context(), "BGSAVE"); err == nil ||
				err.Error() != "ERR Background save already in progress" {
				t.Errorf("BGSAVE while there is one: %v", err)
			}
			cancel()
		}
		return nil
	}}, filepath.Join(base, "first"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a backup that was given up: %v; want %v", err, context.Canceled)
	}
	// The disk is full in the middle.
	_, err = backupTo(t.Context(), c, &gateFS{vfs.Default, func(name string) error {
		if strings.Contains(name, "MANIFEST-") {
			return errors.New("no space left on device")
		}
		return nil
	}}, filepath.Join(base, "first"))
	if err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("a backup to a full disk: %v", err)
	}
	// Somebody else takes the name before the backup has it.
	taken := filepath.Join(base, "taken")
	_, err = backupTo(t.Context(), c, &gateFS{vfs.Default, func(name string) error {
		if strings.Contains(name, "MANIFEST-") {
			return os.MkdirAll(filepath.Join(taken, "theirs"), 0o700)
		}
		return nil
	}}, taken)
	if err == nil {
		t.Error("a backup has replaced a folder that is not empty")
	}
	if _, err := os.Stat(filepath.Join(taken, "theirs")); err != nil {
		t.Error(err)
	}
	for _, left := range []string{"taken" + unfinished, "first", "first" + unfinished, "second", "second" + unfinished,
		filepath.Join("data", linksName)} {
		if _, err := os.Stat(filepath.Join(base, left)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", left, err)
		}
	}
	// What the end of the process leaves: the next backup there, or the next start, removes it.
	half := filepath.Join(base, "first"+unfinished)
	if err := errors.Join(os.MkdirAll(filepath.Join(half, "store-1"), 0o700),
		os.WriteFile(filepath.Join(half, unfinishedName), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(t.Context(), half, 0); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("inspect says of half a backup: %v", err)
	}
	if b, err := c.Backup(t.Context(), filepath.Join(base, "first")); err != nil || b.Swept != half {
		t.Errorf("a backup over one that did not end: %+v, %v", b, err)
	}
	empty := filepath.Join(base, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Backup(t.Context(), empty); err != nil {
		t.Errorf("a backup to an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(empty, unfinishedName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The end of the process may have come before the mark.
	for _, dir := range []string{empty, filepath.Join(base, "early"+unfinished)} {
		if _, err := Start(t.Context(), Config{Dir: dir, NoSockets: true}); err == nil ||
			!strings.Contains(err.Error(), "is a backup that did not end") {
			t.Errorf("a start from half a backup, %s: %v", dir, err)
		}
	}
}

// TestBackupOfAnAilingCluster backs up a cluster whose links are cut, of which a disk hangs, and of which most stores are
// dead. Each backup has what was acknowledged.
func TestBackupOfAnAilingCluster(t *testing.T) {
	base := t.TempDir()
	c := start(t, Config{Stores: 3, Regions: 3, Dir: filepath.Join(base, "data"), NoSockets: true})
	fillKeys(t, c, 20)
	for i, x := range []struct {
		faults []string
		down   []int
	}{
		{[]string{"partition 1 2,3"}, []int{}},
		{[]string{"heal", "disk 3 hang"}, []int{}},
		{[]string{"heal", "kill 1,2"}, []int{1, 2}},
		{[]string{"kill 3"}, []int{1, 2, 3}},
	} {
		do(t, c, x.faults...)
		b, err := c.Backup(t.Context(), filepath.Join(base, fmt.Sprint("copy", i)))
		if err != nil || !slices.Equal(b.Down, x.down) {
			t.Fatalf("%v: %+v, %v; want %v down", x.faults, b, err, x.down)
		}
		image, err := OpenImage(b.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := holds(t, start(t, Config{From: image, NoSockets: true}), 20); got != 20 {
			t.Errorf("%v: %d of 20 keys", x.faults, got)
		}
	}
	do(t, c, "heal")
}

// TestCopiesDoNotMix puts a store's folder of a backup in the place of the cluster's own, which the store's later
// promises are not in, and the other way round.
func TestCopiesDoNotMix(t *testing.T) {
	base := t.TempDir()
	data, copied := filepath.Join(base, "data"), filepath.Join(base, "copy")
	c := start(t, Config{Stores: 3, Regions: 3, Dir: data, NoSockets: true})
	fillKeys(t, c, 20)
	if _, err := c.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	fillKeys(t, c, 40)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		dir, of string
		keys    int
	}{{data, copied, 40}, {copied, data, 20}} {
		was := filepath.Join(base, "was")
		if err := os.Rename(filepath.Join(x.dir, "store-2"), was); err != nil {
			t.Fatal(err)
		}
		copyTree(t, filepath.Join(x.of, "store-2"), filepath.Join(x.dir, "store-2"))
		c := start(t, Config{Dir: x.dir, NoSockets: true})
		status := c.Status().Stores[1]
		if status.State != StateFailed || !strings.Contains(status.Reason, "of another copy of the cluster") {
			t.Errorf("store 2 in %s, with the folder of %s: %+v", x.dir, x.of, status)
		}
		if got := holds(t, c, x.keys); got != x.keys {
			t.Errorf("%s: %d of %d keys", x.dir, got, x.keys)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(os.RemoveAll(filepath.Join(x.dir, "store-2")),
			os.Rename(was, filepath.Join(x.dir, "store-2"))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSave calls BGSAVE, SAVE and LASTSAVE, and starts from what they have made.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	c := startWith(t, Config{Stores: 3, Regions: 3, Dir: dir, NoSockets: true}, new(seam.Hooks))
	backups := func() (names []string) {
		entries, err := os.ReadDir(filepath.Join(dir, backupsName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	info := func(name string) string {
		t.Helper()
		text, err := c.Do(t.Context(), "INFO", "persistence")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(fmt.Sprintf("%s", text)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
				return value
			}
		}
		t.Fatalf("INFO has no %s", name)
		return ""
	}
	fillKeys(t, c, 20)
	if got := info("rdb_changes_since_last_save"); got != "20" {
		t.Errorf("rdb_changes_since_last_save is %s after 20 writes", got)
	}
	last := info("rdb_last_save_time")
	if _, err := c.Do(t.Context(), "SAVE"); err != nil {
		t.Fatal(err)
	}
	first := backups()
	if len(first) != 1 {
		t.Fatalf("backups/ has %v after SAVE", first)
	}
	if got := info("rdb_changes_since_last_save"); got != "0" {
		t.Errorf("rdb_changes_since_last_save is %s after SAVE", got)
	}
	if now := info("rdb_last_save_time"); now < last || info("rdb_last_bgsave_status") != "ok" ||
		info("rdb_saves") != "1" {
		t.Errorf("rdb_last_save_time was %s, is %s", last, now)
	}
	if v, err := c.Do(t.Context(), "LASTSAVE"); err != nil || fmt.Sprint(v) != info("rdb_last_save_time") {
		t.Errorf("LASTSAVE: %v, %v", v, err)
	}
	mine := filepath.Join(dir, backupsName, "mine")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if v, err := c.Do(t.Context(), "BGSAVE", "SCHEDULE"); err != nil ||
			fmt.Sprint(v) != "Background saving started" {
			t.Fatalf("BGSAVE: %v, %v", v, err)
		}
		for end := time.Now().Add(time.Minute); info("rdb_bgsave_in_progress") == "1"; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("BGSAVE does not end")
			}
		}
	}
	// The oldest goes afterwards.
	for end := time.Now().Add(time.Minute); len(backups()) != 3 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	now := backups()
	if len(now) != 3 || slices.Contains(now, first[0]) || !slices.Contains(now, "mine") {
		t.Fatalf("backups/ has %v; want two and mine, without %v", now, first)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	restored := start(t, Config{Dir: filepath.Join(dir, backupsName, now[1]), NoSockets: true})
	if got := holds(t, restored, 20); got != 20 {
		t.Errorf("%d of 20 keys", got)
	}
	c = start(t, Config{Dir: dir, NoSockets: true}) // backups/ does not disturb
	if got := holds(t, c, 20); got != 20 {
		t.Errorf("%d of 20 keys", got)
	}
	for _, x := range []struct {
		config Config
		want   string
	}{
		{Config{InMemory: true}, "ERR the cluster is in memory; neokv ctl backup DIR copies it to another folder"},
		{Config{}, "ERR the data folder is temporary; neokv ctl backup DIR copies it to another folder"},
	} {
		x.config.Stores, x.config.Regions, x.config.NoSockets = 1, 1, true
		c := start(t, x.config)
		for _, name := range []string{"SAVE", "BGSAVE"} {
			if _, err := c.Do(t.Context(), name); err == nil || err.Error() != x.want {
				t.Errorf("%s: %v; want %s", name, err, x.want)
			}
		}
	}
}
