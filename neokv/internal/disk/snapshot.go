package disk

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"regexp"
	"strconv"

	pb "github.com/lni/dragonboat/v4/raftpb"
	lvfs "github.com/lni/vfs"
)

// dragonboat opens a received snapshot's file whenever a replica starts and when it installs the snapshot, and ends the
// process if the file's beginning is damaged. So the beginning is read and checked here first:
//
//	offset 0    length u64, little-endian, of the header that follows
//	       8    header, a protobuf message; behind it its CRC-32 u32, or 0 for none; zeros
//	       1024 blocks of 2 MiB, each with its CRC-32 u32 behind it; the last may be shorter
//	       end  16 bytes
//
// If the file is damaged further on, the reader returns an error.
const (
	snapshotHeaderRoom = 1024
	snapshotBlockBytes = 2 << 20
	snapshotTailBytes  = 16
)

// snapshotName is how a snapshot's path ends: region, replica, index.
var snapshotName = regexp.MustCompile(`snapshot-(\d+)-\d+/snapshot-([0-9A-F]{16})/snapshot-[0-9A-F]{16}\.gbsnap$`)

// openSnapshot opens a snapshot's file to be read. In place of a damaged file, or of one that is not there, it returns
// one that dragonboat can read without ending the process. If the replica has all that the snapshot holds, that file is
// one that dragonboat leaves of an installed snapshot. Else the store is fenced, and what dragonboat does with the file
// has no effect any more.
func (r *raftFS) openSnapshot(name string) (lvfs.File, error) {
	f, err := r.fs.Open(r.path(name))
	if err == nil {
		x := &raftFile{File: f}
		if x.head, err = snapshotHead(x); err == nil {
			x.off = 0
			return x, nil
		}
		err = errors.Join(fmt.Errorf("%s: damaged: %w", name, err), f.Close())
	}
	m := snapshotName.FindStringSubmatch(name)
	if m != nil && r.spare != nil {
		region, _ := strconv.ParseUint(m[1], 10, 64)
		index, _ := strconv.ParseUint(m[2], 16, 64)
		if r.spare(region, index) {
			return r.standIn(nil)
		}
	}
	r.fs.Fence(err)
	return r.standIn([]byte("damaged"))
}

// snapshotHead returns the file's beginning up to the end of its first block.
func snapshotHead(f *raftFile) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	blocks := info.Size() - snapshotHeaderRoom - snapshotTailBytes
	if blocks <= crc32.Size {
		return nil, fmt.Errorf("%d bytes", info.Size())
	}
	head := make([]byte, snapshotHeaderRoom+min(blocks, snapshotBlockBytes+crc32.Size))
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint64(head)
	if size > snapshotHeaderRoom-8-crc32.Size {
		return nil, fmt.Errorf("header of %d bytes", size)
	}
	header, sum := head[8:8+size], head[8+size:8+size+crc32.Size]
	if !bytes.Equal(sum, make([]byte, crc32.Size)) && binary.BigEndian.Uint32(sum) != crc32.ChecksumIEEE(header) {
		return nil, errors.New("header checksum")
	}
	var h pb.SnapshotHeader
	if err := h.Unmarshal(header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if h.Version != 2 || h.ChecksumType != pb.CRC32IEEE || h.CompressionType != pb.NoCompression {
		return nil, fmt.Errorf("header: version %d, checksum %v, compression %v", h.Version, h.ChecksumType,
			h.CompressionType)
	}
	block := head[snapshotHeaderRoom:]
	end := len(block) - crc32.Size
	if binary.BigEndian.Uint32(block[end:]) != crc32.ChecksumIEEE(block[:end]) {
		return nil, errors.New("checksum of the first block")
	}
	return head, nil
}

// standIn makes a snapshot's file with no sessions and some data. Without data it is the file that dragonboat leaves of
// an installed snapshot.
func (r *raftFS) standIn(data []byte) (lvfs.File, error) {
	h := pb.SnapshotHeader{Version: 2, ChecksumType: pb.CRC32IEEE}
	header, err := h.Marshal()
	if err != nil {
		return nil, err
	}
	all := make([]byte, snapshotHeaderRoom)
	binary.LittleEndian.PutUint64(all, uint64(len(header)))
	copy(all[8:], header)
	block := binary.LittleEndian.AppendUint64(nil, 1) // sessions at most, and how many there are
	block = append(binary.LittleEndian.AppendUint64(block, 0), data...)
	all = append(all, block...)
	all = binary.BigEndian.AppendUint32(all, crc32.ChecksumIEEE(block))
	all = append(all, make([]byte, snapshotTailBytes)...)
	return r.inMemory(fmt.Sprintf("stand-in-%d", len(data)), all)
}

// inMemory opens a file with this content, to be read.
func (r *raftFS) inMemory(name string, content []byte) (lvfs.File, error) {
	f, err := r.flags.Create(name)
	if err == nil {
		_, err = f.Write(content)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, err
	}
	return r.flags.Open(name)
}

// snapshotFlag is a file in the folder of a snapshot of which dragonboat may have made no record yet. It holds what is
// to be recorded. All that dragonboat reads of it, at a start, is the snapshot's index, which the folder's name has,
// too.
const snapshotFlag = "dragonboat.snapshot.message"

// flagFolder is how the path of the folder with a snapshotFlag ends.
var flagFolder = regexp.MustCompile(`snapshot-([0-9A-F]{16})$`)

// openFlag opens a snapshotFlag to be read, as dragonboat would have written it. dragonboat ends the process if the
// file is damaged, so it gets one that is made anew.
func (r *raftFS) openFlag(name string) (lvfs.File, error) {
	m := flagFolder.FindStringSubmatch(filepath.ToSlash(filepath.Dir(name)))
	if _, err := r.Stat(name); err != nil || m == nil {
		return nil, errors.Join(err, notExist("open", name))
	}
	index, _ := strconv.ParseUint(m[1], 16, 64)
	message, err := (&pb.Snapshot{Index: index, Term: 1}).Marshal()
	if err != nil {
		return nil, err
	}
	sum := md5.Sum(message)
	return r.inMemory("flag-"+m[1], append(sum[8:], message...))
}
