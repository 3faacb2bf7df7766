package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file has the command CLUSTER, which only the ports of stores answer. Every answer comes from the slot table
// alone, so all stores give the same answer. All stores are masters. A store's second address, if there is one, is a
// replica of each master that leads a region which the store follows.

// errReplica is Redis's answer to a write at a replica.
const errReplica = "READONLY You can't write against a read only replica."

// clusterTable returns the slot table, which is empty before there is one.
func (c *conn) clusterTable() *route.Table {
	if t := c.s.o.Node.Table(); t != nil {
		return t
	}
	return route.NewTable(0, nil, nil)
}

// home is a range of slots, the store at which clients look for them, and those whose second addresses are replicas.
type home struct {
	store    *route.PublicStore
	replicas []*route.PublicStore // by id, dead ones too
	slots    topology.SlotRange
}

// homes returns the ranges, ascending, neighbours joined.
func homes(t *route.Table) (all []home) {
	for i := range t.Regions {
		r := &t.Regions[i]
		s := t.Home(r)
		if s == nil {
			continue
		}
		h := home{s, t.Followers(r), r.Slots}
		if n := len(all) - 1; n >= 0 && all[n].store == s && all[n].slots.Last+1 == h.slots.First &&
			slices.Equal(all[n].replicas, h.replicas) {
			all[n].slots.Last = h.slots.Last
		} else {
			all = append(all, h)
		}
	}
	return all
}

// at returns the slot ranges whose home a store is.
func at(all []home, s *route.PublicStore) (ranges []topology.SlotRange) {
	for _, h := range all {
		if h.store == s {
			ranges = append(ranges, h.slots)
		}
	}
	return ranges
}

