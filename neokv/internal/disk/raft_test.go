package disk

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"
	pb "github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"
	lvfs "github.com/lni/vfs"

	"neokv.dev/neokv/fault"
)

// register is a state machine that holds the last proposal.
type register struct{ value []byte }

func (r *register) Update(e sm.Entry) (sm.Result, error) {
	r.value = slices.Clone(e.Cmd)
	return sm.Result{Value: 1}, nil
}

func (r *register) Lookup(any) (any, error) { return string(r.value), nil }

func (r *register) SaveSnapshot(w io.Writer, _ sm.ISnapshotFileCollection, _ <-chan struct{}) error {
	_, err := w.Write(r.value)
	return err
}

func (r *register) RecoverFromSnapshot(from io.Reader, _ []sm.SnapshotFile, _ <-chan struct{}) (err error) {
	r.value, err = io.ReadAll(from)
	return err
}

func (r *register) Close() error { return nil }

// openNodeHost opens a NodeHost of one replica that leads its shard, all of whose files are in fs.
func openNodeHost(t *testing.T, fs lvfs.FS, dir, address string) *dragonboat.NodeHost {
	t.Helper()
	for _, pkg := range []string{"dragonboat", "raft", "rsm", "logdb", "transport", "server", "settings", "config",
		"raftpb", "tan"} {
		logger.GetLogger(pkg).SetLevel(logger.CRITICAL)
	}
	nh := config.NodeHostConfig{NodeHostDir: dir, RTTMillisecond: 5, RaftAddress: address}
	nh.Expert.FS = fs
	nh.Expert.Engine = config.EngineConfig{ExecShards: 1, CommitShards: 1, ApplyShards: 1, SnapshotShards: 1,
		CloseShards: 1}
	nh.Expert.LogDB = config.GetTinyMemLogDBConfig()
	nh.Expert.LogDB.Shards = 1
	nh.Expert.LogDBFactory = tan.Factory // the default one refuses file systems that it does not know
	host, err := dragonboat.NewNodeHost(nh)
	must(t, err)
	must(t, host.StartReplica(map[uint64]string{1: address}, false,
		func(uint64, uint64) sm.IStateMachine { return &register{} },
		config.Config{ShardID: 1, ReplicaID: 1, ElectionRTT: 10, HeartbeatRTT: 1, CheckQuorum: true}))
	return host
}

// retry repeats do until it succeeds, as long as the test's bound lasts.
func retry(t *testing.T, do func(context.Context) error) {
	t.Helper()
	bound, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		ctx, cancel := context.WithTimeout(bound, time.Second)
		err := do(ctx)
		<-time.After(time.Millisecond)
		cancel()
		if err == nil {
			return
		}
		if bound.Err() != nil {
			t.Fatal(err)
		}
	}
}

func propose(t *testing.T, host *dragonboat.NodeHost, value string) {
	t.Helper()
	retry(t, func(ctx context.Context) error {
		_, err := host.SyncPropose(ctx, host.GetNoOPSession(1), []byte(value))
		return err
	})
}

