// Package inside reaches what the Raft library does not export: by the names of variables and functions (go:linkname),
// and by those of fields (reflect). Nobody else in NeoKV does.
//
// Each place stands here with its reason. All depend on the version of the library in go.mod. If another version lacks
// one of the variables, the program builds, the value has no effect, and TestLinkedNames fails. If it lacks
// setApplyReady, the program does not link. If it lacks the fields, Of returns an error, so no store starts. If a name
// has another type than it had, TestTypes fails.
//
// What is reached in a NodeHost is that NodeHost's own, and NeoKV asks only for its own NodeHosts. The sizes alone are
// those of the process: see sizes.go.
package inside

import (
	"errors"
	"reflect"
	"sync"
	"unsafe"

	"github.com/lni/dragonboat/v4"
	circuit "github.com/lni/goutils/netutil/rubyist/circuitbreaker"
)

// Host is the inside of a NodeHost. Its methods may run concurrently, also while the NodeHost closes.
//
// Transport ticks the replicas: regions at rest get fewer ticks than others, and dragonboat ticks all alike. So Host
// finds the queues in which the replicas find their messages and ticks. It also finds the circuit breakers of the
// NodeHost's transport, each of which drops all messages to a store once it has tripped.
type Host struct {
	shards   *sync.Map // region u64 -> *dragonboat.node
	replica  uintptr   // offset of node.replicaID
	queue    uintptr   // of node.mq
	typ      reflect.Type
	engine   unsafe.Pointer
	breakers breakers
}

// Node is a replica in a NodeHost.
type Node any

// inbox is a replica's queue.
type inbox interface {
	// Tick moves the clock of the messages that dragonboat delays: how sending a snapshot has ended.
	Tick()
}

// breakers has a circuit breaker for each address.
type breakers interface {
	GetCircuitBreaker(address string) *circuit.Breaker
}

// Of returns the inside of a NodeHost. It fails only if this version of dragonboat has no message queues, or no
// breakers, where NeoKV looks for them.
func Of(host *dragonboat.NodeHost) (*Host, error) {
	h, err := queuesOf(host)
	if err == nil {
		h.breakers, err = breakersOf(host)
	}
	return h, err
}

// queuesOf finds the queues of a NodeHost.
func queuesOf(host *dragonboat.NodeHost) (*Host, error) {
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
	return &Host{
		shards:  (*sync.Map)(unsafe.Add(unsafe.Pointer(host), mu.Offset+shards.Offset)),
		replica: replica.Offset, queue: queue.Offset, typ: queue.Type,
		engine: *(*unsafe.Pointer)(unsafe.Add(unsafe.Pointer(host), engine.Offset)),
	}, nil
}

// breakersOf finds the breakers of a NodeHost.
func breakersOf(host *dragonboat.NodeHost) (breakers, error) {
	f, ok := reflect.TypeOf(host).Elem().FieldByName("transport")
	if ok && f.Type.Kind() == reflect.Interface {
		at := unsafe.Add(unsafe.Pointer(host), f.Offset)
		if b, ok := reflect.NewAt(f.Type, at).Elem().Interface().(breakers); ok {
			return b, nil
		}
	}
	return nil, errors.New("this version of dragonboat has no circuit breakers where NeoKV looks for them")
}

// Range calls f with each region that has a replica in the NodeHost, and with the replica.
func (h *Host) Range(f func(region uint64, n Node)) {
	h.shards.Range(func(region, node any) bool {
		f(region.(uint64), node)
		return true
	})
}

// Tick ticks a replica's queue and returns the replica's id. The replica's own tick is a message, which the caller
// hands to the NodeHost.
func (h *Host) Tick(n Node) (replica uint64) {
	at := reflect.ValueOf(n).UnsafePointer()
	reflect.NewAt(h.typ, unsafe.Add(at, h.queue)).Elem().Interface().(inbox).Tick()
	return *(*uint64)(unsafe.Add(at, h.replica))
}

// Nudge tells the apply worker of a region that its replica has something to do.
func (h *Host) Nudge(region uint64) { setApplyReady(h.engine, region) }

//go:linkname setApplyReady github.com/lni/dragonboat/v4.(*engine).setApplyReady
func setApplyReady(engine unsafe.Pointer, shard uint64)

// NeverTrip keeps the breaker of an address from tripping.
func (h *Host) NeverTrip(address string) { h.breakers.GetCircuitBreaker(address).ShouldTrip = nil }
