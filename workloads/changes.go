package workloads

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// keyUse is what a recording uses a key as. It is the number of a kind for reading back.
type keyUse int

const (
	usedAsString keyUse = iota
	usedAsCounter
	usedAsHash
	usedAsSortedSet
	usedAsSet
	usedAsList
	keyUses        // how many there are
	usedAsAny = -1 // the command takes keys of all types
)

func (u keyUse) String() string {
	return []string{"string", "counter", "hash", "sorted set", "set", "list"}[u]
}

// keyChange is what a recorded command does to a key, or to one element of it.
type keyChange struct {
	key     []byte
	use     keyUse
	does    OpKind // Read for a command that leaves alone what reading back compares
	element []byte // nil: of the whole key
	value   []byte // or score
	added   int
	when    ReplyCondition
}

// ReplyCondition says after which replies a command has taken effect.
type ReplyCondition uint8

const (
	Always    ReplyCondition = iota // after all but errors
	IfNotNull                       // not after null
	IfNotZero                       // not after 0
)

// Holds reports whether a command has taken effect that was answered with a number, or with null.
func (c ReplyCondition) Holds(number int64, null bool) bool {
	return !(c == IfNotNull && null || c == IfNotZero && number == 0)
}

// changesAll reports whether a command may change keys that it does not name.
func (x *Recorded) changesAll() bool {
	return x.Name == "flushall" || x.Name == "flushdb" || x.Name == "swapdb"
}

// changes appends what a recorded command does. Of a command that reading back cannot follow that is an Untracked
// change of each key that it may write. A script writes no keys but those that it names.
func (x *Recorded) changes(out []keyChange) []keyChange {
	a := x.Args
	if !knownCommands[x.Name].takes(len(a)) {
		return out // a server refuses it
	}
	whole := func(use keyUse, does OpKind, when ReplyCondition) []keyChange {
		return append(out, keyChange{key: a[1], use: use, does: does, when: when})
	}
	of := func(use keyUse, does OpKind, value []byte, when ReplyCondition) []keyChange {
		return append(out, keyChange{key: a[1], use: use, does: does, value: value, when: when})
	}
	elements := func(use keyUse, does OpKind, from, step, value int) []keyChange {
		for i := from; i+max(step-1, 0) < len(a); i += step {
			c := keyChange{key: a[1], use: use, does: does}
			if c.element = a[i]; step == 2 {
				c.element, c.value = a[i+1-value], a[i+value]
			}
			out = append(out, c)
		}
		return out
	}
	switch x.Name {
	case "set":
		if does, when, ok := setOptions(a[3:]); ok {
			return of(usedAsString, does, a[2], when)
		}
	case "setex", "psetex":
		return of(usedAsString, WriteFading, a[3], Always)
	case "getset":
		return of(usedAsString, Write, a[2], Always)
	case "setnx":
		return of(usedAsString, Write, a[2], IfNotZero)
	case "mset", "msetnx":
		when := Always
		if x.Name == "msetnx" {
			when = IfNotZero
		}
		for i := 1; i+1 < len(a); i += 2 {
			out = append(out, keyChange{key: a[i], use: usedAsString, does: Write, value: a[i+1], when: when})
		}
		return out
	case "del", "unlink":
		for _, key := range a[1:] {
			out = append(out, keyChange{key: key, use: usedAsAny, does: Delete})
		}
		return out
	case "getdel":
		return whole(usedAsString, Delete, Always)
	case "getex":
		return whole(usedAsString, Fade, Always)
	case "expire", "pexpire", "expireat", "pexpireat":
		return whole(usedAsAny, Fade, Always)
	case "persist":
		return whole(usedAsAny, Read, Always)
	case "incr":
		return whole(usedAsCounter, Increment, Always)
	case "hset", "hmset":
		return elements(usedAsHash, Write, 2, 2, 1)
	case "hsetnx":
		return append(out, keyChange{key: a[1], use: usedAsHash, does: Write, element: a[2], value: a[3], when: IfNotZero})
	case "hdel":
		return elements(usedAsHash, Remove, 2, 1, 0)
	case "sadd":
		return elements(usedAsSet, Write, 2, 1, 0)
	case "srem":
		return elements(usedAsSet, Remove, 2, 1, 0)
	case "zadd":
		from := 2
		if bytes.EqualFold(a[2], []byte("ch")) {
			from++
		}
		if _, err := strconv.ParseFloat(string(a[from]), 64); err == nil {
			return elements(usedAsSortedSet, Write, from, 2, 0)
		}
	case "zrem":
		return elements(usedAsSortedSet, Remove, 2, 1, 0)
	case "lpush", "rpush", "lpushx", "rpushx":
		when := Always
		if strings.HasSuffix(x.Name, "x") {
			when = IfNotZero
		}
		return append(out, keyChange{key: a[1], use: usedAsList, does: Push, added: len(a) - 2, when: when})
	case "lpop", "rpop":
		if len(a) == 2 {
			return whole(usedAsList, Pop, Always)
		}
	case "rpoplpush", "lmove":
		return append(whole(usedAsList, Pop, Always),
			keyChange{key: a[2], use: usedAsList, does: Push, added: 1, when: IfNotNull})
	case "lset":
		return whole(usedAsList, Read, Always)
	}
	for _, key := range x.writtenKeys() {
		out = append(out, keyChange{key: key, use: usedAsAny, does: Untracked})
	}
	return out
}

