package transport

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// filter decides which Raft messages leave one store. It makes the store keep its promises to leaders with leases, and
// it drops proposals that would be forwarded to another store. It does no I/O and reads no clock. All methods may run
// concurrently.
//
// # Why a read under a lease is never stale
//
// A leader L of term T issues a read index at t0 and, once a quorum Q has confirmed it, reads locally until t0+Lease.
// Voters confirm with a HeartbeatResp that carries the read's hint; L confirms without a message. A store's filter sees
// two kinds of messages of a region leave. It judges both under one lock, so they have an order. Raft's own order means
// nothing here, since they wait in different send queues:
//
//	H(T)  a hinted HeartbeatResp of term T
//	S(G)  support for a leader of term G: a granted RequestVoteResp, or a RequestVote, since a candidate
//	      has voted for itself
//
// and it keeps these rules:
//
//  1. After S(G) no H(T) with T < G leaves.
//  2. For Lease after an H no S leaves, nor does a granted pre-vote or a RequestPreVote; unless the campaign is a
//     leader transfer.
//  3. Before S(G) leaves, the store's own leases of terms below G are revoked; before TimeoutNow of term T leaves,
//     those up to T.
//
// Let a replica become leader of a term G > T with the votes of a quorum Q'. Some voter v is in Q and Q', and S(G) has
// left v: by message if v voted for another; if v is the new leader itself, it asked somebody else, unless it is the
// only voter.
//
//   - v is L. By rule 3 L's lease had been revoked before.
//   - v confirmed with H(T), at h >= t0. By rule 1 S(G) came after it, by rule 2 not before h+Lease >= t0+Lease: the
//     lease is over.
//   - v supported a transfer campaign. It is the answer to TimeoutNow of term G-1 (an older one is refused by its
//     receiver, a newer one makes it campaign for a later term), so the leader of G-1 has revoked its lease for that
//     whole term. If T < G-1, the lease of T was over or revoked already when G-1's leader was elected, by this same
//     argument.
//
// The replica marks a campaign that Endpoint.Campaign has started like a transfer, but no leader has revoked a lease
// for it. The filter tells the two apart, since only a transfer begins with a TimeoutNow that came in, and gives a
// booting campaign a mark of its own. At an endpoint that boots with the whole cluster such a campaign need not wait
// for promises of an earlier endpoint. It must wait for promises of this one, and Raft's own rule for voters that know
// a leader holds. At any other endpoint the mark means nothing: the campaign may have been under way for long, and
// leases may have been held since.
//
// A promise binds the store, not the replica's memory, and not one replica alone: it outlives a replica that is
// removed, and a region that comes back to the store keeps it. After a restart the next endpoint keeps the promise by
// rule 2, as if it had sent H when it was made; the endpoint before it was silent by then, or in another process. Rule
// 1 needs no memory across restarts: term G is durable before S(G) is handed to the transport. A message may be delayed
// after it has left, since the lease counts from t0 and the promise from h: what matters is when, and in which order,
// the filter judges messages. So messages may wait in queues and sockets. They may arrive when another endpoint has
// taken the place of the sender or of the receiver: that endpoint started after they were judged and keeps rule 2 from
// its own start, and a transfer's revocation holds for ever. For the same reason a TimeoutNow may arrive several times,
// as Endpoint.repeat lets it. Only the mark of a booting campaign depends on time, so the receiver judges it by its own
// start.
//
// A paused store adds no case. Its messages wait before its filter, as if dragonboat had not sent them yet: the filter
// judges them when they leave, after the pause, by what it has promised until then. A message to a paused store waits
// behind its sender's filter, as in a socket. The paused store's filter takes note of it after the pause, right before
// the replicas see it. A lease that a paused leader holds goes on, since it counts from t0. So do the promises to that
// leader, which voters keep whether they hear of it or not. The pause revokes nothing and need not: a TimeoutNow or a
// vote that waits has not left, so nobody has acted on it.
//
// Clocks only measure durations. A store is not covered if its clock runs fast by more than the margin between the
// lease and the shortest election time-out.
//
// Quorums of memberships one step apart intersect; quorums two steps apart need not, and a sole voter elects itself
// without a message. So a lease must not outlive a change of membership: its region drops it. Non-voters get no hints
// and do not count. Witnesses are voters.
//
// What the rules cost: a voter that hears its leader follows it, and otherwise campaigns after an election time-out,
// which is longer than Lease. So if no store has restarted and no message was late, there is nothing to withhold. A
// granted vote that is withheld is lost; the candidate asks again in its next term. A pre-vote binds nobody: a voter
// that granted one goes on confirming its leader. The filter withholds pre-votes only so that a candidate without a
// chance does not raise its term. They do not count for rule 1, or a leader could lose its followers' confirmations for
// ever.
type filter struct {
	lease     time.Duration
	quiet     time.Duration // for how long a region has nothing but heartbeats before its leader is at rest
	stale     time.Duration // how long a replica stays at rest without news of its leader or its followers
	restBeat  time.Duration // the time between two heartbeats of a leader at rest
	start     time.Time
	booting   bool // the store starts with the whole cluster
	revoke    func(region topology.RegionID, term uint64)
	noPromise bool
	campaigns atomic.Int64

	mu      sync.RWMutex
	regions map[topology.RegionID]*support
}

