package server

import (
	"slices"
	"sync"
	"sync/atomic"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/tracking"
)

// Hub tells the servers of a process what the replicas of its stores do to keys while they serve: see region.Listener.
// As in a Redis Cluster, a store's port hears of that store alone; a port that passes commands on hears of all. While
// nobody tracks keys and no events are published, the replicas tell nothing. The zero value has no servers.
type Hub struct {
	wanted atomic.Uint32 // a region.Wants

	mu      sync.Mutex
	servers atomic.Pointer[[]*Server] // replaced whole, under mu
}

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
	wanted := region.Wants(0)
	for _, s := range h.all() {
		classes := redis.EventClass(s.events.Load())
		if classes != 0 || s.tracked.Counts().Clients > 0 {
			wanted |= region.WantsChanges
		}
		if classes&(redis.ClassExpired|redis.ClassNew) != 0 {
			wanted |= region.WantsOld
		}
		if classes&redis.ClassMiss != 0 {
			wanted |= region.WantsMisses
		}
	}
	h.wanted.Store(uint32(wanted))
}

// Wants implements region.Listener.
func (h *Hub) Wants() region.Wants { return region.Wants(h.wanted.Load()) }

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

// setEvents sets which events are published. The text is right.
func (s *Server) setEvents(text string) {
	classes, _ := redis.ParseEventClass(text)
	s.events.Store(uint32(classes))
	s.o.Hub.update()
}

// publishEvents tells subscribers of keyspace notifications what has happened.
func (s *Server) publishEvents(effects []redis.Effect) {
	classes := redis.EventClass(s.events.Load())
	if classes&(redis.Keyspace|redis.Keyevent) == 0 || s.channels.count.Load() == 0 {
		return
	}
	var name []byte
	for i := range effects {
		e := &effects[i]
		event := e.Event.String()
		if event == "" || classes&e.Event.Class() == 0 {
			continue
		}
		if classes&redis.Keyspace != 0 && len(e.Key) <= maxChannel {
			name = append(append(name[:0], "__keyspace@0__:"...), e.Key...)
			s.Deliver(false, name, []byte(event))
		}
		if classes&redis.Keyevent != 0 {
			name = append(append(name[:0], "__keyevent@0__:"...), event...)
			s.Deliver(false, name, e.Key)
		}
	}
}

// Tracked returns how much the table of tracked keys has.
func (s *Server) Tracked() tracking.Counts { return s.tracked.Counts() }
