package tracking

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

var seeds = flag.Uint64("tracking.seed", 0, "the one seed of TestNothingStale; 0 for many")

// world is clients that cache what they read, and a database that changes meanwhile.
type world struct {
	*rand.Rand
	Table
	values  [8]int
	clients [4]*cacher
}

// cacher is a client. What it is sent waits in its inbox, in order.
type cacher struct {
	Client
	on, broadcast, noLoop bool
	reading               bool // has begun a read of key
	viewed                bool // and has seen value
	key, value            int
	cache                 [8]int
	inbox                 []func()
}

func name(key int) string { return fmt.Sprint("k", key) }

func (w *world) effect(what redis.EffectKind, key int, by any) redis.Effect {
	slot := topology.SlotOf([]byte(name(key)))
	return redis.Effect{What: what, Key: []byte(name(key)), Slots: topology.SlotRange{First: slot, Last: slot}, By: by}
}

func (c *cacher) told(m *Message) {
	c.inbox = append(c.inbox, func() {
		for key := range c.cache {
			if m.Keys == nil || slices.Contains(m.Keys, name(key)) {
				c.cache[key] = 0
			}
		}
	})
}

// finish answers a client's read. early and late are mistakes: what the client is told goes before the reply, and the
// key is entered when the value has been read.
func (w *world) finish(c *cacher, early, late bool) {
	c.reading, c.viewed = false, false
	if late {
		w.Begin(&c.Client, [][]byte{[]byte(name(c.key))})
	}
	key, value := c.key, c.value
	reply := func() { c.cache[key] = value }
	told := w.End(&c.Client)
	if !early {
		c.inbox = append(c.inbox, reply)
	}
	for _, m := range told {
		c.told(m)
	}
	if early {
		c.inbox = append(c.inbox, reply)
	}
}

func (w *world) step(early, late bool) {
	c := w.clients[w.IntN(len(w.clients))]
	key := w.IntN(len(w.values))
	switch n := w.IntN(100); {
	case n < 30 && c.on && !c.reading:
		c.reading, c.key = true, key
		if late {
			w.Begin(&c.Client, nil)
		} else {
			w.Begin(&c.Client, [][]byte{[]byte(name(key))})
		}
	case n < 50 && c.reading && !c.viewed:
		c.viewed, c.value = true, w.values[c.key]
	case n < 70 && c.reading && c.viewed:
		w.finish(c, early, late)
	case n < 85 && len(c.inbox) > 0:
		c.inbox[0]()
		c.inbox = c.inbox[1:]
	case n < 94:
		w.values[key]++
		by := any(nil)
		if w.IntN(3) == 0 && !c.reading && c.on {
			by = &c.Client
			w.Begin(&c.Client, nil)
			if c.noLoop { // it knows what it has written
				c.inbox = append(c.inbox, func() { c.cache[key] = 0 })
			}
		}
		w.Happened([]redis.Effect{w.effect(redis.Changed, key, by)})
		if by != nil {
			for _, m := range w.End(&c.Client) {
				c.told(m)
			}
		}
	case n < 96: // another leader has changed something unseen
		w.values[key]++
		slot := topology.SlotOf([]byte(name(key)))
		w.Lost(topology.SlotRange{First: slot, Last: slot})
	case n < 97:
		for i := range w.values {
			w.values[i]++
		}
		w.Happened([]redis.Effect{{What: redis.Flushed, Slots: allSlots}})
	case n < 98 && !c.reading:
		if c.on = !c.on; c.on {
			c.broadcast, c.noLoop = w.IntN(2) == 0, w.IntN(2) == 0
			c.inbox, c.cache = nil, [8]int{}
			w.Start(&c.Client, Options{Broadcast: c.broadcast, NoLoop: c.noLoop})
			w.End(&c.Client)
		} else {
			w.Stop(&c.Client)
		}
	case n < 99:
		w.SetMost(w.IntN(4))
	}
}

