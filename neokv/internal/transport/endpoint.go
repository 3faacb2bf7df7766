package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	"golang.org/x/time/rate"

	"neokv.dev/neokv/internal/multiraft/inside"
	"neokv.dev/neokv/internal/topology"
)

// Endpoint connects a store to the network. Each start of the store makes a new one, which is closed at the store's
// end. All methods may run concurrently.
type Endpoint struct {
	o       Options
	net     *Network
	place   *location
	nth     uint64 // of the store's endpoints
	filter  *filter
	commits commits
	pace    *rate.Limiter // of snapshots that leave
	wire    wire
	// address is where the other endpoints of a TCP network dial, empty in memory. unreachable is the error if
	// listening there failed.
	address     string
	unreachable error

	// silent is set for good by Isolate and Close: nothing leaves or arrives any more.
	silent atomic.Bool
	// ctx ends with Close, alive when silent is set. Who waits for a link waits until alive ends.
	ctx, alive      context.Context
	cancel, silence context.CancelFunc
	// paused is nil, or holds a channel that Resume will close.
	paused atomic.Pointer[chan struct{}]

	mu     sync.Mutex
	closed bool
	lines  map[topology.StoreID]*linkEnd
	owned  sync.WaitGroup // goroutines of the lines, and calls being answered

	// Deliveries hold raftMu shared. So when Close, which holds it alone, has set raft to nil, no delivery is under
	// way.
	raftMu sync.RWMutex
	raft   *raftTransport

	host atomic.Pointer[inside.Host] // nil before Attach

	batches, messages, withheld, returned, lost, delivered, rested atomic.Int64
}

// wire carries messages to other endpoints, by reference or over connections. They have passed the filter and the link.
// The receiving side checks that it is not silent and, over connections, that the link has not been cut meanwhile.
type wire interface {
	// send hands a batch over without waiting, and keeps nothing of it. Messages that cannot be delivered are lost
	// silently.
	send(l *linkEnd, b pb.MessageBatch)
	// chunk returns when the receiver has taken the chunk.
	chunk(c *connection, chunk pb.Chunk) error
	// call returns the handler's answer, or errNoAnswer if there will be none.
	call(ctx context.Context, to topology.StoreID, request []byte) (callAnswer, error)
	// close ends all connections. It does not wait for their goroutines, which belong to the endpoint.
	close()
}

// callAnswer is what the handler of a call has returned.
type callAnswer struct {
	bytes []byte
	err   error
}

// NewEndpoint connects a store to the network. The endpoint withholds votes for one lease, except in regions named by
// Fresh, since a store that starts has forgotten its promises. NewEndpoint isolates an earlier endpoint of the same
// store. If the listener does not open, NewNodeHost returns the error.
func (n *Network) NewEndpoint(o Options) *Endpoint {
	e := &Endpoint{o: o, net: n, place: n.place(o.Store), lines: make(map[topology.StoreID]*linkEnd),
		pace: newPace(o.SnapshotRate), commits: commits{interval: o.CommitInterval, all: o.Mistakes.AnyCommit}}
	e.nth = e.place.made.Add(1)
	if old := e.place.now.Load(); old != nil {
		old.Isolate()
		old.wire.close() // over TCP, so that the other stores look for the new address
	}
	e.filter = newFilter(o.Lease, time.Now(), o.Booting, o.Mistakes.NoPromise, o.Revoke)
	e.filter.quiet = quietAfter(o.Tick * time.Duration(o.ElectionTicks))
	e.filter.restBeat = o.Tick * time.Duration(o.HeartbeatTicks*o.restTicks())
	e.filter.stale = o.Tick * time.Duration(o.ElectionTicks) / 2
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.alive, e.silence = context.WithCancel(e.ctx)
	if n.tcp == nil {
		e.wire = memoryWire{e}
	} else {
		e.wire, e.address, e.unreachable = newSockets(e)
	}
	e.place.now.Store(e)
	return e
}

// Fresh says that no replica of the region, of any id, has ever run on this store. So there is no promise for which the
// endpoint must withhold votes.
func (e *Endpoint) Fresh(region topology.RegionID) { e.filter.fresh(region) }

// Stir says that the store is about to do something with its replica of a region that goes by Raft's ticks and may send
// no message, as a transfer of the leadership does.
func (e *Endpoint) Stir(region topology.RegionID) { e.filter.stir(region, time.Now()) }

// Forget forgets a region whose replica here has ended for good. The store keeps what that has promised.
func (e *Endpoint) Forget(region topology.RegionID) {
	e.filter.forget(region, time.Now())
	e.commits.forget(region)
}

