package server

import (
	"fmt"
	"strings"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file has the command CLUSTER, which only a store's own port answers. Every answer comes from the slot table
// alone, so all stores give the same answer. All stores are masters. The replicas of regions appear nowhere.

// clusterTable returns the slot table, which is empty before there is one.
func (c *conn) clusterTable() *route.Table {
	if t := c.s.o.Node.Table(); t != nil {
		return t
	}
	return route.NewTable(0, nil, nil)
}

// home is a range of slots and the store at which clients look for them.
type home struct {
	store *route.PublicStore
	slots topology.SlotRange
}

// homes returns the ranges, ascending, neighbours joined.
func homes(t *route.Table) (all []home) {
	for i := range t.Regions {
		r := &t.Regions[i]
		s := t.Home(r)
		if s == nil {
			continue
		}
		if n := len(all); n > 0 && all[n-1].store == s && all[n-1].slots.Last+1 == r.Slots.First {
			all[n-1].slots.Last = r.Slots.Last
		} else {
			all = append(all, home{s, r.Slots})
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
		id = s.NodeID
	}
	c.out.BulkString(id)
}

func runClusterSlots(c *conn, args [][]byte) {
	t := c.clusterTable()
	all := homes(t)
	o := &c.out.Reply
	o.Array(len(all))
	for _, h := range all {
		o.Array(3)
		o.Int(int64(h.slots.First))
		o.Int(int64(h.slots.Last))
		a, preferred := c.told(h.store), c.announced().Preferred
		o.Array(4)
		if preferred == announce.UnknownEndpoint {
			o.Null()
		} else {
			o.BulkString(a.Endpoint)
		}
		o.Int(int64(a.Port))
		o.BulkString(h.store.NodeID)
		var others []any
		if preferred != announce.IP {
			others = append(others, "ip", a.IP)
		}
		if preferred != announce.Hostname && a.Hostname != "" {
			others = append(others, "hostname", a.Hostname)
		}
		o.MapOf(others...)
	}
}

func runClusterShards(c *conn, args [][]byte) {
	t := c.clusterTable()
	all := homes(t)
	o := &c.out.Reply
	o.Array(len(t.Stores))
	for i := range t.Stores {
		s := &t.Stores[i]
		health := "online"
		if c.down(s) {
			health = "fail"
		}
		ranges := at(all, s)
		o.MapOf("slots", func() {
			o.Array(2 * len(ranges))
			for _, r := range ranges {
				o.Int(int64(r.First))
				o.Int(int64(r.Last))
			}
		}, "nodes", func() {
			o.Array(1)
			a := c.told(s)
			fields := []any{"id", s.NodeID, "port", a.Port, "ip", a.IP, "endpoint", a.Endpoint}
			if a.Hostname != "" {
				fields = append(fields, "hostname", a.Hostname)
			}
			o.MapOf(append(fields, "role", "master", "replication-offset", 0, "health", health)...)
		})
	}
}

// runClusterNodes names no bus port, since there is none. A store's configuration epoch is its number, so no two are
// equal.
func runClusterNodes(c *conn, args [][]byte) {
	t := c.clusterTable()
	all := homes(t)
	var b []byte
	for i := range t.Stores {
		s := &t.Stores[i]
		flags, link := "master", "connected"
		if s.ID == c.s.o.Self {
			flags = "myself,master"
		}
		if c.down(s) {
			flags, link = flags+",fail", "disconnected"
		}
		a := c.told(s)
		b = fmt.Appendf(b, "%s %s:%d@0", s.NodeID, a.IP, a.Port)
		if a.Hostname != "" {
			b = append(append(b, ','), a.Hostname...)
		}
		b = fmt.Appendf(b, " %s - 0 0 %d %s", flags, s.ID, link)
		for _, r := range at(all, s) {
			b = append(append(b, ' '), r.String()...)
		}
		b = append(b, '\n')
	}
	c.out.Verbatim("txt", string(b))
}

func runClusterInfo(c *conn, args [][]byte) {
	t := c.clusterTable()
	assigned, served, size := 0, 0, 0
	for i := range t.Regions {
		assigned += t.Regions[i].Slots.Count()
	}
	for i := range t.Stores {
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
		state, assigned, served, assigned-served, len(t.Stores), size, max(t.Epoch, uint64(len(t.Stores))), c.s.o.Self))
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
