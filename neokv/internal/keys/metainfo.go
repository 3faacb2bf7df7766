package keys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"neokv.dev/neokv/internal/topology"
)

// Category is the kind of a record of meta_info.
//
//	[tag][1]                           store identity      StoreIdentity
//	[tag][2][region i64]               region state        RegionState
//	[tag][3]                           cluster map that the store saw last    owned by package meta
//	[tag][4][name]                     state of the meta group's replica      owned by package meta
//	[tag][5][metadata key][version u64]  orphan record     Orphan
//	[tag][6][region i64]               stage               Stage
//	[tag][7][region i64]               replica             ReplicaRecord
//	[tag][8][region i64]               replicas that have ended here
//
// The metadata key in an orphan record's key is in the form of the specification, without its tag; since it begins with
// the space and the slot, a region's orphan records are one range. Every value begins with a format byte.
type Category byte

const (
	CategoryStore      Category = 1
	CategoryRegion     Category = 2
	CategoryClusterMap Category = 3
	CategoryMeta       Category = 4
	CategoryOrphan     Category = 5
	CategoryStage      Category = 6
	CategoryReplica    Category = 7
	CategoryEnded      Category = 8
)

// FormatVersion is the format of all that is stored: of the data folder and of each store in it. It rises with every
// change of stored bytes, or of what they mean. A program reads no other.
const FormatVersion = 17

// The format byte of each record of meta_info that this package writes.
const (
	storeIdentityFormat = 1
	regionStateFormat   = 4
	orphanFormat        = 1
	stageFormat         = 2
	replicaFormat       = 2
	endedFormat         = 1
)

func appendCategory(dst []byte, c Category) []byte { return append(dst, byte(MetaInfo), byte(c)) }

// AppendStoreIdentity appends the key of the store's identity.
func AppendStoreIdentity(dst []byte) []byte { return appendCategory(dst, CategoryStore) }

// AppendRegionState appends the key of a region's state.
func AppendRegionState(dst []byte, region topology.RegionID) []byte {
	return appendRegion(appendCategory(dst, CategoryRegion), region)
}

// AppendClusterMap appends the key of the cluster map that the store saw last.
func AppendClusterMap(dst []byte) []byte { return appendCategory(dst, CategoryClusterMap) }

// AppendMetaState appends the key of the record name of the meta group's state machine.
func AppendMetaState(dst []byte, name string) []byte {
	return append(appendCategory(dst, CategoryMeta), name...)
}

// CategoryBounds returns the range of all records of a category.
func CategoryBounds(c Category) (lower, upper []byte) {
	return appendCategory(nil, c), appendCategory(nil, c+1)
}

// StoreIdentity says to which store of which cluster a folder belongs.
//
//	[format u8 = 1][FormatVersion u32][cluster id 16 bytes][store u32]   25 bytes
type StoreIdentity struct {
	Cluster [16]byte // random, made at the cluster's first boot
	Store   topology.StoreID
}

const storeIdentityLen = 1 + 4 + 16 + 4

// Append appends the record.
func (s *StoreIdentity) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, storeIdentityFormat), FormatVersion)
	dst = append(dst, s.Cluster[:]...)
	return binary.BigEndian.AppendUint32(dst, uint32(s.Store))
}

// ParseStoreIdentity decodes the record.
func ParseStoreIdentity(b []byte) (s StoreIdentity, err error) {
	if len(b) < 1+4 {
		return s, fmt.Errorf("store identity: %d bytes, want %d", len(b), storeIdentityLen)
	}
	if b[0] != storeIdentityFormat {
		return s, fmt.Errorf("store identity: format %d, want %d", b[0], storeIdentityFormat)
	}
	if have := binary.BigEndian.Uint32(b[1:]); have != FormatVersion {
		return s, fmt.Errorf("store identity: the store has format %d; this program reads format %d", have, FormatVersion)
	}
	if len(b) != storeIdentityLen {
		return s, fmt.Errorf("store identity: %d bytes, want %d", len(b), storeIdentityLen)
	}
	copy(s.Cluster[:], b[5:])
	s.Store = topology.StoreID(binary.BigEndian.Uint32(b[21:]))
	return s, nil
}

