package transport

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/multiraft/inside"
	"neokv.dev/neokv/internal/topology"
)

// A step of a replica costs some microseconds; most of that time goes to cache misses. Dragonboat makes each replica
// take one at each tick, and one for each heartbeat and each answer to one. So regions at rest are ticked less often.
// Dragonboat's own tick is set to multiraft.HostTick, and the endpoint ticks the replicas of its NodeHost:
//
//   - A leader is at rest if its region has had only heartbeats without a read, and their answers, for a second. It
//     also needs an answer that is younger than half an election time-out.
//   - At each heartbeat interval a store tells the others, in one message, which regions it leads that are at rest, and
//     their terms: it vouches for these leaders. The others answer with those of them that they follow. A store does
//     not vouch for a replica that sends no heartbeats.
//   - A follower is at rest for half an election time-out after its leader's store has vouched for the leader, unless
//     it has sent something for a second.
//   - A replica at rest gets one tick of ten, or of ElectionTicks if these are fewer. So a leader sends as many fewer
//     heartbeats. A replica that is not at rest gets every tick.
//
// A message, a proposal or a read never waits for a tick. If a leader's store dies, is cut off or waits for its disk,
// the followers are at rest no more after half an election time-out, and then elect as ever. So is a leader that is cut
// off.
//
// For Raft it is as if the clocks of some replicas went slowly, which makes nothing unsafe. No lease follows from
// vouching, and promises go by the filter's clock. With five replicas an old leader may stay at rest: one follower
// still answers it, while the others follow a new leader. It learns that by a message, by Raft's check of its quorum,
// which goes by the slow clock, or soon after it has something to do. A region with a single replica has no heartbeats:
// it is never at rest.

// quietAfter is how long a region is without messages other than heartbeats before its leader is at rest. By then a few
// heartbeats must have told the followers what is committed, and a transfer of the leadership must be over, which Raft
// gives up after an election time-out.
func quietAfter(election time.Duration) time.Duration { return max(time.Second, 2*election) }

// restTicks says that a replica at rest gets one tick of so many.
func (o *Options) restTicks() int { return max(1, min(o.ElectionTicks, 10)) }

// quiet reports whether a message is a heartbeat, or the answer to one, that confirms no read.
func quiet(m *pb.Message) bool {
	return (m.Type == pb.Heartbeat || m.Type == pb.HeartbeatResp) && m.Hint == 0
}

// atRest reports whether the replica of a record is at rest. The caller holds its lock.
func (f *filter) atRest(s *support, now time.Time) bool {
	return s.given <= s.beat && s.asked <= s.beat && now.Sub(s.sent) >= f.quiet && now.Sub(s.heardOf) < f.stale &&
		(!s.leads || now.Sub(s.news) >= f.quiet)
}

// tick reports whether a region's replica here gets the endpoint's n-th tick, and which of its own ticks that is.
// Time-outs go by the latter, so they are longer at rest.
func (f *filter) tick(region topology.RegionID, n, every uint64, now time.Time) (own uint64, due bool) {
	s := f.lock(region)
	defer s.mu.Unlock()
	if (n+uint64(region))%every != 0 && f.atRest(s, now) {
		return 0, false
	}
	s.ticks++
	return s.ticks, true
}

// vouches appends the regions at rest that this store leads, each with its term, as unsigned varints.
func (f *filter) vouches(b []byte, now time.Time) []byte {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for id, s := range f.regions {
		s.mu.Lock()
		if s.leads && f.atRest(s, now) && now.Sub(s.beaten) < 2*f.restBeat {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(id)), s.beat)
		}
		s.mu.Unlock()
	}
	return b
}

// vouched notes for which leaders another store vouches, or with leads which of this store's leaders it follows. It
// returns those that this store's replicas know as such. It ends at what does not decode.
func (f *filter) vouched(b []byte, leads bool, now time.Time) (known []byte) {
	for {
		region, n := binary.Uvarint(b)
		if n <= 0 {
			return known
		}
		term, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return known
		}
		if s := f.known(topology.RegionID(region)); s != nil {
			s.mu.Lock()
			if s.leads == leads && s.beat == term && s.heard != nil && s.given <= term {
				s.heardOf = now
				if !leads {
					s.heard[s.leader] = now
				}
				known = binary.AppendUvarint(binary.AppendUvarint(known, region), term)
			}
			s.mu.Unlock()
		}
		b = b[n+m:]
	}
}

