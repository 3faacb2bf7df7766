package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
)

// A region snapshot has all that another replica needs to go on from an apply index, as tables of the engine: the
// region's ranges of all keyspaces and of the orphan records, the region state, the peers (keys.PeerSet), and the
// record of the stage if the sender has stopped inside an entry. It travels as a stream: a header, then frames.
//
//	header  format u8 = 4, region i64, first slot u16, last slot u16, apply index u64, peers, checksum u32
//	frame   kind u8, length u32, payload, checksum u32
//
//	kind 1  bytes of a table
//	kind 2  the table is complete; no payload
//	kind 3  the stream is complete; payload: number of tables u32, their bytes u64
//
// Integers are big-endian. A checksum is the CRC-32C of all bytes before it in the stream, other checksums left out. So
// the receiver notices a frame that is missing, repeated or misplaced.
//
// dragonboat keeps a received stream in a file until RecoverFromSnapshot has put it into the engine and Sync has
// returned. Until then the file is part of the durable state. RecoverFromSnapshot writes the tables beside the engine's
// own and ingests them in one step. A store that dies before that step starts over from the file. A store that dies
// after it finds an apply index for which it does not need the file.
const (
	snapshotFormat = 4

	snapshotHeaderBytes = 1 + 8 + 2 + 2 + 8 // up to the peers
	frameHeaderBytes    = 1 + 4
	snapshotEndBytes    = 4 + 8

	frameTable    = 1
	frameTableEnd = 2
	frameEnd      = 3

	// maxFrameBytes bounds a frame, and so the memory that either side needs for the stream.
	maxFrameBytes = 128 << 10
	// snapshotTableBytes is about how large a table gets.
	snapshotTableBytes = 32 << 20
	// maxSnapshotTables bounds the number of tables: a damaged stream must not fill the disk with empty files.
	maxSnapshotTables = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// receive writes the tables of a stream to disk. It returns the stream's header, and the bytes of all tables.
func receive(in io.Reader, tables *engine.Ingestion, stop <-chan struct{}) (h snapshotHeader, size uint64, err error) {
	r := &streamReader{in: in}
	if h, err = r.header(); err != nil {
		return h, 0, err
	}
	var table io.WriteCloser
	defer func() {
		if table != nil {
			_ = table.Close() // the stream is refused, so its error does not matter
		}
	}()
	n := uint32(0)
	for {
		select {
		case <-stop:
			return h, 0, multiraft.ErrSnapshotStopped
		default:
		}
		kind, payload, err := r.frame()
		if err != nil {
			return h, 0, err
		}
		if table == nil && kind != frameEnd {
			if n++; n > maxSnapshotTables {
				return h, 0, fmt.Errorf("more than %d tables", maxSnapshotTables)
			}
			if table, err = tables.Create(); err != nil {
				return h, 0, err
			}
		}
		switch {
		case kind == frameTable:
			if _, err := table.Write(payload); err != nil {
				return h, 0, err
			}
			size += uint64(len(payload))
		case kind == frameTableEnd && len(payload) == 0:
			err := table.Close()
			if table = nil; err != nil {
				return h, 0, err
			}
		case kind == frameEnd && table == nil && len(payload) == snapshotEndBytes:
			tables, bytes := binary.BigEndian.Uint32(payload), binary.BigEndian.Uint64(payload[4:])
			if tables != n || bytes != size {
				return h, 0, fmt.Errorf("%d tables of %d bytes came, %d of %d were sent", n, size, tables, bytes)
			}
			return h, size, r.atEnd()
		default:
			return h, 0, fmt.Errorf("frame %d of kind %d and %d bytes in table %d", r.frames, kind, len(payload), n)
		}
	}
}

// snapshotHeader says of which region, and as of which apply index, a snapshot is.
type snapshotHeader struct {
	region     topology.RegionID
	slots      topology.SlotRange
	applyIndex uint64
	peers      keys.PeerSet
}

func (h *snapshotHeader) append(dst []byte) []byte {
	dst = append(dst, snapshotFormat)
	dst = keys.AppendI64(dst, int64(h.region))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.slots.First))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.slots.Last))
	return h.peers.Append(binary.BigEndian.AppendUint64(dst, h.applyIndex))
}

// parseSnapshotHeader decodes a header.
func parseSnapshotHeader(b []byte) (h snapshotHeader, err error) {
	h.region = topology.RegionID(keys.I64(b[1:]))
	h.slots.First = topology.Slot(binary.BigEndian.Uint16(b[9:]))
	h.slots.Last = topology.Slot(binary.BigEndian.Uint16(b[11:]))
	h.applyIndex = binary.BigEndian.Uint64(b[13:])
	h.peers, err = keys.ParsePeerSet(b[snapshotHeaderBytes:])
	return h, err
}

// frameWriter sends a stream. The caller writes one table after the other.
type frameWriter struct {
	out    io.Writer
	crc    uint32
	buf    []byte // the frame being filled, its header in front
	tables uint32
	total  uint64 // bytes of tables
	err    error  // the first error of sending
}