// support is the record of a region: what the store has said and heard about its leadership.
type support struct {
	mu       sync.Mutex
	heard    map[uint64]time.Time // when a replica was last heard of as leader or follower; see Reassure
	beat     uint64               // the largest term of a heartbeat, or of an answer to one, that came in
	leader   uint64               // the replica that sent the last heartbeat of this term, 0 for none
	leads    bool                 // whether it was an answer, which a leader gets
	heardOf  time.Time            // when the leader last heard of a follower, or the follower of its leader; see quiet.go
	news     time.Time            // when the last message came in that is not quiet
	sent     time.Time            // when the last message was sent that is not quiet
	beaten   time.Time            // when the last heartbeat of the replica here was sent
	ticks    uint64               // how many ticks the replica here has got
	unknown  time.Time            // when promises of an earlier endpoint of the store have ended
	promised time.Time            // when the promises of this endpoint end
	given    uint64               // largest term for which support has left
	ended    bool                 // the replica here has ended for good, and no other one has promised or supported since
	gone     bool                 // the record is not the region's any more
	wanted   bool                 // whether Campaign has told the replica here to stand for election
	ordered  uint64               // largest term whose leader has told a replica here to campaign by TimeoutNow
	asked    uint64               // largest term in which a replica here has asked for votes
	// The latest marked campaign that asked this store for its vote.
	term, candidate uint64
	kind            campaign
}

// campaign says why a replica asks for votes.
type campaign int

const (
	timedOut campaign = iota // it has heard no leader
	booting                  // Endpoint.Campaign
	transfer                 // the leader of the term before has told it to
)

// bootHint is the hint in requests for votes of a booting campaign. In those of a transfer the hint is a replica id,
// and no replica has this one.
const bootHint = math.MaxUint64

// kindOf reads the mark of a request for votes. A replica that campaigns because of a TimeoutNow marks its requests
// with its own id (Raft thesis, 4.2.3). It then sends no pre-votes.
func kindOf(m *pb.Message) campaign {
	switch m.Hint {
	case bootHint:
		return booting
	case m.From:
		return transfer
	default:
		return timedOut
	}
}

// verdict says what becomes of a message.
type verdict int

const (
	pass     verdict = iota
	withheld         // dropped for the sake of a lease
	returned         // a forwarded proposal: dropped, its proposer is told
	needless         // dropped: a later message says the same
)

func newFilter(lease time.Duration, start time.Time, booting, noPromise bool,
	revoke func(topology.RegionID, uint64)) *filter {
	if revoke == nil {
		revoke = func(topology.RegionID, uint64) {}
	}
	return &filter{
		lease: lease, start: start, booting: booting, noPromise: noPromise, revoke: revoke,
		regions: make(map[topology.RegionID]*support),
	}
}

