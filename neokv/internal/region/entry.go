package region

import (
	"encoding/binary"
	"fmt"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// A Raft entry of a region is a header and the commands to run, in order:
//
//	format      u8   entryFormat, or oldEntryFormat
//	term tag    u64  term in which the proposer believed to lead
//	time        u64  proposer's time, Unix ms
//	version     u64  base for the versions of new collections
//	store       u32  \
//	incarnation u64   } who proposed it, so that this replica alone encodes and delivers the replies
//	sequence    u64  /
//	command*         argument count uvarint, then each argument as length uvarint and bytes
//
// Fixed-width integers are big-endian. An entry without commands is legal: it moves the term tag and the region time.
//
// Entries of oldEntryFormat are of programs that kept no RegionState.CollectedIn. They may be in the log of a folder that such a program has
// made, and some of the replicas may have applied them then. So their effect has to be the same as it was.
type entryHeader struct {
	term        uint64
	timeMS      uint64
	version     uint64
	store       topology.StoreID
	incarnation uint64
	sequence    uint64
	old         bool // read as of oldEntryFormat; none is written
}

const (
	oldEntryFormat   = 1
	entryFormat      = 2
	entryHeaderBytes = 1 + 8 + 8 + 8 + 4 + 8 + 8
)

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
}

// parseEntry returns the header and the encoded commands, which alias entry.
func parseEntry(entry []byte) (h entryHeader, commands []byte, err error) {
	if len(entry) < entryHeaderBytes {
		return h, nil, fmt.Errorf("decode entry: %d bytes, want at least %d", len(entry), entryHeaderBytes)
	}
	if entry[0] != oldEntryFormat && entry[0] != entryFormat {
		return h, nil, fmt.Errorf("decode entry: format %d, want %d or %d", entry[0], oldEntryFormat, entryFormat)
	}
	return entryHeader{
		term:        binary.BigEndian.Uint64(entry[1:]),
		timeMS:      binary.BigEndian.Uint64(entry[9:]),
		version:     binary.BigEndian.Uint64(entry[17:]),
		store:       topology.StoreID(binary.BigEndian.Uint32(entry[25:])),
		incarnation: binary.BigEndian.Uint64(entry[29:]),
		sequence:    binary.BigEndian.Uint64(entry[37:]),
		old:         entry[0] == oldEntryFormat,
	}, entry[entryHeaderBytes:], nil
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

// callBytes is an upper bound of what appendCall appends.
func callBytes(c *redis.Call) int {
	n := binary.MaxVarintLen32
	for _, a := range c.Args {
		n += binary.MaxVarintLen32 + len(a)
	}
	return n
}

// parseCall reads the arguments of the first command into args, which alias b, and returns the rest.
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
