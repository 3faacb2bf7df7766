package neokv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"neokv.dev/neokv/internal/cluster"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// What errors.Is finds in the errors of this package.
var (
	// ErrClosed says that the cluster is closed, or closes.
	ErrClosed error = cluster.ErrClosed
	// ErrNilContext says that the caller has passed no context.
	ErrNilContext = errors.New("nil context")
	// ErrUnknownOutcome says that nobody knows whether a write has happened, or will happen yet: all of it, or with the
	// commands that the proxy port cuts by region, a part.
	ErrUnknownOutcome = errors.New("write outcome unknown")
	// ErrCrossSlot says that keys are in different slots where all must be in one.
	ErrCrossSlot = errors.New("keys are in different slots")
	// ErrTooLarge says that a command is larger than a limit. Nothing of it has happened.
	ErrTooLarge = errors.New("too large")
)

// ReplyError is an error with which the cluster answers a command: the text that Redis's clients get.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Is makes errors.Is find ErrUnknownOutcome, ErrCrossSlot and ErrTooLarge.
func (e ReplyError) Is(target error) bool {
	switch target {
	case ErrUnknownOutcome:
		return strings.HasPrefix(string(e), "ERR write outcome unknown: ") ||
			strings.HasPrefix(string(e), "ERR partly applied: ")
	case ErrCrossSlot:
		return string(e) == redis.ErrCrossSlot
	case ErrTooLarge:
		return strings.HasPrefix(string(e), "ERR "+region.ErrTooLarge.Error())
	}
	return false
}

// Do runs a command and returns its reply: an int64, a string, a []any, or nil where Redis says null. An error reply is
// a ReplyError. The command may have any keys, as at the proxy port: no redirection is an answer, and MSET and the like
// may cross slots, although they are then not atomic.
//
// Arguments are strings, []byte, numbers or booleans, which become 1 and 0. Do reads them until it returns.
//
// If ctx ends first, Do returns an error of which errors.Is finds the cause of ctx. Like that of a client's time-out,
// the outcome of a write is unknown then: errors.Is finds ErrUnknownOutcome, too, unless nothing was sent yet. The
// write goes on for up to redis.leaderless_wait.
//
// Do takes no command that is about a connection, such as AUTH, CLIENT or MONITOR: Dial makes connections.
func (c *Cluster) Do(ctx context.Context, args ...any) (any, error) {
	call := make([][]byte, len(args))
	for i, a := range args {
		b, ok := appendArgument(nil, a)
		if !ok {
			return nil, fmt.Errorf("argument %d is a %T; want a string, bytes, a number or a boolean", i+1, a)
		}
		call[i] = b
	}
	if len(call) == 0 {
		return nil, errors.New("a command needs a name")
	}
	if name := strings.ToLower(string(call[0])); slices.Contains(aboutConnections, name) {
		return nil, fmt.Errorf("%s is about a connection, and Do has none; Dial makes one", strings.ToUpper(name))
	}
	return c.inside.call(ctx, call)
}

// aboutConnections are the commands that Do refuses.
var aboutConnections = []string{
	"asking", "auth", "client", "hello", "monitor", "multi", "quit", "readonly", "readwrite", "reset", "select", "wait",
}

// appendArgument appends an argument as clients write it. ok is false for a type that Do does not take.
func appendArgument(b []byte, a any) (_ []byte, ok bool) {
	switch a := a.(type) {
	case string:
		return append(b, a...), true
	case []byte:
		return append(b, a...), true
	case bool:
		if a {
			return append(b, '1'), true
		}
		return append(b, '0'), true
	case float32:
		return strconv.AppendFloat(b, float64(a), 'g', -1, 32), true
	case float64:
		return strconv.AppendFloat(b, a, 'g', -1, 64), true
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return fmt.Append(b, a), true
	}
	return nil, false
}

// insideConns are connections, through memory, from inside the process to the proxy's server, which trusts them.
type insideConns struct {
	limits  settings.RedisKnobs
	dial    func(context.Context) (net.Conn, error)
	closing <-chan struct{} // closed when the cluster begins to close

	mu   sync.Mutex
	idle []*insideConn
}

// idleConns is how many connections are kept for later calls.
const idleConns = 16

