package redis

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// removeExpired deletes those of its keys that are expired as of the entry, and replies how many they were. Regions propose it to
// themselves; no client can, since it is in no table.
//
// What a search has found is judged again here, at apply, against the record as it is then and by the region time of the entry,
// which is the rule for every reader: so nobody can tell the deletion from the expiry, and replicas never differ.
var removeExpired = &Command{Name: "remove-expired", Arity: -2, Flags: FlagWrite, Write: runRemoveExpired}

func runRemoveExpired(w *Writer, args [][]byte, out *Reply) error {
	removed := 0
	for _, key := range args[1:] {
		rec, err := w.load(key)
		if err != nil {
			return err
		}
		if !rec.stored || !w.expired(rec.ExpireMS) {
			continue
		}
		if err := w.remove(key, &rec); err != nil {
			return err
		}
		removed++
	}
	out.Int(int64(removed))
	return nil
}

// expired reports whether a record that expires at expireMS is expired as of this entry.
func (w *Writer) expired(expireMS uint64) bool { return expireMS != 0 && expireMS <= w.State.TimeMS }

// notice takes note of a record that is written with an expiry, or 0 for none.
func (w *Writer) notice(expireMS uint64) {
	if expireMS != 0 && expireMS < w.SoonestMS {
		w.SoonestMS = expireMS
	}
}

// LookupInternal finds a command of the log that is in no table of commands about data, nil if there is none: those that regions propose to
// themselves, by their exact names, and the one of NEOKV that writes.
func LookupInternal(name []byte) *Command {
	switch string(name) {
	case removeExpired.Name:
		return removeExpired
	case swept.Name:
		return swept
	}
	if len(name) == len("neokv") && IsOption(name, "neokv") {
		return LegacySet
	}
	return nil
}

// ExpirySearch looks for expired records of a region, one bounded step after the other. It writes nothing: Call is what deletes.
//
// A step ends behind Limit records, Most expired ones or maxSearchedBytes of their keys, or where it has passed over maxSteps deleted
// records that the engine still holds, or when it has been round the whole region.
type ExpirySearch struct {
	Space keys.Space
	Slots topology.SlotRange // the region's
	Limit int                // records that a step looks at
	Most  int                // expired ones that it finds
	// Once has no step go round: the last one ends at the region's end.
	Once bool

	// What the last step met.
	Expired  [][]byte // the keys of expired records; they do not refer to the engine, and are valid until the next step
	Looked   int      // records
	Volatile int      // those of them with an expiry
	// Collections are those of them that are no short strings.
	Collections int
	// SoonestMS is the first instant at which one of them that has not expired yet will, NoExpiry if none has an expiry.
	SoonestMS uint64
	// All says that the step has seen every record of the region.
	All bool
	// Next is where the step has ended: a position to begin another one at. Nil where it has come to the region's end.
	Next []byte

	args       [][]byte // of Call: the name, then Expired
	bytes      []byte   // holds Expired
	next       []byte   // holds Next
	slot, last []byte   // scratch
}

// NoExpiry is an instant at which nothing expires.
const NoExpiry = ^uint64(0)

const (
	// maxSearchedBytes bounds the keys of one entry, but for a single longer one.
	maxSearchedBytes = 64 << 10
	// maxSteps is how far a step goes in the engine, deleted records included: some ms. It is looked at where a range of slots ends.
	maxSteps = 20_000
	// limitSlots is how many slots such a range has.
	limitSlots = 16
)

// At returns the position of a slot's first record.
func (s *ExpirySearch) At(slot topology.Slot) []byte {
	s.slot = s.Space.AppendSlot(s.slot[:0], keys.RedisMetadata, slot)
	return s.slot
}

// Step looks at the records from a position on, those at the region's end and then those at its beginning if it goes round. Nil is
// the region's beginning, and a step from there does not go round. What has an expiry that is not above nowMS is expired.
func (s *ExpirySearch) Step(v *engine.View, from []byte, nowMS uint64) error {
	s.args, s.bytes = append(s.args[:0], nil), s.bytes[:0]
	s.Expired, s.Looked, s.Volatile, s.Collections, s.SoonestMS, s.All, s.Next = nil, 0, 0, 0, NoExpiry, false, nil
	lower, upper := s.Space.Bounds(keys.RedisMetadata, s.Slots)
	it, err := v.Iter(lower, upper)
	if err != nil {
		return err
	}
	if from == nil {
		s.All, err = s.search(it.Iterator, lower, nil, nowMS)
	} else {
		s.last = append(s.last[:0], from...) // from may be our own Next
		var ended bool
		if ended, err = s.search(it.Iterator, s.last, nil, nowMS); ended && err == nil && !s.Once {
			s.All, err = s.search(it.Iterator, lower, s.last, nowMS)
		}
	}
	s.Expired = s.args[1:]
	return errors.Join(err, it.Close())
}

// Call is the deletion of what the last step has found. It refers to the search's memory.
func (s *ExpirySearch) Call() Call {
	s.args[0] = []byte(removeExpired.Name)
	return Call{Command: removeExpired, Args: s.args}
}

// walk looks at the records of [from, end), nil for no end, and reports whether it came there.
func (s *ExpirySearch) search(it *pebble.Iterator, from, end []byte, nowMS uint64) (ended bool, err error) {
	limit := s.limit(from, end)
	state := it.SeekGEWithLimit(from, limit)
	for {
		switch state {
		case pebble.IterExhausted:
			return true, it.Error()
		case pebble.IterAtLimit:
			if end != nil && string(limit) == string(end) {
				return true, nil
			}
			if stats := it.Stats(); stats.ForwardStepCount[pebble.InternalIterCall] >= maxSteps {
				s.next = append(s.next[:0], limit...)
				s.Next = s.next
				return false, nil
			}
			limit = s.limit(limit, end)
			state = it.NextWithLimit(limit)
			continue
		}
		if end != nil && string(it.Key()) >= string(end) {
			return true, nil
		}
		if s.Looked >= s.Limit || len(s.args) > s.Most || len(s.bytes) >= maxSearchedBytes {
			s.next = append(s.next[:0], it.Key()...)
			s.Next = s.next
			return false, nil
		}
		if err := s.look(it, nowMS); err != nil {
			return false, err
		}
		state = it.NextWithLimit(limit)
	}
}

// limit returns where the range of slots ends that begins in the slot of a position.
func (s *ExpirySearch) limit(from, end []byte) []byte {
	slot := topology.Slot(from[keys.PrefixLen])<<8 | topology.Slot(from[keys.PrefixLen+1])
	limit := s.Space.AppendSlot(nil, keys.RedisMetadata, slot+limitSlots)
	if end != nil && string(limit) > string(end) {
		return end
	}
	return limit
}

// look takes in the record that the iterator stands on.
func (s *ExpirySearch) look(it *pebble.Iterator, nowMS uint64) error {
	value, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	m, err := keys.ParseMetadata(value)
	if err != nil {
		return err
	}
	s.Looked++
	if m.Apart() {
		s.Collections++
	}
	switch {
	case m.ExpireMS == 0:
		return nil
	case m.ExpireMS > nowMS:
		s.SoonestMS = min(s.SoonestMS, m.ExpireMS)
	default:
		at := len(s.bytes) // keys that are there already keep the old array when bytes grows
		s.bytes = append(s.bytes, it.Key()[keys.UserKeyOffset:]...)
		s.args = append(s.args, s.bytes[at:len(s.bytes):len(s.bytes)])
	}
	s.Volatile++
	return nil
}