// fresh says that no replica of the region, of any id, ran here before this start that could have promised anything.
func (f *filter) fresh(region topology.RegionID) {
	s := f.lock(region)
	defer s.mu.Unlock()
	s.unknown = time.Time{}
}

// forget forgets a region whose replica here has ended for good. The region may come back to the store, as another
// replica, so what the store has promised and supported stays until the promise is over and a later forget finds it so.
func (f *filter) forget(region topology.RegionID, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.regions[region]; old != nil {
		old.mu.Lock()
		f.regions[region] = &support{unknown: old.unknown, promised: old.promised, given: old.given, ended: true}
		old.gone = true
		old.mu.Unlock()
	}
	for id, s := range f.regions {
		s.mu.Lock()
		if s.gone = s.ended && !s.bound(timedOut, now); s.gone {
			delete(f.regions, id)
		}
		s.mu.Unlock()
	}
}

// in notes a message before the store's replicas see it.
func (f *filter) in(m *pb.Message, now time.Time) {
	s := f.lock(topology.RegionID(m.ShardID))
	defer s.mu.Unlock()
	news := !quiet(m)
	switch {
	case m.Type == pb.Heartbeat || m.Type == pb.HeartbeatResp || m.Type == pb.Replicate || m.Type == pb.ReplicateResp:
		if s.heard == nil {
			s.heard = make(map[uint64]time.Time)
		}
		if _, known := s.heard[m.From]; !known {
			news = true
		}
		s.heard[m.From] = now
		if m.Type == pb.Heartbeat || m.Type == pb.HeartbeatResp {
			news = s.beats(m, now) || news
		}
	case m.Type == pb.TimeoutNow:
		s.ordered, s.wanted = max(s.ordered, m.Term), s.wanted || m.From == m.To
	case m.Type == pb.RequestVote && kindOf(m) != timedOut:
		if m.Term >= s.term {
			s.term, s.candidate, s.kind = m.Term, m.From, kindOf(m)
		}
	}
	if news {
		s.news = now
	}
}

// beats notes a heartbeat, or the answer to one. It reports whether that is of another term than the one before.
func (s *support) beats(m *pb.Message, now time.Time) (changed bool) {
	if m.Term < s.beat {
		return true
	}
	changed = m.Term > s.beat
	s.beat, s.leads = m.Term, m.Type == pb.HeartbeatResp
	if s.leads {
		s.heardOf, s.leader = now, 0
	} else {
		s.leader = m.From
	}
	return changed
}

// stir notes that something is done in a region, so that its replica here is not at rest.
func (f *filter) stir(region topology.RegionID, now time.Time) {
	s := f.lock(region)
	defer s.mu.Unlock()
	s.sent = now
}

// sends notes a message that a replica here sends, whether it gets anywhere or not.
func (f *filter) sends(m *pb.Message, now time.Time) {
	switch {
	case m.Type == pb.Quiesce:
		return
	case !quiet(m):
		f.stir(topology.RegionID(m.ShardID), now)
	}
	if m.Type == pb.Heartbeat {
		s := f.lock(topology.RegionID(m.ShardID))
		defer s.mu.Unlock()
		s.beaten = now
	}
}

// out judges a message that is about to leave at now, and may change its mark. A message that passes must leave at once
// or be lost.
func (f *filter) out(m *pb.Message, now time.Time) verdict {
	if m.Type == pb.Quiesce {
		return pass
	}
	region := topology.RegionID(m.ShardID)
	switch m.Type {
	case pb.Propose:
		return returned
	case pb.TimeoutNow:
		f.revoke(region, m.Term)
		return pass
	case pb.HeartbeatResp:
		if m.Hint == 0 { // without a hint it confirms no read
			return pass
		}
		return f.promise(region, m.Term, now)
	case pb.RequestVoteResp:
		if m.Reject {
			return pass
		}
		return f.support(region, m, now)
	case pb.RequestVote:
		return f.support(region, m, now)
	case pb.RequestPreVoteResp:
		if m.Reject {
			return pass
		}
		return f.preVote(region, false, now)
	case pb.RequestPreVote:
		return f.preVote(region, true, now)
	default:
		return pass
	}
}