// stale plays a world, and returns what is cached at its end and was changed, empty if nothing is.
func stale(seed uint64, early, late bool) string {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0))}
	held := int64(0)
	w.Held = func(n int64) { held += n }
	for i := range w.clients {
		c := new(cacher)
		c.Send = c.told
		w.clients[i] = c
	}
	for range 1000 {
		w.step(early, late)
	}
	for i, c := range w.clients {
		if !c.on {
			continue
		}
		if c.reading {
			if !c.viewed {
				c.value = w.values[c.key]
			}
			w.finish(c, early, late)
		}
		for _, f := range c.inbox {
			f()
		}
		for key, value := range c.cache {
			if value != 0 && value != w.values[key] {
				return fmt.Sprintf("client %d has %d for key %d, which is %d", i, value, key, w.values[key])
			}
		}
	}
	held -= w.held
	for at, of := range w.slots {
		bytes, items := int64(0), 0
		for key, all := range of.readers {
			w.keys--
			items += all.count()
			bytes += keyBytes + int64(len(key)) + int64(all.count())*itemBytes
			if topology.SlotOf([]byte(key)) != topology.Slot(at) || all.count() == 0 {
				return fmt.Sprintf("%s is in slot %d, with %d clients", key, at, all.count())
			}
		}
		if of.items != items || of.bytes != bytes {
			return fmt.Sprintf("slot %d counts %d items and %d bytes, and has %d and %d", at, of.items, of.bytes, items, bytes)
		}
		w.items -= items
		w.held -= bytes
	}
	for _, c := range w.clients {
		w.held -= c.behind
	}
	if w.keys != 0 || w.items != 0 || w.held != 0 || held != 0 {
		return fmt.Sprintf("the table counts %d keys, %d items and %d bytes too many, and tells of %d bytes", w.keys, w.items,
			w.held, held)
	}
	return ""
}

// TestNothingStale lets clients read and cache while keys change, the table overflows and loses sight of slots. When
// all that they were sent has arrived, they cache nothing that has changed. Two mistakes must be found.
func TestNothingStale(t *testing.T) {
	first, last := uint64(1), uint64(60)
	if *seeds != 0 {
		first, last = *seeds, *seeds
	}
	early, late := 0, 0
	for seed := first; seed <= last; seed++ {
		if why := stale(seed, false, false); why != "" {
			t.Fatalf("-tracking.seed=%d: %s", seed, why)
		}
		if stale(seed, true, false) != "" {
			early++
		}
		if stale(seed, false, true) != "" {
			late++
		}
	}
	if *seeds == 0 && (early == 0 || late == 0) {
		t.Errorf("told before the reply: found in %d of %d; a key entered after the read: in %d", early, last, late)
	}
}

