package redis

// This file has the events of keyspace notifications: what a write tells subscribers that it did to a key. A call's row
// says which event its changes are. Where that depends on the arguments, or where a call changes two keys in different
// ways, the command says so (Writer.event, Writer.tell).

// Event is one of Redis's events of keys.
type Event byte

// The events. Their names are those of Redis.
const (
	noEvent     Event = iota // a key that is removed tells EventDel all the same
	silentEvent              // the command tells by itself what happens
	EventDel
	EventExpired
	EventNew
	EventKeyMiss
	EventExpire
	EventPersist
	EventRenameFrom
	EventRenameTo
	EventCopyTo
	EventSet
	EventSetRange
	EventAppend
	EventIncrBy
	EventIncrByFloat
	EventLPush
	EventRPush
	EventLPop
	EventRPop
	EventLInsert
	EventLSet
	EventLRem
	EventLTrim
	EventSortStore
	EventHSet
	EventHIncrBy
	EventHIncrByFloat
	EventHDel
	EventSAdd
	EventSRem
	EventSPop
	EventSInterStore
	EventSUnionStore
	EventSDiffStore
	EventZAdd
	EventZIncr
	EventZRem
	EventZRemRangeByScore
	EventZRemRangeByRank
	EventZRemRangeByLex
	EventZPopMin
	EventZPopMax
	EventZUnionStore
	EventZInterStore
	EventZDiffStore
	EventZRangeStore
)

var events = [...]struct {
	name  string
	class EventClass
	takes bool // it takes elements: if a call of it removes the key, it is told before EventDel
}{
	EventDel:              {"del", ClassGeneric, false},
	EventExpired:          {"expired", ClassExpired, false},
	EventNew:              {"new", ClassNew, false},
	EventKeyMiss:          {"keymiss", ClassMiss, false},
	EventExpire:           {"expire", ClassGeneric, false},
	EventPersist:          {"persist", ClassGeneric, false},
	EventRenameFrom:       {"rename_from", ClassGeneric, false},
	EventRenameTo:         {"rename_to", ClassGeneric, false},
	EventCopyTo:           {"copy_to", ClassGeneric, false},
	EventSet:              {"set", ClassString, false},
	EventSetRange:         {"setrange", ClassString, false},
	EventAppend:           {"append", ClassString, false},
	EventIncrBy:           {"incrby", ClassString, false},
	EventIncrByFloat:      {"incrbyfloat", ClassString, false},
	EventLPush:            {"lpush", ClassList, false},
	EventRPush:            {"rpush", ClassList, false},
	EventLPop:             {"lpop", ClassList, true},
	EventRPop:             {"rpop", ClassList, true},
	EventLInsert:          {"linsert", ClassList, false},
	EventLSet:             {"lset", ClassList, false},
	EventLRem:             {"lrem", ClassList, true},
	EventLTrim:            {"ltrim", ClassList, true},
	EventSortStore:        {"sortstore", ClassList, false},
	EventHSet:             {"hset", ClassHash, false},
	EventHIncrBy:          {"hincrby", ClassHash, false},
	EventHIncrByFloat:     {"hincrbyfloat", ClassHash, false},
	EventHDel:             {"hdel", ClassHash, true},
	EventSAdd:             {"sadd", ClassSet, false},
	EventSRem:             {"srem", ClassSet, true},
	EventSPop:             {"spop", ClassSet, true},
	EventSInterStore:      {"sinterstore", ClassSet, false},
	EventSUnionStore:      {"sunionstore", ClassSet, false},
	EventSDiffStore:       {"sdiffstore", ClassSet, false},
	EventZAdd:             {"zadd", ClassZSet, false},
	EventZIncr:            {"zincr", ClassZSet, false},
	EventZRem:             {"zrem", ClassZSet, true},
	EventZRemRangeByScore: {"zremrangebyscore", ClassZSet, true},
	EventZRemRangeByRank:  {"zremrangebyrank", ClassZSet, true},
	EventZRemRangeByLex:   {"zremrangebylex", ClassZSet, true},
	EventZPopMin:          {"zpopmin", ClassZSet, true},
	EventZPopMax:          {"zpopmax", ClassZSet, true},
	EventZUnionStore:      {"zunionstore", ClassZSet, false},
	EventZInterStore:      {"zinterstore", ClassZSet, false},
	EventZDiffStore:       {"zdiffstore", ClassZSet, false},
	EventZRangeStore:      {"zrangestore", ClassZSet, false},
}

