package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// segment is one of a journal's two files. Integers are big-endian:
//
//	segment  group* ; each begins at a multiple of 4096, with zeros before it
//	group    magic u32 | CRC-32C u32 of what follows | epoch u64 | sequence u64 | length u32 of the records | record*
//	record   kind u8 | length u8 of the name | store u16 | length u32 of the bytes | offset u64 | name | bytes
//
// A record of kind 1 has bytes that were written to a log. A record of kind 2 cancels the records before it of the
// named log or, without a name, of all the store's logs. One of kind 3, the only one of a segment's first group, has
// the boot of the cluster as its offset. A store is named by its number and a log by its name in the store's folder, so
// that folders can be moved.
type segment struct {
	file            vfs.File
	epoch, sequence uint64     // epoch and sequence of the next group
	boot            uint64     // of the cluster, when the segment was begun
	end             int64      // where it goes; everything before is synced
	size            int64      // how long the file is; more than end, so that a sync need not sync the length, too
	logs            []*walFile // logs with bytes in the segment
	free            bool       // it is empty and waits for its turn
	noSync          bool       // see Mistakes
}

const (
	pageBytes    = 4096
	groupMagic   = 0x4e4b4a31
	groupHeader  = 28
	recordHeader = 16
	recordBytes  = 1
	recordForget = 2
	recordBoot   = 3
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	zeros      [pageBytes]byte
)

// pages is the length of a group in the segment.
func pages(length int) int64 { return int64(length+pageBytes-1) / pageBytes * pageBytes }

// seal fills in the header of a group, and zeros up to the end of its last page.
func (s *segment) seal(group []byte) []byte {
	binary.BigEndian.PutUint32(group, groupMagic)
	binary.BigEndian.PutUint64(group[8:], s.epoch)
	binary.BigEndian.PutUint64(group[16:], s.sequence)
	binary.BigEndian.PutUint32(group[24:], uint32(len(group)-groupHeader))
	binary.BigEndian.PutUint32(group[4:], crc32.Checksum(group[8:], castagnoli))
	return append(group, zeros[:pages(len(group))-int64(len(group))]...)
}

// write writes a sealed group and syncs it. After a small group it also writes zeros, where the next groups will go: a
// sync of bytes that overwrite others takes a third less time than one of bytes in space that is only allocated.
func (s *segment) write(group []byte) error {
	if end := s.end + int64(len(group)); end > s.size {
		var made bool
		if s.size, made = extend(s.file, s.size, end); made && len(group) < extendBytes/16 {
			group = append(group[:len(group):len(group)], make([]byte, s.size-end)...)
		}
	}
	if _, err := s.file.WriteAt(group, s.end); err != nil || s.noSync {
		return err
	}
	return s.file.SyncData()
}

// shrink gives back the space of an emptied segment, if its file can be truncated.
func (s *segment) shrink() {
	s.size = pageBytes
	if f, ok := s.file.(interface{ Truncate(int64) error }); ok {
		_ = f.Truncate(s.size) // a later write or shrink deals with it
	}
}

// read reads the group at an offset. It returns the group's sequence and records, and where the next group begins. ok
// is false if there is no group of the segment's epoch. The records are in buf, which may be nil, or in new memory.
func (s *segment) read(at int64, buf []byte) (sequence uint64, records []byte, next int64, ok bool, err error) {
	if at+pageBytes > s.size {
		return 0, buf, 0, false, nil
	}
	head := make([]byte, groupHeader)
	if _, err := s.file.ReadAt(head, at); err != nil {
		return 0, buf, 0, false, err
	}
	sequence = binary.BigEndian.Uint64(head[16:])
	length := int64(binary.BigEndian.Uint32(head[24:]))
	next = at + pages(groupHeader+int(length))
	if binary.BigEndian.Uint32(head) != groupMagic || binary.BigEndian.Uint64(head[8:]) != s.epoch || next > s.size {
		return 0, buf, 0, false, nil
	}
	if int64(cap(buf)) < length {
		buf = make([]byte, length)
	}
	buf = buf[:length]
	if _, err := s.file.ReadAt(buf, at+groupHeader); err != nil {
		return 0, buf, 0, false, err
	}
	sum := crc32.Update(crc32.Checksum(head[8:], castagnoli), castagnoli, buf)
	return sequence, buf, next, sum == binary.BigEndian.Uint32(head[4:]), nil
}

