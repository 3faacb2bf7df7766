package transport

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
)

const (
	// stragglerTime is how late a message is at most that is sent twice or overtaken.
	stragglerTime = 20 * time.Millisecond
	// What is lost and must not be is sent again after resendMin, then after twice as long, up to resendMax.
	resendMin = 200 * time.Millisecond
	resendMax = 2 * time.Second
	// A link with a bandwidth carries pieces of this length.
	pieceTime = 10 * time.Millisecond
)

// draws reports whether the fault leaves something to chance.
func (c *condition) draws() bool { return c.Jitter > 0 || c.harms() }

// harms reports whether some Raft messages do not arrive once and in order.
func (c *condition) harms() bool { return c.Loss > 0 || c.Duplicate > 0 || c.Reorder > 0 }

// SetLink sets what is wrong with the link from one store to another, in this direction only.
// Delay and Jitter apply to what is sent from now on, the rest also to what is under way. What finds 32 MiB waiting on
// the link is lost, as with a connection that does not keep up. SetLink takes a seed from random, which may be nil if
// the fault leaves nothing to chance.
func (n *Network) SetLink(from, to topology.StoreID, f fault.Net, random *rand.Rand) {
	n.change(from, to, func(c *condition) {
		c.Net, c.chance = f, nil
		if c.draws() {
			c.chance = &chance{random: rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))}
		}
	})
}

// SetDistance sets how much later everything arrives from one store at another, whatever else is wrong with the link.
func (n *Network) SetDistance(from, to topology.StoreID, d time.Duration) {
	n.change(from, to, func(c *condition) { c.distance = d })
}

// Link returns what is wrong with the link from one store to another.
func (n *Network) Link(from, to topology.StoreID) fault.Net {
	return n.link(from, to).now.Load().Net
}

// Hold keeps the Raft messages for which match is true at the sender for d, in order, before they pass the filter.
// Other messages overtake them, as they do with a slow send queue. d = 0 turns it off for later messages. match runs on
// the senders' goroutines.
func (n *Network) Hold(from, to topology.StoreID, d time.Duration, match func(*pb.Message) bool) {
	n.change(from, to, func(c *condition) {
		c.hold = nil
		if d > 0 {
			c.hold = &hold{d, match}
		}
	})
}

type hold struct {
	d     time.Duration
	match func(*pb.Message) bool
}

// link is one direction between two stores. It outlives their endpoints.
type link struct {
	from, to *location
	now      atomic.Pointer[condition] // never nil

	mu   sync.Mutex
	free time.Time // when the link has carried the pieces that it has taken
}

// condition is all that has been set on a link. It does not change: whoever sets something replaces it.
type condition struct {
	fault.Net
	distance time.Duration
	chance   *chance // nil if Net leaves nothing to chance
	hold     *hold
}

// chance draws for one link.
type chance struct {
	mu     sync.Mutex
	random *rand.Rand
}

// share draws from 0 to 1, without 1.
func (c *chance) share() fault.Portion {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fault.Portion(c.random.Float64())
}

// upTo draws from 1 ns to d.
func (c *chance) upTo(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return 1 + time.Duration(c.random.Int64N(int64(d)))
}

// change replaces the condition of a link.
func (n *Network) change(from, to topology.StoreID, set func(*condition)) {
	l := n.link(from, to)
	n.mu.Lock()
	defer n.mu.Unlock()
	c := *l.now.Load()
	set(&c)
	l.now.Store(&c)
}

func (n *Network) link(from, to topology.StoreID) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := [2]topology.StoreID{from, to}
	l := n.links[key]
	if l == nil {
		l = &link{from: n.placeLocked(from), to: n.placeLocked(to)}
		l.now.Store(&condition{})
		n.links[key] = l
	}
	return l
}

// latency draws how much later something arrives.
func (c *condition) latency() time.Duration {
	if c.Jitter <= 0 {
		return c.distance + c.Delay
	}
	return c.distance + c.Delay + c.chance.upTo(c.Jitter)
}

// fate says what the link does to a Raft message other than delivering it once and in order.
type fate struct {
	lost  bool          // it does not arrive
	again time.Duration // if not 0, it arrives so much later, overtaken by others; if not lost, once more
}

// fate draws what becomes of a Raft message.
func (c *condition) fate() fate {
	switch x := c.chance.share(); {
	case x < c.Loss:
		return fate{lost: true}
	case x < c.Loss+c.Duplicate:
		return fate{again: c.chance.upTo(stragglerTime)}
	case x < c.Loss+c.Duplicate+c.Reorder:
		return fate{lost: true, again: c.chance.upTo(stragglerTime)}
	default:
		return fate{}
	}
}

// travel waits for as long as a request, an answer or a chunk of n bytes takes from one store to the other, or until
// ctx ends.
func (l *link) travel(ctx context.Context, n int) {
	l.from.awake(ctx)
	c := l.now.Load()
	sleep(ctx, c.latency())
	for again := resendMin; c.Loss > 0 && c.chance.share() < c.Loss && ctx.Err() == nil; c = l.now.Load() {
		sleep(ctx, again)
		again = min(2*again, resendMax)
	}
	l.carry(ctx, n, time.Now())
	l.to.awake(ctx)
}

// carry waits until the link has carried n bytes that came to it at an instant, or until ctx ends. The bytes go in
// pieces, in turn with those of others that are being carried. A link without a limit carries them at once.
func (l *link) carry(ctx context.Context, n int, at time.Time) {
	for rest := int64(n); rest > 0 && ctx.Err() == nil; {
		rate := int64(l.now.Load().Bandwidth)
		if rate <= 0 {
			return
		}
		piece := min(rest, max(1, rate/int64(time.Second/pieceTime)))
		l.mu.Lock()
		if l.free.After(at) {
			at = l.free
		}
		at = at.Add(time.Duration(piece * int64(time.Second) / rate))
		l.free = at
		l.mu.Unlock()
		rest -= piece
		sleep(ctx, time.Until(at))
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