// heardSince reports whether a replica of a region has been heard of since an instant.
func (f *filter) heardSince(region topology.RegionID, replica uint64, since time.Time) bool {
	s := f.lock(region)
	defer s.mu.Unlock()
	if s.leads && s.heardOf.After(since) {
		since = since.Add(-2 * f.restBeat) // the region may have been at rest until a moment ago
	}
	return s.heard[replica].After(since)
}

// campaigned reports whether a replica of a region has asked for votes in a term after this one.
func (f *filter) campaigned(region topology.RegionID, term uint64) bool {
	s := f.lock(region)
	defer s.mu.Unlock()
	return s.asked > term
}

// promise judges H(term).
func (f *filter) promise(region topology.RegionID, term uint64, now time.Time) verdict {
	if f.noPromise {
		return pass
	}
	s := f.lock(region)
	defer s.mu.Unlock()
	if term < s.given {
		return withheld
	}
	s.ended = false
	if until := now.Add(f.lease); until.After(s.promised) {
		s.promised = until
	}
	return pass
}

// support judges S(m.Term).
func (f *filter) support(region topology.RegionID, m *pb.Message, now time.Time) verdict {
	s := f.lock(region)
	defer s.mu.Unlock()
	kind := timedOut
	switch {
	case m.Type == pb.RequestVote:
		if kind = kindOf(m); kind == transfer && (s.ordered == 0 || m.Term != s.ordered+1) {
			kind, m.Hint = booting, bootHint
		}
		if m.Term > s.asked { // counts a campaign once, though it asks several voters
			s.asked = m.Term
			f.campaigns.Add(1)
		}
	case m.Term == s.term && m.To == s.candidate:
		kind = s.kind
	}
	if kind == booting && !f.booting {
		kind = timedOut
	}
	if s.bound(kind, now) && !f.noPromise {
		return withheld
	}
	// This happens under the lock: no H of a smaller term may pass between the revocation and setting given.
	f.revoke(region, m.Term-1)
	s.given, s.ended = max(s.given, m.Term), false
	return pass
}

// preVote judges a message of a campaign that binds nobody yet.
func (f *filter) preVote(region topology.RegionID, ask bool, now time.Time) verdict {
	s := f.lock(region)
	defer s.mu.Unlock()
	if s.bound(timedOut, now) && !f.noPromise {
		return withheld
	}
	if f.booting && ask && !s.wanted && len(s.heard) == 0 && now.Sub(f.start) < bootPatience {
		return withheld
	}
	return pass
}

// bootPatience is how long a store that boots with the whole cluster leaves the first election of each region to the
// store that is to lead it. With many regions replicas start faster than that store can campaign, and their time-outs
// would make all of them campaign against each other. The replica that is to lead may have timed out, too. Then it
// ignores Campaign, so its requests pass.
const bootPatience = 3 * time.Second

// bound reports whether a promise forbids to support a campaign.
func (s *support) bound(c campaign, now time.Time) bool {
	switch c {
	case transfer:
		return false
	case booting:
		return now.Before(s.promised)
	default:
		return now.Before(s.promised) || now.Before(s.unknown)
	}
}

// known returns the record of a region, nil if there is none.
func (f *filter) known(region topology.RegionID) *support {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.regions[region]
}

// lock returns the record of a region, locked.
func (f *filter) lock(region topology.RegionID) *support {
	for {
		s := f.of(region)
		s.mu.Lock()
		if !s.gone {
			return s
		}
		s.mu.Unlock()
	}
}

// of returns the record of a region. A new record begins with the promise that an earlier start of the store may have
// made.
func (f *filter) of(region topology.RegionID) *support {
	s := f.known(region)
	if s != nil {
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s = f.regions[region]; s == nil {
		s = &support{unknown: f.start.Add(f.lease)}
		f.regions[region] = s
	}
	return s
}