// Incarnation is larger than that of any endpoint that the store has had before on this network.
func (e *Endpoint) Incarnation() uint64 { return e.nth }

// Factory returns the value for dragonboat's Expert.TransportFactory. A store's Raft address is its fixed name.
func (e *Endpoint) Factory() config.TransportFactory { return transportFactory{e} }

// Campaign makes this store's replica stand for election at once, without a pre-vote. The election does not wait for
// promises that stores may have made before they started, so Campaign is only for the boot of a whole cluster, when no
// lease can be left. Promises made since count. A replica ignores Campaign until it has applied its first membership,
// so the caller repeats it until there is a leader. A leader or a candidate ignores it, too.
func (e *Endpoint) Campaign(region topology.RegionID, replica topology.ReplicaID) {
	e.receive(pb.MessageBatch{Requests: []pb.Message{{
		Type: pb.TimeoutNow, ShardID: uint64(region), From: uint64(replica), To: uint64(replica),
	}}})
}

// Reassure gives this store's replica of a region, which cannot read its messages now, signs of life of other replicas:
// a follower gets one from its leader, a leader one from each follower. It speaks only for replicas that the store has
// heard of since an instant. Such a sign says no more than that the replica is alive, so no lease follows from it.
func (e *Endpoint) Reassure(region topology.RegionID, replica, leader topology.ReplicaID, term uint64,
	followers []topology.ReplicaID, since time.Time) {
	var b pb.MessageBatch
	add := func(t pb.MessageType, from topology.ReplicaID) {
		if e.filter.heardSince(region, uint64(from), since) {
			b.Requests = append(b.Requests,
				pb.Message{Type: t, ShardID: uint64(region), From: uint64(from), To: uint64(replica), Term: term})
		}
	}
	if replica != leader {
		add(pb.Heartbeat, leader)
	} else {
		for _, f := range followers {
			if f != replica {
				add(pb.HeartbeatResp, f)
			}
		}
	}
	e.deliver(b)
}

// Isolate drops everything to and from the endpoint for good, since the store has failed or was killed. It does not
// wait.
func (e *Endpoint) Isolate() {
	e.silent.Store(true)
	e.silence()
}

// Close removes the endpoint and cancels calls. It waits until no delivery to the endpoint and no handler of a call
// runs, so a handler must not call Close.
func (e *Endpoint) Close() {
	e.silent.Store(true)
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.place.now.CompareAndSwap(e, nil)
	e.cancel()
	e.wire.close()
	e.raftMu.Lock()
	e.raft = nil
	e.raftMu.Unlock()
	e.owned.Wait()
}

// Stats returns the counters so far.
func (e *Endpoint) Stats() Stats {
	return Stats{
		Batches: e.batches.Load(), Messages: e.messages.Load(), Withheld: e.withheld.Load(),
		Returned: e.returned.Load(), Lost: e.lost.Load(), Delivered: e.delivered.Load(), Rested: e.rested.Load(),
		Campaigns: e.filter.campaigns.Load(),
	}
}

// join makes Close wait for one more goroutine. It returns false if the endpoint is closed.
func (e *Endpoint) join() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.owned.Add(1)
	return true
}

// send takes a batch from dragonboat. The caller reuses b.Requests afterwards.
func (e *Endpoint) send(l *linkEnd, b pb.MessageBatch) {
	now := time.Now()
	for i := range b.Requests {
		e.filter.sends(&b.Requests[i], now)
	}
	if e.paused.Load() != nil || l.unsent.busy() {
		b.Requests = slices.Clone(b.Requests)
		l.unsent.put(l, b, 0)
		return
	}
	e.release(l, b)
}

// release keeps back what Hold says and sends the rest on.
func (e *Endpoint) release(l *linkEnd, b pb.MessageBatch) {
	if h := l.link.now.Load().hold; h != nil {
		rest := b
		rest.Requests = nil
		late := rest
		for i := range b.Requests {
			if h.match(&b.Requests[i]) {
				late.Requests = append(late.Requests, b.Requests[i])
			} else {
				rest.Requests = append(rest.Requests, b.Requests[i])
			}
		}
		if len(late.Requests) > 0 {
			l.held.put(l, late, h.d)
		}
		b = rest
	}
	if len(b.Requests) > 0 {
		e.leave(l, b)
	}
}

