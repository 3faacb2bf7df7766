package workloads

import (
	"strconv"
)

// CollectionType is a type of collection. The elements of a record are numbered from 0. Those that are loaded are there
// when the run phase begins.
type CollectionType struct {
	name string
	// add is the command that adds elements, and element the words for one of them.
	add, element string
	// read is the command that returns what an element holds; it is empty for types whose elements hold nothing. count
	// is the command that returns how many elements there are.
	read, count string
}

var (
	hash = &CollectionType{name: "hash", add: "HSET", element: "<member> <value>", read: "HGET", count: "HLEN"}
	list = &CollectionType{name: "list", add: "RPUSH", element: "<value>", count: "LLEN"}
	set  = &CollectionType{name: "set", add: "SADD", element: "<member>", count: "SCARD"}

	sortedSet = &CollectionType{name: "zset", add: "ZADD", element: "<score> <member>", read: "ZSCORE", count: "ZCARD"}
)

var collectionTypes = []*CollectionType{hash, list, set, sortedSet}

// textBytes bounds the text of a member or a score.
const textBytes = 32

// appendMember appends the name of a loaded element, much as redis-benchmark names it.
func appendMember(dst []byte, element int) []byte {
	return appendPadded(append(dst, "element:"...), int64(element), 12)
}

// appendNewMember appends a name that no other element has. It is made of 64 random bits and longer than the names of
// loaded elements.
func appendNewMember(dst []byte, random uint64) []byte {
	dst = append(dst, "element:"...)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[random>>shift&15])
	}
	return dst
}

// appendScore appends the score that a value's number stands for.
func appendScore(dst []byte, id ValueID) []byte { return strconv.AppendUint(dst, uint64(id), 10) }

// ElementValue returns the value, or score, of an element of a loaded record. It differs from those of the other
// elements of the record, and the order of the values is not that of the elements.
func ElementValue(record ValueID, element int) ValueID {
	const odd = 0x9e37_79b1 // so that numbers do not repeat
	return (record + ValueID(element)*odd) % poolBytes
}

// maxOwed is how many elements a client may have pushed and not popped.
const maxOwed = 16
