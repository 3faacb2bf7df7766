package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// This file carries what clients publish to the other stores. There is a lane from each store to each other one, which
// sends one batch of messages after the other, each as a call:
//
//	[mark u8][incarnation u64][number u64] then for each message [shard u8][channel][payload], both [length uvarint][bytes]
//
// Numbers rise with each batch, and incarnations with each start of the sending store. A receiver takes no batch that
// is not behind the last one that it took. A batch is sent once: if no answer comes, nobody knows whether it has
// arrived, and what has waited for the answer is lost with it. So messages of a store reach another one in order and
// none twice; some are lost when a link is cut or a store ends, or when too many wait.

// busMark tells a batch from other calls, which are JSON.
const busMark = 1

const (
	batchHeader = 1 + 8 + 8
	// batchBytes is how long a batch is at most, but for its last message.
	batchBytes = 1 << 20
	// laneBytes is how many bytes may wait for a lane. What comes then is lost.
	laneBytes = 32 << 20
	// laneTime is how long a batch may take that has a MiB at most, and each further MiB.
	laneTime = time.Second
)

// bus carries messages from and to the other stores. Its lanes start goroutines as long as they have something to send.
// All methods may run concurrently.
type bus struct {
	*core
	cluster *clusterMap
	lanes   atomic.Pointer[lanes] // nil before the first message
	stats   BusStats

	mu     sync.Mutex // held to replace lanes, and to find one of heards
	heards map[topology.StoreID]*heard
}

// lanes are the lanes to the other stores of a map.
type lanes struct {
	of  *[]topology.StoreID // clusterMap.members of then
	all []*lane
}

// lane carries messages to another store. A goroutine sends while there is something to send.
type lane struct {
	bus *bus
	to  topology.StoreID

	mu      sync.Mutex // guards what follows
	batches []*laneBatch
	bytes   int
	number  uint64 // of the last batch
	sending bool   // a goroutine sends
}

type laneBatch struct {
	bytes    []byte
	messages int
}

// heard is what a store has heard from another one.
type heard struct {
	mu                  sync.Mutex
	incarnation, number uint64
}

// BusStats are counters since the store has started.
type BusStats struct {
	Sent, Lost, Late atomic.Int64 // messages; Late of batches that came behind a later one
}

// publish sends a message to the clients of all other stores: see Store.Publish.
func (x *bus) publish(shard bool, channel, payload []byte) {
	if shard && x.o.Settings.Redis.ClusterEnabled {
		return
	}
	for _, l := range x.lanesNow() {
		l.put(shard, channel, payload)
	}
}

// open prepares the bus of a store that opens.
func (x *bus) open(c *core, cluster *clusterMap) {
	x.core, x.cluster, x.heards = c, cluster, make(map[topology.StoreID]*heard)
}

