package neokv

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"neokv.dev/neokv/settings"
)

// smallDisk mounts a file system of this many bytes and inodes, in memory, on a folder. 0 inodes are many. It skips the
// test without the right to.
func smallDisk(t *testing.T, dir string, bytes, inodes int) {
	t.Helper()
	options := fmt.Sprintf("size=%d", bytes)
	if inodes > 0 {
		options += fmt.Sprintf(",nr_inodes=%d", inodes)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	if err == unix.EPERM || err == unix.EACCES {
		t.Skipf("only root may mount a small file system: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// fillDisk writes a file until so many bytes are left on its disk, and returns its path.
func fillDisk(t *testing.T, dir string, left int64) string {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, max(1, int64(st.Bavail)*st.Bsize-left)); err != nil {
		t.Fatal(err)
	}
	return path
}

func without(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// onSmallDisk starts a cluster of which one store, or all of them, have a disk of 64 MiB, and returns its folder.
func onSmallDisk(t *testing.T, s *settings.Settings, all bool) (c *Cluster, dir string) {
	t.Helper()
	root := t.TempDir()
	if all {
		dir = root
		smallDisk(t, root, 64<<20, 0)
		return start(t, Config{Dir: filepath.Join(root, "data"), Settings: s}), dir
	}
	c = start(t, Config{Dir: root, Settings: s})
	own := c.in.Places()[1].Dir()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	aside := t.TempDir()
	copied := func(from, to string) {
		t.Helper()
		if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	copied(own, aside)
	smallDisk(t, own, 64<<20, 0)
	copied(aside, own)
	return start(t, Config{Dir: root, Settings: s}), own
}

// TestSmallDisk fills the disk of one store up to a part of its reserve, which is a third of 64 MiB.
func TestSmallDisk(t *testing.T) {
	c, dir := onSmallDisk(t, small(), false)
	writeAndRead(t, c, 1)
	filler := fillDisk(t, dir, 4<<20)
	await(t, "hand-over by the full store", func() bool {
		s := c.Status()
		return s.Stores[1].State == StateFull && s.Stores[1].Leads == 0 && served(c)
	})
	if why := c.Status().Stores[1].Reason; !strings.Contains(why, "engine.disk_reserve keeps 21MiB") {
		t.Errorf("reason %q", why)
	}
	for i := range 20 {
		writeAndRead(t, c, 10+i)
	}
	await(t, "lag of the full store", func() bool { return c.Status().Stores[1].Lag > 0 })
	without(t, filler)
	await(t, "recovery", func() bool { s := c.Status().Stores[1]; return s.State == StateOK && s.Lag == 0 })
	writeAndRead(t, c, 100)
}

// refusesUntilFreed fills the disk of all stores with files: writes are refused, reads go on. Once the files are gone,
// the stores take writes again. whileFull looks at them before.
func refusesUntilFreed(t *testing.T, c *Cluster, fill func() (files []string), whileFull func()) {
	t.Helper()
	writeAndRead(t, c, 1)
	client := goRedis(t, c)
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	files := fill()
	await(t, "refusal", func() bool {
		err := client.Set(t.Context(), "k", "w", 0).Err()
		return err != nil && strings.HasPrefix(err.Error(), "MISCONF Errors writing to the AOF file: No space left")
	})
	whileFull()
	if got, err := client.Get(t.Context(), "k").Result(); err != nil || got != "v" && got != "w" {
		t.Errorf("GET = %q, %v", got, err)
	}
	for _, path := range files {
		without(t, path)
	}
	await(t, "writes to all regions", func() bool {
		for i := range 20 {
			if client.Set(t.Context(), fmt.Sprint("k", i), 0, 0).Err() != nil {
				return false
			}
		}
		return true
	})
	await(t, "recovery", func() bool {
		return !slices.ContainsFunc(c.Status().Stores, func(s StoreStatus) bool { return s.State != StateOK })
	})
	writeAndRead(t, c, 2)
}

// TestSmallDiskOfAll fills the disk of all stores.
func TestSmallDiskOfAll(t *testing.T) {
	c, dir := onSmallDisk(t, small(), true)
	refusesUntilFreed(t, c, func() []string { return []string{fillDisk(t, dir, 4<<20)} }, func() {})
}

// TestFewInodes uses up the inodes of the disk of all stores but for a part of an eighth.
func TestFewInodes(t *testing.T) {
	dir := t.TempDir()
	smallDisk(t, dir, 256<<20, 1000)
	c := start(t, Config{Dir: filepath.Join(dir, "data"), Settings: small()})
	free := func() int {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		return int(st.Ffree)
	}
	fill := func() (files []string) {
		for free() > 100 {
			files = append(files, filepath.Join(dir, fmt.Sprint("filler", len(files))))
			if err := os.WriteFile(files[len(files)-1], nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return files
	}
	refusesUntilFreed(t, c, fill, func() {
		// Two full stores are enough for a refusal.
		await(t, "full store", func() bool { return c.Status().Stores[1].State == StateFull })
		if why := c.Status().Stores[1].Reason; !strings.Contains(why, "more files, and engine.disk_reserve keeps 125") {
			t.Errorf("reason %q", why)
		}
	})
}

// TestDiskOf96MiB writes to stores at their default settings, as fast as it can, until a disk that is smaller than
// their memtables and their journal has no more space: writes are refused, and no store fails.
func TestDiskOf96MiB(t *testing.T) {
	for _, size := range []int{1 << 10, 16 << 10, 200 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := t.TempDir()
			smallDisk(t, dir, 96<<20, 0)
			c := start(t, Config{Dir: filepath.Join(dir, "data")})
			client := goRedis(t, c)
			random := rand.New(rand.NewPCG(1, 1))
			value := make([]byte, size)
			for i := range value {
				value[i] = byte(random.Uint32())
			}
			refused := 0
			for i := 0; refused < 3 && i < 400<<20/size; i += 16 {
				_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
					for k := range 16 {
						p.Set(t.Context(), fmt.Sprint("key", i+k), value, 0)
					}
					return nil
				})
				if err != nil && strings.HasPrefix(err.Error(), "MISCONF ") {
					refused++
					time.Sleep(time.Second) // idle stores flush their memtables
				}
				for _, s := range c.Status().Stores {
					if s.State == StateFailed {
						t.Fatalf("after %d writes store %d has failed: %s", i, s.Store, s.Reason)
					}
				}
			}
			if refused < 3 {
				t.Error("writes were never refused")
			}
		})
	}
}

// TestNoReserve fills the disk of one store that keeps no reserve: that store fails, and starts again when there is
// space.
func TestNoReserve(t *testing.T) {
	s := small()
	s.Engine.DiskReserve = 0
	c, dir := onSmallDisk(t, s, false)
	writeAndRead(t, c, 1)
	filler := fillDisk(t, dir, 0)
	for i := 0; c.Status().Stores[1].State != StateFailed; i++ {
		if i == 1000 {
			t.Fatal("the store has not failed")
		}
		writeSome(t, c)
	}
	if why := c.Status().Stores[1].Reason; !strings.Contains(why, "no space left on device") {
		t.Errorf("reason %q", why)
	}
	await(t, "leaders elsewhere", func() bool { return served(c) })
	writeAndRead(t, c, 2)
	without(t, filler)
	do(t, c, "restart 2")
	await(t, "the store's replicas", func() bool { s := c.Status().Stores[1]; return s.State == StateOK && s.Lag == 0 })
	writeAndRead(t, c, 3)
}

// writeSome writes a megabyte. Writes may fail while a leader moves.
func writeSome(t *testing.T, c *Cluster) {
	client := goRedis(t, c)
	defer client.Close()
	for i := range 16 {
		client.Set(t.Context(), fmt.Sprint("filling", i), strings.Repeat("x", 64<<10), 0)
	}
}

// TestBackupToAFullDisk backs a cluster up to disks that have no room for it, or not beside the reserve. Nothing is
// left there, and the cluster goes on.
func TestBackupToAFullDisk(t *testing.T) {
	base := t.TempDir()
	other := filepath.Join(base, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	smallDisk(t, other, 48<<20, 0)
	for _, reserve := range []settings.Bytes{0, 16 << 20} {
		s := small()
		s.Engine.DiskReserve = reserve
		c := start(t, Config{Stores: 3, Regions: 3, Dir: filepath.Join(base, fmt.Sprint("data", reserve)), NoSockets: true,
			Settings: s})
		for i := range 20 {
			if _, err := c.Do(t.Context(), "SET", fmt.Sprint("k", i), randomText(64<<10)); err != nil {
				t.Fatal(err)
			}
		}
		// Beside the second reserve there is no room, though there is for the backup.
		filler := fillDisk(t, other, 1<<20+int64(reserve))
		want := "its disk has"
		if _, err := c.Backup(t.Context(), filepath.Join(other, "copy")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reserve %v: a backup to a full disk: %v; want %q", reserve, err, want)
		}
		if entries, err := os.ReadDir(other); err != nil || len(entries) != 1 {
			t.Errorf("reserve %v: %v is left, %v", reserve, entries, err)
		}
		without(t, filler)
		b, err := c.Backup(t.Context(), filepath.Join(other, "copy"))
		if err != nil || b.Copied != b.Bytes {
			t.Errorf("reserve %v: with room: %+v, %v", reserve, b, err)
		}
		if x, err := Inspect(t.Context(), b.Dir, 0); err != nil || len(x.Wrong) > 0 {
			t.Errorf("reserve %v: %v, %v", reserve, x.Wrong, err)
		}
		if err := os.RemoveAll(b.Dir); err != nil {
			t.Fatal(err)
		}
	}
}

// randomText returns bytes that no compression makes less.
func randomText(n int) string {
	text := make([]byte, n)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	return string(text)
}
