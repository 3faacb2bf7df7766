package transport

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// TCP says how the endpoints of a network reach each other.
type TCP struct {
	// Cluster is the cluster's identity: stores of another one are refused.
	Cluster [16]byte
	// Listen opens a listener for an endpoint, on an address of its own; Dial connects to the address of one.
	Listen func() (net.Listener, error)
	Dial   func(ctx context.Context, address string) (net.Conn, error)
}

// NewTCP returns a network whose stores talk over connections, with the same filter and links as in memory. The network
// makes a secret for itself. Each side of a connection must prove that it knows the secret, which is never sent.
//
// Every endpoint has its own listener, so nothing on a connection to it reaches the store's next endpoint. Between two
// stores there is one connection per direction for messages, one for each snapshot, since snapshots are large, and one
// for each call while it runs. When a connection ends, the messages queued for it are lost, as in any network. Nothing
// is ever sent twice.
func NewTCP(t TCP) *Network {
	n := NewNetwork()
	n.tcp = &t
	n.secret = make([]byte, 32)
	rand.Read(n.secret)
	return n
}

const (
	// helloTime bounds dialling and the introduction. writeTime is how long a peer may accept no bytes. chunkTime is
	// how long it may take to store a chunk.
	helloTime = 2 * time.Second
	writeTime = 5 * time.Second
	chunkTime = 30 * time.Second
	// A store that cannot be reached is dialled again after redialMin, later up to redialMax.
	redialMin = 2 * time.Millisecond
	redialMax = 100 * time.Millisecond
	// maxQueued is how many bytes may wait for a connection, and how many on a link. Batches beyond that are lost.
	maxQueued = 32 << 20
	// maxStrangers is how many connections may be in their introduction. A new one pushes the oldest out. A store
	// introduces itself at once, so peers that connect and say nothing keep no store out.
	maxStrangers = 64
	// maxIdle is how many idle connections for calls are kept per store.
	maxIdle = 2
)

// sockets is the wire of an endpoint of a TCP network.
type sockets struct {
	e        *Endpoint
	listener net.Listener // nil if it could not be opened

	mu        sync.Mutex
	closed    bool
	open      map[net.Conn]struct{}
	strangers []net.Conn // by age
	idle      map[topology.StoreID][]*peerConn
	boxes     map[topology.StoreID]*outbox
}

// peerConn is a connection between two stores. One goroutine reads and one writes.
type peerConn struct {
	net.Conn
	w       *sockets
	frames  frameReader
	out     []byte // reused by write
	address string
}

// release closes the connection.
func (c *peerConn) release() { c.w.drop(c.Conn) }

// write sends one frame.
func (c *peerConn) write(kind frameKind, payload []byte) (err error) {
	if c.out, err = appendFrame(c.out[:0], kind, payload); err != nil {
		return err
	}
	return c.flush()
}

// flush sends out.
func (c *peerConn) flush() error {
	c.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := c.Write(c.out)
	if cap(c.out) > keptBuffer {
		c.out = nil
	}
	return err
}

// newSockets opens the endpoint's listener. If that fails, no store can reach the endpoint.
func newSockets(e *Endpoint) (w *sockets, address string, err error) {
	w = &sockets{
		e: e, open: make(map[net.Conn]struct{}), idle: make(map[topology.StoreID][]*peerConn),
		boxes: make(map[topology.StoreID]*outbox),
	}
	ln, err := e.net.tcp.Listen()
	if err != nil {
		return w, "", fmt.Errorf("%s: %w", e.o.Store.RaftAddress(), err)
	}
	w.listener = ln
	e.owned.Add(1)
	go w.accept()
	return w, ln.Addr().String(), nil
}

// close ends all connections. It does not wait for their goroutines, which belong to the endpoint.
func (w *sockets) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.listener != nil {
		w.listener.Close()
	}
	for c := range w.open {
		c.Close()
	}
}