// RegionState is the state of a region that all its replicas must agree on, besides the data. Every apply batch writes
// it.
//
//	offset 0  format u8 = 4
//	       1  apply index u64
//	       9  region time u64, Unix ms
//	      17  last version u64
//	      25  term tag u64
//	      33  key count u64
//	      41  flags u8: bit 0 the key count is exact, bit 1 there may be legacy strings, others zero
//	      42  apply index of the last write of something else than a short string u64, 0 for none
//	      50  where there may be such things u64: bit slot%64
//	      58  first slot u16, last slot u16, version of the bounds uvarint
//	          phase and the kind of the open change u8: 16 * phase + kind
//	          if there is an open change: the other region uvarint, begun uvarint
//
// What follows offset 58 is short, since every apply batch has it: 6 bytes mostly.
type RegionState struct {
	ApplyIndex  uint64
	TimeMS      uint64 // region time, Unix ms
	LastVersion uint64
	TermTag     uint64 // largest term tag applied
	KeyCount    uint64
	KeysExact   bool
	Legacy      bool // there may be legacy strings

	// CollectedAt is the apply index of the last write of something else than a short string in redis_metadata: of a
	// collection, a long string or a legacy string. It is 0 for none. CollectedIn has the SlotBit of every slot that
	// may hold such a thing; it is 0 where CollectedAt is. A write that replaces a key there must look at the key
	// first.
	CollectedAt uint64
	CollectedIn uint64

	Slots   topology.SlotRange
	Version uint64 // of the bounds, from 1
	Phase   RegionPhase
	Change  RegionChange
}

// RegionPhase says whether a region serves its slots.
type RegionPhase byte

// The phases of a region. A region begins to serve when it is made. On its way into its left neighbour it is frozen
// first, and may thaw. It is absorbed for good.
const (
	Serving  RegionPhase = iota
	Frozen               // it applies no commands, until it thaws
	Absorbed             // its slots belong to another region
	phaseCount
)

// RegionChange is a split or a merge that a region is part of. Only one can be open at a time. The zero value says that
// none is.
type RegionChange struct {
	Kind  ChangeKind
	Other topology.RegionID // the child, or the neighbour; 0 while a split has no child yet
	Begun uint64            // the apply index of the entry that began the change in the region that drives it
}

// ChangeKind says what part a region has in a change.
type ChangeKind byte

// The kinds of changes.
const (
	NoChange  ChangeKind = iota
	Splitting            // the region is going to be split
	HasSplit             // the region has been split; its child may not have a quorum yet
	Merging              // the region takes its right neighbour over
	Merged               // it has done so, and the neighbour's replicas may still be there
	Leaving              // the region's left neighbour takes it over
	changeKindCount
)

const (
	regionStateFixed = 58 // what comes before the bounds
	regionKeysExact  = 1
	regionLegacy     = 2
)

// AllSlots has the SlotBit of all slots.
const AllSlots = math.MaxUint64

// SlotBit returns the bit of a slot in RegionState.CollectedIn. Slots with the same remainder by 64 share a bit.
func SlotBit(slot topology.Slot) uint64 { return 1 << (slot % 64) }

// Append appends the record.
func (s *RegionState) Append(dst []byte) []byte {
	dst = append(dst, regionStateFormat)
	for _, v := range [...]uint64{s.ApplyIndex, s.TimeMS, s.LastVersion, s.TermTag, s.KeyCount} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	var flags byte
	if s.KeysExact {
		flags |= regionKeysExact
	}
	if s.Legacy {
		flags |= regionLegacy
	}
	dst = append(dst, flags)
	dst = binary.BigEndian.AppendUint64(dst, s.CollectedAt)
	dst = binary.BigEndian.AppendUint64(dst, s.CollectedIn)
	dst = binary.BigEndian.AppendUint16(dst, uint16(s.Slots.First))
	dst = binary.BigEndian.AppendUint16(dst, uint16(s.Slots.Last))
	dst = binary.AppendUvarint(dst, s.Version)
	dst = append(dst, byte(s.Phase)<<4|byte(s.Change.Kind))
	if s.Change.Kind == NoChange {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(s.Change.Other))
	return binary.AppendUvarint(dst, s.Change.Begun)
}