// Attach tells the endpoint of the NodeHost whose transport it is, and begins to tick the NodeHost's replicas. It fails
// only if inside.Of does.
func (e *Endpoint) Attach(host *dragonboat.NodeHost) error {
	h, err := inside.Of(host)
	if err != nil {
		return err
	}
	e.host.Store(h)
	if e.join() {
		go e.tick(h)
	}
	return nil
}

// tick ticks the replicas until the endpoint closes, also when it is silent: requests to Raft have time-outs.
func (e *Endpoint) tick(h *inside.Host) {
	defer e.owned.Done()
	ticker := time.NewTicker(e.o.Tick)
	defer ticker.Stop()
	var b pb.MessageBatch
	for n := uint64(1); ; n++ {
		select {
		case <-e.ctx.Done():
			return
		case <-ticker.C:
		}
		now, rested := time.Now(), int64(0)
		began, stalled := e.o.Stalled()
		if stalled {
			now = began // nothing is heard from then on
		}
		h.Range(func(id uint64, node inside.Node) {
			own, due := e.filter.tick(topology.RegionID(id), n, uint64(e.o.restTicks()), now)
			if !due {
				rested++
				return
			}
			if own <= nudges {
				h.Nudge(id)
			}
			replica := h.Tick(node)
			b.Requests = append(b.Requests,
				pb.Message{Type: pb.LocalTick, ShardID: id, From: replica, To: replica, Hint: own})
			if len(b.Requests) == ticksAtOnce {
				e.give(b)
				b.Requests = b.Requests[:0]
			}
		})
		e.give(b)
		b.Requests = b.Requests[:0]
		e.rested.Add(rested)
		if n%uint64(e.o.HeartbeatTicks) == 0 && !stalled {
			e.vouch(now)
		}
	}
}

// nudges is with how many of a replica's first ticks its apply worker is told that the replica has something to do.
// Dragonboat tells the worker that there is a new replica, and that it has to open its state machine. If the worker
// heeds the latter first, it does not know the replica yet. Then the replica lies idle until the worker looks at all
// replicas, which it does once a second.
const nudges = 32

// ticksAtOnce bounds the memory for ticks on their way to dragonboat, which needs 380 bytes for each.
const ticksAtOnce = 64

// vouch sends the list of this store's leaders at rest to each store that it has sent messages to.
func (e *Endpoint) vouch(now time.Time) {
	regions := e.filter.vouches(nil, now)
	e.mu.Lock()
	lines := slices.AppendSeq(make([]*linkEnd, 0, len(e.lines)), maps.Values(e.lines))
	e.mu.Unlock()
	for _, l := range lines {
		if !l.link.to.paused() { // what waits for a paused store is of no use to it later
			e.sendRest(l, vouching, regions)
		}
	}
}

// Messages between endpoints about regions at rest are of Raft's type Quiesce, which dragonboat does not send unless a
// region's configuration asks for it. The hint says which of these lists the only entry holds.
const (
	vouching  = iota // those for whose leaders the sender vouches
	following        // those of them that the sender follows
)

func (e *Endpoint) sendRest(l *linkEnd, hint uint64, regions []byte) {
	if len(regions) > 0 {
		e.send(l, pb.MessageBatch{Requests: []pb.Message{{
			Type: pb.Quiesce, Hint: hint, From: uint64(e.o.Store), To: uint64(l.to), Entries: []pb.Entry{{Cmd: regions}},
		}}})
	}
}

// takeRest takes the messages about regions at rest out of a batch.
func (e *Endpoint) takeRest(all []pb.Message, now time.Time) []pb.Message {
	first := 0
	for first < len(all) && all[first].Type != pb.Quiesce {
		first++
	}
	if first == len(all) {
		return all
	}
	for i := range all[first:] {
		switch m := &all[first+i]; {
		case m.Type != pb.Quiesce || len(m.Entries) != 1:
		case m.Hint == following:
			e.filter.vouched(m.Entries[0].Cmd, true, now)
		default:
			if known := e.filter.vouched(m.Entries[0].Cmd, false, now); len(known) > 0 {
				e.sendRest(e.line(topology.StoreID(m.From)), following, known)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(m pb.Message) bool { return m.Type == pb.Quiesce })
}
