package disk

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// prefixes has a checksum of the synced bytes of each write-ahead log and each manifest. When Pebble opens such a file
// to read it, these bytes must be what they were when they were synced. Pebble itself cannot always tell: it takes
// damage near the end of these files for what a power cut has torn, drops what follows, and goes on. So a store would
// forget what it has promised to other replicas.
//
// The checksums are in memory. Crash passes them on to the file system that it returns. The next process has those that
// the store's record had when it was written last; after a clean stop that is all.
type prefixes struct {
	mu    sync.Mutex
	files map[string]*prefix // by path
}

// prefix is how a file begins that is only appended to.
type prefix struct{ written, synced summed }

// summed is a number of bytes and their checksum.
type summed struct {
	length int64
	sum    uint32
}

// add adds the next bytes.
func (s *summed) add(p []byte) {
	s.length += int64(len(p))
	s.sum = Sum(s.sum, p)
}

// created notes a new, empty file. It returns its prefix, or nil if Pebble itself finds all damage in such a file.
func (p *prefixes) created(path, base string) *prefix {
	if !strings.HasSuffix(base, ".log") && !strings.HasPrefix(base, "MANIFEST-") {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	made := &prefix{}
	p.files[path] = made
	return made
}

// known notes how a file begins of which nothing was known.
func (p *prefixes) known(path string, s summed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files[path] == nil {
		p.files[path] = &prefix{synced: s}
	}
}

// removed forgets a file.
func (p *prefixes) removed(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.files, path)
}

// wrote notes bytes that were appended.
func (p *prefixes) wrote(x *prefix, b []byte) {
	if x == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x.written.add(b)
}

// written returns what synced needs when a sync that begins now has ended.
func (p *prefixes) written(x *prefix) summed {
	if x == nil {
		return summed{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return x.written
}

// synced notes what a sync has made durable.
func (p *prefixes) synced(x *prefix, s summed) {
	if x == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.length > x.synced.length {
		x.synced = s
	}
}

// of returns what is known to be synced of a file, nothing if it is not known.
func (p *prefixes) of(path string) summed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.files[path]; x != nil {
		return x.synced
	}
	return summed{}
}

// clone returns what is known of the files now.
func (p *prefixes) clone() *prefixes {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := &prefixes{files: maps.Clone(p.files)}
	for path, x := range left.files {
		left.files[path] = &prefix{synced: x.synced}
	}
	return left
}

// verified reads a file into memory and closes it, and returns what it has read. If the file does not begin with the
// bytes that were synced, that is an error. A log or manifest is about as large as a memtable at most.
func verified(from vfs.File, want summed) (vfs.File, error) {
	info, err := from.Stat()
	if err != nil {
		return nil, errors.Join(err, from.Close())
	}
	b := make([]byte, info.Size())
	_, err = io.ReadFull(from, b)
	if err = errors.Join(err, from.Close()); err != nil {
		return nil, err
	}
	var got summed
	got.add(b[:min(want.length, int64(len(b)))])
	if got != want {
		return nil, fmt.Errorf("%s: its first %d bytes were synced, and do not read back as they were written",
			info.Name(), want.length)
	}
	return newMemory().file(&inode{data: b, modTime: info.ModTime()}, info.Name(), false), nil
}