// String returns the event's name, as subscribers get it; it is empty if there is nothing to tell.
func (e Event) String() string { return events[e].name }

// Class returns the event's class.
func (e Event) Class() EventClass { return events[e].class }

// eventOf has the events of commands: what a change of a key is that a call of the command makes.
var eventOf = map[string]Event{
	"del": EventDel, "unlink": EventDel, "getdel": EventDel, "rename": silentEvent, "renamenx": silentEvent,
	"copy": EventCopyTo, "expire": EventExpire, "pexpire": EventExpire, "expireat": EventExpire,
	"pexpireat": EventExpire, "persist": EventPersist, "getex": EventExpire,
	"set": EventSet, "setnx": EventSet, "setex": EventSet, "psetex": EventSet, "getset": EventSet, "mset": EventSet,
	"msetnx": EventSet, "append": EventAppend, "setrange": EventSetRange, "incr": EventIncrBy, "decr": EventIncrBy,
	"incrby": EventIncrBy, "decrby": EventIncrBy, "incrbyfloat": EventIncrByFloat,
	"lpush": EventLPush, "lpushx": EventLPush, "rpush": EventRPush, "rpushx": EventRPush, "lpop": EventLPop,
	"rpop": EventRPop, "linsert": EventLInsert, "lset": EventLSet, "lrem": EventLRem, "ltrim": EventLTrim,
	"sort": EventSortStore, "blpop": EventLPop, "brpop": EventRPop, "bzpopmin": EventZPopMin, "bzpopmax": EventZPopMax,
	"hset": EventHSet, "hmset": EventHSet, "hsetnx": EventHSet, "hincrby": EventHIncrBy,
	"hincrbyfloat": EventHIncrByFloat, "hdel": EventHDel,
	"sadd": EventSAdd, "srem": EventSRem, "spop": EventSPop, "sinterstore": EventSInterStore,
	"sunionstore": EventSUnionStore, "sdiffstore": EventSDiffStore, "smove": EventSRem,
	"zadd": EventZAdd, "zincrby": EventZIncr, "zrem": EventZRem, "zremrangebyscore": EventZRemRangeByScore,
	"zremrangebyrank": EventZRemRangeByRank, "zremrangebylex": EventZRemRangeByLex, "zpopmin": EventZPopMin,
	"zpopmax": EventZPopMax, "zunionstore": EventZUnionStore, "zinterstore": EventZInterStore,
	"zdiffstore": EventZDiffStore, "zrangestore": EventZRangeStore,
}

// EventClass is a set of classes of events, as the setting notify-keyspace-events names them.
type EventClass uint16

// The classes of events, and the two kinds of channels.
const (
	ClassGeneric EventClass = 1 << iota
	ClassString
	ClassList
	ClassSet
	ClassHash
	ClassZSet
	ClassExpired
	ClassEvicted
	ClassStream
	ClassModule
	ClassNew
	Keyspace // a channel per key
	Keyevent // a channel per event
	ClassMiss

	// allClasses is what A stands for.
	allClasses = ClassModule<<1 - 1
)

// classLetters are the letters of the setting, in the order in which CONFIG GET shows them.
const classLetters = "g$lshzxetdnKEm"

var classOf = [len(classLetters)]EventClass{ClassGeneric, ClassString, ClassList, ClassSet, ClassHash, ClassZSet,
	ClassExpired, ClassEvicted, ClassStream, ClassModule, ClassNew, Keyspace, Keyevent, ClassMiss}

// ParseEventClass reads a value of notify-keyspace-events. It returns false if it has an unknown letter.
func ParseEventClass(text string) (all EventClass, ok bool) {
next:
	for _, letter := range text {
		if letter == 'A' {
			all |= allClasses
			continue
		}
		for i, known := range classLetters {
			if letter == known {
				all |= classOf[i]
				continue next
			}
		}
		return 0, false
	}
	return all, true
}

// String returns the classes as CONFIG GET shows them. Beside A, Redis does not show n.
func (c EventClass) String() (text string) {
	if c&allClasses == allClasses {
		text = "A"
		c &^= allClasses | ClassNew
	}
	for i, letter := range classLetters {
		if c&classOf[i] != 0 {
			text += string(letter)
		}
	}
	return text
}