// leave passes a batch through the filter and sends the rest on.
func (e *Endpoint) leave(l *linkEnd, b pb.MessageBatch) {
	all := b.Requests
	c := l.link.now.Load()
	now := time.Now()
	kept, whole := 0, true
	for i := range all {
		m := &all[i]
		v := withheld
		if !c.Cut || m.Type == pb.Propose {
			v = e.filter.out(m, now)
		}
		if v == pass && !e.commits.leave(m, now) {
			v = needless
		}
		if m.Type == pb.Replicate && m.Commit > 0 && e.o.Saved != nil {
			m.Commit = min(m.Commit, e.o.Saved(topology.RegionID(m.ShardID)))
		}
		switch v {
		case pass:
			if !whole {
				b.Requests = append(b.Requests, *m)
			}
			kept++
			continue
		case withheld:
			if !c.Cut {
				e.withheld.Add(1)
			}
		case returned:
			e.returned.Add(int64(len(m.Entries)))
			if e.o.Forwarded != nil {
				e.o.Forwarded(topology.RegionID(m.ShardID), m.Entries)
			}
		}
		if whole {
			whole = false
			b.Requests = slices.Clone(all[:i]) // the caller's slice stays as it is
		}
	}
	// The endpoint checks silent after the filter. So every promise that leaves was made before the endpoint fell
	// silent, and thus before the store's next endpoint starts. The first promise of that one covers it, however late
	// it arrives.
	if kept == 0 || e.silent.Load() {
		return
	}
	e.batches.Add(1)
	e.messages.Add(int64(kept))
	if d := c.latency(); d > 0 || c.Bandwidth > 0 || l.wire.busy() || l.link.to.paused() {
		if whole {
			b.Requests = slices.Clone(all)
		}
		l.wire.put(l, b, d)
		return
	}
	e.arrive(l, b)
}

// arrive hands a batch to the endpoint that the other store has now.
func (e *Endpoint) arrive(l *linkEnd, b pb.MessageBatch) {
	c := l.link.now.Load()
	if e.silent.Load() || c.Cut {
		return
	}
	if c.harms() {
		b.Requests = e.harm(l, b, c)
		if len(b.Requests) == 0 {
			return
		}
	}
	e.wire.send(l, b)
}

// harm returns the messages of a batch that arrive now. It queues those that arrive later or again.
func (e *Endpoint) harm(l *linkEnd, b pb.MessageBatch, c *condition) (now []pb.Message) {
	for i := range b.Requests {
		f := c.fate()
		if !f.lost {
			now = append(now, b.Requests[i])
		}
		if f.again > 0 {
			again := b
			again.Requests = slices.Clone(b.Requests[i : i+1])
			l.late.put(l, again, f.again)
		}
	}
	return now
}

// arriveAgain is like arrive, for messages that harm has delayed or repeated.
func (e *Endpoint) arriveAgain(l *linkEnd, b pb.MessageBatch) {
	if !e.silent.Load() && !l.link.now.Load().Cut {
		e.wire.send(l, b)
	}
}

// receive hands a batch to the store's NodeHost, which copies what it keeps.
func (e *Endpoint) receive(b pb.MessageBatch) {
	now := time.Now()
	b.Requests = e.takeRest(e.kept(b.Requests), now)
	for i := range b.Requests {
		m := &b.Requests[i]
		e.filter.in(m, now)
		if m.Type == pb.TimeoutNow && m.From != m.To && e.join() {
			go e.repeat(b, *m)
		}
	}
	e.deliver(b)
}

// kept returns the messages that are not dropped, in a slice of its own if any is.
func (e *Endpoint) kept(all []pb.Message) []pb.Message {
	if e.o.Drops == nil {
		return all
	}
	for i := range all {
		if e.o.Drops(&all[i]) {
			return slices.DeleteFunc(slices.Clone(all), func(m pb.Message) bool { return e.o.Drops(&m) })
		}
	}
	return all
}

// repeat gives a replica the TimeoutNow of a leader again until it campaigns, as if the network repeated the message. A
// replica ignores it while it applies an entry, and the leader sends it once and then takes no proposal until an
// election time-out has passed. Half a lease is shorter than that.
func (e *Endpoint) repeat(b pb.MessageBatch, m pb.Message) {
	defer e.owned.Done()
	b.Requests = []pb.Message{m}
	end := time.Now().Add(e.o.Lease / 2)
	for wait := time.Millisecond; time.Now().Add(wait).Before(end); wait *= 2 {
		select {
		case <-e.alive.Done():
			return
		case <-time.After(wait):
		}
		if e.filter.campaigned(topology.RegionID(m.ShardID), m.Term) {
			return
		}
		e.deliver(b)
	}
}

// deliver is like receive, without the filter.
func (e *Endpoint) deliver(b pb.MessageBatch) {
	if !e.silent.Load() && e.give(b) {
		e.delivered.Add(int64(len(b.Requests)))
	}
}

