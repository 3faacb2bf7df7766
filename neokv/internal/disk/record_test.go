package disk

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// While a store is told that its disk has failed, nothing may remove a log that its record lists: the record cannot be
// written any more, and a start would miss the log.
func TestNothingListedIsRemovedWhileFencing(t *testing.T) {
	at := Places{Store: "/s", Engine: "/s/engine", Logs: "/s/engine"}
	fs := Mem()
	must(t, fs.MkdirAll("/s/engine", 0o755))
	fs.Keep(at, StoreRecord{Store: 1})
	log, err := fs.Create("/s/engine/000001.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	must(t, log.Close())
	syncDir(t, fs, "/s/engine")
	must(t, fs.Enter(1, nil))
	removed := make(chan struct{})
	fs.OnFence(func(error) {
		go func() {
			defer close(removed)
			_ = fs.Remove("/s/engine/000001.log")
		}()
		select {
		case <-removed:
		case <-time.After(50 * time.Millisecond): // it waits for the fence, as it should
		}
	})
	left := fs.Crash(100, nil)
	<-removed
	r, err := ReadStoreRecord(left, "/s")
	if err != nil || len(r.Files) != 1 {
		t.Fatalf("the record lists %v, %v; want one log", r.Files, err)
	}
	if err := r.Missing(left, at); err != nil {
		t.Errorf("a start would say: %v", err)
	}
}
