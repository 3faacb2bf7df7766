package redis

import (
	"math"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has OBJECT and MEMORY USAGE: what Redis tells about how it stores a key. If NeoKV's storage has no such
// thing, the reply is the one that a client of Redis would expect for such a value.

var objectCommands = []*Command{
	{
		Name: "object", Arity: -2,
		Doc: Doc{"Commands about how a key is stored.", "2.2.3", "generic", "Depends on subcommand."},
		Sub: []*Command{
			{
				Name: "encoding", Arity: 3, Flags: FlagReadonly, Keys: secondKey, Read: objectEncoding,
				Tips: []string{"nondeterministic_output"},
				Doc: Doc{"Names the encoding that Redis has given a sorted set, or would give another value if it were " +
					"set as it is.", "2.2.3", "generic", "O(1), but up to 512 elements are looked at."},
			},
			{
				Name: "freq", Arity: 3, Flags: FlagReadonly, Keys: secondKey, Read: objectFreq,
				Tips: []string{"nondeterministic_output"},
				Doc: Doc{"Answers, for a key that exists, with an error: accesses are not counted.", "4.0.0", "generic",
					"O(1)"},
			},
			{
				Name: "idletime", Arity: 3, Flags: FlagReadonly, Keys: secondKey, Read: objectIdleTime,
				Tips: []string{"nondeterministic_output"},
				Doc:  Doc{"Returns 0 for a key that exists: times of access are not kept.", "2.2.3", "generic", "O(1)"},
			},
			{
				Name: "refcount", Arity: 3, Flags: FlagReadonly, Keys: secondKey, Read: objectRefCount,
				Tips: []string{"nondeterministic_output"},
				Doc: Doc{"Returns how many references Redis would count: 1, or 2147483647 for small integers.", "2.2.3",
					"generic", "O(1)"},
			},
			{
				Name: "help", Arity: 2, How: HowOwn, Flags: FlagLoading | FlagStale,
				Doc: Doc{"Lists the subcommands.", "6.2.0", "generic", "O(1)"},
			},
		},
	},
	{
		Name: "memory", Arity: -2, Doc: Doc{"Commands about memory.", "4.0.0", "server", "Depends on subcommand."},
		Sub: []*Command{
			{
				Name: "usage", Arity: -3, Flags: FlagReadonly, Keys: secondKey, Read: memoryUsage,
				Doc: Doc{"Returns how many bytes a key and what it holds take, before compression; of a " +
					"collection by a sample.", "4.0.0", "server", "O(N) where N is the number of samples."},
			},
			{
				Name: "doctor", Arity: 2, How: HowOwn,
				Tips: []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
				Doc:  Doc{"Says that the Go runtime looks after the memory.", "4.0.0", "server", "O(1)"},
			},
			{
				Name: "malloc-stats", Arity: 2, How: HowOwn,
				Tips: []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
				Doc:  Doc{"Says that the allocator has no statistics of its own.", "4.0.0", "server", "O(1)"},
			},
			{
				Name: "purge", Arity: 2, How: HowOwn,
				Tips: []string{"request_policy:all_shards", "response_policy:all_succeeded"},
				Doc:  Doc{"Does nothing: the Go runtime gives memory back by itself.", "4.0.0", "server", "O(1)"},
			},
			{
				Name: "stats", Arity: 2, How: HowOwn,
				Tips: []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
				Doc:  Doc{"Returns how much memory the process uses.", "4.0.0", "server", "O(1)"},
			},
			{
				Name: "help", Arity: 2, How: HowOwn, Flags: FlagLoading | FlagStale,
				Doc: Doc{"Lists the subcommands.", "4.0.0", "server", "O(1)"},
			},
		},
	},
}

// secondKey is the key specification of a subcommand whose only key is its first argument.
var secondKey = []KeySpec{{First: 2, Last: 0, Step: 1, Flags: []string{"RO"}}}

const (
	maxIntegerBytes  = 20 // of a string that Redis tries to keep as an integer
	maxEmbeddedBytes = 44 // of one that it keeps beside its header
	sharedIntegers   = 10_000
	sharedReferences = 1<<31 - 1
)

// object loads the key of a subcommand and reports whether it exists. If not, it appends a null.
func (r *Reader) object(args [][]byte, out *Reply) (rec record, ok bool, err error) {
	told := r.Effects
	r.Effects = nil // as in Redis, nobody is told of a miss
	rec, err = r.load(args[2])
	r.Effects = told
	if err == nil && !rec.live {
		out.Null()
	}
	return rec, err == nil && rec.live, err
}

// integer returns the number of a string that Redis would keep as an integer.
func (rec *record) integer() (int64, bool) {
	if rec.Type != keys.String || rec.length() > maxIntegerBytes {
		return 0, false
	}
	return ParseInt(rec.Value)
}

func objectEncoding(r *Reader, args [][]byte, out *Reply) error {
	rec, ok, err := r.object(args, out)
	if !ok {
		return err
	}
	name := "raw"
	switch _, integer := rec.integer(); {
	case rec.Type != keys.String:
		if name, err = r.encoding(args[2], &rec); err != nil {
			return err
		}
	case integer:
		name = "int"
	case rec.length() <= maxEmbeddedBytes:
		name = "embstr"
	}
	out.BulkString(name)
	return nil
}

// The limits up to which Redis keeps a collection in one piece of memory, by default.
const (
	maxPackedFields  = 512
	maxPackedMembers = 128 // of a sorted set
	maxPackedBytes   = 64  // of each of them
	maxIntegers      = 512
)

// unpacked is the encoding of a hash or a set beyond these limits.
const unpacked = "hashtable"

// encoding returns the encoding in which Redis would keep a collection.
func (r *Reader) encoding(key []byte, rec *record) (string, error) {
	if rec.Skiplist {
		return "skiplist", nil
	}
	packed, most := "listpack", uint64(maxPackedFields)
	switch rec.Type {
	case keys.List:
		return "quicklist", nil
	case keys.ZSet:
		return packed, nil
	case keys.Set:
		packed, most = "intset", maxIntegers
	}
	if rec.Size > most {
		return unpacked, nil
	}
	var c collection
	r.begin(&c, topology.SlotOf(key), key, rec, &r.opened)
	name := packed
	err := c.each(nil, func(sub, value []byte) bool {
		_, integer := ParseInt(sub)
		if rec.Type == keys.Set && !integer || rec.Type != keys.Set && max(len(sub), len(value)) > maxPackedBytes {
			name = unpacked
		}
		return name == packed
	})
	return name, err
}

func objectRefCount(r *Reader, args [][]byte, out *Reply) error {
	rec, ok, err := r.object(args, out)
	if !ok {
		return err
	}
	if n, integer := rec.integer(); integer && 0 <= n && n < sharedIntegers {
		out.Int(sharedReferences)
	} else {
		out.Int(1)
	}
	return nil
}

func objectIdleTime(r *Reader, args [][]byte, out *Reply) error {
	_, ok, err := r.object(args, out)
	if ok {
		out.Int(0)
	}
	return err
}

func objectFreq(r *Reader, args [][]byte, out *Reply) error {
	_, ok, err := r.object(args, out)
	if ok {
		out.Error(errNoLFU)
	}
	return err
}

// memoryUsage counts the record with its key. It counts all pieces of a long string, as if none were missing. It counts
// the elements of a collection as if all were as large as the first ones: the first 5, or as many as SAMPLES says, or
// all for SAMPLES 0.
func memoryUsage(r *Reader, args [][]byte, out *Reply) error {
	samples := uint64(5)
	for i := 3; i < len(args); i += 2 {
		if !IsOption(args[i], "samples") || i+1 == len(args) {
			out.Error(ErrSyntax)
			return nil
		}
		n, ok := ParseInt(args[i+1])
		if !ok {
			out.Error(ErrNotInteger)
			return nil
		}
		if n < 0 {
			out.Error(ErrSyntax)
			return nil
		}
		if samples = uint64(n); n == 0 {
			samples = math.MaxUint64
		}
	}
	hits, misses := r.Hits, r.Misses
	rec, ok, err := r.object(args, out)
	r.Hits, r.Misses = hits, misses // as in Redis, this is no look-up
	if !ok {
		return err
	}
	front := uint64(keys.UserKeyOffset + len(args[2]))
	bytes := front + uint64(len(rec.Append(nil)))
	switch {
	case rec.Long():
		bytes += rec.Size + elementsOf(&rec.Metadata)*(front+keys.VersionLen+8)
	case rec.Apart():
		n, err := r.elementBytes(args[2], &rec, samples)
		if err != nil {
			return err
		}
		bytes += n
	}
	out.Int(int64(bytes))
	return nil
}

// elementBytes estimates how many bytes the elements of a collection take, by the first ones.
func (r *Reader) elementBytes(key []byte, rec *record, samples uint64) (uint64, error) {
	var c collection
	r.begin(&c, topology.SlotOf(key), key, rec, &r.opened)
	looked, bytes := uint64(0), uint64(0)
	err := c.each(nil, func(name, value []byte) bool {
		looked++
		bytes += uint64(c.front + c.hash + len(name) + len(value))
		return looked < samples
	})
	if rec.Type == keys.ZSet { // once more in the score index, with the score in the key
		bytes *= 2
	}
	if looked == 0 {
		return 0, err
	}
	return uint64(float64(bytes) / float64(looked) * float64(rec.Size)), err
}
