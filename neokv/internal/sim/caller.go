package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// newCaller returns a client of the run's cluster.
func (s *sim) newCaller(id int) *caller {
	dial := s.c.Dial
	if !s.config.NoSockets {
		dial = dialTCP
	}
	return &caller{
		id: id, h: s.h, addrs: s.c.Addrs(), replicas: s.c.ReplicaAddrs(), dial: dial, random: s.random(uint64(1000 + id)),
		readThere:  func() { s.reach(readAtReplica) },
		leaderless: s.leaderless, held: func() { s.reach(heldAnswered) },
		full:   func() { s.reach(refusedFull) },
		sentOn: func() { s.count(&s.stats.SentOn) },
		putOff: func() { s.count(&s.stats.PutOff) },
		life: func(addr string) uint64 {
			if addr == s.c.ProxyAddr() { // the proxy outlives the stores, and passes on what they answered
				return 0
			}
			return s.lives[slices.Index(append(s.c.Addrs(), s.c.ReplicaAddrs()...), addr)%len(s.c.Addrs())].Load()
		},
	}
}

// caller is a small Redis Cluster client. It follows redirections, and is strict about what it knows: an operation is
// acknowledged, provably not applied, or of unknown outcome. One goroutine at a time may use it.
type caller struct {
	id     int
	h      *history
	addrs  []string
	dial   func(ctx context.Context, addr string) (net.Conn, error)
	random *rand.Rand
	// life returns a number that changes with each start and kill of a store, and is odd while the store is dead; nil
	// if no store dies. An answer does not count if the number has changed since the question.
	life func(addr string) uint64

	// proxied says that addrs has the proxy port alone, which redirects no client.
	proxied bool

	// readOnly makes the caller send READONLY on every connection, and read from any store, also from replicas, which
	// are the stores' second addresses. readThere is called for each read that one of these answers; nil: nobody is told.
	readOnly  bool
	replicas  []string
	readThere func()

	// held is called when a store answers an operation that came while no store led its region; leaderless tells that.
	// Both may be nil.
	leaderless func(topology.Slot) bool
	held       func()
	full       func() // nil, or called when a store refuses a write for want of space
	sentOn     func() // nil, or called for each ASK that the caller follows
	putOff     func() // nil, or called for each TRYAGAIN

	between func() // nil, or called in a transaction between what it reads and MULTI

	over  <-chan struct{} // nil, or closed when the caller is to try nothing again
	conns map[string]*respConn
	led   map[topology.Slot]string
}

// dialTCP connects over a socket.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// opTime bounds an operation. It is longer than redis.leaderless_wait.
const opTime = 3 * time.Second

var (
	errDied = errors.New("the store died")
	errLate = errors.New("no time left")
)

// unknown is the error reply that a write has an unknown outcome.
type unknown string

func (u unknown) Error() string { return string(u) }

// refusal is an error reply that says that the command was not run.
type refusal string

func (r refusal) Error() string { return string(r) }

// close closes all connections.
func (c *caller) close() {
	for _, w := range c.conns {
		w.nc.Close()
	}
	c.conns = nil
}

// do runs an operation on the store that serves its key, and enters it in the history. An error is a reply that no
// client should see. An operation that was not acknowledged is no error.
func (c *caller) do(k opName, key, value string) (acknowledged bool, err error) {
	return c.doFor(k, key, value, 0)
}

// doFor is do with a time to live, 0 for none.
func (c *caller) doFor(k opName, key, value string, ttl time.Duration) (acknowledged bool, err error) {
	o := c.h.begin(c.id, k, key, value)
	o.lives(ttl, c.h.skew)
	deadline := time.Now().Add(opTime)
	slot := topology.SlotOf([]byte(key))
	why := error(errLate)
	redirected := 0
	asking := false
	for addr := c.led[slot]; time.Now().Before(deadline); {
		anywhere := c.readOnly && k.reads() && redirected == 0
		if !asking && (addr == "" || anywhere || c.random.IntN(16) == 0) { // now and then it asks any store
			addr = c.anyStore(anywhere)
		}
		sentOn := asking
		reply, err := c.askAs(addr, o, deadline, asking)
		asking = false
		var no refusal
		switch {
		case err == nil:
			c.h.done(o, reply)
			if c.readThere != nil && slices.Contains(c.replicas, addr) {
				c.readThere()
			}
			if c.led == nil {
				c.led = map[topology.Slot]string{}
			}
			if !anywhere && !sentOn {
				c.led[slot] = addr
			}
			return true, nil
		case errors.As(err, &no):
			addr, why = "", no
			to, moved := strings.CutPrefix(string(no), "MOVED ")
			if !moved {
				to, asking = strings.CutPrefix(string(no), "ASK ")
			}
			switch {
			case asking && c.sentOn != nil:
				c.sentOn()
			case strings.HasPrefix(string(no), "TRYAGAIN ") && c.putOff != nil:
				c.putOff()
			}
			if moved || asking {
				_, addr, _ = strings.Cut(to, " ")
				if redirected++; redirected%4 > 0 {
					// Else it pauses: virtual time must pass for stores that name each other.
					continue
				}
			}
		case errors.Is(err, errNotSent):
			addr, why = "", err
		case errors.Is(err, errUnexpected):
			c.h.lost(o, err)
			return false, found(oddReply, "%s: %w", o, err)
		default:
			c.h.lost(o, err)
			delete(c.led, slot)
			return false, nil
		}
		select {
		case <-c.over:
			deadline = time.Time{}
		case <-time.After(10 * time.Millisecond):
		}
	}
	delete(c.led, slot)
	c.h.drop(o, why)
	return false, nil
}