// replicasOf returns the stores whose second addresses are replicas of some slots of a store, by id.
func replicasOf(all []home, s *route.PublicStore) (replicas []*route.PublicStore) {
	for _, h := range all {
		if h.store == s {
			replicas = append(replicas, h.replicas...)
		}
	}
	slices.SortFunc(replicas, func(a, b *route.PublicStore) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Compact(replicas)
}

// masterOf returns the one master of a store's second address where an answer has room for one: of those whose slots it
// follows, the next by number, from the largest on to the smallest. So while every store leads its regions each has a
// replica. It returns nil if there is none.
func masterOf(all []home, s *route.PublicStore) (master *route.PublicStore) {
	for _, h := range all {
		if slices.Contains(h.replicas, s) && (master == nil || h.store.ID-s.ID < master.ID-s.ID) { // modulo 2^n
			master = h.store
		}
	}
	return master
}

// master returns the master of the second address that the client has asked, nil if there is none at the moment.
func (c *conn) master() *route.PublicStore {
	t := c.clusterTable()
	if s := t.Store(c.s.o.Self); s != nil {
		return masterOf(homes(t), s)
	}
	return nil
}

// down reports whether CLUSTER calls a store failed. A store does not call itself so; its stand-in does.
func (c *conn) down(s *route.PublicStore) bool {
	if s.ID == c.s.o.Self {
		return c.s.o.StandIn
	}
	return !s.Alive
}

func runClusterKeySlot(c *conn, args [][]byte) { c.out.Int(int64(topology.SlotOf(args[2]))) }

func runClusterMyID(c *conn, args [][]byte) {
	id := "0000000000000000000000000000000000000000"
	if s := c.clusterTable().Store(c.s.o.Self); s != nil {
		if id = s.NodeID; c.replica() {
			id = s.ReplicaID()
		}
	}
	c.out.BulkString(id)
}

func runClusterSlots(c *conn, args [][]byte) {
	t := c.clusterTable()
	all := homes(t)
	o := &c.out.Reply
	o.Array(len(all))
	preferred := c.announced().Preferred
	node := func(a announce.Addr, id string) {
		o.Array(4)
		if preferred == announce.UnknownEndpoint {
			o.Null()
		} else {
			o.BulkString(a.Endpoint)
		}
		o.Int(int64(a.Port))
		o.BulkString(id)
		var others []any
		if preferred != announce.IP {
			others = append(others, "ip", a.IP)
		}
		if preferred != announce.Hostname && a.Hostname != "" {
			others = append(others, "hostname", a.Hostname)
		}
		o.MapOf(others...)
	}
	for _, h := range all {
		replicas := slices.DeleteFunc(h.replicas, func(s *route.PublicStore) bool {
			return c.down(s) || s.Full // a store whose disk is full falls behind, and reads wait for it
		})
		o.Array(3 + len(replicas))
		o.Int(int64(h.slots.First))
		o.Int(int64(h.slots.Last))
		node(c.told(h.store), h.store.NodeID)
		for _, s := range replicas {
			node(c.toldReplica(s), s.ReplicaID())
		}
	}
}

func runClusterShards(c *conn, args [][]byte) {
	t := c.clusterTable()
	all := homes(t)
	o := &c.out.Reply
	o.Array(len(t.Stores))
	for i := range t.Stores {
		s := &t.Stores[i]
		ranges, replicas := at(all, s), replicasOf(all, s)
		node := func(s *route.PublicStore, a announce.Addr, id, role string) {
			health := "online"
			if c.down(s) {
				health = "fail"
			}
			fields := []any{"id", id, "port", a.Port, "ip", a.IP, "endpoint", a.Endpoint}
			if a.Hostname != "" {
				fields = append(fields, "hostname", a.Hostname)
			}
			o.MapOf(append(fields, "role", role, "replication-offset", 0, "health", health)...)
		}
		o.MapOf("slots", func() {
			o.Array(2 * len(ranges))
			for _, r := range ranges {
				o.Int(int64(r.First))
				o.Int(int64(r.Last))
			}
		}, "nodes", func() {
			o.Array(1 + len(replicas))
			node(s, c.told(s), s.NodeID, "master")
			for _, x := range replicas {
				node(x, c.toldReplica(x), x.ReplicaID(), "replica")
			}
		})
	}
}

func runClusterNodes(c *conn, args [][]byte) {
	t := c.clusterTable()
	all := homes(t)
	var b []byte
	for i := range t.Stores {
		s := &t.Stores[i]
		b = c.appendNode(b, s, false, "-")
		for _, r := range at(all, s) {
			b = append(append(b, ' '), r.String()...)
		}
		if s.ID == c.s.o.Self && !c.replica() {
			b = c.appendOpen(b, t)
		}
		b = append(b, '\n')
	}
	for i := range t.Stores {
		if s := &t.Stores[i]; s.ReplicaPort != 0 {
			master := "-"
			if m := masterOf(all, s); m != nil {
				master = m.NodeID
			}
			b = append(c.appendNode(b, s, true, master), '\n')
		}
	}
	c.out.Verbatim("txt", string(b))
}

// appendOpen appends the slots of which this store shows a migration: [slot->-id] where they leave it, [slot-<-id]
// where they come. As in Redis a node says so of itself alone, and of each slot.
func (c *conn) appendOpen(b []byte, t *route.Table) []byte {
	if len(t.Windows) == 0 {
		return b
	}
	port := route.Port{Store: c.s.o.Self}
	for slot := range topology.Slot(topology.SlotCount) {
		w := t.Window(port, slot)
		switch {
		case w == nil:
		case w.To == c.s.o.Self:
			b = fmt.Appendf(b, " [%d-<-%s]", slot, t.Store(w.From).NodeID)
		case w.BeginMS > 0:
			b = fmt.Appendf(b, " [%d->-%s]", slot, t.Store(w.To).NodeID)
		}
	}
	return b
}

// appendNode appends the line of a store, or of its second address, without slots. There is no bus, so the line names
// no port of it. A store's configuration epoch is its number, so no two are equal.
func (c *conn) appendNode(b []byte, s *route.PublicStore, replica bool, master string) []byte {
	id, a, flags, link := s.NodeID, c.told(s), "master", "connected"
	if replica {
		id, a, flags = s.ReplicaID(), c.toldReplica(s), "slave"
	}
	if s.ID == c.s.o.Self && replica == c.replica() {
		flags = "myself," + flags
	}
	if c.down(s) {
		flags, link = flags+",fail", "disconnected"
	}
	b = fmt.Appendf(b, "%s %s:%d@0", id, a.IP, a.Port)
	if a.Hostname != "" {
		b = append(append(b, ','), a.Hostname...)
	}
	return fmt.Appendf(b, " %s %s 0 0 %d %s", flags, master, s.ID, link)
}

// runClusterReplicas lists all replicas of a master, with that one as their master.
func runClusterReplicas(c *conn, args [][]byte) {
	t := c.clusterTable()
	for i := range t.Stores {
		switch s := &t.Stores[i]; string(args[2]) {
		case s.NodeID:
			replicas := replicasOf(homes(t), s)
			c.out.Array(len(replicas))
			for _, x := range replicas {
				c.out.Bulk(c.appendNode(nil, x, true, s.NodeID))
			}
			return
		case s.ReplicaID():
			if s.ReplicaPort != 0 {
				c.out.Error("ERR The specified node is not a master")
				return
			}
		}
	}
	c.out.Error("ERR Unknown node " + oneLine(args[2]))
}

func runClusterInfo(c *conn, args [][]byte) {
	t := c.clusterTable()
	assigned, served, size, known := 0, 0, 0, len(t.Stores)
	for i := range t.Regions {
		assigned += t.Regions[i].Slots.Count()
	}
	for i := range t.Stores {
		if t.Stores[i].ReplicaPort != 0 {
			known++
		}
		if !t.Stores[i].Alive {
			continue
		}
		ranges := t.Led(t.Stores[i].ID)
		if len(ranges) > 0 {
			size++
		}
		for _, r := range ranges {
			served += r.Count()
		}
	}
	state := "ok"
	if served < topology.SlotCount {
		state = "fail"
	}
	c.out.Verbatim("txt", fmt.Sprintf("cluster_state:%s\r\ncluster_slots_assigned:%d\r\ncluster_slots_ok:%d\r\n"+
		"cluster_slots_pfail:0\r\ncluster_slots_fail:%d\r\ncluster_known_nodes:%d\r\ncluster_size:%d\r\n"+
		"cluster_current_epoch:%d\r\ncluster_my_epoch:%d\r\n"+
		"cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n"+
		"total_cluster_links_buffer_limit_exceeded:0\r\n",
		state, assigned, served, assigned-served, known, size, max(t.Epoch, uint64(len(t.Stores))), c.s.o.Self))
}

func runClusterCountKeys(c *conn, args [][]byte) {
	slot, ok := redis.ParseInt(args[2])
	switch {
	case !ok:
		c.out.Error(redis.ErrNotInteger)
		return
	case slot < 0 || slot >= topology.SlotCount:
		c.out.Error("ERR Invalid slot")
		return
	}
	n := 0
	w := redis.KeyWalk{CountOnly: true}
	failure := c.exec.walkSlots(reads, oneSlot(topology.Slot(slot)), &w, func() bool {
		n += w.Count
		return true
	})
	if c.exec.fails(failure) {
		return
	}
	c.out.Int(int64(n))
}

func runClusterGetKeys(c *conn, args [][]byte) {
	slot, ok := redis.ParseInt(args[2])
	most, ok2 := redis.ParseInt(args[3])
	switch {
	case !ok || !ok2:
		c.out.Error(redis.ErrNotInteger)
		return
	case slot < 0 || slot >= topology.SlotCount || most < 0:
		c.out.Error("ERR Invalid slot or number of keys")
		return
	}
	found := c.exec.collected()
	n := 0
	w := redis.KeyWalk{Limit: int(min(max(most, 1), redis.MaxWalk))}
	failure := c.exec.walkSlots(reads, oneSlot(topology.Slot(slot)), &w, func() bool {
		for _, k := range w.Keys {
			if int64(n) < most {
				found.Bulk(k.Key)
				n++
			}
		}
		return int64(n) < most && !found.Full
	})
	if c.exec.fails(failure) {
		return
	}
	c.out.Array(n)
	c.exec.append(&found)
}

// runClusterFailover makes the store the leader of all regions that it follows, where Redis has a replica take over
// what its master serves. It answers when the store leads them, where Redis answers when it begins. FORCE and TAKEOVER
// do the same: Raft lets a leader be replaced only by a majority, and elects another one by itself when it is dead.
func runClusterFailover(c *conn, args [][]byte) {
	switch {
	case len(args) > 3:
		c.unknownUse(args)
		return
	case len(args) == 3 && !redis.IsOption(args[2], "force") && !redis.IsOption(args[2], "takeover"):
		c.out.Error(redis.ErrSyntax)
		return
	}
	if !c.out.flush() {
		c.closing = true
		return
	}
	if err := c.s.o.Node.TakeOver(c.ctx); err != nil { // one line for each region
		c.out.Error("ERR " + strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	c.out.OK()
}
