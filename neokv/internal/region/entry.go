package region

import (
	"encoding/binary"
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// A Raft entry of a region is a header and the commands to run, in order:
//
//	format      u8   8, or 9 with a read set
//	term tag    u64  term in which the proposer believed to lead
//	time        u64  proposer's time, Unix ms
//	version     u64  base for the versions of new collections
//	store       u32  \
//	incarnation u64   } who proposed it, so that this replica alone encodes and delivers the replies
//	sequence    u64  /
//	bounds      u32  version of the region's bounds as the proposer saw them
//	command*         argument count uvarint, then each argument as length uvarint and bytes
//
// In format 9 a read set follows: what the commands look up, as the proposer found it at the apply index base.
//
//	read set         see redis.ReadSet
//	base        u64
//	size        u32  of the read set, in bytes
//
// The read set holds if base is the index just before the entry's own, since then nothing has been applied in between.
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

	reads []byte // the read set, nil where there is none
	base  uint64
}

const (
	entryFormat      = 8
	readsEntryFormat = 9
	entryHeaderBytes = 1 + 8 + 8 + 8 + 4 + 8 + 8 + 4
	readSetTail      = 8 + 4
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

// appendReads appends a read set to an entry that has its header and commands.
func appendReads(entry, set []byte, base uint64) []byte {
	entry[0] = readsEntryFormat
	entry = append(entry, set...)
	entry = binary.BigEndian.AppendUint64(entry, base)
	return binary.BigEndian.AppendUint32(entry, uint32(len(set)))
}

// parseEntry returns the header and the encoded commands, which alias entry.
func parseEntry(entry []byte) (h entryHeader, commands []byte, err error) {
	switch {
	case len(entry) > 0 && entry[0] != entryFormat && entry[0] != readsEntryFormat:
		return h, nil, fmt.Errorf("decode entry: format %d, want %d or %d", entry[0], entryFormat, readsEntryFormat)
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
	commands = entry[entryHeaderBytes:]
	if entry[0] == readsEntryFormat {
		if len(commands) < readSetTail {
			return h, nil, fmt.Errorf("decode entry: read set: %d bytes, want at least %d", len(commands), readSetTail)
		}
		tail := len(commands) - readSetTail
		size := uint64(binary.BigEndian.Uint32(commands[tail+8:]))
		if size > uint64(tail) {
			return h, nil, fmt.Errorf("decode entry: read set: %d bytes of %d", tail, size)
		}
		h.base = binary.BigEndian.Uint64(commands[tail:])
		commands, h.reads = commands[:tail-int(size)], commands[tail-int(size):tail:tail]
	}
	return h, commands, nil
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
