package region

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// A Raft entry of a region is a header and the units to apply, in order:
//
//	format      u8   10; 11 with a trailer; 14 with a trailer that has marks; 15 with one that has scripts; 16 with one
//	                 whose marks have waiters
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
// The text of a script is not in its call. In its place the call has a uvarint: which of the entry's texts it is.
//
// In formats 11 and 14 to 16 a trailer follows. It says what the proposer knew at the apply index base.
//
//	scripts          in formats 15 and 16: the interpreter (lua.Version) u8, the limits of each script (instructions, bytes
//	                 and calls) as uvarint, then the texts: each its length uvarint, and its bytes
//	mark*            a watched key: flags u8, when it expires in Unix ms uvarint (with bit 2 alone), its length uvarint,
//	                 and the key. Bit 0: it existed when the client began to watch it. Bit 1: it was changed meanwhile.
//	                 Bit 2: it existed, and expires. The groups take their marks in turn
//	waiter*          a mark, too: flags u8, and the call of a blocking pop that waits. Bit 3 is set. Bit 4: others wait for
//	                 one of its keys that the entry does not have
//	read set         what the commands look up: see redis.ReadSet
//	scripts     u32  length of the scripts, in bytes; in formats 15 and 16
//	marks       u32  length of the marks, in bytes; in formats 14 to 16
//	base        u64
//	size        u32  length of the read set, in bytes
//
// A trailer holds if base is the index just before the entry's own, since then nothing has been applied in between. If
// it does not hold, a read set is passed over. An entry with marks is exact: it has no effect then.
//
// Fixed-width integers are big-endian. An entry without commands is legal: it moves the term tag and the region time.
// An entry with commands takes effect only if the region's bounds have the version that it names.
type entryHeader struct {
	term        uint64
	timeMS      uint64
	version     uint64
	store       topology.StoreID
	incarnation uint64
	sequence    uint64
	bounds      uint32

	scripts []byte // nil where there are none

	marks []byte // nil where there are none
	reads []byte // the read set, nil where there is none
	base  uint64
}

const (
	entryFormat        = 10
	trailerEntryFormat = 11
	marksEntryFormat   = 14
	scriptEntryFormat  = 15
	waiterEntryFormat  = 16
	entryHeaderBytes   = 1 + 8 + 8 + 8 + 4 + 8 + 8 + 4
	trailerTail        = 8 + 4
	marksTail          = 4 + trailerTail
	scriptTail         = 4 + marksTail
)

var entryFormats = []byte{entryFormat, trailerEntryFormat, marksEntryFormat, scriptEntryFormat, waiterEntryFormat}