// setOptions reads the options of a SET. ok is false if its reply does not tell whether it took effect.
func setOptions(options [][]byte) (does OpKind, when ReplyCondition, ok bool) {
	does, get := Write, false
	for i := 0; i < len(options); i++ {
		switch strings.ToUpper(string(options[i])) {
		case "EX", "PX", "EXAT", "PXAT":
			does = WriteFading
			i++
		case "KEEPTTL":
			does = WriteFading
		case "NX", "XX":
			when = IfNotNull
		case "GET":
			get = true
		default:
			return does, when, false
		}
	}
	return does, when, !get || when == Always
}

// writtenKeys returns the keys that a command may write: those that COMMAND of redis-server names, and those whose
// place depends on the call.
func (x *Recorded) writtenKeys() (keys [][]byte) {
	a, known := x.Args, knownCommands[x.Name]
	counted := func(at int) [][]byte { // keys behind their number
		if at >= len(a) {
			return nil
		}
		n, err := strconv.Atoi(string(a[at]))
		if err != nil || n < 0 || n > len(a)-at-1 {
			return nil // a server refuses it
		}
		return a[at+1 : at+1+n]
	}
	switch x.Name {
	case "eval", "evalsha", "fcall":
		return counted(2)
	case "lmpop", "zmpop":
		return counted(1)
	case "xgroup":
		return a[2:min(3, len(a))]
	case "xreadgroup":
		if at := slices.IndexFunc(a, func(w []byte) bool { return bytes.EqualFold(w, []byte("streams")) }); at > 0 {
			return a[at+1 : at+1+(len(a)-at-1)/2]
		}
		return nil
	case "sort", "georadius", "georadiusbymember":
		for i := 2; i+1 < len(a); i++ {
			if bytes.EqualFold(a[i], []byte("store")) || bytes.EqualFold(a[i], []byte("storedist")) {
				keys = append(keys, a[i+1])
			}
		}
		return keys
	case "sunionstore", "sinterstore", "sdiffstore", "zrangestore", "geosearchstore", "pfmerge", "bitop":
		return a[known.key:min(known.key+1, len(a))] // the others are read
	case "copy":
		return a[2:min(3, len(a))]
	}
	if !known.writes || known.key == 0 {
		return nil
	}
	last := known.last
	if last < 0 {
		last += len(a)
	}
	for i := known.key; i <= last && i < len(a); i += known.step {
		keys = append(keys, a[i])
	}
	return keys
}