// keep registers a connection that close will end. It returns false if close has run.
func (w *sockets) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		c.Close()
		return false
	}
	w.open[c] = struct{}{}
	return true
}

// drop closes a connection.
func (w *sockets) drop(c net.Conn) {
	c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
}

// A hello names who dials, whom, and what for:
//
//	["neokv" version u8][purpose u8][cluster 16][from u64][to u64][nonce 16]
//
// The acceptor answers with a nonce of its own and an HMAC-SHA256 of both under the network's secret, the dialler with
// another.
const (
	helloVersion = 1
	helloMark    = "neokv"
	nonceBytes   = 16
	helloBytes   = len(helloMark) + 2 + 16 + 8 + 8 + nonceBytes
)

// purpose says what a connection is for.
type purpose byte

const (
	forMessages purpose = 1 + iota
	forChunks
	forCalls
)

type hello struct {
	version  byte
	purpose  purpose
	cluster  [16]byte
	from, to topology.StoreID
}

func (h hello) append(b []byte) []byte {
	b = append(append(b, helloMark...), h.version, byte(h.purpose))
	b = append(b, h.cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.from))
	b = binary.BigEndian.AppendUint64(b, uint64(h.to))
	return append(b, nonce()...)
}

func parseHello(b []byte) (h hello, err error) {
	mark, ok := bytes.CutPrefix(b, []byte(helloMark))
	if !ok || len(b) != helloBytes {
		return h, errors.New("no hello of a store")
	}
	h.version, h.purpose = mark[0], purpose(mark[1])
	copy(h.cluster[:], mark[2:])
	h.from = topology.StoreID(binary.BigEndian.Uint64(mark[18:]))
	h.to = topology.StoreID(binary.BigEndian.Uint64(mark[26:]))
	return h, nil
}

func nonce() []byte {
	b := make([]byte, nonceBytes)
	rand.Read(b)
	return b
}

// proof returns the HMAC by which one side proves that it knows the secret. The nonces make it useless for any other
// connection.
func (n *Network) proof(side byte, hello, nonce []byte) []byte {
	h := hmac.New(sha256.New, n.secret)
	h.Write([]byte{side})
	h.Write(hello)
	h.Write(nonce)
	return h.Sum(nil)
}

const (
	acceptorSide = 'a'
	diallerSide  = 'd'
)

// dial connects to the endpoint that a store has now.
func (w *sockets) dial(ctx context.Context, to topology.StoreID, p purpose) (*peerConn, error) {
	address := w.e.net.address(to)
	if address == "" {
		return nil, notRunning(to)
	}
	deadline := time.Now().Add(helloTime)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	nc, err := w.e.net.tcp.Dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", to.RaftAddress(), err)
	}
	if !w.keep(nc) {
		return nil, fmt.Errorf("%s: %w", w.e.o.Store.RaftAddress(), errClosed)
	}
	nc.SetDeadline(deadline)
	c := &peerConn{Conn: nc, w: w, frames: frameReader{r: nc}, address: address}
	if err := w.introduce(c, to, p); err != nil {
		w.drop(nc)
		return nil, fmt.Errorf("%s: introduction: %w", to.RaftAddress(), err)
	}
	nc.SetDeadline(time.Time{})
	return c, nil
}

func (w *sockets) introduce(c *peerConn, to topology.StoreID, p purpose) error {
	n := w.e.net
	h := hello{helloVersion, p, n.tcp.Cluster, w.e.o.Store, to}.append(nil)
	if err := c.write(helloFrame, h); err != nil {
		return err
	}
	_, welcome, err := c.frames.next(welcomeFrame)
	if err != nil {
		return err
	}
	if len(welcome) < nonceBytes || !hmac.Equal(welcome[nonceBytes:], n.proof(acceptorSide, h, welcome[:nonceBytes])) {
		return errors.New("who listens does not belong to the network")
	}
	return c.write(proofFrame, n.proof(diallerSide, h, welcome[:nonceBytes]))
}