// Writes reports whether an entry of a region's log does more than move the region's term tag and time, its bounds or
// its membership. It is true for what is no entry of a region.
func Writes(e *multiraft.LogEntry) bool {
	payload, ok := multiraft.Payload(e)
	if !ok {
		return false
	}
	_, commands, err := parseEntry(payload)
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

// appendTrailer appends a trailer to an entry that has its header and units. scripts and marks have the lengths of
// these, which are appended already. waiters says that there are some among the marks.
func appendTrailer(entry []byte, scripts, marks int, waiters bool, set []byte, base uint64) []byte {
	entry[0] = trailerEntryFormat
	entry = append(entry, set...)
	if marks > 0 {
		entry[0] = marksEntryFormat
	}
	if scripts > 0 || waiters {
		if entry[0] = scriptEntryFormat; waiters {
			entry[0] = waiterEntryFormat
		}
		entry = binary.BigEndian.AppendUint32(entry, uint32(scripts))
	}
	if marks > 0 || scripts > 0 {
		entry = binary.BigEndian.AppendUint32(entry, uint32(marks))
	}
	entry = binary.BigEndian.AppendUint64(entry, base)
	return binary.BigEndian.AppendUint32(entry, uint32(len(set)))
}

// parseEntry returns the header and the encoded units, which alias entry.
func parseEntry(entry []byte) (h entryHeader, units []byte, err error) {
	switch {
	case len(entry) > 0 && !slices.Contains(entryFormats, entry[0]):
		return h, nil, fmt.Errorf("decode entry: format %d, want one of %d", entry[0], entryFormats)
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
	least, marks, scripts := trailerTail, uint64(0), uint64(0)
	switch entry[0] {
	case entryFormat:
		return h, units, nil
	case marksEntryFormat:
		least = marksTail
	case scriptEntryFormat, waiterEntryFormat:
		least = scriptTail
	}
	tail := len(units) - least
	if tail < 0 {
		return h, nil, fmt.Errorf("decode entry: trailer: %d bytes, want at least %d", len(units), least)
	}
	if least > trailerTail {
		marks = uint64(binary.BigEndian.Uint32(units[len(units)-marksTail:]))
	}
	if least > marksTail {
		scripts = uint64(binary.BigEndian.Uint32(units[tail:]))
	}
	h.base = binary.BigEndian.Uint64(units[len(units)-trailerTail:])
	size := uint64(binary.BigEndian.Uint32(units[len(units)-4:]))
	if scripts+marks+size > uint64(tail) {
		return h, nil, fmt.Errorf("decode entry: trailer: %d bytes of %d", tail, scripts+marks+size)
	}
	reads := tail - int(size)
	marked := reads - int(marks)
	end := marked - int(scripts)
	h.marks, h.reads = units[marked:reads:reads], units[reads:tail:tail]
	if scripts > 0 {
		h.scripts = units[end:marked:marked]
	}
	return h, units[:end], nil
}

// scripts are the texts of a proposal's scripts, and the limits of all of them.
type scripts struct {
	limits redis.ScriptLimits
	bytes  []byte // as in the trailer
	texts  []scriptText
	more   map[string]int // the indexes of the texts after the first fewTexts
	steps  int            // that the scripts will take, about
}

// scriptText is a text, bytes[from:to], of which each run will take so many steps, about. source is where it was copied
// from: most calls of a script share their text.
type scriptText struct {
	from, to int
	source   *byte
	steps    int
}

const (
	fewTexts = 16
	// maxScripts is how many scripts an entry has at most that take all steps that one may take. A region does nothing
	// else while it applies an entry, and entries are formed before anybody knows what their scripts will take.
	maxScripts = 4
)

// allow reports whether scripts with these limits may be in the entry, too.
func (s *scripts) allow(limits redis.ScriptLimits) bool {
	return len(s.bytes) == 0 || s.limits == limits
}

// limit sets the limits, which allow has allowed.
func (s *scripts) limit(limits redis.ScriptLimits) {
	if len(s.bytes) > 0 {
		return
	}
	s.limits = limits
	s.bytes = append(s.bytes, lua.Version)
	for _, n := range []int{limits.Steps, limits.Bytes, limits.Calls} {
		s.bytes = binary.AppendUvarint(s.bytes, uint64(n))
	}
}

// known returns the index of a text, -1 if it is not there.
func (s *scripts) known(text []byte) int {
	few := s.texts[:min(len(s.texts), fewTexts)]
	for i := range few {
		if few[i].to-few[i].from == len(text) && few[i].source == first(text) {
			return i
		}
	}
	for i, t := range few {
		if bytes.Equal(s.bytes[t.from:t.to], text) {
			return i
		}
	}
	if i, ok := s.more[string(text)]; ok {
		return i
	}
	return -1
}

func first(text []byte) *byte {
	if len(text) == 0 {
		return nil
	}
	return &text[0]
}

// add adds a text unless it is there, and returns its index.
func (s *scripts) add(text []byte) int {
	if i := s.known(text); i >= 0 {
		return i
	}
	n := len(s.texts)
	if n >= fewTexts {
		if s.more == nil {
			s.more = map[string]int{}
		}
		s.more[string(text)] = n
	}
	s.bytes = binary.AppendUvarint(s.bytes, uint64(len(text)))
	s.texts = append(s.texts, scriptText{len(s.bytes), len(s.bytes) + len(text), first(text),
		redis.ScriptSteps(text, s.limits.Steps)})
	s.bytes = append(s.bytes, text...)
	return n
}

// addAll adds the texts of a unit, each once, but for those that no entry has room for. It returns the sum of their
// lengths in the calls, which do not take these bytes in the entry, and how many steps the unit will take, about.
func (s *scripts) addAll(calls []redis.Call) (inCalls, steps int) {
	for i := range calls {
		if text := calls[i].ScriptText(); text != nil && len(s.bytes)+len(text) <= maxEntryBytes {
			steps += s.texts[s.add(text)].steps
			inCalls += len(text)
		}
	}
	return inCalls, min(steps, s.limits.Steps) // which the scripts of a group share
}

// cut removes the texts that were added when there were so many texts and bytes.
func (s *scripts) cut(texts, bytes int) {
	for i := max(texts, fewTexts); i < len(s.texts); i++ {
		delete(s.more, string(s.bytes[s.texts[i].from:s.texts[i].to]))
	}
	s.texts, s.bytes = s.texts[:texts], s.bytes[:bytes]
}

// reset empties the scripts for reuse.
func (s *scripts) reset() {
	clear(s.texts)
	s.bytes, s.texts, s.more, s.steps = s.bytes[:0], s.texts[:0], nil, 0
	if cap(s.bytes) > keptScripts {
		*s = scripts{}
	}
}

// keptScripts is how many bytes of scripts a proposal keeps room for.
const keptScripts = 64 << 10

func hasScript(calls []redis.Call) bool {
	for i := range calls {
		if calls[i].Script() {
			return true
		}
	}
	return false
}

// parseScripts reads the scripts of a trailer, at least one byte. The texts are appended to texts, and alias b.
func parseScripts(b []byte, texts [][]byte) (_ [][]byte, limits redis.ScriptLimits, err error) {
	if b[0] != lua.Version {
		return nil, limits, fmt.Errorf("decode entry: its scripts want interpreter %d; this program has %d", b[0],
			lua.Version)
	}
	b = b[1:]
	for _, n := range []*int{&limits.Steps, &limits.Bytes, &limits.Calls} {
		x, rest, ok := uvarint(b)
		if !ok || x > math.MaxInt {
			return nil, limits, errors.New("decode entry: bad limits of scripts")
		}
		*n, b = int(x), rest
	}
	for len(b) > 0 {
		size, rest, ok := uvarint(b)
		if !ok || size > uint64(len(rest)) {
			return nil, limits, errors.New("decode entry: a script is cut short")
		}
		texts, b = append(texts, rest[:size:size]), rest[size:]
	}
	return texts, limits, nil
}

// withText puts the text of a script into the arguments of its call.
func withText(args, texts [][]byte) error {
	place := redis.ScriptText(args)
	if place == 0 {
		return nil
	}
	i, rest, ok := uvarint(args[place])
	if !ok || len(rest) > 0 || i >= uint64(len(texts)) {
		return fmt.Errorf("decode entry: script %x of %d", args[place], len(texts))
	}
	args[place] = texts[i]
	return nil
}

// appendCall appends one command. The text of a script goes to the scripts of the entry.
func (s *scripts) appendCall(dst []byte, c *redis.Call) []byte {
	if !c.Script() {
		return appendCall(dst, c)
	}
	place := redis.ScriptText(c.Args)
	i := s.add(c.Args[place])
	dst = binary.AppendUvarint(dst, uint64(len(c.Args)))
	for at, a := range c.Args {
		if at == place {
			a = binary.AppendUvarint(nil, uint64(i))
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(a))), a...)
	}
	return dst
}

