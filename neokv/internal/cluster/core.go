package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// core is what the parts of a cluster share. Its fields are set before the first store opens and then stay as they are,
// but for the atomic values and rand.
type core struct {
	config   Config
	settings settings.Settings
	hooks    *seam.Hooks
	folder   *folder // nil in memory
	identity [16]byte
	copy     string    // see disk.StoreRecord.Copy
	initial  *meta.Map // the map of a new cluster
	roster   roster    // as of this start
	announce *announce.Rules
	network  *transport.Network

	advanced  atomic.Int64 // ns by which Advance has set all clocks ahead
	failed    chan error
	anyFailed atomic.Bool    // a store has failed since Start, so its disk may lack acknowledged writes
	wg        sync.WaitGroup // of goroutines that shutdown waits for
	closing   chan struct{}  // closed when Close begins

	randMu sync.Mutex
	rand   *rand.Rand
}

// founders returns with how many stores the cluster began.
func (c *core) founders() int { return c.roster.founders(c.settings.Cluster.Stores) }

// row returns how many ports the first addresses of stores take, by their numbers, as of this start.
func (c *core) row() int { return int(c.roster.last(c.settings.Cluster.Stores)) }

// addresses returns how many ports a row has with the second addresses, if stores have any.
func (c *core) addresses() int {
	if c.seconds() {
		return 2 * c.row()
	}
	return c.row()
}

// seconds reports whether stores have second addresses.
func (c *core) seconds() bool { return c.settings.Addresses() > c.settings.Cluster.Stores }

// event tells Config.OnEvent.
func (c *core) event(kind, format string, args ...any) {
	if f := c.config.OnEvent; f != nil {
		f(kind, fmt.Sprintf(format, args...))
	}
}

// tell reports what the cluster's start has found.
func (c *core) tell(what string) {
	c.event(eventCluster, "%s", what)
	if f := c.config.Progress; f != nil {
		f(what)
	}
}

// tellFailed tells that a store has failed.
func (c *core) tellFailed(id topology.StoreID, err error) {
	c.event(eventFailure, "store %d has failed: %v", id, err)
	select {
	case c.failed <- err:
	default:
	}
}

// exposed reports whether clients beyond loopback can reach the cluster.
func (c *core) exposed() bool { return !net.ParseIP(c.config.Bind).IsLoopback() }

// random128 draws 16 bytes from the cluster's random source.
func (c *core) random128() (b [16]byte) {
	c.randMu.Lock()
	defer c.randMu.Unlock()
	for i := range b {
		b[i] = byte(c.rand.Uint32())
	}
	return b
}

// newRand returns a random source of its own, drawn from the cluster's.
func (c *core) newRand() *rand.Rand {
	c.randMu.Lock()
	defer c.randMu.Unlock()
	return rand.New(rand.NewPCG(c.rand.Uint64(), c.rand.Uint64()))
}

// moment waits for 5 ms. The error says that ctx has ended, or that the cluster closes.
func (c *core) moment(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.closing:
		return ErrClosed
	case <-time.After(5 * time.Millisecond):
		return nil
	}
}

// hasStandIns reports whether a store that is down has a stand-in. A store that does not redirect clients has none.
func (c *core) hasStandIns() bool {
	return c.settings.Redis.StandIn && c.settings.Redis.ClusterEnabled
}