func expect(t *testing.T, host *dragonboat.NodeHost, want string) {
	t.Helper()
	retry(t, func(ctx context.Context) error {
		got, err := host.SyncRead(ctx, 1, nil)
		if err == nil && got != want {
			t.Fatalf("read %v; want %s", got, want)
		}
		return err
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestNodeHostReopens(t *testing.T) {
	address := freeAddress(t)
	host, err := os.Hostname()
	must(t, err)
	for _, where := range []string{"disk", "memory"} {
		t.Run(where, func(t *testing.T) {
			fs, dir := OS(), t.TempDir()+"/raft"
			if where == "memory" {
				fs = Mem()
			}
			for life := range 3 {
				nh := openNodeHost(t, fs.Raft(nil), dir, address)
				if life > 0 {
					expect(t, nh, fmt.Sprint("life ", life-1))
				}
				propose(t, nh, fmt.Sprint("life ", life))
				if life == 1 {
					retry(t, func(ctx context.Context) error {
						_, err := nh.SyncRequestSnapshot(ctx, 1, dragonboat.DefaultSnapshotOption)
						return err
					})
				}
				nh.Close()
				must(t, fs.Failed())
				names, err := fs.List(dir)
				must(t, err)
				if !slices.Equal(names, []string{raftHost}) {
					t.Fatalf("%s holds %v; want %s alone", dir, names, raftHost)
				}
				if where == "memory" {
					fs = fs.Crash(0, nil)
				} else {
					fs = OS()
				}
			}

			// On a machine of another name the same files are found under that name.
			ours, theirs := fs.raft(host), fs.raft("elsewhere")
			deployment := "00000000000000000001"
			a, err := ours.List(filepath.Join(dir, host, deployment))
			must(t, err)
			b, err := theirs.List(filepath.Join(dir, "elsewhere", deployment))
			must(t, err)
			slices.Sort(a)
			slices.Sort(b)
			if len(a) == 0 || !slices.Equal(a, b) {
				t.Errorf("elsewhere %v; want %v", b, a)
			}
		})
	}
}

// A NodeHost whose disk fails neither panics nor hangs, and what it acknowledged before is there.
func TestNodeHostNeverSeesAFailure(t *testing.T) {
	for _, fault := range []failingOp{
		{Op: OpSync, Skip: 20, Err: syscall.EIO},
		{Op: OpWrite, Path: "*.log", Skip: 20, Err: syscall.ENOSPC},
		{Op: OpMkdir, Path: "snapshot-*", Err: syscall.EROFS},
		{Op: OpRename, Path: "snapshot-*", Err: syscall.EIO},
	} {
		t.Run(string(fault.Op), func(t *testing.T) {
			address, dir := freeAddress(t), t.TempDir()
			fs, base := canFail(OS())
			var fences atomic.Int64
			fs.OnFence(func(error) { fences.Add(1) })
			nh := openNodeHost(t, fs.Raft(nil), dir, address)
			propose(t, nh, "first")
			base.begin(fault)
			acked := "first"
			for i := range 60 {
				propose(t, nh, fmt.Sprint(i))
				if fs.Failed() == nil {
					acked = fmt.Sprint(i)
				}
				if i%25 == 24 {
					retry(t, func(ctx context.Context) error {
						_, err := nh.SyncRequestSnapshot(ctx, 1, dragonboat.DefaultSnapshotOption)
						return err
					})
				}
			}
			expect(t, nh, "59")
			nh.Close()
			if fences.Load() != 1 || !errors.Is(fs.Failed(), fault.Err) {
				t.Errorf("fenced %d times, because of %v; want once, because of %v", fences.Load(), fs.Failed(),
					fault.Err)
			}
			fs = OS()
			nh = openNodeHost(t, fs.Raft(nil), dir, address)
			got := ""
			retry(t, func(ctx context.Context) error {
				value, err := nh.SyncRead(ctx, 1, nil)
				if err == nil {
					got = value.(string)
				}
				return err
			})
			// The write that met the fault may have reached the disk: its fate is unknown.
			if got != acked && got != next(acked) {
				t.Errorf("read %q; want %q or %q", got, acked, next(acked))
			}
			nh.Close()
			must(t, fs.Failed())
		})
	}
}

// next is the proposal after a given one.
func next(value string) string {
	var n int
	if _, err := fmt.Sscan(value, &n); err != nil {
		return "0"
	}
	return fmt.Sprint(n + 1)
}

func TestHostInPaths(t *testing.T) {
	fs := Mem()
	must(t, fs.MkdirAll("/data/vm/store", 0o755))
	r := fs.raft("vm")
	const id = "00000000000000000001"
	for _, c := range []struct{ name, want string }{
		{"/data/vm/store/vm/" + id + "/snapshot-part-0", "/data/vm/store/host/" + id + "/snapshot-part-0"},
		{"/data/vm/store/vm", "/data/vm/store/host"},
		{"/data/vm/store", "/data/vm/store"},
		{"/data/vm", "/data/vm"},
		{"/data/other/" + id, "/data/other/" + id},
	} {
		if got := r.path(c.name); got != c.want {
			t.Errorf("path(%s) = %s; want %s", c.name, got, c.want)
		}
	}
}

// A replica's folder is on disk, durably, from the first file in it on, and to dragonboat it is there all the time.
func TestEmptySnapshotFolders(t *testing.T) {
	fs := Mem()
	must(t, MakeDir(fs, "/raft"))
	r := fs.Raft(nil)
	names := func() []string {
		t.Helper()
		list, err := fs.List("/raft")
		must(t, err)
		return list
	}
	is := func(want bool, dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			info, err := r.Stat(dir)
			if found := err == nil && info.IsDir() && info.Name() == filepath.Base(dir); found != want {
				t.Errorf("%s: found is %v; want %v: %v", dir, found, want, err)
			}
			if f, err := r.OpenDir(dir); want {
				must(t, err)
				info, err := f.Stat()
				must(t, err)
				if !info.IsDir() {
					t.Errorf("%s is no folder", dir)
				}
				must(t, f.Sync())
				must(t, f.Close())
			} else if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("open %s: %v", dir, err)
			}
		}
	}
	const part, one, two = "/raft/snapshot-part-3", "/raft/snapshot-part-3/snapshot-3-1", "/raft/snapshot-part-3/snapshot-515-2"
	is(false, part, one, two)
	for _, dir := range []string{part, one, two} {
		must(t, r.MkdirAll(dir, 0o755))
	}
	is(true, part, one, two)
	if list, err := r.List(one); err != nil || len(list) > 0 || len(names()) > 0 {
		t.Errorf("%s holds %v, %v; on disk are %v", one, list, err, names())
	}
	must(t, r.MkdirAll(one+"/snapshot-0000000000000010-1.generating", 0o755))
	fs = fs.Crash(0, nil)
	if len(names()) != 1 {
		t.Errorf("on disk are %v", names())
	}
	r = fs.Raft(nil)
	is(true, part, one)
	is(false, two)
	must(t, r.MkdirAll(two, 0o755))
	must(t, r.MkdirAll(one, 0o755))
	for _, f := range []string{one + "/f", two + "/f"} {
		file, err := r.Create(f)
		must(t, err)
		must(t, file.Close())
		if list, err := r.List(filepath.Dir(f)); err != nil || !slices.Equal(list, []string{"f"}) {
			t.Errorf("%s holds %v, %v", filepath.Dir(f), list, err)
		}
	}
}

func TestRaftFiles(t *testing.T) {
	for _, c := range []struct {
		fs  *FS
		dir string
	}{{OS(), t.TempDir()}, {Mem(), "/dir"}} {
		r := c.fs.Raft(nil)
		must(t, r.MkdirAll(c.dir, 0o755))
		name := r.PathJoin(c.dir, "file")
		if _, err := r.OpenForAppend(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("append to nothing: %v", err)
		}
		f, err := r.Create(name)
		must(t, err)
		_, err = f.Write([]byte("hello"))
		must(t, err)
		must(t, f.Close())
		f, err = r.OpenForAppend(name)
		must(t, err)
		_, err = f.Write([]byte(" world"))
		must(t, err)
		_, err = f.Seek(-5, io.SeekEnd)
		must(t, err)
		_, err = f.Write([]byte("W"))
		must(t, err)
		_, err = f.Seek(0, io.SeekStart)
		must(t, err)
		var text strings.Builder
		_, err = io.Copy(&text, f)
		must(t, err)
		must(t, f.Close())
		if text.String() != "hello World" {
			t.Errorf("read %q", text.String())
		}
	}
}

// TestRaftUnreadable: an error of the disk fences the file system, and dragonboat is told nothing that ends the
// process.
func TestRaftUnreadable(t *testing.T) {
	const folder = "/d/h/00000000000000000001/snapshot-part-1/snapshot-1-1"
	const dir = folder + "/snapshot-000000000000000A"
	const file = dir + "/snapshot-000000000000000A.gbsnap"
	for name, look := range map[string]func(*raftFS) error{
		"open":     func(r *raftFS) error { _, err := r.Open(dir + "/snapshot.metadata"); return err },
		"snapshot": func(r *raftFS) error { _, err := r.Open(file); return err },
		"flag":     func(r *raftFS) error { _, err := r.Open(dir + "/" + snapshotFlag); return err },
		"append":   func(r *raftFS) error { _, err := r.OpenForAppend(file); return err },
		"folder":   func(r *raftFS) error { _, err := r.OpenDir(dir); return err },
		"list":     func(r *raftFS) error { _, err := r.List(folder); return err },
		"stat":     func(r *raftFS) error { _, err := r.Stat(dir); return err },
		"make":     func(r *raftFS) error { return r.MkdirAll(folder, 0o755) },
	} {
		fs := Mem()
		r := fs.raft("h")
		must(t, errors.Join(fs.MkdirAll(r.path(dir), 0o755), WriteFile(fs, r.path(dir), "snapshot.metadata", nil)))
		fs.SetDrive(fault.Drive{ReadErrors: true}, rand.New(rand.NewPCG(1, 1)))
		if err := look(r); err != nil && !errors.Is(err, os.ErrNotExist) || !errors.Is(fs.Failed(), syscall.EIO) {
			t.Errorf("%s: %v, and the file system has failed: %v; want not found or nothing, and %v",
				name, err, fs.Failed(), syscall.EIO)
		}
	}
}

// TestRaftRemoved: a snapshot's file that is gone is made up for, if the replica has all that it holds, and fences the
// file system else. What is written in a folder that is gone makes it again. A damaged flag is made anew.
func TestRaftRemoved(t *testing.T) {
	const part = "/d/host/00000000000000000001/snapshot-part-1/snapshot-7-1"
	const dir = part + "/snapshot-000000000000000A"
	for _, spare := range []bool{true, false} {
		fs := Mem()
		r := fs.Raft(func(region, index uint64) bool { return spare && region == 7 && index == 10 }).(*raftFS)
		must(t, fs.MkdirAll(part, 0o755))
		f, err := r.Open(dir + "/snapshot-000000000000000A.gbsnap")
		must(t, err)
		info, err := f.Stat()
		must(t, err)
		empty := int64(snapshotHeaderRoom + 16 + crc32.Size + snapshotTailBytes)
		if (info.Size() == empty) != spare || (fs.Failed() == nil) != spare {
			t.Errorf("spare %v: a file of %d bytes, the file system has failed: %v", spare, info.Size(), fs.Failed())
		}
	}
	fs := Mem()
	r := fs.raft("h")
	must(t, fs.MkdirAll(part, 0o755))
	f, err := r.Create(dir + "/" + snapshotFlag)
	must(t, err)
	_, err = f.Write([]byte("damaged"))
	must(t, errors.Join(err, f.Close()))
	if err := fs.Failed(); err != nil {
		t.Fatal(err)
	}
	if f, err = r.Open(dir + "/" + snapshotFlag); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(f)
	must(t, err)
	var s pb.Snapshot
	if sum := md5.Sum(content[8:]); !bytes.Equal(sum[8:], content[:8]) || s.Unmarshal(content[8:]) != nil || s.Index != 10 {
		t.Errorf("flag %x holds a snapshot at %d; want 10 with its sum", content, s.Index)
	}
}
