package disk

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
)

// took runs fn and returns how long it took.
func took(fn func()) time.Duration {
	begin := time.Now()
	fn()
	return time.Since(begin)
}

// bad returns a file system with a file on a drive with a fault.
func bad(t *testing.T, d fault.Drive) (*FS, *file) {
	fs := Mem()
	f := put(t, fs, "/f", "0123456789").(*file)
	must(t, f.Sync())
	fs.SetDrive(d, rand.New(rand.NewPCG(1, 1)))
	if fs.Drive() != d {
		t.Errorf("Drive = %+v; want %+v", fs.Drive(), d)
	}
	return fs, f
}

func TestSlowDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, f := bad(t, fault.Drive{Latency: 5 * time.Millisecond})
		for what, fn := range map[string]func(){
			"write":  func() { f.Write([]byte("x")) },
			"sync":   func() { f.Sync() },
			"read":   func() { f.ReadAt(make([]byte, 3), 0) },
			"create": func() { put(t, fs, "/g", "") },
		} {
			want := 5 * time.Millisecond
			if what == "create" {
				want *= 2 // and the write of nothing
			}
			if got := took(fn); got != want {
				t.Errorf("%s took %s; want %s", what, got, want)
			}
		}
		fs.SetDrive(fault.Drive{Latency: 5 * time.Millisecond, Jitter: 5 * time.Millisecond}, rand.New(rand.NewPCG(1, 1)))
		least, most := time.Hour, time.Duration(0)
		for range 200 {
			d := took(func() { f.Sync() })
			least, most = min(least, d), max(most, d)
		}
		if least < 5*time.Millisecond || most > 10*time.Millisecond || most-least < 4*time.Millisecond {
			t.Errorf("syncs with jitter took %s to %s; want 5 to 10 ms", least, most)
		}
		fs.SetDrive(fault.Drive{Bandwidth: 1 << 20}, rand.New(rand.NewPCG(1, 1)))
		if d := took(func() {
			for range 16 {
				f.Write(make([]byte, 64<<10))
				f.ReadAt(make([]byte, 64<<10), 0)
			}
		}); d < 1900*time.Millisecond || d > 2*time.Second {
			t.Errorf("2 MiB took %s at 1 MiB/s; want 2 s, less the burst", d)
		}
		fs.SetDrive(fault.Drive{}, rand.New(rand.NewPCG(1, 1)))
		if d := took(func() { f.Write([]byte("x")); f.Sync() }); d != 0 {
			t.Errorf("a good drive took %s", d)
		}
	})
}

// TestHungDrive hangs syncs until the fault is replaced, or the file system is crashed. Writes and reads go on.
func TestHungDrive(t *testing.T) {
	for what, end := range map[string]func(*FS){
		"good":   func(fs *FS) { fs.SetDrive(fault.Drive{}, rand.New(rand.NewPCG(1, 1))) },
		"killed": func(fs *FS) { fs.Crash(0, rand.New(rand.NewPCG(1, 1))) },
		"fenced": func(fs *FS) { fs.Fence(errors.New("planted")) },
	} {
		synctest.Test(t, func(t *testing.T) {
			fs, f := bad(t, fault.Drive{Hang: true})
			if d := took(func() { f.Write([]byte("x")); f.ReadAt(make([]byte, 1), 0) }); d != 0 {
				t.Errorf("a write and a read took %s", d)
			}
			time.AfterFunc(time.Minute, func() {
				// Another fault with Hang goes on hanging.
				fs.SetDrive(fault.Drive{Hang: true, Latency: time.Second}, rand.New(rand.NewPCG(1, 1)))
			})
			time.AfterFunc(time.Hour, func() { end(fs) })
			if d := took(func() { f.Sync() }); d != time.Hour {
				t.Errorf("%s: a sync took %s; want an hour", what, d)
			}
		})
	}
}

func TestFailingDrive(t *testing.T) {
	write := func(f *file) { f.Write([]byte("x")) }
	sync := func(f *file) { f.Sync() }
	for _, c := range []struct {
		drive fault.Drive
		do    func(*file)
		want  error
	}{
		{fault.Drive{Full: true}, write, syscall.ENOSPC},
		{fault.Drive{Full: true}, func(f *file) { f.fs.Create("/g", category) }, syscall.ENOSPC},
		{fault.Drive{Full: true}, sync, nil},
		{fault.Drive{Full: true}, func(f *file) { f.fs.Remove("/f") }, nil},
		{fault.Drive{WriteErrors: true}, write, syscall.EIO},
		{fault.Drive{WriteErrors: true}, sync, nil},
		{fault.Drive{SyncErrors: true}, write, nil},
		{fault.Drive{SyncErrors: true}, sync, syscall.EIO},
	} {
		fs, f := bad(t, c.drive)
		c.do(f)
		if err := fs.Failed(); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v; want %v", c.drive, err, c.want)
		}
	}
	fs, f := bad(t, fault.Drive{ReadErrors: true})
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, syscall.EIO) || fs.Failed() != nil {
		t.Errorf("read = %v, failed %v; want EIO alone, since who reads decides what follows", err, fs.Failed())
	}
	fs, f = bad(t, fault.Drive{FlippedBit: true})
	bits := 0
	for range 50 {
		b := make([]byte, 10)
		_, err := f.ReadAt(b, 0)
		must(t, err)
		wrong := 0
		for i, c := range []byte("0123456789") {
			for x := b[i] ^ c; x != 0; x &= x - 1 {
				wrong++
			}
		}
		if wrong != 1 {
			t.Fatalf("%q has %d bits that are wrong; want 1", b, wrong)
		}
		bits |= int(b[0] ^ '0')
	}
	if bits == 0 {
		t.Error("the first byte was never wrong")
	}
	fs.SetDrive(fault.Drive{}, rand.New(rand.NewPCG(1, 1)))
	if got := read(t, fs, "/f"); got != "0123456789" {
		t.Errorf("on a good drive the file has %q", got)
	}
	fs.SetDrive(fault.Drive{Full: true}, rand.New(rand.NewPCG(1, 1)))
	if n, _, ok := fs.Free("/"); n != 0 || !ok {
		t.Errorf("Free of a full drive = %d, %v", n, ok)
	}
	fs, f = bad(t, fault.Drive{Free: 5})
	for i, want := range []int64{3, 1, 0} {
		if f.Write([]byte("xx")); i < 2 && fs.Failed() != nil || i == 2 && !errors.Is(fs.Failed(), syscall.ENOSPC) {
			t.Errorf("after %d writes of 2 bytes to a drive with 5: %v", i+1, fs.Failed())
		}
		if n, _, ok := fs.Free("/"); n != want || !ok {
			t.Errorf("after %d writes of 2 bytes to a drive with 5, Free = %d, %v; want %d", i+1, n, ok, want)
		}
	}
}