// lanesNow returns the lanes to all other stores.
func (x *bus) lanesNow() []*lane {
	of, has := x.cluster.members.Load(), x.lanes.Load()
	if has != nil && has.of == of {
		return has.all
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	next := &lanes{of: of}
	if has = x.lanes.Load(); has == nil {
		has = next
	}
	for _, id := range *of {
		if id == x.o.ID {
			continue
		}
		at := slices.IndexFunc(has.all, func(l *lane) bool { return l.to == id })
		if at >= 0 {
			next.all = append(next.all, has.all[at])
		} else {
			next.all = append(next.all, &lane{bus: x, to: id})
		}
	}
	x.lanes.Store(next)
	return next.all
}

// heardOf returns what the store has heard from another one, nil of one that the map does not have.
func (x *bus) heardOf(from topology.StoreID) *heard {
	if from == x.o.ID || !slices.Contains(*x.cluster.members.Load(), from) {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.heards[from]
	if h == nil {
		h = new(heard)
		x.heards[from] = h
	}
	return h
}

func (l *lane) put(shard bool, channel, payload []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := len(channel) + len(payload)
	if l.bytes > 0 && l.bytes+size > laneBytes {
		l.bus.stats.Lost.Add(1)
		return
	}
	var b *laneBatch
	if n := len(l.batches); n > 0 && len(l.batches[n-1].bytes) < batchBytes {
		b = l.batches[n-1]
	} else {
		b = &laneBatch{bytes: make([]byte, batchHeader, batchHeader+size+16)}
		l.batches = append(l.batches, b)
	}
	before := len(b.bytes)
	b.bytes = appendPublished(b.bytes, shard, channel, payload)
	b.messages++
	l.bytes += len(b.bytes) - before
	if !l.sending && l.bus.ctx.Err() == nil {
		l.sending = true
		l.bus.wg.Go(l.send)
	}
}

// send sends batches until none is left.
func (l *lane) send() {
	for {
		l.mu.Lock()
		if len(l.batches) == 0 || l.bus.ctx.Err() != nil {
			l.sending = false
			l.mu.Unlock()
			return
		}
		b := l.batches[0]
		l.batches[0] = nil
		l.batches = l.batches[1:]
		l.bytes -= len(b.bytes) - batchHeader
		l.number++
		b.bytes[0] = busMark
		binary.BigEndian.PutUint64(b.bytes[1:], l.bus.endpoint.Incarnation())
		binary.BigEndian.PutUint64(b.bytes[9:], l.number)
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(l.bus.ctx, laneTime*time.Duration(1+len(b.bytes)/batchBytes))
		_, err := l.bus.endpoint.Call(ctx, l.to, b.bytes)
		cancel()
		switch {
		case err == nil:
			l.bus.stats.Sent.Add(int64(b.messages))
		case l.bus.o.Mistakes.RepeatBatch:
			time.Sleep(10 * time.Millisecond)
			l.mu.Lock()
			again := &laneBatch{bytes.Clone(b.bytes), b.messages}
			l.batches = append([]*laneBatch{again}, l.batches...)
			l.bytes += len(b.bytes) - batchHeader
			l.mu.Unlock()
		default:
			l.bus.stats.Lost.Add(int64(b.messages))
			l.drop()
		}
	}
}

// drop gives up what waits behind a batch that is lost. It may have waited for as long as the batch was given, and who
// has come to the other store since may have heard it elsewhere.
func (l *lane) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		l.bus.stats.Lost.Add(int64(b.messages))
	}
	l.batches, l.bytes = nil, 0
}

// take hands the messages of a batch to this store's clients.
func (x *bus) take(from topology.StoreID, request []byte) error {
	h := x.heardOf(from)
	if h == nil {
		return fmt.Errorf("messages of store %d, which is none", from)
	}
	all, err := parseBatch(request)
	if err != nil {
		return fmt.Errorf("messages of store %d: %w", from, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	incarnation, number := binary.BigEndian.Uint64(request[1:]), binary.BigEndian.Uint64(request[9:])
	if incarnation < h.incarnation || incarnation == h.incarnation && number <= h.number {
		x.stats.Late.Add(int64(len(all)))
		return nil
	}
	h.incarnation, h.number = incarnation, number
	if f := x.o.OnMessage; f != nil {
		for _, m := range all {
			f(m.shard, m.channel, m.payload)
		}
	}
	return nil
}

type published struct {
	shard            bool
	channel, payload []byte
}

func appendPublished(b []byte, shard bool, channel, payload []byte) []byte {
	kind := byte(0)
	if shard {
		kind = 1
	}
	b = append(binary.AppendUvarint(append(b, kind), uint64(len(channel))), channel...)
	return append(binary.AppendUvarint(b, uint64(len(payload))), payload...)
}

// parseBatch returns the messages of a batch, which are parts of it.
func parseBatch(b []byte) (all []published, err error) {
	if len(b) < batchHeader || b[0] != busMark {
		return nil, fmt.Errorf("a batch of %d bytes has no header", len(b))
	}
	for b = b[batchHeader:]; len(b) > 0; {
		if b[0] > 1 {
			return nil, fmt.Errorf("a message of kind %d", b[0])
		}
		m := published{shard: b[0] == 1}
		b = b[1:]
		for _, part := range []*[]byte{&m.channel, &m.payload} {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > uint64(len(b)-size) {
				return nil, fmt.Errorf("a message is cut off")
			}
			*part, b = b[size:size+int(n):size+int(n)], b[size+int(n):]
		}
		all = append(all, m)
	}
	return all, nil
}
