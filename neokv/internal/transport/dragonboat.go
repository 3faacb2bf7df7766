package transport

import (
	"context"
	"fmt"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// transportFactory makes the transport for the NodeHost of an endpoint's store.
type transportFactory struct{ e *Endpoint }

func (f transportFactory) Create(c config.NodeHostConfig, m raftio.MessageHandler,
	ch raftio.ChunkHandler) raftio.ITransport {
	return &raftTransport{e: f.e, address: c.RaftAddress, deployment: c.GetDeploymentID(), messages: m, chunks: ch}
}

// Validate accepts the stores' fixed names.
func (f transportFactory) Validate(address string) bool {
	_, ok := topology.StoreOf(address)
	return ok
}

// raftTransport is raftio.ITransport. It returns no errors for messages, since an error would trip dragonboat's circuit
// breaker, which stays open for seconds after the link is back.
type raftTransport struct {
	e          *Endpoint
	address    string
	deployment uint64
	messages   raftio.MessageHandler
	chunks     raftio.ChunkHandler
}

func (t *raftTransport) Name() string {
	if t.e.net.tcp != nil {
		return "neokv-tcp"
	}
	return "neokv-memory"
}

func (t *raftTransport) Start() error {
	e := t.e
	if want := e.o.Store.RaftAddress(); t.address != want {
		return fmt.Errorf("raft address %q, want %q", t.address, want)
	}
	if e.unreachable != nil {
		return e.unreachable
	}
	e.raftMu.Lock()
	defer e.raftMu.Unlock()
	if e.ctx.Err() != nil || e.raft != nil {
		return fmt.Errorf("%s: endpoint closed or in use", t.address)
	}
	e.raft = t
	return nil
}

// Close returns when no delivery is under way. The endpoint stays open.
func (t *raftTransport) Close() error {
	t.e.raftMu.Lock()
	defer t.e.raftMu.Unlock()
	if t.e.raft == t {
		t.e.raft = nil
	}
	return nil
}

func (t *raftTransport) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	return t.connection(ctx, target)
}

func (t *raftTransport) GetSnapshotConnection(ctx context.Context, target string) (raftio.ISnapshotConnection, error) {
	return t.connection(ctx, target)
}

func (t *raftTransport) connection(ctx context.Context, target string) (*connection, error) {
	to, ok := topology.StoreOf(target)
	if !ok {
		return nil, fmt.Errorf("raft address %q names no store", target)
	}
	l := t.e.line(to)
	l.reliable.Do(func() { t.e.neverTrip(target) })
	return &connection{e: t.e, l: l, ctx: ctx}, nil
}

// neverTrip keeps the breaker of a store from tripping. Batches of messages never fail here. A snapshot does if its
// receiver refuses it, as a store whose disk is full. Dragonboat would take that for a broken connection. Then the
// messages of all regions to that store would be lost, heartbeats among them, for a second or more, again and again.
// The store would know no leaders, and could not vote. It is called before the first connection to the store, so nobody
// reads the breaker's settings yet.
func (e *Endpoint) neverTrip(address string) {
	if h := e.host.Load(); h != nil {
		h.NeverTrip(address)
	}
}

// connection implements raftio.IConnection and raftio.ISnapshotConnection.
type connection struct {
	e       *Endpoint
	l       *linkEnd
	ctx     context.Context // ends when the NodeHost closes
	dialled *peerConn       // over TCP, once a chunk has been sent
}

func (c *connection) Close() {
	if c.dialled != nil {
		c.dialled.release()
		c.dialled = nil
	}
}

func (c *connection) SendMessageBatch(b pb.MessageBatch) error {
	c.e.send(c.l, b)
	return nil
}

func (c *connection) SendChunk(chunk pb.Chunk) error { return c.e.sendChunk(c, chunk) }
