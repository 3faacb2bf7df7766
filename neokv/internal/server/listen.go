package server

import (
	"slices"
	"sync"
	"sync/atomic"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// Hub tells the servers of a process what the replicas of its stores do to keys while they serve: see region.Listener.
// As in a Redis Cluster, a store's port hears of that store alone; a port that passes commands on hears of all. While
// nobody tracks keys and no events are published, the replicas tell nothing. The zero value has no servers.
type Hub struct {
	wanted atomic.Uint32 // wantsEffects, wantsOld

	mu      sync.Mutex
	servers atomic.Pointer[[]*Server] // replaced whole, under mu
}

const (
	wantsEffects = 1 << iota // somebody wants to hear
	wantsOld                 // and whether a key was there before, and had expired
)

func (h *Hub) change(f func([]*Server) []*Server) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := f(slices.Clone(h.all()))
	h.servers.Store(&next)
	h.settle()
}

func (h *Hub) all() []*Server {
	if all := h.servers.Load(); all != nil {
		return *all
	}
	return nil
}

// update is called when a server wants to hear more or less.
func (h *Hub) update() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settle()
}

func (h *Hub) settle() {
	wanted := uint32(0)
	for _, s := range h.all() {
		classes := redis.EventClass(s.events.Load())
		if classes != 0 || s.tracked.Counts().Clients > 0 {
			wanted |= wantsEffects
		}
		if classes&(redis.ClassExpired|redis.ClassNew) != 0 {
			wanted |= wantsOld
		}
	}
	h.wanted.Store(wanted)
}

// Listens implements region.Listener.
func (h *Hub) Listens() (anything, looks bool) {
	wanted := h.wanted.Load()
	return wanted != 0, wanted&wantsOld != 0
}

// Happened implements region.Listener.
func (h *Hub) Happened(store topology.StoreID, effects []redis.Effect) {
	for _, s := range h.all() {
		if s.hears(store) {
			s.tracked.Happened(effects)
			s.publishEvents(effects)
		}
	}
}

// Lost implements region.Listener.
func (h *Hub) Lost(store topology.StoreID, slots topology.SlotRange) {
	if h.wanted.Load() == 0 {
		return
	}
	for _, s := range h.all() {
		if s.hears(store) {
			s.tracked.Lost(slots)
		}
	}
}

// hears reports whether the clients of this server may read from a store here.
func (s *Server) hears(store topology.StoreID) bool { return s.proxy() || s.self == store }

// publishEvents tells subscribers of keyspace notifications what has happened.
func (s *Server) publishEvents(effects []redis.Effect) {
	classes := redis.EventClass(s.events.Load())
	if classes == 0 {
		return
	}
	var name []byte
	for i := range effects {
		e := &effects[i]
		event := e.Event.String()
		if event == "" || classes&e.Event.Class() == 0 {
			continue
		}
		if classes&redis.Keyspace != 0 {
			name = append(append(name[:0], "__keyspace@0__:"...), e.Key...)
			s.Deliver(false, name, []byte(event))
		}
		if classes&redis.Keyevent != 0 {
			name = append(append(name[:0], "__keyevent@0__:"...), event...)
			s.Deliver(false, name, e.Key)
		}
	}
}
