package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// A Raft entry of a region is a header and the units to apply, in order:
//
//	format      u8   10; 11 with a trailer; 12 with a trailer that has marks
//	term tag    u64  term in which the proposer believed to lead
//	time        u64  proposer's time, Unix ms
//	version     u64  base for the versions of new collections
//	store       u32  \
//	incarnation u64   } who proposed it, so that this replica alone encodes and delivers the replies
//	sequence    u64  /
//	bounds      u32  version of the region's bounds as the proposer saw them
//	unit*            a call, or a group of calls
//
// A unit takes effect at one instant: no reader sees a part of it, and a crash takes all of it or nothing.
//
//	call             argument count uvarint, at least 1, then each argument as length uvarint and bytes
//	group            0 u8, kind u8 (redis.GroupKind), how many of the marks are its own uvarint, the length of its calls
//	                 in bytes u32, then the calls
//
// In formats 11 and 12 a trailer follows. It says what the proposer knew at the apply index base.
//
//	mark*            a watched key: flags u8, its length uvarint, and the key. Bit 0: it existed when the client began to
//	                 watch it. Bit 1: it was changed meanwhile. The groups take their marks in turn
//	read set         what the commands look up: see redis.ReadSet
//	marks       u32  length of the marks, in bytes; in format 12 alone
//	base        u64
//	size        u32  length of the read set, in bytes
//
// A trailer holds if base is the index just before the entry's own, since then nothing has been applied in between. If
// it does not hold, a read set is passed over. An entry with marks is exact: it has no effect then.
//
// Fixed-width integers are big-endian. An entry without commands is legal: it moves the term tag and the region time. An
// entry with commands takes effect only if the region's bounds have the version that it names.
type entryHeader struct {
	term        uint64
	timeMS      uint64
	version     uint64
	store       topology.StoreID
	incarnation uint64
	sequence    uint64
	bounds      uint32

	marks []byte // nil where there are none
	reads []byte // the read set, nil where there is none
	base  uint64
}

const (
	entryFormat        = 10
	trailerEntryFormat = 11
	marksEntryFormat   = 12
	entryHeaderBytes   = 1 + 8 + 8 + 8 + 4 + 8 + 8 + 4
	trailerTail        = 8 + 4
	marksTail          = 4 + trailerTail
)

// Writes reports whether an entry of a region's log does more than move the region's term tag and time, its bounds or
// its membership. It is true for what is no entry of a region.
func Writes(e *pb.Entry) bool {
	cmd := e.Cmd
	if e.Type == pb.ConfigChangeEntry || len(cmd) == 0 {
		return false
	}
	if e.Type == pb.EncodedEntry {
		cmd = cmd[1:] // dragonboat's one-byte payload header, uncompressed
	}
	_, commands, err := parseEntry(cmd)
	return err != nil || len(commands) > 0 && !isChange(commands)
}

// put writes the header over the first entryHeaderBytes of an entry.
func (h *entryHeader) put(b []byte) {
	_ = b[entryHeaderBytes-1]
	b[0] = entryFormat
	binary.BigEndian.PutUint64(b[1:], h.term)
	binary.BigEndian.PutUint64(b[9:], h.timeMS)
	binary.BigEndian.PutUint64(b[17:], h.version)
	binary.BigEndian.PutUint32(b[25:], uint32(h.store))
	binary.BigEndian.PutUint64(b[29:], h.incarnation)
	binary.BigEndian.PutUint64(b[37:], h.sequence)
	binary.BigEndian.PutUint32(b[45:], h.bounds)
}

// appendTrailer appends a trailer to an entry that has its header and units. marks has the length of the marks, which
// are appended already.
func appendTrailer(entry []byte, marks int, set []byte, base uint64) []byte {
	entry[0] = trailerEntryFormat
	entry = append(entry, set...)
	if marks > 0 {
		entry[0] = marksEntryFormat
		entry = binary.BigEndian.AppendUint32(entry, uint32(marks))
	}
	entry = binary.BigEndian.AppendUint64(entry, base)
	return binary.BigEndian.AppendUint32(entry, uint32(len(set)))
}

// parseEntry returns the header and the encoded units, which alias entry.
func parseEntry(entry []byte) (h entryHeader, units []byte, err error) {
	switch {
	case len(entry) > 0 && (entry[0] < entryFormat || entry[0] > marksEntryFormat):
		return h, nil, fmt.Errorf("decode entry: format %d, want %d to %d", entry[0], entryFormat, marksEntryFormat)
	case len(entry) < entryHeaderBytes:
		return h, nil, fmt.Errorf("decode entry: %d bytes, want at least %d", len(entry), entryHeaderBytes)
	}
	h = entryHeader{
		term:        binary.BigEndian.Uint64(entry[1:]),
		timeMS:      binary.BigEndian.Uint64(entry[9:]),
		version:     binary.BigEndian.Uint64(entry[17:]),
		store:       topology.StoreID(binary.BigEndian.Uint32(entry[25:])),
		incarnation: binary.BigEndian.Uint64(entry[29:]),
		sequence:    binary.BigEndian.Uint64(entry[37:]),
		bounds:      binary.BigEndian.Uint32(entry[45:]),
	}
	units = entry[entryHeaderBytes:]
	least, marks := trailerTail, uint64(0)
	switch entry[0] {
	case entryFormat:
		return h, units, nil
	case marksEntryFormat:
		least = marksTail
	}
	tail := len(units) - least
	if tail < 0 {
		return h, nil, fmt.Errorf("decode entry: trailer: %d bytes, want at least %d", len(units), least)
	}
	if least == marksTail {
		marks = uint64(binary.BigEndian.Uint32(units[tail:]))
	}
	h.base = binary.BigEndian.Uint64(units[len(units)-trailerTail:])
	size := uint64(binary.BigEndian.Uint32(units[len(units)-4:]))
	if marks+size > uint64(tail) {
		return h, nil, fmt.Errorf("decode entry: trailer: %d bytes of %d", tail, marks+size)
	}
	reads := tail - int(size)
	end := reads - int(marks)
	h.marks, h.reads = units[end:reads:reads], units[reads:tail:tail]
	return h, units[:end], nil
}