// appendCall appends one command, which is no script.
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
func (s *scripts) appendGroup(dst []byte, kind redis.GroupKind, marks int, calls []redis.Call) []byte {
	dst = binary.AppendUvarint(append(dst, groupTag, byte(kind)), uint64(marks))
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range calls {
		dst = s.appendCall(dst, &calls[i])
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
	markLive    = 1 // bits of the flags of a mark
	markDirty   = 2
	markExpires = 4
	markWaits   = 8
	markMore    = 16
)

// mark is a watched key, or a waiter, as it travels in an entry.
type mark struct {
	key     []byte
	live    bool   // the client may have seen it
	dirty   bool   // it was changed since
	expires uint64 // Unix time in ms, 0 for never; of a live key

	row  *redis.Command // of a waiter's blocking pop; nil for a watched key
	args [][]byte
	more bool // others wait for one of its keys
}

// append appends a mark.
func (m *mark) append(dst []byte) []byte {
	flags := byte(0)
	if m.live {
		flags |= markLive
	}
	if m.dirty {
		flags |= markDirty
	}
	if m.live && m.expires > 0 {
		dst = binary.AppendUvarint(append(dst, flags|markExpires), m.expires)
	} else {
		dst = append(dst, flags)
	}
	return append(binary.AppendUvarint(dst, uint64(len(m.key))), m.key...)
}

// markBytes returns an upper bound of the bytes of a mark.
func markBytes(key []byte) int { return 1 + binary.MaxVarintLen64 + binary.MaxVarintLen32 + len(key) }

// appendWaiter appends the mark of a waiter.
func appendWaiter(dst []byte, c *redis.Call, more bool) []byte {
	flags := byte(markWaits)
	if more {
		flags |= markMore
	}
	return appendCall(append(dst, flags), c)
}

func parseWaiter(b []byte) (m mark, rest []byte, err error) {
	m.more = b[0]&markMore != 0
	if m.args, rest, err = parseCall(b[1:], nil); err != nil {
		return m, nil, err
	}
	m.row = redis.Lookup(m.args[0])
	if m.row == nil || m.row.Blocks == nil || !m.row.CheckArity(len(m.args)) {
		return m, nil, fmt.Errorf("decode entry: %q waits, and is no blocking pop", m.args[0])
	}
	return m, rest, nil
}

// parseMark reads the first mark of b and returns the bytes after it. The mark aliases b.
func parseMark(b []byte) (m mark, rest []byte, err error) {
	if len(b) > 0 && b[0]&^markMore == markWaits {
		return parseWaiter(b)
	}
	if len(b) == 0 || b[0] > markLive|markDirty|markExpires || b[0]&(markLive|markExpires) == markExpires {
		return m, nil, errors.New("decode entry: bad flags of a mark")
	}
	m.live, m.dirty, rest = b[0]&markLive != 0, b[0]&markDirty != 0, b[1:]
	ok := true
	if b[0]&markExpires != 0 {
		if m.expires, rest, ok = uvarint(rest); !ok || m.expires == 0 {
			return m, nil, errors.New("decode entry: a mark without the time at which its key expires")
		}
	}
	size, rest, ok := uvarint(rest)
	if !ok || size > uint64(len(rest)) {
		return m, nil, errors.New("decode entry: a mark is cut short")
	}
	m.key = rest[:size:size]
	return m, rest[size:], nil
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
