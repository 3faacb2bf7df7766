package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// Everything on a connection between stores is a frame; integers are big-endian:
//
//	[length u32][checksum u32][kind u8][payload]
//
// length counts kind and payload, and the checksum (CRC-32C) covers them. A frame that is damaged, too long or out of
// place ends its connection, and nothing else.
type frameKind byte

const (
	helloFrame   frameKind = 1 + iota // who dials and for what, see hello
	welcomeFrame                      // the answer: proves that the acceptor knows the secret
	proofFrame                        // proves that the dialler knows it
	batchFrame                        // Raft messages, on their own connection
	chunkFrame                        // a chunk of a snapshot, dragonboat's encoding
	takenFrame                        // the answer: empty, or why the chunk was not taken
	requestFrame                      // a call
	answerFrame                       // its answer
	failureFrame                      // or its error's text
)

const (
	frameHeader = 9
	// maxBatch has room for an entry of the largest size and the entries before it: dragonboat packs up to 64 MiB of
	// messages into a batch, and a larger message has a batch to itself.
	maxBatch = 256 << 20
	maxOther = 16 << 20
	// maxHello bounds what a stranger can make a store read.
	maxHello = 256
	// keptBuffer is the largest buffer that is kept for reuse.
	keptBuffer = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// limit is how long a frame may be, without its header.
func (k frameKind) limit() int {
	switch k {
	case helloFrame, welcomeFrame, proofFrame:
		return maxHello
	case batchFrame, requestFrame: // a request may have a message that a client has published
		return maxBatch
	default:
		return maxOther
	}
}

// beginFrame appends a header, which endFrame fills in once the payload has been appended behind it; at is where the
// frame begins.
func beginFrame(b []byte, kind frameKind) (frame []byte, at int) {
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, byte(kind)), len(b)
}

// endFrame completes the frame that begins at at and ends with b. A frame that exceeds its limit is removed again, with
// an error.
func endFrame(b []byte, at int) ([]byte, error) {
	kind, size := frameKind(b[at+8]), len(b)-at-frameHeader
	if size > kind.limit() {
		return b[:at], fmt.Errorf("frame of %d bytes, want at most %d", size, kind.limit())
	}
	binary.BigEndian.PutUint32(b[at:], uint32(size+1))
	binary.BigEndian.PutUint32(b[at+4:], crc32.Checksum(b[at+8:], castagnoli))
	return b, nil
}

// appendFrame appends a whole frame.
func appendFrame(b []byte, kind frameKind, payload []byte) ([]byte, error) {
	b, at := beginFrame(b, kind)
	return endFrame(append(b, payload...), at)
}

// frameReader cuts a stream into frames, in a buffer that it reuses. One goroutine uses it.
type frameReader struct {
	r          io.Reader
	buf        []byte
	start, end int // what has been read and not been returned
}

const firstBuffer = 16 << 10

// next returns the next frame, which must be of one of the given kinds. The payload is valid until the next call. The
// buffer grows with the bytes that arrive, not by the length that the frame announces.
func (f *frameReader) next(kinds ...frameKind) (frameKind, []byte, error) {
	if err := f.fill(frameHeader); err != nil {
		return 0, nil, err
	}
	header := f.buf[f.start:]
	length, sum, kind := int64(binary.BigEndian.Uint32(header)), binary.BigEndian.Uint32(header[4:]),
		frameKind(header[8])
	switch {
	case !slices.Contains(kinds, kind):
		return 0, nil, fmt.Errorf("frame of kind %d, want one of %v", kind, kinds)
	case length < 1 || length-1 > int64(kind.limit()):
		return 0, nil, fmt.Errorf("frame of kind %d and %d bytes, want 1 to %d", kind, length, kind.limit()+1)
	}
	whole := frameHeader - 1 + int(length)
	if err := f.fill(whole); err != nil {
		return 0, nil, err
	}
	frame := f.buf[f.start : f.start+whole]
	f.start += whole
	if got := crc32.Checksum(frame[8:], castagnoli); got != sum {
		return 0, nil, fmt.Errorf("frame of kind %d and %d bytes: checksum %08x, want %08x", kind, length, got, sum)
	}
	return kind, frame[frameHeader:], nil
}