// TestTable says who is told what.
func TestTable(t *testing.T) {
	var x Table
	var log []string
	client := func(name string) *Client {
		return &Client{Send: func(m *Message) { log = append(log, name+" "+strings.Join(m.Keys, ",")) }}
	}
	all := map[string]*Client{}
	for _, n := range []string{"a", "b", "c", "d"} {
		all[n] = client(n)
	}
	read := func(n string, keys ...string) {
		var b [][]byte
		for _, k := range keys {
			b = append(b, []byte(k))
		}
		x.Begin(all[n], b)
		for _, m := range x.End(all[n]) {
			log = append(log, n+" later "+strings.Join(m.Keys, ","))
		}
	}
	change := func(by string, keys ...string) {
		var e []redis.Effect
		for _, k := range keys {
			slot := topology.SlotOf([]byte(k))
			e = append(e, redis.Effect{What: redis.Changed, Key: []byte(k), By: all[by],
				Slots: topology.SlotRange{First: slot, Last: slot}})
		}
		x.Happened(e)
	}
	start := func(n string, o Options) { x.Start(all[n], o); x.End(all[n]) }
	want := func(lines ...string) {
		t.Helper()
		slices.Sort(log)
		if !slices.Equal(log, lines) {
			t.Errorf("told %q, want %q", log, lines)
		}
		log = nil
	}
	start("a", Options{})
	start("b", Options{NoLoop: true})
	start("c", Options{Broadcast: true, Prefixes: []string{"k", "x"}})
	start("d", Options{Broadcast: true, NoLoop: true})
	read("a", "k1", "y")
	read("b", "k1", "y")
	read("c", "y")
	change("", "k1", "other", "k1")
	want("a k1", "b k1", "c k1", "d k1,other")
	change("", "k1")
	want("c k1", "d k1")
	change("b", "y")
	want("a y", "d y")
	change("d", "x1", "k2")
	want("c k2", "c x1")
	x.Begin(all["a"], [][]byte{[]byte("k3")})
	change("", "k3")
	want("c k3", "d k3")
	read("a")
	want("a later k3")
	read("a", "one", "two", "three")
	x.SetMost(2)
	read("b", "four")
	if n := len(log); n != 2 || x.Counts() != (Counts{Clients: 4, Keys: 2, Items: 2, Prefixes: 3}) {
		t.Errorf("beyond the bound: told %q, counts %+v", log, x.Counts())
	}
	log = nil
	x.SetMost(0)
	read("a", "{s}1", "{s}2")
	slot := topology.SlotOf([]byte("{s}"))
	x.Lost(topology.SlotRange{First: slot, Last: slot})
	for i, line := range log {
		log[i] = line[:min(len(line), 5)] // in no order
	}
	want("a {s}", "c ", "d ")
	x.Stop(all["c"])
	change("", "k1")
	want("d k1")
	if got, _, _, bad := Overlap([]string{"ab"}, []string{"c", "a"}); got != "a" || !bad {
		t.Errorf("a overlaps ab: %q, %v", got, bad)
	}
	if _, _, _, bad := Overlap([]string{"ab"}, []string{"b", "ac"}); bad {
		t.Error("nothing overlaps")
	}
	for _, c := range all {
		x.Stop(c)
	}
	if x.Counts() != (Counts{}) {
		t.Errorf("nobody tracks, and counts are %+v", x.Counts())
	}
}

// TestDeadClients: clients that come and go, and read a key that never changes, leave nothing in the table.
func TestDeadClients(t *testing.T) {
	var x Table
	stays := &Client{Send: func(*Message) {}}
	x.Start(stays, Options{})
	var keys [][]byte
	for i := range 10 {
		keys = append(keys, []byte(fmt.Sprint("{hot}", i)))
	}
	x.Begin(stays, keys)
	x.End(stays)
	for range 3 * chunk {
		c := &Client{Send: func(*Message) { t.Error("a client that has gone is told") }}
		x.Start(c, Options{})
		x.Begin(c, keys)
		x.End(c)
		x.Stop(c)
		if x.items > 3*chunk {
			t.Fatalf("the table has %d items of %d clients", x.items, len(x.clients))
		}
	}
	x.Lost(allSlots)
	if x.held != 0 || x.items != 0 {
		t.Errorf("%d bytes, %d items", x.held, x.items)
	}
}

// TestBehind: what waits for a client that is busy has a bound, and so have the keys of all.
func TestBehind(t *testing.T) {
	var x Table
	most := int64(0)
	x.Full = func(held int64) bool { most = max(most, held); return held > maxBehind }
	c, other := &Client{Send: func(*Message) { t.Error("a busy client is told") }}, &Client{Send: func(*Message) {}}
	x.Start(c, Options{Broadcast: true})
	x.Start(other, Options{})
	x.End(other)
	long := strings.Repeat("k", 1000)
	for i := range 4 * maxBehind / 1000 {
		key := []byte(fmt.Sprint(long, i))
		x.Begin(other, [][]byte{key})
		x.End(other)
		slot := topology.SlotOf(key)
		x.Happened([]redis.Effect{{Key: []byte(long), Slots: topology.SlotRange{First: slot, Last: slot}}})
	}
	if most > 3*maxBehind {
		t.Errorf("the table has held %d bytes", most)
	}
	if told := x.End(c); len(told) != 1 || told[0].Keys != nil {
		t.Errorf("the client is told of %d changes", len(told))
	}
	if x.Counts().Keys == 0 {
		t.Error("the table has given up all keys")
	}
}