// appendCall appends one command.
func appendCall(dst []byte, c *redis.Call) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(c.Args)))
	for _, a := range c.Args {
		dst = binary.AppendUvarint(dst, uint64(len(a)))
		dst = append(dst, a...)
	}
	return dst
}

// callBytes returns an upper bound of the bytes that appendCall appends.
func callBytes(c *redis.Call) int {
	n := binary.MaxVarintLen32
	for _, a := range c.Args {
		n += binary.MaxVarintLen32 + len(a)
	}
	return n
}

// groupTag is where a call has its argument count.
const groupTag = 0

// appendGroup appends a group. marks is how many of the marks are its own.
func appendGroup(dst []byte, kind redis.GroupKind, marks int, calls []redis.Call) []byte {
	dst = binary.AppendUvarint(append(dst, groupTag, byte(kind)), uint64(marks))
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range calls {
		dst = appendCall(dst, &calls[i])
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// groupHeaderBytes is an upper bound of what appendGroup appends besides the calls.
const groupHeaderBytes = 1 + 1 + binary.MaxVarintLen32 + 4

// unit is one unit of an entry.
type unit struct {
	kind  redis.GroupKind // 0: a call
	marks int             // how many of the entry's marks are the group's
	calls []byte          // of the group
}

// parseUnit reads the first unit of b and returns the bytes after it. If the unit is a call, its arguments are appended
// to args. They alias b.
func parseUnit(b []byte, args [][]byte) (u unit, all [][]byte, rest []byte, err error) {
	if len(b) == 0 || b[0] != groupTag {
		all, rest, err = parseCall(b, args)
		return u, all, rest, err
	}
	if len(b) < 2 || b[1] == 0 {
		return u, nil, nil, errors.New("decode entry: bad kind of a group")
	}
	marks, tail, ok := uvarint(b[2:])
	if !ok || marks > uint64(math.MaxInt32) || len(tail) < 4 {
		return u, nil, nil, errors.New("decode entry: the header of a group is cut short")
	}
	size := uint64(binary.BigEndian.Uint32(tail))
	if tail = tail[4:]; size == 0 || size > uint64(len(tail)) {
		return u, nil, nil, fmt.Errorf("decode entry: a group of %d bytes in %d", size, len(tail))
	}
	return unit{redis.GroupKind(b[1]), int(marks), tail[:size:size]}, args, tail[size:], nil
}

const (
	markLive  = 1 // bits of the flags of a mark
	markDirty = 2
)

// appendMark appends a mark.
func appendMark(dst []byte, key string, live, dirty bool) []byte {
	flags := byte(0)
	if live {
		flags |= markLive
	}
	if dirty {
		flags |= markDirty
	}
	dst = binary.AppendUvarint(append(dst, flags), uint64(len(key)))
	return append(dst, key...)
}

// markBytes returns an upper bound of the bytes that appendMark appends.
func markBytes(key []byte) int { return 1 + binary.MaxVarintLen32 + len(key) }

// parseMark reads the first mark of b and returns the bytes after it. The key aliases b.
func parseMark(b []byte) (key []byte, live, dirty bool, rest []byte, err error) {
	if len(b) == 0 || b[0]&^(markLive|markDirty) != 0 {
		return nil, false, false, nil, errors.New("decode entry: bad flags of a mark")
	}
	size, tail, ok := uvarint(b[1:])
	if !ok || size > uint64(len(tail)) {
		return nil, false, false, nil, errors.New("decode entry: a mark is cut short")
	}
	return tail[:size:size], b[0]&markLive != 0, b[0]&markDirty != 0, tail[size:], nil
}

// parseCall appends the arguments of the first command in b to args and returns the bytes after them. The arguments
// alias b.
func parseCall(b []byte, args [][]byte) (_ [][]byte, rest []byte, err error) {
	count, b, ok := uvarint(b)
	if !ok || count == 0 || count > uint64(len(b)) {
		return nil, nil, fmt.Errorf("decode entry: bad argument count")
	}
	for i := range count {
		size, tail, ok := uvarint(b)
		if !ok || size > uint64(len(tail)) {
			return nil, nil, fmt.Errorf("decode entry: argument %d of %d is cut short", i, count)
		}
		args = append(args, tail[:size:size])
		b = tail[size:]
	}
	return args, b, nil
}

func uvarint(b []byte) (x uint64, rest []byte, ok bool) {
	x, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return x, b[n:], true
}