func newFrameWriter(out io.Writer) *frameWriter {
	return &frameWriter{out: out, buf: make([]byte, frameHeaderBytes, frameHeaderBytes+maxFrameBytes+crc32.Size)}
}

func (w *frameWriter) header(h snapshotHeader) error { return w.send(h.append(nil)) }

// send sends bytes and the checksum of the stream so far.
func (w *frameWriter) send(b []byte) error {
	if w.err == nil {
		w.crc = crc32.Update(w.crc, castagnoli, b)
		_, w.err = w.out.Write(binary.BigEndian.AppendUint32(b, w.crc))
	}
	return w.err
}

// frame sends the frame in buf.
func (w *frameWriter) frame(kind byte) error {
	w.buf[0] = kind
	binary.BigEndian.PutUint32(w.buf[1:], uint32(len(w.buf)-frameHeaderBytes))
	err := w.send(w.buf)
	w.buf = w.buf[:frameHeaderBytes]
	return err
}

// table begins a table. engine.Snapshot.WriteTables calls it.
func (w *frameWriter) table() (io.WriteCloser, error) {
	w.tables++
	return w, nil
}

// Write sends bytes of the present table.
func (w *frameWriter) Write(p []byte) (n int, err error) {
	w.total += uint64(len(p))
	for len(p) > 0 {
		k := min(len(p), frameHeaderBytes+maxFrameBytes-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p = p[k:]
		n += k
		if len(w.buf) == frameHeaderBytes+maxFrameBytes {
			if err := w.frame(frameTable); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// Close ends the present table.
func (w *frameWriter) Close() error {
	if len(w.buf) > frameHeaderBytes {
		if err := w.frame(frameTable); err != nil {
			return err
		}
	}
	return w.frame(frameTableEnd)
}

func (w *frameWriter) end() error {
	w.buf = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(w.buf, w.tables), w.total)
	return w.frame(frameEnd)
}

// streamReader reads a stream. dragonboat's reader panics on damaged bytes; this one returns an error.
type streamReader struct {
	in     io.Reader
	crc    uint32
	buf    []byte
	frames int
}

// take keeps the first keep bytes of buf and reads n bytes after them.
func (r *streamReader) take(keep, n int) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read: %v", p)
		}
	}()
	if need := keep + n; cap(r.buf) < need {
		r.buf = append(make([]byte, 0, need), r.buf[:keep]...)
	}
	r.buf = r.buf[:keep+n]
	if _, err := io.ReadFull(r.in, r.buf[keep:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

// check compares the last 4 bytes of buf with the checksum of the stream before them.
func (r *streamReader) check() error {
	end := len(r.buf) - crc32.Size
	r.crc = crc32.Update(r.crc, castagnoli, r.buf[:end])
	if want := binary.BigEndian.Uint32(r.buf[end:]); r.crc != want {
		return fmt.Errorf("checksum %08x, want %08x", r.crc, want)
	}
	return nil
}

func (r *streamReader) header() (h snapshotHeader, err error) {
	if err := r.take(0, 1); err != nil {
		return h, fmt.Errorf("header: %w", err)
	}
	if r.buf[0] != snapshotFormat {
		return h, fmt.Errorf("header: format %d, want %d", r.buf[0], snapshotFormat)
	}
	const fixed = snapshotHeaderBytes + keys.PeerSetLen
	if err = r.take(1, fixed-1); err == nil {
		err = r.take(fixed, keys.PeersLen(r.buf[snapshotHeaderBytes:])+crc32.Size) // damaged, it is at most 1 MiB
	}
	if err == nil {
		err = r.check()
	}
	if err == nil {
		h, err = parseSnapshotHeader(r.buf[:len(r.buf)-crc32.Size])
	}
	if err != nil {
		return h, fmt.Errorf("header: %w", err)
	}
	return h, nil
}

// frame returns the next frame; payload is valid until the next call.
func (r *streamReader) frame() (kind byte, payload []byte, err error) {
	r.frames++
	defer func() {
		if err != nil {
			err = fmt.Errorf("frame %d: %w", r.frames, err)
		}
	}()
	if err := r.take(0, frameHeaderBytes); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(r.buf[1:])
	if n > maxFrameBytes {
		return 0, nil, fmt.Errorf("%d bytes, want at most %d", n, maxFrameBytes)
	}
	if err := r.take(frameHeaderBytes, int(n)+crc32.Size); err != nil {
		return 0, nil, err
	}
	if err := r.check(); err != nil {
		return 0, nil, err
	}
	return r.buf[0], r.buf[frameHeaderBytes : frameHeaderBytes+n], nil
}

// atEnd returns an error if the stream goes on.
func (r *streamReader) atEnd() error {
	if n, err := io.ReadFull(r.in, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("bytes behind the end: %v", err)
	}
	return nil
}
