package disk

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FuzzSegment opens any bytes as a segment, and any records in a group that is whole: a segment says that it is
// damaged, or returns what was appended to it.
func FuzzSegment(f *testing.F) {
	j := &Journal{}
	j.append(recordBytes, 1, "000002.log", 4096, []byte("written"))
	j.append(recordForget, 2, "", 0, nil)
	records := bytes.Clone(j.pending)
	whole := (&segment{epoch: 3}).seal(append(make([]byte, groupHeader), records...))
	f.Add(records, whole)
	f.Add(records[:recordHeader+3], whole[:pageBytes/2])
	f.Add([]byte{recordBytes, 255, 0, 1, 0xff, 0xff, 0xff, 0xff}, append(whole, whole...))
	f.Fuzz(func(t *testing.T, records, raw []byte) {
		open := func(content []byte) *segment {
			fs := vfs.NewMem()
			file, err := fs.Create("segment", vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteAt(content, 0); err != nil {
				t.Fatal(err)
			}
			return &segment{file: file}
		}
		read := func(s *segment) (again []byte, err error) {
			if err := s.measure(); err != nil {
				return nil, err
			}
			j := &Journal{}
			err = s.each(func(r journalRecord) error {
				j.append(r.kind, r.store, r.name, r.off, r.data)
				return nil
			})
			return j.pending, err
		}
		_, _ = read(open(raw))
		group := (&segment{epoch: 1}).seal(append(make([]byte, groupHeader), records...))
		again, err := read(open(append(group, raw...)))
		if n := min(len(again), len(records)); err == nil && len(raw) == 0 && !bytes.Equal(again, records) ||
			!bytes.Equal(again[:n], records[:n]) {
			t.Errorf("records %x come back as %x, %v", records, again, err)
		}
		if len(records) >= recordHeader && err == nil && len(raw) == 0 &&
			binary.BigEndian.Uint32(records[4:]) > uint32(len(records)) {
			t.Error("a record that is longer than its group is taken")
		}
	})
}
