package workloads

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// RecordedKeys is what reading back knows of the keys that a recording writes. It follows a key if it can follow every
// command that writes it: then it knows what the key holds in the end, whatever the key held at first. A key is of one
// kind for that: a string, a counter, or a collection. Keys of a kind are numbered from 0, and so are the elements of a
// key, over the whole recording. Values are known by a hash of 64 bits. It does not change once it is read, so clients
// may use it concurrently.
type RecordedKeys struct {
	keys   map[string]*recordedKey
	byKind [keyUses][]*recordedKey
	seed   maphash.Seed

	bytes, elements int  // of names, and of elements, that it holds
	full            bool // it holds no more keys
	all             *leftBecause
}

// recordedKey is a key that a recording writes.
type recordedKey struct {
	name     string
	number   int // among those of its kind
	use      keyUse
	whole    *leftBecause // a command that removes all of it, or lets it expire
	left     *leftBecause // why it is not followed, nil if it is
	elements map[string]int
	names    []string
}

// leftBecause is a command for which a key is not followed.
type leftBecause struct {
	what string
	line int
}

// Bounds of what a RecordedKeys holds.
const (
	maxRecordedKeys     = 1 << 20
	maxRecordedElements = 1 << 21
	maxElementsOfKey    = 10_000 // a command that removes the key is about all of them
	maxRecordedNames    = 256 << 20
)