// accept accepts connections and serves each.
func (w *sockets) accept() {
	defer w.e.owned.Done()
	for {
		nc, err := w.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed) || w.e.ctx.Err() != nil:
			if err == nil {
				nc.Close()
			}
			return
		case err != nil: // no file descriptor left, for instance
			sleep(w.e.ctx, redialMax)
		case !w.e.join():
			nc.Close()
		default:
			w.greet(nc)
			go w.serve(nc)
		}
	}
}

// greet notes a connection whose introduction begins.
func (w *sockets) greet(nc net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.strangers) == maxStrangers {
		w.strangers[0].Close()
		w.strangers = slices.Delete(w.strangers, 0, 1)
	}
	w.strangers = append(w.strangers, nc)
}

// met notes that a connection's introduction has ended.
func (w *sockets) met(nc net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.strangers, nc); i >= 0 {
		w.strangers = slices.Delete(w.strangers, i, i+1)
	}
}

// serve serves one connection until it ends.
func (w *sockets) serve(nc net.Conn) {
	defer w.e.owned.Done()
	if !w.keep(nc) {
		w.met(nc)
		return
	}
	defer w.drop(nc)
	nc.SetDeadline(time.Now().Add(helloTime))
	c := &peerConn{Conn: nc, w: w, frames: frameReader{r: nc}}
	h, err := w.meet(c)
	w.met(nc)
	if err != nil {
		return
	}
	nc.SetDeadline(time.Time{})
	switch h.purpose {
	case forMessages:
		w.hear(c, h.from)
	case forChunks:
		w.takeChunks(c, h.from)
	case forCalls:
		w.answerCalls(c, h.from)
	}
}

// meet is the acceptor's side of introduce.
func (w *sockets) meet(c *peerConn) (hello, error) {
	n := w.e.net
	_, first, err := c.frames.next(helloFrame)
	if err != nil {
		return hello{}, err
	}
	first = bytes.Clone(first)
	h, err := parseHello(first)
	if err != nil {
		return h, err
	}
	if h.version != helloVersion || h.cluster != n.tcp.Cluster || h.to != w.e.o.Store {
		return h, errors.New("hello for somebody else")
	}
	own := nonce()
	if err := c.write(welcomeFrame,
		append(own[:nonceBytes:nonceBytes], n.proof(acceptorSide, first, own)...)); err != nil {
		return h, err
	}
	_, proof, err := c.frames.next(proofFrame)
	if err == nil && !hmac.Equal(proof, n.proof(diallerSide, first, own)) {
		err = errors.New("who dials does not belong to the network")
	}
	return h, err
}

// hear receives Raft messages.
func (w *sockets) hear(c *peerConn, from topology.StoreID) {
	e := w.e
	link := e.net.link(from, e.o.Store)
	batch := pb.MessageBatch{SourceAddress: from.RaftAddress()} // where answers go
	for {
		_, payload, err := c.frames.next(batchFrame)
		if err != nil {
			return
		}
		if e.silent.Load() || link.now.Load().Cut {
			continue
		}
		// The NodeHost copies the messages that it keeps, not their entries.
		if batch.Requests, err = decodeBatch(batch.Requests[:0], payload); err != nil {
			return
		}
		e.receive(batch)
		clear(batch.Requests)
	}
}

// outbox holds encoded batches for one store until the connection takes them. One write sends all that have gathered.
type outbox struct {
	w    *sockets
	to   topology.StoreID
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	refuse bool // the store cannot be reached, so batches are dropped
	queued []byte
}

// send queues a batch, without waiting for anything.
func (w *sockets) send(l *linkEnd, b pb.MessageBatch) {
	w.mu.Lock()
	o := w.boxes[l.to]
	if o == nil {
		if !w.e.join() {
			w.mu.Unlock()
			return
		}
		o = &outbox{w: w, to: l.to, wake: make(chan struct{}, 1)}
		w.boxes[l.to] = o
		go o.run()
	}
	w.mu.Unlock()
	o.put(b.Requests)
}

