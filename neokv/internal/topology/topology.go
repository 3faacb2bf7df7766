// Package topology holds the nouns of placement: slots, regions, stores and replicas. It does no I/O and imports only
// std.
package topology

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SlotCount is the number of hash slots of a Redis Cluster.
const SlotCount = 16384

// Slot is a hash slot, 0 to SlotCount-1.
type Slot uint16

// SlotRange is a range of slots, both ends included.
type SlotRange struct {
	First Slot `json:"first"`
	Last  Slot `json:"last"`
}

// Contains reports whether s lies in the range.
func (r SlotRange) Contains(s Slot) bool { return r.First <= s && s <= r.Last }

// Count is the number of slots in the range.
func (r SlotRange) Count() int { return int(r.Last) - int(r.First) + 1 }

// Overlaps reports whether the ranges have a slot in common.
func (r SlotRange) Overlaps(other SlotRange) bool {
	return r.First <= other.Last && other.First <= r.Last
}

// Complement returns the ranges of slots that are in none of the given ones, ascending. It sorts held.
func Complement(held []SlotRange) (rest []SlotRange) {
	slices.SortFunc(held, func(a, b SlotRange) int { return int(a.First) - int(b.First) })
	next := 0
	for _, r := range held {
		if int(r.First) > next {
			rest = append(rest, SlotRange{First: Slot(next), Last: r.First - 1})
		}
		next = max(next, int(r.Last)+1)
	}
	if next < SlotCount {
		rest = append(rest, SlotRange{First: Slot(next), Last: SlotCount - 1})
	}
	return rest
}

// String prints the range as Redis does: "0-5460", or "7" for a single slot.
func (r SlotRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(uint16(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// SplitEvenly cuts all slots into n ranges, 1 <= n <= SlotCount, whose sizes differ by at most one.
func SplitEvenly(n int) []SlotRange {
	out := make([]SlotRange, n)
	for i := range out {
		out[i] = SlotRange{First: Slot(i * SlotCount / n), Last: Slot((i+1)*SlotCount/n - 1)}
	}
	return out
}

// Cover gives each slot to the first of the ranges that contains it: owner[slot] is its number in ranges, or -1 if none
// does. The ranges must have slots that exist, in any order. It takes O(SlotCount + len(ranges)): each slot is given away
// once, and passed over from then on.
func Cover(ranges []SlotRange) (owner []int32) {
	owner = make([]int32, SlotCount)
	free := make([]uint16, SlotCount+1) // a link to the slot itself while it has no owner, then towards the next such
	for i := range owner {
		owner[i], free[i] = -1, uint16(i)
	}
	free[SlotCount] = SlotCount
	find := func(s uint16) uint16 {
		for free[s] != s {
			free[s] = free[free[s]]
			s = free[s]
		}
		return s
	}
	for i, r := range ranges {
		last := uint16(r.Last)
		for s := find(uint16(r.First)); s <= last; s = find(s) {
			for ; s <= last && free[s] == s; s++ {
				owner[s], free[s] = int32(i), last+1
			}
		}
	}
	return owner
}

// RegionID is the number of a region, from 1. dragonboat calls it the shard id.
type RegionID int64

// MetaRegion is the Raft group that holds the cluster map.
const MetaRegion RegionID = 0

// StoreID is the number of a store, from 1.
type StoreID uint32

// RaftAddress returns the fixed name by which the transport finds the store. It depends on no host or port.
func (s StoreID) RaftAddress() string { return raftAddress + strconv.FormatUint(uint64(s), 10) }

const raftAddress = "store-"

// StoreOf is the inverse of RaftAddress. ok is false for any other string. It does not allocate, since dragonboat calls
// it for every address of every message.
func StoreOf(address string) (s StoreID, ok bool) {
	digits, ok := strings.CutPrefix(address, raftAddress)
	if !ok || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return StoreID(n), err == nil
}

// ReplicaID is the number of one replica of a region. Meta hands these numbers out, and never the same one twice.
type ReplicaID uint64

// Peer is a replica and the store that holds it.
type Peer struct {
	Store   StoreID   `json:"store"`
	Replica ReplicaID `json:"replica"`
	Role    Role      `json:"role,omitempty"`
}

// Role says what a peer is in its region. While a change of peers is open, some are no voters.
type Role byte

const (
	Voter   Role = iota
	Joining      // it is to become a voter, and may be one already
	Leaving      // it is to leave the region, and may have left already
	RoleCount
)

// Region is a slot range served by one Raft group. Version counts changes of the bounds, ConfVersion changes of the
// peers. A region that takes over slots from another has a larger version than the other had.
type Region struct {
	ID          RegionID  `json:"id"`
	Slots       SlotRange `json:"slots"`
	Peers       []Peer    `json:"peers"`
	Version     uint64    `json:"version"`
	ConfVersion uint64    `json:"conf_version"`
}

// Settled reports whether all peers are voters, so that no change of the peers is open.
func (r *Region) Settled() bool {
	return !slices.ContainsFunc(r.Peers, func(p Peer) bool { return p.Role != Voter })
}

// PeerOn returns the region's replica on store s.
func (r *Region) PeerOn(s StoreID) (Peer, bool) {
	i := slices.IndexFunc(r.Peers, func(p Peer) bool { return p.Store == s })
	if i < 0 {
		return Peer{}, false
	}
	return r.Peers[i], true
}

// StoreOf returns the store that holds replica id, 0 if none does.
func (r *Region) StoreOf(id ReplicaID) StoreID {
	for _, p := range r.Peers {
		if p.Replica == id {
			return p.Store
		}
	}
	return 0
}

// SlotOf returns the slot of a Redis key: the CRC16 of its hash tag or, without one, of the whole key. The hash tag is
// the text between the first '{' and the next '}', if it is not empty (Redis Cluster specification, "Key distribution
// model").
func SlotOf(key []byte) Slot {
	return Slot(crc16(hashTag(key)) % SlotCount)
}

// SlotOfAll returns the slot of all keys that begin with a prefix. ok is false if the prefix has no whole hash tag, so
// that these keys have different slots.
func SlotOfAll(prefix []byte) (s Slot, ok bool) {
	return SlotOf(prefix), len(hashTag(prefix)) < len(prefix)
}

func hashTag(key []byte) []byte {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	n := bytes.IndexByte(key[open+1:], '}')
	if n <= 0 {
		return key
	}
	return key[open+1 : open+1+n]
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, start 0, not reflected.
func crc16(b []byte) uint16 {
	var c uint16
	for _, x := range b {
		c = c<<8 ^ crcTable[byte(c>>8)^x]
	}
	return c
}

var crcTable = func() (t [256]uint16) {
	for i := range t {
		c := uint16(i) << 8
		for range 8 {
			if c&0x8000 != 0 {
				c = c<<1 ^ 0x1021
			} else {
				c <<= 1
			}
		}
		t[i] = c
	}
	return t
}()