// anyStore returns the address of any store; of a replica, too, for a caller that reads there, and now and then for
// others.
func (c *caller) anyStore(reads bool) string {
	if len(c.replicas) > 0 && (reads && c.random.IntN(2) == 0 || c.random.IntN(8) == 0) {
		return c.replicas[c.random.IntN(len(c.replicas))]
	}
	return c.addrs[c.random.IntN(len(c.addrs))]
}

// at runs an operation once, on one store, and follows no redirection. It reports whether the store acknowledged the
// operation.
func (c *caller) at(addr string, k opName, key, value string) (acknowledged bool, err error) {
	o := c.h.begin(c.id, k, key, value)
	reply, err := c.ask(addr, o, time.Now().Add(opTime))
	var no refusal
	switch {
	case err == nil:
		c.h.done(o, reply)
		return true, nil
	case k.reads(), errors.As(err, &no), errors.Is(err, errNotSent):
		c.h.drop(o, err)
	default:
		c.h.lost(o, err)
	}
	if errors.Is(err, errUnexpected) {
		return false, found(oddReply, "%s: %w", o, err)
	}
	return false, nil
}

var (
	errNotSent    = errors.New("not sent")
	errUnexpected = errors.New("unexpected reply")
)

// ask sends an operation to one store and returns the reply. The error is a refusal or errNotSent if the operation
// was certainly not applied.
func (c *caller) ask(addr string, o *op, deadline time.Time) (string, error) {
	return c.askAs(addr, o, deadline, false)
}

// askAs is ask, with ASKING before if the caller is sent on.
func (c *caller) askAs(addr string, o *op, deadline time.Time, asking bool) (string, error) {
	w, life, err := c.connect(addr, deadline)
	if err != nil {
		return "", err
	}
	if asking {
		if _, err := w.call("ASKING"); err != nil {
			w.nc.Close()
			delete(c.conns, addr)
			return "", fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	early := c.leaderless != nil && c.leaderless(topology.SlotOf([]byte(o.key)))
	reply, err := o.ask(w, c.between)
	if early && err == nil && !o.kind.reads() {
		c.held()
	}
	var no refusal
	if errors.As(err, &no) && strings.HasPrefix(string(no), "MISCONF ") && c.full != nil {
		c.full()
	}
	if err == nil || no != "" {
		if c.life != nil && c.life(addr) != life {
			err = errDied
		}
	} else {
		w.nc.Close()
		delete(c.conns, addr)
	}
	return reply, err
}

// connect returns a connection to a store, and the store's life before it connected. The error is errNotSent.
func (c *caller) connect(addr string, deadline time.Time) (w *respConn, life uint64, err error) {
	if c.life != nil {
		if life = c.life(addr); life%2 == 1 {
			return nil, 0, errNotSent
		}
	}
	if w = c.conns[addr]; w == nil {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		nc, err := c.dial(ctx, addr)
		cancel()
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errNotSent, err)
		}
		w = newWire(nc)
		if c.conns == nil {
			c.conns = map[string]*respConn{}
		}
		c.conns[addr] = w
		if c.readOnly {
			w.nc.SetDeadline(deadline)
			if _, err := w.call("READONLY"); err != nil {
				nc.Close()
				delete(c.conns, addr)
				return nil, 0, fmt.Errorf("%w: %w", errNotSent, err)
			}
		}
	}
	w.nc.SetDeadline(deadline)
	return w, life, nil
}

// request is an operation that has not begun.
type request struct {
	kind       opName
	key, value string
}

// pipe sends operations at once to the store that should serve the first one, and follows no redirection.
func (c *caller) pipe(requests []request) error {
	deadline := time.Now().Add(opTime)
	slot := topology.SlotOf([]byte(requests[0].key))
	addr := c.led[slot]
	if addr == "" || c.random.IntN(16) == 0 {
		addr = c.addrs[c.random.IntN(len(c.addrs))]
	}
	w, life, err := c.connect(addr, deadline)
	if err != nil {
		delete(c.led, slot)
		return nil
	}
	ops := c.h.pipeline(c.id, requests)
	var b []byte
	for _, o := range ops {
		b = appendCommand(b, o.args())
	}
	_, broken := w.nc.Write(b)
	for i, o := range ops {
		reply, err := "", broken
		if broken == nil {
			reply, err = w.read()
		}
		if c.life != nil && c.life(addr) != life {
			broken, err = errDied, errDied
		}
		var no refusal
		switch {
		case err == nil:
			c.h.done(o, reply)
		case errors.As(err, &no):
			c.h.drop(o, no)
			if _, to, ok := strings.Cut(string(no), "MOVED "); ok && i == 0 {
				if c.led == nil {
					c.led = map[topology.Slot]string{}
				}
				_, c.led[slot], _ = strings.Cut(to, " ")
			}
		case errors.As(err, new(unknown)):
			c.h.lost(o, err)
		default:
			c.h.lost(o, err)
			if errors.Is(err, errUnexpected) {
				return found(oddReply, "%s: %w", o, err)
			}
			broken = err
		}
	}
	if broken != nil {
		w.nc.Close()
		delete(c.conns, addr)
		delete(c.led, slot)
	}
	return nil
}