// measure finds the segment's epoch and where its groups end. A new segment has the epoch 0.
//
// After the end there may be a part of one group that was never acknowledged, but no other group of this epoch. If
// there is one, a group before it, which was acknowledged, is damaged, and measure returns an error.
func (s *segment) measure() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	s.size = info.Size()
	head := make([]byte, groupHeader)
	if s.size >= pageBytes {
		if _, err := s.file.ReadAt(head, 0); err != nil {
			return err
		}
	}
	if [groupHeader]byte(head) == [groupHeader]byte{} {
		return nil
	}
	s.epoch = binary.BigEndian.Uint64(head[8:])
	var buf []byte
	for at := int64(0); at < s.size; {
		sequence, records, next, ok, err := s.read(at, buf)
		buf = records
		switch {
		case err != nil:
			return err
		case ok && at == s.end && sequence == s.sequence:
			if r, _, ok := parseRecord(records); ok && at == 0 && r.kind == recordBoot {
				s.boot = uint64(r.off)
			}
			s.end, s.sequence, at = next, s.sequence+1, next
		case ok && sequence > s.sequence:
			return fmt.Errorf("damaged at %d: group %d is missing, and %d of the same epoch %d stands at %d", s.end,
				s.sequence, sequence, s.epoch, at)
		case s.end == 0:
			return errors.New("damaged at its beginning")
		default:
			at += pageBytes
		}
	}
	return nil
}

// journalRecord is a record of a group that was read back.
type journalRecord struct {
	kind  byte
	store uint16
	off   int64
	name  string
	data  []byte // valid until the next record
}

// appendRecord appends a record to a group.
func appendRecord(b []byte, kind byte, store uint16, name string, off int64, data []byte) []byte {
	b = append(b, kind, byte(len(name)))
	b = binary.BigEndian.AppendUint16(b, store)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	b = binary.BigEndian.AppendUint64(b, uint64(off))
	b = append(b, name...)
	return append(b, data...)
}

// parseRecord returns the first record in b and the rest.
func parseRecord(b []byte) (r journalRecord, rest []byte, ok bool) {
	if len(b) < recordHeader {
		return r, nil, false
	}
	r = journalRecord{kind: b[0], store: binary.BigEndian.Uint16(b[2:]), off: int64(binary.BigEndian.Uint64(b[8:]))}
	name, size := int(b[1]), int(binary.BigEndian.Uint32(b[4:]))
	if b = b[recordHeader:]; name+size > len(b) {
		return r, nil, false
	}
	r.name, r.data = string(b[:name]), b[name:name+size]
	return r, b[name+size:], true
}

// each calls fn with every record before the segment's end.
func (s *segment) each(fn func(journalRecord) error) error {
	var buf []byte
	for at, sequence := int64(0), uint64(0); at < s.end; sequence++ {
		found, records, next, ok, err := s.read(at, buf)
		if err != nil {
			return err
		}
		if !ok || found != sequence {
			return fmt.Errorf("damaged at %d", at)
		}
		for rest := records; len(rest) > 0; {
			var r journalRecord
			if r, rest, ok = parseRecord(rest); !ok {
				return fmt.Errorf("damaged at %d: a record of group %d is cut short", at, sequence)
			}
			if err := fn(r); err != nil {
				return err
			}
		}
		at, buf = next, records
	}
	return nil
}

// replay writes records to the logs that exist, and syncs these logs. It calls each twice, which must call its function
// with the same records both times.
func replay(each func(func(journalRecord) error) error, o *JournalOptions) error {
	type log struct {
		store uint16
		name  string
	}
	forgotten := map[log]int{} // the number of the last cancelled record
	n := 0
	err := each(func(r journalRecord) error {
		if n++; r.kind == recordForget {
			forgotten[log{r.store, r.name}] = n
		}
		return nil
	})
	if err != nil {
		return err
	}
	files := map[log]vfs.File{} // nil for those that do not exist
	open := func(l log) (vfs.File, error) {
		dir, ok := o.Logs[l.store]
		if !ok && o.Lost != nil {
			o.Lost(l.store)
			return nil, nil
		}
		if !ok {
			return nil, fmt.Errorf("it has logs of store %d, which is not of this cluster", l.store)
		}
		fs := o.FS
		if apart := o.Disks[l.store]; apart != nil {
			fs = apart
		}
		path := fs.PathJoin(dir, l.name)
		if _, err := fs.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return fs.OpenReadWrite(path, "journal")
	}
	n = 0
	err = each(func(r journalRecord) (err error) {
		l := log{r.store, r.name}
		if n++; r.kind != recordBytes || n < max(forgotten[l], forgotten[log{store: r.store}]) {
			return nil
		}
		file, ok := files[l]
		if !ok {
			if file, err = open(l); err != nil {
				return err
			}
			files[l] = file
		}
		if file != nil {
			_, err = file.WriteAt(r.data, r.off)
		}
		return err
	})
	for _, file := range files {
		if file != nil {
			err = errors.Join(err, file.Sync(), file.Close())
		}
	}
	for _, fs := range o.Disks { // a store's disk that has failed takes what is written to it, and loses it
		if fs, ok := fs.(*FS); ok {
			err = errors.Join(err, fs.Failed())
		}
	}
	return err
}