func (o *outbox) put(messages []pb.Message) {
	o.mu.Lock()
	err := errQueue
	if !o.refuse && len(o.queued) < maxQueued {
		b, at := beginFrame(o.queued, batchFrame)
		o.queued, err = endFrame(appendBatch(b, messages), at)
	}
	o.mu.Unlock()
	if err != nil {
		o.w.e.lost.Add(int64(len(messages)))
		return
	}
	o.ring()
}

var errQueue = errors.New("queue is full")

func (o *outbox) ring() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take returns the queued bytes. It reuses written, the buffer that it returned before, for the next ones.
func (o *outbox) take(written []byte) []byte {
	if cap(written) > keptBuffer {
		written = nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.queued
	o.queued = written[:0]
	return b
}

// reachable notes whether the store can be reached. If not, queued batches are dropped.
func (o *outbox) reachable(yes bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuse = !yes; o.refuse {
		o.queued = o.queued[:0]
	}
}

// run connects when there is something to send, and again when the connection has ended.
func (o *outbox) run() {
	e := o.w.e
	defer e.owned.Done()
	again := redialMin
	for {
		select {
		case <-o.wake:
		case <-e.ctx.Done():
			return
		}
		c, err := o.w.dial(e.ctx, o.to, forMessages)
		if err == nil {
			again = redialMin
			o.write(c)
		}
		if e.ctx.Err() != nil {
			return
		}
		o.reachable(false)
		if err != nil {
			sleep(e.ctx, again)
			again = min(2*again, redialMax)
		}
		o.reachable(true)
	}
}

// write sends until the connection or the endpoint ends. It also reads: the other side sends nothing, so a read ends as
// soon as the store has gone, whereas the next write would be lost without an error.
func (o *outbox) write(c *peerConn) {
	ended := make(chan struct{})
	go func() {
		var b [1]byte
		c.Read(b[:])
		c.Close()
		close(ended)
	}()
	defer func() {
		c.release()
		<-ended
	}()
	var b []byte
	for {
		b = o.take(b)
		if len(b) == 0 {
			select {
			case <-o.wake:
				continue
			case <-ended:
				return
			}
		}
		if o.w.e.silent.Load() {
			continue
		}
		c.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// chunk sends a chunk on its snapshot's own connection and waits until the receiver has taken it.
func (w *sockets) chunk(s *connection, chunk pb.Chunk) (err error) {
	if s.dialled == nil {
		if s.dialled, err = w.dial(s.ctx, s.l.to, forChunks); err != nil {
			return err
		}
	}
	c := s.dialled
	defer context.AfterFunc(s.ctx, func() { c.Close() })()
	reply, err := sendChunk(c, &chunk)
	if err == nil && len(reply) > 0 {
		return errors.New(string(reply))
	}
	if err == nil {
		return nil
	}
	s.Close()
	if w.e.net.address(s.l.to) == "" {
		return notRunning(s.l.to)
	}
	return fmt.Errorf("%s to %s: %w", w.e.o.Store.RaftAddress(), s.l.to.RaftAddress(), err)
}

func sendChunk(c *peerConn, chunk *pb.Chunk) (reply []byte, err error) {
	b, at := beginFrame(c.out[:0], chunkFrame)
	from, size := len(b), chunk.Size()
	b = append(b, make([]byte, size)...)
	if size, err = chunk.MarshalTo(b[from:]); err != nil {
		return nil, err
	}
	if c.out, err = endFrame(b[:from+size], at); err != nil {
		return nil, err
	}
	if err := c.flush(); err != nil {
		return nil, err
	}
	c.SetReadDeadline(time.Now().Add(chunkTime))
	_, reply, err = c.frames.next(takenFrame)
	return reply, err
}

// takeChunks receives chunks and answers each with its outcome.
func (w *sockets) takeChunks(c *peerConn, from topology.StoreID) {
	link := w.e.net.link(from, w.e.o.Store)
	for {
		_, payload, err := c.frames.next(chunkFrame)
		if err != nil || w.e.silent.Load() || link.now.Load().Cut {
			return
		}
		chunk, err := decodeChunk(payload)
		if err != nil {
			return
		}
		reply := ""
		if err := w.e.take(chunk); err != nil {
			reply = err.Error()
		}
		if w.e.silent.Load() || c.write(takenFrame, []byte(reply)) != nil {
			return
		}
	}
}

// call sends a request on an idle connection, or on a new one. If ctx ends before the answer comes, call closes the
// connection, which ends the handler's context, too.
func (w *sockets) call(ctx context.Context, to topology.StoreID, request []byte) (callAnswer, error) {
	c, err := w.idleConn(ctx, to)
	if err != nil {
		if ctx.Err() != nil {
			err = errNoAnswer
		}
		return callAnswer{}, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	if err = c.write(requestFrame, request); err == nil {
		var kind frameKind
		var payload []byte
		if kind, payload, err = c.frames.next(answerFrame, failureFrame); err == nil && stop() {
			payload = bytes.Clone(payload)
			w.rest(c, to)
			if kind == failureFrame {
				return callAnswer{err: errors.New(string(payload))}, nil
			}
			return callAnswer{bytes: payload}, nil
		}
	}
	stop()
	c.release()
	switch {
	case ctx.Err() != nil:
		return callAnswer{}, errNoAnswer
	case len(request) > requestFrame.limit():
		return callAnswer{}, fmt.Errorf("call of %s: %w", to.RaftAddress(), err)
	default:
		return callAnswer{}, fmt.Errorf("%s: stopped before it answered", to.RaftAddress())
	}
}

// idleConn returns a connection for one call to the endpoint that the store has now.
func (w *sockets) idleConn(ctx context.Context, to topology.StoreID) (*peerConn, error) {
	address := w.e.net.address(to)
	for {
		w.mu.Lock()
		list := w.idle[to]
		if len(list) == 0 {
			w.mu.Unlock()
			return w.dial(ctx, to, forCalls)
		}
		c := list[len(list)-1]
		w.idle[to] = list[:len(list)-1]
		w.mu.Unlock()
		if c.address == address {
			return c, nil
		}
		c.release()
	}
}

// rest keeps an idle connection for the next call.
func (w *sockets) rest(c *peerConn, to topology.StoreID) {
	w.mu.Lock()
	if len(w.idle[to]) < maxIdle {
		w.idle[to] = append(w.idle[to], c)
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	c.release()
}

// answerCalls answers one call after the other. It reads the connection while a handler runs, so that the end of the
// connection ends the call.
func (w *sockets) answerCalls(c *peerConn, from topology.StoreID) {
	ctx, cancel := context.WithCancel(w.e.ctx)
	var answering sync.WaitGroup
	defer answering.Wait()
	defer cancel()
	for {
		_, payload, err := c.frames.next(requestFrame)
		if err != nil {
			return
		}
		request := bytes.Clone(payload)
		answering.Wait()
		answering.Go(func() { w.answer(ctx, c, from, request) })
	}
}

// answer runs the handler. A silent endpoint answers nothing.
func (w *sockets) answer(ctx context.Context, c *peerConn, from topology.StoreID, request []byte) {
	if w.e.o.Handle == nil {
		c.Close()
		return
	}
	if w.e.silent.Load() {
		return
	}
	reply, err := w.e.o.Handle(ctx, from, request)
	if w.e.silent.Load() {
		return
	}
	kind := answerFrame
	if err != nil {
		kind, reply = failureFrame, []byte(err.Error())
	}
	if c.write(kind, reply) != nil {
		c.Close()
	}
}