// give hands messages to dragonboat, and reports whether it could: while no NodeHost runs nobody takes them.
func (e *Endpoint) give(b pb.MessageBatch) bool {
	e.raftMu.RLock()
	defer e.raftMu.RUnlock()
	if e.raft == nil || len(b.Requests) == 0 {
		return false
	}
	b.DeploymentId, b.BinVer = e.raft.deployment, raftio.TransportBinVersion
	e.raft.messages(b)
	return true
}

var (
	errClosed   = errors.New("endpoint closed")
	errCut      = errors.New("link is cut")
	errNoAnswer = errors.New("no answer")
)

func cutOff(from, to topology.StoreID) error {
	return fmt.Errorf("%s to %s: %w", from.RaftAddress(), to.RaftAddress(), errCut)
}

// afterRefusal is how long a snapshot that was refused takes at least. Dragonboat begins the next one soon after, and
// has a piece of memory of some MiB for each, which few of its workers send at once.
const afterRefusal = 250 * time.Millisecond

// paceBurst is how many bytes of snapshots may leave at once: small regions move without a wait. A chunk has 2 MiB.
const paceBurst = 4 << 20

// newPace returns what holds snapshots back to a number of bytes per second, 0 for no bound.
func newPace(perSecond int64) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), paceBurst)
}

// sendChunk hands a chunk of a snapshot over and returns when the receiver has taken it.
func (e *Endpoint) sendChunk(c *connection, chunk pb.Chunk) error {
	e.filter.stir(topology.RegionID(chunk.ShardID), time.Now())
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer context.AfterFunc(e.alive, cancel)()
	err := e.passChunk(ctx, c, chunk)
	if err != nil {
		pause := time.NewTimer(afterRefusal)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	return err
}

func (e *Endpoint) passChunk(ctx context.Context, c *connection, chunk pb.Chunk) error {
	_ = e.pace.WaitN(ctx, len(chunk.Data)) // the end of ctx is seen below
	c.l.link.travel(ctx, len(chunk.Data))
	switch {
	case e.ctx.Err() != nil:
		return fmt.Errorf("%s: %w", e.o.Store.RaftAddress(), errClosed)
	case e.silent.Load() || c.l.link.now.Load().Cut:
		return cutOff(e.o.Store, c.l.to)
	case ctx.Err() != nil:
		return fmt.Errorf("%s to %s: %w", e.o.Store.RaftAddress(), c.l.to.RaftAddress(), ctx.Err())
	}
	return e.wire.chunk(c, chunk)
}

// take hands a chunk that has arrived to the store's NodeHost.
func (e *Endpoint) take(c pb.Chunk) error {
	e.raftMu.RLock()
	defer e.raftMu.RUnlock()
	if e.raft == nil {
		return notRunning(e.o.Store)
	}
	begin := pb.Message{Type: pb.InstallSnapshot, ShardID: c.ShardID, Snapshot: pb.Snapshot{Index: c.Index}}
	if e.o.Drops != nil && e.o.Drops(&begin) {
		return fmt.Errorf("%s: chunk %d of a snapshot dropped", e.o.Store.RaftAddress(), c.ChunkId)
	}
	c.DeploymentId = e.raft.deployment
	if !e.raft.chunks(c) {
		return fmt.Errorf("%s: chunk %d of a snapshot refused", e.o.Store.RaftAddress(), c.ChunkId)
	}
	return nil
}

func notRunning(s topology.StoreID) error { return fmt.Errorf("%s: not running", s.RaftAddress()) }

// Call sends a request to a store, perhaps this one, and waits for the answer. The caller must not change the answer,
// which the answering store may still use. While the link is cut in either direction, there is no answer until ctx
// ends. If the store is not running, Call fails at once. After an error the request may have been carried out or not.
func (e *Endpoint) Call(ctx context.Context, to topology.StoreID, request []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	answer, err := e.call(ctx, to, request)
	if e.ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", e.o.Store.RaftAddress(), errClosed)
	}
	return answer, err
}

func (e *Endpoint) call(ctx context.Context, to topology.StoreID, request []byte) ([]byte, error) {
	there, back := e.net.link(e.o.Store, to), e.net.link(to, e.o.Store)
	lost := func() bool { return e.silent.Load() || there.now.Load().Cut || back.now.Load().Cut }
	noAnswer := func() ([]byte, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("%s: no answer: %w", to.RaftAddress(), ctx.Err())
	}
	there.travel(ctx, len(request))
	if lost() || ctx.Err() != nil {
		return noAnswer()
	}
	a, err := e.wire.call(ctx, to, request)
	switch {
	case err == errNoAnswer:
		return noAnswer()
	case err != nil:
		return nil, err
	}
	back.travel(ctx, len(a.bytes))
	if lost() || ctx.Err() != nil {
		return noAnswer()
	}
	return a.bytes, a.err
}