// fill reads until there are n bytes.
func (f *frameReader) fill(n int) error {
	have := f.end - f.start
	if have >= n {
		return nil
	}
	switch {
	case have == 0 && len(f.buf) > keptBuffer:
		f.buf = nil
	case f.start > 0:
		copy(f.buf, f.buf[f.start:f.end])
	}
	f.start, f.end = 0, have
	for f.end < n {
		if f.end == len(f.buf) {
			grown := make([]byte, max(firstBuffer, min(2*len(f.buf), n)))
			copy(grown, f.buf)
			f.buf = grown
		}
		m, err := f.r.Read(f.buf[f.end:])
		f.end += m
		if err != nil && f.end < n {
			if err == io.EOF && f.end > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// The payload of a batch, numbers as unsigned varints:
//
//	batch    messages, each message
//	message  type, to, from, region, term, log term, log index, commit, reject (0, 1), hint, high half of the hint,
//	         entries, bytes of their commands, each entry
//	entry    term, index, type, key, client, series, responded to, bytes of the command, command
//
// The snapshot of a message is left out, since InstallSnapshot travels as chunks. A decoded message shares no memory
// with others, since each region's log keeps its entries for a different time. It has one slice of entries, and one for
// all their commands.

// The smallest a message and an entry can be, in bytes.
const (
	leastMessage = 13
	leastEntry   = 8
)

func appendBatch(b []byte, messages []pb.Message) []byte {
	b = binary.AppendUvarint(b, uint64(len(messages)))
	for i := range messages {
		m := &messages[i]
		reject := uint64(0)
		if m.Reject {
			reject = 1
		}
		for _, n := range [...]uint64{
			uint64(m.Type), m.To, m.From, m.ShardID, m.Term, m.LogTerm, m.LogIndex, m.Commit, reject, m.Hint,
			m.HintHigh, uint64(len(m.Entries)),
		} {
			b = binary.AppendUvarint(b, n)
		}
		commands := 0
		for j := range m.Entries {
			commands += len(m.Entries[j].Cmd)
		}
		b = binary.AppendUvarint(b, uint64(commands))
		for j := range m.Entries {
			e := &m.Entries[j]
			for _, n := range [...]uint64{e.Term, e.Index, uint64(e.Type), e.Key, e.ClientID, e.SeriesID, e.RespondedTo,
				uint64(len(e.Cmd))} {
				b = binary.AppendUvarint(b, n)
			}
			b = append(b, e.Cmd...)
		}
	}
	return b
}

// decodeBatch appends the messages of a payload to messages. They share nothing with the payload.
func decodeBatch(messages []pb.Message, payload []byte) ([]pb.Message, error) {
	d := decoder{payload}
	for n := d.count(leastMessage); n > 0; n-- {
		messages = append(messages, pb.Message{})
		if !d.message(&messages[len(messages)-1]) {
			return messages, errors.New("batch of Raft messages does not decode")
		}
	}
	if d.rest == nil || len(d.rest) > 0 {
		return messages, errors.New("batch of Raft messages does not end where it should")
	}
	return messages, nil
}

// decoder decodes a payload. If a number is missing or too large, rest becomes nil.
type decoder struct{ rest []byte }

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.rest = nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// count reads a number of things, each of which takes at least least bytes of the rest.
func (d *decoder) count(least int) int {
	n := d.number()
	if n > uint64(len(d.rest)/least) {
		d.rest = nil
		return 0
	}
	return int(n)
}

func (d *decoder) message(m *pb.Message) bool {
	m.Type = pb.MessageType(d.number())
	for _, n := range [...]*uint64{&m.To, &m.From, &m.ShardID, &m.Term, &m.LogTerm, &m.LogIndex, &m.Commit} {
		*n = d.number()
	}
	m.Reject = d.number() == 1
	m.Hint, m.HintHigh = d.number(), d.number()
	entries := d.number()
	commands := d.count(1)
	if d.rest == nil || m.Type == pb.InstallSnapshot || entries > uint64((len(d.rest)-commands)/leastEntry) {
		d.rest = nil
		return false
	}
	if entries == 0 {
		return commands == 0
	}
	m.Entries = make([]pb.Entry, entries)
	arena := make([]byte, 0, commands)
	for i := range m.Entries {
		e := &m.Entries[i]
		e.Term, e.Index, e.Type = d.number(), d.number(), pb.EntryType(d.number())
		for _, n := range [...]*uint64{&e.Key, &e.ClientID, &e.SeriesID, &e.RespondedTo} {
			*n = d.number()
		}
		size := d.count(1)
		if d.rest == nil || size > commands-len(arena) {
			d.rest = nil
			return false
		}
		if size > 0 {
			from := len(arena)
			arena = append(arena, d.rest[:size]...)
			e.Cmd = arena[from:len(arena):len(arena)]
			d.rest = d.rest[size:]
		}
	}
	return len(arena) == commands
}

// decodeChunk decodes a chunk of a snapshot. dragonboat's decoder trusts lengths, and panics on some that lead nowhere.
func decodeChunk(payload []byte) (c pb.Chunk, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("chunk of a snapshot does not decode: %v", p)
		}
	}()
	err = c.Unmarshal(payload)
	return c, err
}