// ParseRegionState decodes the record.
func ParseRegionState(b []byte) (s RegionState, err error) {
	if len(b) > 0 && b[0] != regionStateFormat {
		return s, fmt.Errorf("region state: format %d, want %d", b[0], regionStateFormat)
	}
	if least := regionStateFixed + 4; len(b) < least {
		return s, fmt.Errorf("region state: %d bytes, want at least %d", len(b), least)
	}
	if b[41]&^(regionKeysExact|regionLegacy) != 0 {
		return s, fmt.Errorf("region state: flags %#02x, want no bit but 0 and 1", b[41])
	}
	for i, p := range [...]*uint64{&s.ApplyIndex, &s.TimeMS, &s.LastVersion, &s.TermTag, &s.KeyCount} {
		*p = binary.BigEndian.Uint64(b[1+8*i:])
	}
	s.KeysExact = b[41]&regionKeysExact != 0
	s.Legacy = b[41]&regionLegacy != 0
	s.CollectedAt = binary.BigEndian.Uint64(b[42:])
	s.CollectedIn = binary.BigEndian.Uint64(b[50:])
	rest := b[regionStateFixed:]
	s.Slots.First = topology.Slot(binary.BigEndian.Uint16(rest))
	s.Slots.Last = topology.Slot(binary.BigEndian.Uint16(rest[2:]))
	rest = rest[4:]
	number := func() (x uint64) {
		n := 0
		x, n = binary.Uvarint(rest)
		switch {
		case n <= 0:
			rest, err = nil, errors.New("region state: the bounds are cut short")
			return 0
		case n > 1 && rest[n-1] == 0: // Append writes none
			err = errors.New("region state: a number is longer than it need be")
		}
		rest = rest[n:]
		return x
	}
	s.Version = number()
	if len(rest) == 0 {
		return s, errors.New("region state: there is no phase")
	}
	s.Phase, s.Change.Kind = RegionPhase(rest[0]>>4), ChangeKind(rest[0]&15)
	if rest = rest[1:]; s.Change.Kind != NoChange {
		s.Change.Other, s.Change.Begun = topology.RegionID(number()), number()
	}
	switch {
	case err != nil:
	case len(rest) > 0:
		err = fmt.Errorf("region state: %d bytes too much", len(rest))
	case s.Version == 0:
		err = errors.New("region state: version 0, want at least 1")
	case s.Slots.First > s.Slots.Last || s.Slots.Last >= topology.SlotCount:
		err = fmt.Errorf("region state: slots %d to %d, want an ascending range up to %d", s.Slots.First, s.Slots.Last,
			topology.SlotCount-1)
	case s.Phase >= phaseCount || s.Change.Kind >= changeKindCount:
		err = fmt.Errorf("region state: phase %d, change %d, want less than %d and %d", s.Phase, s.Change.Kind,
			phaseCount, changeKindCount)
	}
	return s, err
}

// AppendStage appends the key of the stage of a region.
func AppendStage(dst []byte, region topology.RegionID) []byte {
	return appendRegion(appendCategory(dst, CategoryStage), region)
}

// Stage says that a replica has applied some units of an entry, and not yet the others. The region state then counts
// the entry as not applied. A record whose index is not above the apply index means nothing.
//
//	[format u8 = 2][index u64][units u64][length of the bits uvarint][bits][choice]   18 bytes, the bits and the choice
type Stage struct {
	Index uint64 // of the entry
	Units uint64 // how many of its units are applied
	// Touched has a bit for each mark of the entry: bit n%8 of byte n/8 is set if one of these units has changed the
	// key of mark n. It is as long as its last set bit needs.
	Touched []byte
	Choice  []byte // the state of its random choices, see redis.Writer.AppendChoice
}

const stageLen = 1 + 8 + 8 + 1

// Append appends the record.
func (s *Stage) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, stageFormat), s.Index)
	dst = binary.AppendUvarint(binary.BigEndian.AppendUint64(dst, s.Units), uint64(len(s.Touched)))
	return append(append(dst, s.Touched...), s.Choice...)
}

// ParseStage decodes the record. Touched and Choice alias b.
func ParseStage(b []byte) (s Stage, err error) {
	if len(b) > 0 && b[0] != stageFormat {
		return s, fmt.Errorf("stage: format %d, want %d", b[0], stageFormat)
	}
	if len(b) < stageLen {
		return s, fmt.Errorf("stage: %d bytes, want at least %d", len(b), stageLen)
	}
	size, n := binary.Uvarint(b[17:])
	if n <= 0 || size > uint64(len(b)-17-n) {
		return s, fmt.Errorf("stage: bits of %d bytes, cut short", size)
	}
	bits := 17 + n
	choice := bits + int(size)
	return Stage{Index: binary.BigEndian.Uint64(b[1:]), Units: binary.BigEndian.Uint64(b[9:]),
		Touched: b[bits:choice:choice], Choice: b[choice:]}, nil
}

// AppendReplica appends the key of the record of the store's replica of a region.
func AppendReplica(dst []byte, region topology.RegionID) []byte {
	return appendRegion(appendCategory(dst, CategoryReplica), region)
}

