package disk

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

func TestPebbleSmoke(t *testing.T) {
	for _, fs := range []*FS{OS(), Mem()} {
		dir := t.TempDir()
		db, err := pebble.Open(dir, &pebble.Options{FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Set([]byte("a"), []byte("b"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if fs.mem != nil {
			fs2 := fs.Crash(0, nil)
			db.Close()
			fs = fs2
		} else {
			db.Close()
		}
		db, err = pebble.Open(dir, &pebble.Options{FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		v, c, err := db.Get([]byte("a"))
		if err != nil || string(v) != "b" {
			t.Fatal(err)
		}
		c.Close()
		db.Close()
		t.Logf("%+v", fs.Stats())
	}
}