// ReadKeys reads a recording to its end, which ReadFacts has found to be right.
func ReadKeys(path string, in io.Reader) (*RecordedKeys, error) {
	k := &RecordedKeys{keys: map[string]*recordedKey{}, seed: maphash.MakeSeed()}
	rec := NewRecording(path, in)
	var changes []keyChange
	for {
		x, err := rec.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		why := &leftBecause{strings.ToUpper(x.Name), rec.line}
		if x.changesAll() && k.all == nil {
			k.all = why
		}
		changes = x.changes(changes[:0])
		for i := range changes {
			k.note(&changes[i], why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.keys)) {
		x := k.keys[name]
		if x.use == usedAsAny {
			x.use = usedAsString
		}
		if x.whole != nil && (x.use == usedAsCounter || x.use == usedAsList) {
			x.leave(x.whole.of(x.use))
		}
		if k.all != nil {
			x.left = k.all
		}
		if x.left != nil {
			x.elements, x.names = nil, nil
			continue
		}
		x.number = len(k.byKind[x.use])
		k.byKind[x.use] = append(k.byKind[x.use], x)
	}
	return k, nil
}

func (l *leftBecause) of(use keyUse) *leftBecause {
	return &leftBecause{l.what + " of a " + use.String(), l.line}
}

// note takes in a change of a key by the command why.
func (k *RecordedKeys) note(c *keyChange, why *leftBecause) {
	x := k.keys[string(c.key)]
	if x == nil {
		if k.full = k.full || len(k.keys) == maxRecordedKeys || k.bytes+len(c.key) > maxRecordedNames; k.full {
			return
		}
		x = &recordedKey{name: string(c.key), use: usedAsAny}
		k.bytes += len(x.name)
		k.keys[x.name] = x
	}
	switch {
	case c.does == Untracked:
		x.leave(why)
		return
	case c.use == usedAsAny:
		if c.does != Read {
			x.whole = cmp.Or(x.whole, why)
		}
		return
	case x.use == usedAsAny:
		x.use = c.use
	case x.use != c.use:
		x.leave(why.of(x.use))
		return
	}
	if c.does == Delete || c.does == Fade {
		x.whole = cmp.Or(x.whole, why)
	}
	if _, known := x.elements[string(c.element)]; c.element == nil || known || x.left != nil {
		return
	}
	if len(x.names) == maxElementsOfKey || k.elements == maxRecordedElements || k.bytes+len(c.element) > maxRecordedNames {
		x.leave(&leftBecause{"too many elements", why.line})
		return
	}
	if x.elements == nil {
		x.elements = map[string]int{}
	}
	name := string(c.element)
	k.elements++
	k.bytes += len(name)
	x.elements[name] = len(x.names)
	x.names = append(x.names, name)
}

// leave gives up a key.
func (x *recordedKey) leave(why *leftBecause) {
	x.left = cmp.Or(x.left, why)
	x.elements, x.names = nil, nil
}

// Count returns how many keys are followed, and of how many.
func (k *RecordedKeys) Count() (followed, of int64) {
	for _, list := range k.byKind {
		followed += int64(len(list))
	}
	return followed, int64(len(k.keys))
}

// Left says why keys are not followed: the commands with the most keys first.
func (k *RecordedKeys) Left() (out []string) {
	type tally struct{ keys, line int }
	because := map[string]tally{}
	for _, x := range k.keys {
		if x.left != nil {
			t, known := because[x.left.what]
			if t.keys++; !known || x.left.line < t.line {
				t.line = x.left.line
			}
			because[x.left.what] = t
		}
	}
	names := slices.SortedFunc(maps.Keys(because), func(a, b string) int {
		return cmp.Or(because[b].keys-because[a].keys, cmp.Compare(a, b))
	})
	for _, name := range names {
		t := because[name]
		keys := "keys"
		if t.keys == 1 {
			keys = "key"
		}
		out = append(out, fmt.Sprintf("%s (%d %s, from line %d on)", name, t.keys, keys, t.line))
	}
	if k.full {
		out = append(out, fmt.Sprintf("more keys than %d, or than names of %d MiB", maxRecordedKeys,
			maxRecordedNames>>20))
	}
	return out
}

// Changes appends what a command does to the keys that are followed, as steps without words.
func (k *RecordedKeys) Changes(out []RequestStep, x *Recorded) []RequestStep {
	for _, c := range x.changes(nil) {
		key := k.keys[string(c.key)]
		if key == nil || key.left != nil || c.does == Read {
			continue
		}
		step := RequestStep{Kind: int(key.use), Record: uint64(key.number), Does: c.does, Added: c.added, When: c.when}
		if c.element != nil {
			step.Element = key.elements[string(c.element)]
		}
		if c.value != nil {
			step.Value = k.id(key.use, c.value)
		}
		out = append(out, step)
	}
	return out
}

// id returns what stands for a value, or for a score.
func (k *RecordedKeys) id(use keyUse, value []byte) ValueID {
	if use == usedAsSortedSet {
		if score, err := strconv.ParseFloat(string(value), 64); err == nil {
			value = strconv.AppendFloat(nil, score+0, 'g', -1, 64) // 0 and -0 are the same score
		}
	}
	return ValueID(maphash.Bytes(k.seed, value))
}

// The methods below are those of Source for reading back.

// Followed returns how many keys of a kind are followed.
func (k *RecordedKeys) Followed(kind int) uint64 { return uint64(len(k.byKind[kind])) }

func (k *RecordedKeys) Follows(int) bool      { return true }
func (k *RecordedKeys) KindCount() int        { return len(k.byKind) }
func (k *RecordedKeys) Counts(kind int) bool  { return kind == int(usedAsList) }
func (k *RecordedKeys) Counter(kind int) bool { return kind == int(usedAsCounter) }
func (k *RecordedKeys) Joint(int) uint64      { return 0 }
func (k *RecordedKeys) Collection(kind int) bool {
	return keyUse(kind) == usedAsHash || keyUse(kind) == usedAsSortedSet || keyUse(kind) == usedAsSet
}

func (k *RecordedKeys) ElementsOf(kind int, record uint64) int {
	return len(k.byKind[kind][record].names)
}

func (k *RecordedKeys) Is(kind int, _ uint64, texts [][]byte, id ValueID) bool {
	return texts[0] != nil && (keyUse(kind) == usedAsSet || k.id(keyUse(kind), texts[0]) == id)
}

func (k *RecordedKeys) Place(kind int, record uint64, element int) string {
	x := k.byKind[kind][record]
	if len(x.names) > 0 {
		return fmt.Sprintf("%.80q %.80q", x.name, x.names[element])
	}
	return fmt.Sprintf("%.80q", x.name)
}

// Look fills r with the command that reads back a key, or one of its elements.
func (k *RecordedKeys) Look(r *Request, kind int, record uint64, element int) {
	x := k.byKind[kind][record]
	name := []string{"GET", "GET", "HGET", "ZSCORE", "SISMEMBER", "LLEN"}[kind]
	step := RequestStep{Kind: kind, Record: record, Element: element, Key: []byte(x.name)}
	step.Args = [][]byte{[]byte(name), step.Key}
	if k.Collection(kind) {
		step.Args = append(step.Args, []byte(x.names[element]))
	}
	r.Op, r.Steps = 0, append(r.Steps[:0], step)
}