// ParseReplicaKey returns the region of such a key.
func ParseReplicaKey(key []byte) (topology.RegionID, error) {
	if len(key) != 2+8 || Keyspace(key[0]) != MetaInfo || Category(key[1]) != CategoryReplica {
		return 0, fmt.Errorf("replica key: %x", key)
	}
	return topology.RegionID(I64(key[2:])), nil
}

// ReplicaRecord says that the store holds a replica of a region, and what the replica knows of the region's peers. The
// store starts the replicas of which it has such a record. It is made in one batch with the replica's region state,
// and goes when the region is absorbed by another one, or when the replica has left the region. Entries of the
// region's log, and snapshots, replace the peers.
//
//	[format u8 = 2][replica u64][begins u8][born u64][after u64][peers]
type ReplicaRecord struct {
	ID     topology.ReplicaID
	Begins Beginning
	Born   uint64 // the least Conf of peers that have the replica, as far as the store knows
	// After is the index of the entry that made the replica a peer, if it begins as a non-voter. Until it has data, it
	// takes neither the region's first entries nor a snapshot of before.
	After uint64
	PeerSet
}

// Beginning says how a replica came to its store. The Raft library must know that for all of the replica's life.
type Beginning byte

const (
	Founding       Beginning = iota // with the data of its region, or with the region
	JoinsVoting                     // empty, as a voter whose store missed the split that made the region
	JoinsNonVoting                  // empty, as a non-voter that the leader makes a voter when it has caught up
	beginningCount
)

// PeerSet is who has the replicas of a region, as of some entry of its log.
//
//	[conf u64][since u64][peers u16] then per peer [store u32][replica u64][role u8]
type PeerSet struct {
	Conf  uint64 // counts the changes of the peers, from 1
	Since uint64 // the apply index of the latest change, 0 if there was none
	Peers []topology.Peer
}

// FirstPeers returns the peers with which a region begins.
func FirstPeers(peers []topology.Peer) PeerSet { return PeerSet{Conf: 1, Peers: peers} }

const (
	replicaLen = 1 + 8 + 1 + 8 + 8
	peerLen    = 4 + 8 + 1
	// PeerSetLen is the length of a set without peers.
	PeerSetLen = 8 + 8 + 2
)

// Append appends the set.
func (s *PeerSet) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, s.Conf)
	dst = binary.BigEndian.AppendUint64(dst, s.Since)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s.Peers)))
	for _, p := range s.Peers {
		dst = binary.BigEndian.AppendUint32(dst, uint32(p.Store))
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.Replica))
		dst = append(dst, byte(p.Role))
	}
	return dst
}

// PeersLen returns the length of the peers behind the first PeerSetLen bytes of a set.
func PeersLen(b []byte) int { return peerLen * int(binary.BigEndian.Uint16(b[PeerSetLen-2:])) }

// ParsePeerSet decodes a set.
func ParsePeerSet(b []byte) (s PeerSet, err error) {
	if len(b) < PeerSetLen || len(b) != PeerSetLen+PeersLen(b) {
		return s, fmt.Errorf("peers: %d bytes, want %d and %d per peer", len(b), PeerSetLen, peerLen)
	}
	if s.Conf, s.Since = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]); s.Conf == 0 {
		return s, errors.New("peers: conf 0, want at least 1")
	}
	for b = b[PeerSetLen:]; len(b) > 0; b = b[peerLen:] {
		p := topology.Peer{
			Store: topology.StoreID(binary.BigEndian.Uint32(b)), Replica: topology.ReplicaID(binary.BigEndian.Uint64(b[4:])),
			Role: topology.Role(b[12]),
		}
		if p.Role >= topology.RoleCount {
			return s, fmt.Errorf("peers: role %d, want less than %d", p.Role, topology.RoleCount)
		}
		s.Peers = append(s.Peers, p)
	}
	return s, nil
}

// Append appends the record.
func (r *ReplicaRecord) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, replicaFormat), uint64(r.ID))
	dst = binary.BigEndian.AppendUint64(append(dst, byte(r.Begins)), r.Born)
	return r.PeerSet.Append(binary.BigEndian.AppendUint64(dst, r.After))
}

// ParseReplica decodes the record.
func ParseReplica(b []byte) (r ReplicaRecord, err error) {
	if len(b) < replicaLen || b[0] != replicaFormat {
		return r, fmt.Errorf("replica: %d bytes, want format %d and at least %d", len(b), replicaFormat, replicaLen)
	}
	if r.Begins = Beginning(b[9]); r.Begins >= beginningCount {
		return r, fmt.Errorf("replica: begins %d, want less than %d", r.Begins, beginningCount)
	}
	r.ID = topology.ReplicaID(binary.BigEndian.Uint64(b[1:]))
	r.Born, r.After = binary.BigEndian.Uint64(b[10:]), binary.BigEndian.Uint64(b[18:])
	if r.PeerSet, err = ParsePeerSet(b[replicaLen:]); err != nil {
		err = fmt.Errorf("replica: %w", err)
	}
	return r, err
}

