package transport

import (
	"encoding/binary"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/lni/dragonboat/v4"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// A step of a replica costs some microseconds; most of that time goes to cache misses. Dragonboat makes each replica
// take one at each tick, and one for each heartbeat and each answer to one. So regions at rest are ticked less often.
// Dragonboat's own tick is set to raftlog.HostTick, and the endpoint ticks the replicas of its NodeHost:
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

// inboxes are the queues in which the replicas of a NodeHost find their messages and ticks. Dragonboat does not export
// them; newInboxes looks for them by name.
type inboxes struct {
	shards  *sync.Map // region u64 -> *dragonboat.node
	replica uintptr   // offset of node.replicaID
	queue   uintptr   // of node.mq
	typ     reflect.Type
	engine  unsafe.Pointer
}

// inbox is a replica's queue.
type inbox interface {
	// Tick moves the clock of the messages that dragonboat delays: how sending a snapshot has ended.
	Tick()
}

// newInboxes finds the inboxes of a NodeHost.
func newInboxes(host *dragonboat.NodeHost) (*inboxes, error) {
	lost := errors.New("this version of dragonboat has no message queues where NeoKV looks for them")
	// at follows fields from a struct, through pointers, and returns the last one: its type and its offset.
	at := func(t reflect.Type, names ...string) (f reflect.StructField, ok bool) {
		for _, name := range names {
			if t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			if t.Kind() != reflect.Struct {
				return f, false
			}
			if f, ok = t.FieldByName(name); !ok {
				return f, false
			}
			t = f.Type
		}
		return f, true
	}
	self := reflect.TypeOf(host).Elem()
	mu, ok1 := at(self, "mu")
	shards, ok2 := at(self, "mu", "shards")
	engine, ok3 := at(self, "engine")
	nodes, ok4 := at(self, "engine", "loaded", "nodes") // map[...]map[uint64]*node
	if !ok1 || !ok2 || !ok3 || !ok4 || engine.Type.Kind() != reflect.Pointer ||
		shards.Type != reflect.TypeFor[sync.Map]() || nodes.Type.Kind() != reflect.Map ||
		nodes.Type.Elem().Kind() != reflect.Map {
		return nil, lost
	}
	node := nodes.Type.Elem().Elem()
	queue, ok1 := at(node, "mq")
	replica, ok2 := at(node, "replicaID")
	if !ok1 || !ok2 || queue.Type.Kind() != reflect.Pointer || !queue.Type.Implements(reflect.TypeFor[inbox]()) ||
		replica.Type != reflect.TypeFor[uint64]() {
		return nil, lost
	}
	return &inboxes{
		shards:  (*sync.Map)(unsafe.Add(unsafe.Pointer(host), mu.Offset+shards.Offset)),
		replica: replica.Offset, queue: queue.Offset, typ: queue.Type,
		engine: *(*unsafe.Pointer)(unsafe.Add(unsafe.Pointer(host), engine.Offset)),
	}, nil
}

// of returns the replica that a node is and its queue.
func (x *inboxes) of(node any) (replica uint64, queue inbox) {
	at := reflect.ValueOf(node).UnsafePointer()
	return *(*uint64)(unsafe.Add(at, x.replica)), reflect.NewAt(x.typ, unsafe.Add(at, x.queue)).Elem().Interface().(inbox)
}

// Attach tells the endpoint of the NodeHost whose transport it is, and begins to tick the NodeHost's replicas. It fails
// only if this version of dragonboat has no inboxes, or no breakers.
func (e *Endpoint) Attach(host *dragonboat.NodeHost) error {
	x, err := newInboxes(host)
	if err != nil {
		return err
	}
	breakers, err := breakersOf(host)
	if err != nil {
		return err
	}
	e.breakers.Store(&breakers)
	if e.join() {
		go e.tick(x)
	}
	return nil
}

// tick ticks the replicas until the endpoint closes, also when it is silent: requests to Raft have time-outs.
func (e *Endpoint) tick(x *inboxes) {
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
		x.shards.Range(func(shard, node any) bool {
			id := shard.(uint64)
			own, due := e.filter.tick(topology.RegionID(id), n, uint64(e.o.restTicks()), now)
			if !due {
				rested++
				return true
			}
			if own <= nudges {
				setApplyReady(x.engine, id)
			}
			replica, queue := x.of(node)
			queue.Tick()
			b.Requests = append(b.Requests,
				pb.Message{Type: pb.LocalTick, ShardID: id, From: replica, To: replica, Hint: own})
			if len(b.Requests) == ticksAtOnce {
				e.give(b)
				b.Requests = b.Requests[:0]
			}
			return true
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

//go:linkname setApplyReady github.com/lni/dragonboat/v4.(*engine).setApplyReady
func setApplyReady(engine unsafe.Pointer, shard uint64)

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