// call runs a command that keeps nothing in its connection.
func (p *insideConns) call(ctx context.Context, args [][]byte) (any, error) {
	if ctx == nil {
		return nil, ErrNilContext
	}
	if err := p.fits(args); err != nil {
		return nil, err
	}
	conn, err := p.get(ctx)
	if err != nil {
		return nil, p.because(ctx, err)
	}
	ended := func() bool { return true }
	if ctx.Done() != nil {
		ended = context.AfterFunc(ctx, func() { conn.nc.Close() })
	}
	reply, sent, err := conn.call(args)
	if !ended() || err != nil && !errors.As(err, new(ReplyError)) {
		conn.nc.Close()
	} else {
		p.put(conn)
	}
	if err == nil || errors.As(err, new(ReplyError)) {
		return reply, err
	}
	err = p.because(ctx, err)
	if row := redis.Lookup(args[0]); sent && (row == nil || row.Flags&redis.FlagReadonly == 0) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return nil, err
}

// fits returns an error if a port would refuse the arguments for their length, and close the connection.
func (p *insideConns) fits(args [][]byte) error {
	limits, sum := p.limits, int64(0)
	for i, a := range args {
		if sum += int64(len(a)) + 32; int64(len(a)) > int64(limits.MaxBulkLen) {
			return fmt.Errorf("argument %d: %w: %d bytes, at most %s", i+1, ErrTooLarge, len(a), limits.MaxBulkLen)
		}
	}
	if sum > int64(limits.QueryBufferLimit) {
		return fmt.Errorf("%w: a command of %d bytes, at most %s", ErrTooLarge, sum, limits.QueryBufferLimit)
	}
	return nil
}

// because returns the reason for which a connection has failed: the end of ctx, or of the cluster, or else err.
func (p *insideConns) because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-p.closing:
		return ErrClosed
	default:
		return err
	}
}

// insideConn is a connection on which one call runs at a time.
type insideConn struct {
	nc  net.Conn
	in  *bufio.Reader
	out []byte
}

// close closes the connections that are idle.
func (p *insideConns) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.idle {
		x.nc.Close()
	}
	p.idle = nil
}

func (p *insideConns) get(ctx context.Context) (*insideConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		x := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return x, nil
	}
	p.mu.Unlock()
	nc, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &insideConn{nc: nc, in: bufio.NewReader(nc)}, nil
}

func (p *insideConns) put(x *insideConn) {
	if cap(x.out) > keptRequest {
		x.out = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) < idleConns {
		p.idle = append(p.idle, x)
		return
	}
	x.nc.Close()
}

// keptRequest is how large the buffer of an idle connection may be.
const keptRequest = 64 << 10

// call sends a command and reads its reply. If sent is false, the server has not got the whole command, so it cannot
// have run it.
func (x *insideConn) call(args [][]byte) (reply any, sent bool, err error) {
	x.out = fmt.Appendf(x.out[:0], "*%d\r\n", len(args))
	for _, a := range args {
		x.out = append(strconv.AppendInt(append(x.out, '$'), int64(len(a)), 10), '\r', '\n')
		x.out = append(append(x.out, a...), '\r', '\n')
	}
	_, wrote := x.nc.Write(x.out)
	reply, err = readReply(x.in) // also after a failed write, since the server may have said why
	if err != nil && wrote != nil && !errors.As(err, new(ReplyError)) {
		err = wrote
	}
	return reply, wrote == nil, err
}

// readReply reads a reply of protocol version 2. An error reply is the error, a ReplyError; one within an array is an
// element, since the rest of the array follows it.
func readReply(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty line as reply")
	}
	switch rest := line[1:]; line[0] {
	case '+':
		return rest, nil
	case '-':
		return nil, ReplyError(rest)
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$', '*':
		n, err := strconv.Atoi(rest)
		switch {
		case err != nil:
			return nil, err
		case n < 0:
			return nil, nil
		case line[0] == '$':
			text := make([]byte, n+2)
			_, err = io.ReadFull(in, text)
			return string(text[:n]), err
		}
		all := make([]any, n)
		for i := range all {
			var refused ReplyError
			if all[i], err = readReply(in); errors.As(err, &refused) {
				all[i] = refused
			} else if err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("a reply that begins with %q", line[:1])
}

// Leader returns the number of the store that serves a key, 0 if none does.
func (c *Cluster) Leader(key string) int {
	if t := c.in.Table(); t != nil {
		if r, _ := t.Region(slotOf(key)); r != nil {
			return int(r.Leader)
		}
	}
	return 0
}

// slotOf returns the slot of a key.
func slotOf(key string) topology.Slot { return topology.SlotOf([]byte(key)) }

// Advance sets the clocks of all stores ahead, for good: keys expire as if so much time had passed. It moves no
// time-out, no lease and no clock of a client, which the time-to-live of EXPIREAT and the like counts from.
func (c *Cluster) Advance(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("advance by %s: a cluster's clock never goes back", d)
	}
	c.in.Advance(d)
	return nil
}