// AppendEnded appends the key of the record of the replicas of a region that have ended on the store.
func AppendEnded(dst []byte, region topology.RegionID) []byte {
	return appendRegion(appendCategory(dst, CategoryEnded), region)
}

// AppendEndedID appends the value of that record: the largest id of the store's replicas of the region that have left
// it. No replica of an id up to this one begins on the store again.
//
//	[format u8 = 1][replica u64]
func AppendEndedID(dst []byte, largest topology.ReplicaID) []byte {
	return binary.BigEndian.AppendUint64(append(dst, endedFormat), uint64(largest))
}

// ParseEnded decodes such a value.
func ParseEnded(b []byte) (topology.ReplicaID, error) {
	if len(b) != 1+8 || b[0] != endedFormat {
		return 0, fmt.Errorf("ended replicas: %d bytes, want format %d and 9 bytes", len(b), endedFormat)
	}
	return topology.ReplicaID(binary.BigEndian.Uint64(b[1:])), nil
}

// Orphan is a version of a collection, or of a long string, that no metadata names any more: work for the reclaimer.
// Size is how many elements or pieces it has; pieces may be missing.
//
//	key    [tag][5][space i64][index i64][slot u16][user key length u32][user key][version u64]
//	value  [format u8 = 1][type u8][size u64]   10 bytes
type Orphan struct {
	Slot    topology.Slot
	User    []byte
	Version uint64
	Type    Type
	Size    uint64
}

const (
	orphanKeyOffset = 2 // the metadata key without its tag begins here
	orphanLen       = 1 + 1 + 8
)

// AppendKey appends the orphan record's key.
func (o *Orphan) AppendKey(dst []byte) []byte {
	at := len(dst) + 1
	dst = append(dst, byte(MetaInfo))
	dst = AppendMetadata(dst, o.Slot, o.User)
	dst[at] = byte(CategoryOrphan) // in the place of the metadata key's tag
	return binary.BigEndian.AppendUint64(dst, o.Version)
}

// Append appends the orphan record's value.
func (o *Orphan) Append(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(append(dst, orphanFormat, byte(o.Type)), o.Size)
}

// ParseOrphan decodes an orphan record. User aliases key.
func ParseOrphan(key, value []byte) (o Orphan, err error) {
	const fixed = orphanKeyOffset + UserKeyOffset - 1 + VersionLen
	if len(key) < fixed {
		return o, fmt.Errorf("orphan key: %d bytes, want at least %d", len(key), fixed)
	}
	if Keyspace(key[0]) != MetaInfo || Category(key[1]) != CategoryOrphan {
		return o, fmt.Errorf("orphan key: in %v category %d", Keyspace(key[0]), key[1])
	}
	// From its category on, the key has the form of a key of Redis data: the category stands where the tag does.
	if string(key[2:1+PrefixLen]) != space {
		return o, fmt.Errorf("orphan key: in another space or index: %x", key[2:1+PrefixLen])
	}
	end := len(key) - VersionLen
	if n := UserKeyOffset + uint64(binary.BigEndian.Uint32(key[1+PrefixLen+2:])); uint64(end-1) != n {
		return o, fmt.Errorf("orphan key: %d bytes, want %d", len(key), 1+n+VersionLen)
	}
	o.Slot = topology.Slot(binary.BigEndian.Uint16(key[1+PrefixLen:]))
	o.User = key[1+UserKeyOffset : end : end]
	o.Version = binary.BigEndian.Uint64(key[end:])
	if len(value) != orphanLen {
		return o, fmt.Errorf("orphan: %d bytes, want %d", len(value), orphanLen)
	}
	if value[0] != orphanFormat {
		return o, fmt.Errorf("orphan: format %d, want %d", value[0], orphanFormat)
	}
	o.Type, o.Size = Type(value[1]), binary.BigEndian.Uint64(value[2:])
	return o, nil
}

// OrphanBounds returns the range of the orphan records of the slots r.
func OrphanBounds(r topology.SlotRange) (lower, upper []byte) {
	lower, upper = SlotBounds(Keyspace(CategoryOrphan), r) // the category stands where the tag does
	return append([]byte{byte(MetaInfo)}, lower...), append([]byte{byte(MetaInfo)}, upper...)
}
