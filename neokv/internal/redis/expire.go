package redis

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// removeExpired deletes those of the named keys that have expired as of the entry, and replies how many. Regions
// propose it to themselves. No client can send it, since no table has it.
//
// A replica judges each key again at apply, by the record as it is then and by the region time of the entry, as every
// reader does. So a reader cannot tell a deleted key from an expired one, and replicas never differ.
var removeExpired = &Command{Name: "remove-expired", Arity: -2, Flags: FlagWrite, Write: runRemoveExpired}

func runRemoveExpired(w *Writer, args [][]byte, out *Reply) error {
	removed := 0
	for _, key := range args[1:] {
		rec, err := w.load(key)
		if err != nil {
			return err
		}
		if !rec.stored || !w.Expired(rec.ExpireMS) {
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

// Expired reports whether a record with this expire time has expired as of this entry.
func (w *Writer) Expired(expireMS uint64) bool { return expireMS != 0 && expireMS <= w.State.TimeMS }

// LookupInternal finds the command of a call that may be in the log although Lookup does not find it: one that regions
// propose to themselves, by its exact name, or one of Own that writes. It returns nil if there is none.
func LookupInternal(args [][]byte) *Command {
	switch string(args[0]) {
	case removeExpired.Name:
		return removeExpired
	case swept.Name:
		return swept
	case flushSlots.Name:
		return flushSlots
	}
	if len(args) < 2 || len(args[0]) != len("neokv") || !IsOption(args[0], "neokv") {
		return nil
	}
	if ScriptText(args) > 0 {
		return Script
	}
	container := Command{Sub: Own}
	if c := container.Subcommand(args[1]); c != nil && c.Write != nil {
		return c
	}
	return nil
}

// ExpirySearch looks for expired records of a region in bounded steps. It writes nothing; the command that Call returns
// deletes them.
//
// A step ends after Limit records, after Most expired ones, or after maxSearchedBytes of the keys of expired ones. It
// also ends when it has passed maxSteps records in the engine, deleted ones included, or has seen the whole region.
type ExpirySearch struct {
	Slots topology.SlotRange // the region's
	Limit int                // how many records a step looks at
	Most  int                // how many expired ones it finds
	// Once makes a step end at the region's end. Without it the step goes on at the region's beginning.
	Once bool

	// What the last step met.
	Expired  [][]byte // the keys of expired records, in memory of the search; valid until the next step
	Looked   int      // how many records
	Volatile int      // how many of them have an expire time
	// Collections is how many of the records are of collections or long strings.
	Collections int
	// SoonestMS is the earliest expire time of a record that has not expired yet, NoExpiry if there is none.
	SoonestMS uint64
	// All says that the step has seen every record of the region.
	All bool
	// Next is the position where the step ended, at which another one may begin. It is nil at the region's end.
	Next []byte

	args       [][]byte // of Call: the name, then Expired
	bytes      []byte   // holds Expired
	next       []byte   // holds Next
	slot, last []byte   // scratch
}

// NoExpiry is an instant at which nothing expires.
const NoExpiry = ^uint64(0)

const (
	// maxSearchedBytes bounds the keys of one entry. A single longer key is allowed.
	maxSearchedBytes = 64 << 10
	// maxSteps is how many records, deleted ones included, a step passes in the engine. That takes some milliseconds.
	// The step checks it after each range of limitSlots slots.
	maxSteps = 20_000
	// limitSlots is how many slots such a range has.
	limitSlots = 16
)

// At returns the position of a slot's first record.
func (s *ExpirySearch) At(slot topology.Slot) []byte {
	s.slot = keys.AppendSlot(s.slot[:0], keys.RedisMetadata, slot)
	return s.slot
}

// Step looks at the records from a position on. At the region's end it goes on at the beginning, unless Once is set. A
// nil position is the region's beginning; a step from there ends at the region's end. A record has expired if its
// expire time is not above nowMS.
func (s *ExpirySearch) Step(v *engine.View, from []byte, nowMS uint64) error {
	s.args, s.bytes = append(s.args[:0], nil), s.bytes[:0]
	s.Expired, s.Looked, s.Volatile, s.Collections, s.SoonestMS, s.All, s.Next = nil, 0, 0, 0, NoExpiry, false, nil
	lower, upper := keys.SlotBounds(keys.RedisMetadata, s.Slots)
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

// Call returns the call that deletes the expired records which the last step found. It aliases the search's memory.
func (s *ExpirySearch) Call() Call {
	s.args[0] = []byte(removeExpired.Name)
	return Call{Command: removeExpired, Args: s.args}
}

// search looks at the records in [from, end), or up to the region's end if end is nil, and reports whether it got to
// the end.
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

// limit returns the end of the range of slots that begins with the slot of a position.
func (s *ExpirySearch) limit(from, end []byte) []byte {
	slot := topology.Slot(from[keys.PrefixLen])<<8 | topology.Slot(from[keys.PrefixLen+1])
	limit := keys.AppendSlot(nil, keys.RedisMetadata, slot+limitSlots)
	if end != nil && string(limit) > string(end) {
		return end
	}
	return limit
}

// look counts the record that the iterator stands on.
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
		at := len(s.bytes) // when bytes grows, earlier keys stay in its old array
		s.bytes = append(s.bytes, it.Key()[keys.UserKeyOffset:]...)
		s.args = append(s.args, s.bytes[at:len(s.bytes):len(s.bytes)])
	}
	s.Volatile++
	return nil
}
