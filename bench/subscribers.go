package bench

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// subscribers are the clients of a group that receive what its workers publish in the measured part. A message begins
// with a stamp: the instant from which its time counts, which is that of its planned start in an open loop, else that
// of its send; the run and the worker; and a number of the worker's own that grows. All clocks are those of this
// process. What a group pushes into lists for its own workers to pop has the same stamps.
//
//	[instant ns, 16 hex][run and worker, 16 hex][number, 16 hex]
//
// A message is due at each subscriber of its channel if PUBLISH was answered without error. What a subscriber has not
// got a second after the end, or when its connection breaks, is lost.
type subscribers struct {
	group     *loadGroup
	channels  map[string]int // by name
	have      []int64        // subscribers of each channel
	published []atomic.Int64 // messages on each channel that were answered without error
	from      atomic.Int64   // messages with an earlier stamp do not count
	conns     []*loadConn
	all       []subscriberTally
	got       atomic.Int64
	reading   sync.WaitGroup
}

// subscriberTally is what a subscriber has got.
type subscriberTally struct {
	times results.Distribution
	odd   int64           // messages that came twice, or behind a later one of the same worker
	last  map[int64]int64 // number of the last message of each worker
}

const stampDigits = workloads.StampBytes / 3

// subscribe connects the subscribers of a group. It returns when all have their confirmations.
func (g *loadGroup) subscribe(ctx context.Context) error {
	spec := g.workload.Subscribers
	if spec == nil {
		return nil
	}
	s := &subscribers{group: g, channels: map[string]int{}, all: make([]subscriberTally, spec.Clients),
		conns: make([]*loadConn, spec.Clients)}
	s.from.Store(math.MaxInt64)
	channel := make([]string, spec.Clients)
	for i := range spec.Clients {
		channel[i] = spec.Channel(i)
		if _, known := s.channels[channel[i]]; !known {
			s.channels[channel[i]] = len(s.have)
			s.have = append(s.have, 0)
		}
		s.have[s.channels[channel[i]]]++
	}
	s.published = make([]atomic.Int64, len(s.have))
	var dials errgroup.Group
	dials.SetLimit(dialsAtOnce)
	for i := range spec.Clients {
		dials.Go(func() error {
			c, err := s.connect(ctx, i, spec.Command, channel[i])
			if s.conns[i] = c; err != nil {
				return fmt.Errorf("subscriber %d: %s %s: %w", i, spec.Command, channel[i], err)
			}
			return nil
		})
	}
	if err := dials.Wait(); err != nil {
		s.close()
		return err
	}
	for i, c := range s.conns {
		s.all[i].last = map[int64]int64{}
		_ = c.nc.SetDeadline(time.Time{}) // it waits for as long as nobody publishes
		s.reading.Go(func() { s.read(c, &s.all[i]) })
	}
	g.subscribers = s
	return nil
}

// connect makes a subscriber: at a node of its own if the channel has no slot, else where that is.
func (s *subscribers) connect(ctx context.Context, number int, command, channel string) (*loadConn, error) {
	r := s.group.run
	addrs := r.target.members()
	addr := addrs[number%len(addrs)]
	if table := r.target.table.Load(); table != nil && command[0]|0x20 == 's' && command[1]|0x20 == 's' {
		addr = r.target.addr(max(0, table[slotOf([]byte(channel))]))
	}
	nc, err := r.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &loadConn{epoch: r.epoch, timeout: r.o.Timeout}
	c.attach(nc)
	c.out = appendRequest(c.out, []byte(command), []byte(channel))
	if err := c.flush(c.now()); err != nil {
		return c, err
	}
	rep, err := c.read(maxDepth, keepNone)
	if err == nil && rep.kind == '-' {
		err = fmt.Errorf("%s", rep.text)
	}
	return c, err
}

// read receives messages until the connection ends.
func (s *subscribers) read(c *loadConn, t *subscriberTally) {
	for {
		rep, err := c.read(maxDepth, keepAll)
		if err != nil {
			return
		}
		if rep.kind != '*' || len(c.texts) != 3 || len(c.texts[2]) < workloads.StampBytes {
			continue
		}
		at, worker, number := readStamp(c.texts[2])
		if int64(at) < s.from.Load() {
			continue
		}
		if number <= t.last[worker] {
			t.odd++
			continue
		}
		t.last[worker] = number
		t.times.Answer(c.readAt - at)
		s.got.Add(1)
	}
}

// due is how many messages subscribers should have got.
func (s *subscribers) due() (n int64) {
	for i := range s.published {
		n += s.published[i].Load() * s.have[i]
	}
	return n
}

// close ends the subscribers.
func (s *subscribers) close() {
	for _, c := range s.conns {
		if c != nil {
			s.group.run.forget(c.nc)
		}
	}
	s.reading.Wait()
}

// received waits until the subscribers have got all that is due, for a second at most, ends them, and returns what they
// have got.
func (s *subscribers) received() *results.Messages {
	for end := time.Now().Add(grace); s.got.Load() < s.due() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.close()
	var times results.Distribution
	m := &results.Messages{Subscribers: len(s.all), Channels: len(s.have), Due: s.due()}
	for i := range s.all {
		times.Merge(s.all[i].times)
		m.Odd += s.all[i].odd
	}
	m.Received, _ = times.Count()
	if m.Lost = max(0, m.Due-m.Received); m.Lost > 0 {
		times.CensorAll(grace, m.Lost)
	}
	m.Time = times.Latency(true)
	return m
}

// stamp fills in the beginning of a message.
func stamp(message []byte, at time.Duration, sender, number int64) {
	for i, n := range [...]int64{int64(at), sender, number} {
		field := message[i*stampDigits : (i+1)*stampDigits]
		for k := range field {
			field[k] = "0123456789abcdef"[n>>(4*(stampDigits-1-k))&15]
		}
	}
}

// sender is what the stamps of a worker say of it: the run, in the upper 32 bits, and its number.
func (r *run) sender(worker int) int64 { return r.epoch.UnixMicro()&(1<<31-1)<<32 | int64(worker) }

// readStamp reads the beginning of a message. at is -1 if there is no stamp.
func readStamp(message []byte) (at time.Duration, sender, number int64) {
	return time.Duration(fromHex(message)), fromHex(message[stampDigits:]), fromHex(message[2*stampDigits:])
}

// fromHex reads a number at the beginning of a stamp, -1 if there is none.
func fromHex(b []byte) int64 {
	n, err := strconv.ParseInt(string(b[:stampDigits]), 16, 64)
	if err != nil {
		return -1
	}
	return n
}
