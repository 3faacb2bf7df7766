package redis

import (
	"encoding/binary"
	"errors"
	"math"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has read sets. Most writes look something up before they write: the record of their key, the field that
// they set. All replicas look up the same. So the leader looks it up for all of them before it proposes the writes, and
// sends a ReadSet along. A replica that applies the writes hands the read set to its Writer (Expect). The read set says
// what the replica would find itself, if no entry was applied between the leader's look-ups and these writes. What the
// writes themselves and others in the same batch have changed takes precedence over the read set.
//
// A read set has for each call, in their order:
//
//	count uvarint   of the reads that follow
//	what uvarint    index of the argument that names what is read, times 4, plus the kind
//	version u64     before the first element of the call: that of the collection
//	found           uvarint 0 for nothing, else the length of the record or value plus 1, and its bytes,
//	                which a presence lacks
//
// If a SET replaces a string, the record is only its header.

// Reads says what a write command looks up besides the records of its keys, as far as its arguments name it.
type Reads struct {
	// Blind says that the command looks a record up only if the key's slot may hold something else than short strings,
	// and that it does not need the value of a string. A call that needs more, for example because of an option, looks
	// for itself.
	Blind bool
	// BlindAt, if it is not nil, says so in place of Blind of one key of a call: that at args[place].
	BlindAt func(args [][]byte, place int) bool
	// Elements, if it is not nil, returns which arguments name elements of the first key: args[from], args[from+step]
	// and so on.
	Elements func(args [][]byte) (from, step int)
	// Values says that the command needs what the elements hold, and not only whether they are there.
	Values bool
}

// LooksUp reports whether a write looks something up that its arguments name. unblind has the bits (keys.SlotBit) of
// the slots that may hold something else than short strings.
func (c *Call) LooksUp(unblind uint64) bool {
	return c.Command != nil && len(c.Command.Keys) > 0 && (unblind != 0 || !c.blind())
}

// blind reports whether Reads.Blind holds for all keys of the call.
func (c *Call) blind() bool {
	what := &c.Command.Reads
	if what.BlindAt == nil {
		return what.Blind
	}
	var room [16]int
	for _, place := range c.Command.AppendKeys(room[:0], c.Args) {
		if !what.BlindAt(c.Args, place) {
			return false
		}
	}
	return true
}

// named returns a Reads.Elements that always returns from and step.
func named(from, step int) func([][]byte) (int, int) {
	return func([][]byte) (int, int) { return from, step }
}

// Kinds of reads.
const (
	readRecord = iota
	readHead
	readValue
	readPresence
	readKinds
)

const (
	// maxReads is how many reads of one call a read set has at most.
	maxReads = 32
	// maxFound is how long a record or a value in it may be.
	maxFound = 256
	// maxReadSet is the length at which a read set ends: further calls have no reads in it.
	maxReadSet = 128 << 10
)

// ReadSet makes read sets. It may be used by one goroutine at a time.
type ReadSet struct {
	Bytes []byte // the read set
	Reads int    // in it

	view    *engine.View
	unblind uint64
	records [keptRecords]keptRecord // of collections and long strings, that it has; a Writer keeps the same ones
	reads   []byte                  // of the present call
	count   int
	key     []byte
	places  []int
}

// Begin begins a read set on a view, which must stay open until the last call is added. unblind is that of
// Call.LooksUp.
func (s *ReadSet) Begin(v *engine.View, unblind uint64) {
	s.view, s.unblind, s.Bytes, s.Reads = v, unblind, s.Bytes[:0], 0
	for i := range s.records {
		s.records[i].there = false
	}
}

// Recycle gives up the memory that a large call has left.
func (s *ReadSet) Recycle() {
	s.Bytes, s.reads, s.key = kept(s.Bytes, 2*maxReadSet), kept(s.reads, maxReadSet), kept(s.key, maxScratchBytes)
	if cap(s.places) > maxScratchBytes/8 {
		s.places = nil
	}
	s.view = nil
}

// Add looks up what the write c will look up, and adds it to the read set. An error is one of the engine.
func (s *ReadSet) Add(c *Call) error {
	s.reads, s.count = s.reads[:0], 0
	var err error
	if c.LooksUp(s.unblind) && len(s.Bytes) < maxReadSet {
		err = s.read(c)
	}
	s.Bytes = append(binary.AppendUvarint(s.Bytes, uint64(s.count)), s.reads...)
	s.Reads += s.count
	return err
}

func (s *ReadSet) read(c *Call) error {
	what := &c.Command.Reads
	var first keys.Metadata // the first key's metadata, if it holds a collection or a long string
	s.places = c.Command.AppendKeys(s.places[:0], c.Args)
	for i, place := range s.places {
		if s.count == maxReads {
			break
		}
		blind := what.Blind
		if what.BlindAt != nil {
			blind = what.BlindAt(c.Args, place)
		}
		m, err := s.record(place, c.Args[place], blind)
		if err != nil {
			return err
		}
		if i == 0 {
			first = m
		}
	}
	if what.Elements == nil || first.Size == 0 || first.Type == keys.String {
		return nil
	}
	user := c.Args[s.places[0]]
	s.key = keys.AppendCollection(s.key[:0], keys.Data, topology.SlotOf(user), user, first.Version)
	front, begun := len(s.key), false
	from, step := what.Elements(c.Args)
	for place := from; place < len(c.Args) && s.count < maxReads; place += step {
		s.key = keys.AppendElement(s.key[:front], c.Args[place])
		value, there, err := s.view.Get(s.key)
		if err != nil {
			return err
		}
		if what.Values && len(value) > maxFound {
			continue
		}
		kind := readPresence
		if what.Values {
			kind = readValue
		}
		s.named(place, kind)
		if !begun {
			s.reads = binary.BigEndian.AppendUint64(s.reads, first.Version)
			begun = true
		}
		if what.Values {
			s.found(value, there)
		} else {
			s.found(nil, there)
		}
	}
	return nil
}

// record reads the record of a key, and returns it if it is that of a collection or of a long string.
func (s *ReadSet) record(place int, user []byte, blind bool) (m keys.Metadata, err error) {
	slot := topology.SlotOf(user)
	if blind && s.unblind&keys.SlotBit(slot) == 0 {
		return m, nil
	}
	k := &s.records[slot%keptRecords]
	if k.of(slot, user) {
		return k.Metadata, nil
	}
	s.key = keys.AppendMetadata(s.key[:0], slot, user)
	b, there, err := s.view.GetAny(s.key)
	if err != nil {
		return m, err
	}
	if there {
		if m, err = keys.ParseMetadata(b); err != nil {
			return m, err
		}
	}
	kind := readRecord
	if blind {
		kind = readHead
		b = b[:len(b)-len(m.Value)]
	}
	if len(b) > maxFound {
		return keys.Metadata{}, nil
	}
	s.named(place, kind)
	s.found(b, there)
	if !there || !m.Apart() {
		return keys.Metadata{}, nil
	}
	if len(user) <= maxKeptKey {
		k.slot, k.user, k.there, k.Metadata = slot, append(k.user[:0], user...), true, m
	}
	return m, nil
}

func (s *ReadSet) named(place, kind int) {
	s.reads = binary.AppendUvarint(s.reads, uint64(place*readKinds+kind))
	s.count++
}

func (s *ReadSet) found(value []byte, there bool) {
	if !there {
		s.reads = append(s.reads, 0)
		return
	}
	s.reads = append(binary.AppendUvarint(s.reads, uint64(len(value))+1), value...)
}

var errReadSet = errors.New("read set is cut short")

// Expect takes the reads of the next call from the front of a read set, and returns the rest. The call then finds what
// these reads say. If set is empty, the call looks for itself.
func (w *Writer) Expect(args [][]byte, set []byte) (rest []byte, err error) {
	w.expected = w.expected[:0]
	if len(set) == 0 {
		w.Batch.Expect(nil)
		return nil, nil
	}
	next := func() (n uint64) {
		n, size := binary.Uvarint(set)
		if size <= 0 {
			n, size, err = 0, len(set), errReadSet
		}
		set = set[size:]
		return n
	}
	var version uint64
	begun := false
	for count := next(); count > 0 && err == nil; count-- {
		what := next()
		place, kind := what/readKinds, what%readKinds
		element := kind == readValue || kind == readPresence
		if place >= uint64(len(args)) || element && len(args) < 2 {
			return nil, errReadSet
		}
		if element && !begun {
			if len(set) < 8 {
				return nil, errReadSet
			}
			version, set, begun = binary.BigEndian.Uint64(set), set[8:], true
		}
		size := next()
		if size > math.MaxInt32 || kind != readPresence && size > uint64(len(set))+1 {
			return nil, errReadSet
		}
		k := w.expectation()
		k.There, k.Cut = size > 0, kind == readPresence || kind == readHead
		if k.There && kind != readPresence {
			k.Value, set = set[:size-1:size-1], set[size-1:]
		}
		user := args[place]
		if element {
			user = args[1]
		}
		slot := topology.SlotOf(user)
		if element {
			k.Key = keys.AppendElement(keys.AppendCollection(k.Key[:0], keys.Data, slot, user, version), args[place])
		} else {
			k.Key = keys.AppendMetadata(k.Key[:0], slot, user)
		}
	}
	w.Batch.Expect(w.expected)
	return set, err
}

// expectation makes room for one more, with the memory of an earlier one.
func (w *Writer) expectation() *engine.Known {
	n := len(w.expected)
	if n < cap(w.expected) {
		w.expected = w.expected[:n+1]
	} else {
		w.expected = append(w.expected, engine.Known{})
	}
	k := &w.expected[n]
	k.Key, k.Value = kept(k.Key, maxScratchBytes), nil
	return k
}
