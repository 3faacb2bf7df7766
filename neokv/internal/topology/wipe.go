package topology

// Wipe is the last wipe of a store: its disk is gone, or is to be emptied, and the store comes back under new replica
// ids. The cluster map has it from when the wipe is ordered, for good.
//
//	ordered ──the folder is empty, and the store asks to begin──▶ begun ──all its replicas are back──▶ done
//
// While it is ordered the store may still run with what it had. From begun on it never does: its replicas of smaller
// ids than Floor have ended, and vote no more.
type Wipe struct {
	Store StoreID `json:"store"`
	Nth   uint64  `json:"nth"` // counts the wipes of the store, from 1
	// Floor is the first replica id that was not handed out when the wipe was ordered.
	Floor ReplicaID `json:"floor"`
	MS    int64     `json:"ms"` // when it was ordered, in Unix ms
	// Begun is the number that the store drew when its folder was emptied, and saved there. 0 until the store begins. A
	// folder with another number is not the one that began.
	Begun uint64 `json:"begun,omitempty"`
	Done  bool   `json:"done,omitempty"`
}

// Lacks reports whether a region has a replica on the store that is not back since the wipe.
func (w *Wipe) Lacks(r *Region) bool {
	for _, p := range r.Peers {
		if p.Store == w.Store && (p.Replica < w.Floor || p.Role != Voter) {
			return true
		}
	}
	return false
}

// Ends reports whether a replica has ended by the wipe.
func (w *Wipe) Ends(p Peer) bool { return w.Begun != 0 && p.Store == w.Store && p.Replica < w.Floor }
