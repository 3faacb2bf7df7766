package redis

import "slices"

// Group is a part of a run of writes that takes effect at one instant: the calls [From, To) of the run, of which there
// is at least one. A call in no group takes effect by itself. In a group, reads may stand among the writes; they see
// what the calls before them have written. A call that replies an error undoes nothing.
type Group struct {
	From, To int
	Kind     GroupKind
}

// GroupKind says where a group comes from. It is a part of the entry.
type GroupKind byte

// GroupExec is a transaction: MULTI to EXEC.
const GroupExec GroupKind = 1

// Drop says that a group of a run had no effect. Its calls have empty replies.
type Drop struct {
	Group int // its index in Run.Groups
	// Error is the reply, the line without the leading '-'. It is empty if a watched key has been changed: then the
	// reply is a null.
	Error string
}

// GroupAt returns the index of the group that begins at a call of the run, -1 if none does.
func (r *Run) GroupAt(call int) int {
	if len(r.Groups) == 0 {
		return -1
	}
	at, found := slices.BinarySearchFunc(r.Groups, call, func(g Group, call int) int { return g.From - call })
	if !found {
		return -1
	}
	return at
}