// TestOthersDuringLost: while the keys of all slots are lost, and a client is told of them, others go on reading.
func TestOthersDuringLost(t *testing.T) {
	var x Table
	var reads atomic.Int64
	first, last := int64(-1), int64(0) // how often others had read when the client was told
	c, other := &Client{Send: func(*Message) {
		if last = reads.Load(); first < 0 {
			first = last
		}
	}}, &Client{Send: func(*Message) {}}
	fill(&x, c, 100_000)
	x.Start(other, Options{})
	x.End(other)
	over := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				x.Begin(other, [][]byte{[]byte("k")})
				x.End(other)
				reads.Add(1)
			}
		}
	})
	for reads.Load() == 0 {
		runtime.Gosched()
	}
	x.Lost(allSlots)
	close(over)
	reader.Wait()
	if last == first {
		t.Error("others have not read between the first and the last of 100,000 lost keys")
	}
	if x.keys > 1 {
		t.Errorf("%d keys are left", x.keys)
	}
}

var allSlots = topology.SlotRange{Last: topology.SlotCount - 1}

// fill has a client read many keys.
func fill(x *Table, c *Client, keys int) {
	x.Start(c, Options{})
	for i := range keys {
		x.Begin(c, [][]byte{[]byte(fmt.Sprint("key:", i))})
	}
	x.End(c)
}

// BenchmarkHotKey is a read of a key that so many clients have read, with the change that makes them read it again in
// between.
func BenchmarkHotKey(b *testing.B) {
	for _, clients := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			var x Table
			all := make([]*Client, clients)
			for i := range all {
				all[i] = &Client{Send: func(*Message) {}}
				x.Start(all[i], Options{})
				x.End(all[i])
			}
			key := [][]byte{[]byte("hot")}
			slot := topology.SlotOf(key[0])
			change := []redis.Effect{{Key: key[0], Slots: topology.SlotRange{First: slot, Last: slot}}}
			for n := 0; b.Loop(); n++ {
				c := all[n%clients]
				x.Begin(c, key)
				x.End(c)
				if n%(2*clients) == 0 {
					x.Happened(change)
				}
			}
		})
	}
}

// BenchmarkManyKeys is what holds up reads where the table has a million keys: FLUSHALL, and a leader that is lost.
func BenchmarkManyKeys(b *testing.B) {
	for _, what := range []string{"flush", "lost"} {
		b.Run(what, func(b *testing.B) {
			longest := time.Duration(0)
			for range b.N {
				b.StopTimer()
				var x Table
				c, other := &Client{Send: func(*Message) {}}, &Client{Send: func(*Message) {}}
				fill(&x, c, 1_000_000)
				x.Start(other, Options{})
				x.End(other)
				over := make(chan struct{})
				var reader sync.WaitGroup
				reader.Go(func() {
					for begin := time.Now(); ; begin = time.Now() {
						x.Begin(other, [][]byte{[]byte("k")})
						x.End(other)
						longest = max(longest, time.Since(begin))
						select {
						case <-over:
							return
						default:
							runtime.Gosched()
						}
					}
				})
				b.StartTimer()
				if what == "lost" {
					x.Lost(allSlots)
				} else {
					x.Happened([]redis.Effect{{What: redis.Flushed, Slots: allSlots}})
				}
				b.StopTimer()
				close(over)
				reader.Wait()
			}
			b.ReportMetric(float64(longest.Microseconds()), "longest-us")
		})
	}
}
