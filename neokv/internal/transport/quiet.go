package transport

import (
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/lni/dragonboat/v4"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// quietAfter is how long a region is without messages other than heartbeats before its heartbeats may wait for a tick.
const quietAfter = time.Second

// inboxes are the queues in which the replicas of a NodeHost find their messages.
//
// A message that arrives makes its replica take a step, which costs some microseconds, mostly for memory that no cache
// has. Each tick makes all replicas take one. A region at rest has no messages but heartbeats and their answers, and
// takes as many steps for them as for ticks. So inboxes put these into the replica's queue without a step, and the
// replica finds them when it takes a step for the next tick, or for a message that comes before.
//
// For the replica it is as if its step worker had been busy for up to a tick. Nothing overtakes anything: the queue has
// the messages and the ticks in the order in which they came, so by the replica's clock, which counts ticks, nothing is
// later. A heartbeat that confirms a read never waits, and none does in a region in which something has happened lately:
// the heartbeat after the last entry tells followers that it is committed.
//
// Dragonboat does not export the queues. attach looks for them by name; if they are not what it expects, no message
// waits.
type inboxes struct {
	shards  *sync.Map // region u64 -> *dragonboat.node
	replica uintptr   // offset of node.replicaID
	queue   uintptr   // of node.mq
	node    reflect.Type
	typ     reflect.Type // of node.mq, an inbox
}

// inbox is a replica's queue. Add reports whether the message was taken, and whether the queue is closed.
type inbox interface {
	Add(pb.Message) (added, closed bool)
}

// newInboxes finds the inboxes of a NodeHost. It returns nil if dragonboat has changed.
func newInboxes(host *dragonboat.NodeHost) *inboxes {
	mu, ok := reflect.TypeOf(host).Elem().FieldByName("mu")
	if !ok || mu.Type.Kind() != reflect.Struct {
		return nil
	}
	shards, ok := mu.Type.FieldByName("shards")
	if !ok || shards.Type != reflect.TypeFor[sync.Map]() {
		return nil
	}
	return &inboxes{shards: (*sync.Map)(unsafe.Add(unsafe.Pointer(host), mu.Offset+shards.Offset))}
}

// look finds out where a node has its queue.
func (x inboxes) look(node any) *inboxes {
	x.node = reflect.TypeOf(node)
	if x.node.Kind() != reflect.Pointer || x.node.Elem().Kind() != reflect.Struct {
		return nil
	}
	queue, ok := x.node.Elem().FieldByName("mq")
	if !ok || queue.Type.Kind() != reflect.Pointer || !queue.Type.Implements(reflect.TypeFor[inbox]()) {
		return nil
	}
	replica, ok := x.node.Elem().FieldByName("replicaID")
	if !ok || replica.Type != reflect.TypeFor[uint64]() {
		return nil
	}
	x.queue, x.typ, x.replica = queue.Offset, queue.Type, replica.Offset
	return &x
}

// Attach tells the endpoint of the NodeHost whose transport it is: see inboxes. Without it every message makes its
// replica take a step.
func (e *Endpoint) Attach(host *dragonboat.NodeHost) { e.inboxes.Store(newInboxes(host)) }

// leaveFor puts a message into the queue of its replica and reports whether it did.
func (e *Endpoint) leaveFor(m *pb.Message) bool {
	x := e.inboxes.Load()
	if x == nil {
		return false
	}
	node, ok := x.shards.Load(m.ShardID)
	if !ok {
		return false
	}
	if x.node == nil {
		x = x.look(node)
		if e.inboxes.Store(x); x == nil {
			return false
		}
	}
	if reflect.TypeOf(node) != x.node {
		return false
	}
	at := reflect.ValueOf(node).UnsafePointer()
	if *(*uint64)(unsafe.Add(at, x.replica)) != m.To {
		return false
	}
	queue := reflect.NewAt(x.typ, unsafe.Add(at, x.queue)).Elem().Interface().(inbox)
	added, closed := queue.Add(*m)
	return added && !closed
}
