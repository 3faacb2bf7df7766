package neokv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
)

// TestDo runs commands in the process, also while the cluster wants a password and closes idle connections.
func TestDo(t *testing.T) {
	k := small()
	k.Redis.RequirePass, k.Redis.Timeout = "secret", time.Second
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: k})
	ctx := t.Context()
	for _, x := range []struct {
		args []any
		want any
	}{
		{[]any{"SET", "k", "v"}, "OK"},
		{[]any{"GET", []byte("k")}, "v"},
		{[]any{"GET", "absent"}, nil},
		{[]any{"INCRBY", "n", 41}, int64(41)},
		{[]any{"INCRBY", "n", uint8(1)}, int64(42)},
		{[]any{"INCRBYFLOAT", "f", 0.25}, "0.25"},
		{[]any{"SET", "b", true}, "OK"},
		{[]any{"MSET", "x", 1, "y", 2, "z", 3}, "OK"}, // over several regions
		{[]any{"MGET", "x", "b", "absent", "z"}, []any{"1", "1", nil, "3"}},
		{[]any{"set", "k", "\r\n$3\r\n", "GET"}, "v"},
		{[]any{"GET", "k"}, "\r\n$3\r\n"},
		{[]any{"DBSIZE"}, int64(7)},
		{[]any{"FLUSHALL"}, "OK"},
	} {
		if got, err := c.Do(ctx, x.args...); err != nil || !reflect.DeepEqual(got, x.want) {
			t.Errorf("%v = %#v, %v; want %#v", x.args, got, err, x.want)
		}
	}
}

// TestDoApart: Do uses no connection that a client, or a limit on clients, can end.
func TestDoApart(t *testing.T) {
	k := small()
	k.Redis.MaxClients, k.Redis.ClientMemory = 1, 1<<20
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: k})
	nc, err := c.Dial(t.Context(), c.ProxyAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	client := &insideConn{nc: nc, in: bufio.NewReader(nc)}
	for round := range 3 {
		if _, err := c.Do(t.Context(), "SET", "k", strings.Repeat("v", 2<<20)); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		for _, args := range []string{"CLIENT KILL TYPE normal", "CONFIG SET timeout 1", "CONFIG SET timeout 0"} {
			var call [][]byte
			for _, a := range strings.Fields(args) {
				call = append(call, []byte(a))
			}
			if got, _, err := client.call(call); err != nil || got == int64(1) {
				t.Errorf("round %d: %s: %v, %v", round, args, got, err)
			}
		}
	}
	// A connection that is dead before the call has sent nothing.
	for _, x := range c.inside.idle {
		x.nc.Close()
	}
	if _, err := c.Do(t.Context(), "SET", "k", "v"); err == nil || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("on a dead connection: %v; want an error that is no unknown outcome", err)
	}
}

// TestRefusals: what Do does not take is an error that can be told, and never a panic.
func TestRefusals(t *testing.T) {
	k := small()
	k.Redis.QueryBufferLimit = 100 << 20
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: k})
	ctx := t.Context()
	closed := start(t, Config{InMemory: true, NoSockets: true})
	closed.Close()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	var none context.Context
	do := func(c *Cluster, ctx context.Context, args ...any) error {
		_, err := c.Do(ctx, args...)
		return err
	}
	snapshot := func(c *Cluster, ctx context.Context) error {
		_, err := c.Snapshot(ctx)
		return err
	}
	for _, x := range []struct {
		name string
		err  error
		is   error
		text string
	}{
		{"no context", do(c, none, "GET", "k"), ErrNilContext, ""},
		{"no context for a fault", doText(none, c, "heal"), ErrNilContext, ""},
		{"no context for health", c.WaitHealthy(none), ErrNilContext, ""},
		{"no context for a snapshot", snapshot(c, none), ErrNilContext, ""},
		{"an ended context", do(c, ended, "SET", "k", "v"), context.Canceled, "context canceled"},
		{"closed", do(closed, ctx, "GET", "k"), ErrClosed, ""},
		{"a fault when closed", doText(ctx, closed, "kill 1"), ErrClosed, ""},
		{"health when closed", closed.WaitHealthy(ctx), ErrClosed, ""},
		{"a snapshot when closed", snapshot(closed, ctx), ErrClosed, ""},
		{"two slots", do(c, ctx, "MSETNX", "a", 1, "b", 2), ErrCrossSlot, ""},
		{"a large value", do(c, ctx, "SET", "k", make([]byte, 64<<20)), ErrTooLarge, ""},
		{"a larger value", do(c, ctx, "SET", "k", make([]byte, 101<<20)), ErrTooLarge,
			"too large: a command of 105906276 bytes, at most 100MiB"},
		{"no command", do(c, ctx), nil, "a command needs a name"},
		{"an odd type", do(c, ctx, "SET", "k", struct{}{}), nil,
			"argument 3 is a struct {}; want a string, bytes, a number or a boolean"},
		{"a command about a connection", do(c, ctx, "client", "REPLY", "OFF"), nil,
			"CLIENT is about a connection, and Do has none; Dial makes one"},
		{"an error reply", do(c, ctx, "GET"), nil, "ERR wrong number of arguments for 'get' command"},
		{"back in time", c.Advance(-time.Second), nil, "advance by -1s: a cluster's clock never goes back"},
	} {
		if x.err == nil || x.is != nil && !errors.Is(x.err, x.is) || x.text != "" && x.err.Error() != x.text {
			t.Errorf("%s: %v; want %v %s", x.name, x.err, x.is, x.text)
		}
		if errors.Is(x.err, ErrUnknownOutcome) {
			t.Errorf("%s: the outcome is known: %v", x.name, x.err)
		}
	}
}

// TestDoWithoutAnAnswer: a write whose context ends has an unknown outcome, and a read has none. A leader without a
// quorum leaves the same behind after its own time.
func TestDoWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, NoSockets: true, Seed: 1})
		if _, err := c.Inject(t.Context(), fault.Fault{Verb: fault.Partition}); err != nil { // each store is alone
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := c.Do(short, "SET", "k", "v")
		if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write: %v", err)
		}
		gone, cancelGone := context.WithTimeout(t.Context(), time.Second)
		defer cancelGone()
		if _, err := c.Do(gone, "GET", "k"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("a read: %v", err)
		}
		if _, err := c.Do(t.Context(), "SET", "k", "v"); err == nil || strings.Contains(err.Error(), "context") {
			t.Errorf("a write without a leader: %v", err)
		}
		if _, err := c.Inject(t.Context(), fault.Fault{Verb: fault.Heal}); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitHealthy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(t.Context(), "SET", "k", "v2"); err != nil {
			t.Error(err)
		}
	})
}

// TestErrorsWithinReplies: an error in an array does not end the array, so the next reply begins where it should.
func TestErrorsWithinReplies(t *testing.T) {
	in := bufio.NewReader(strings.NewReader("*3\r\n:1\r\n-ERR no\r\n*1\r\n-ERR nor\r\n+next\r\n"))
	want := []any{int64(1), ReplyError("ERR no"), []any{ReplyError("ERR nor")}}
	if got, err := readReply(in); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%#v, %v; want %#v", got, err, want)
	}
	if got, err := readReply(in); err != nil || got != "next" {
		t.Errorf("then %#v, %v; want next", got, err)
	}
}

// TestAdvance lets keys expire without a wait.
func TestAdvance(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	ctx := t.Context()
	if _, err := c.Do(ctx, "SET", "k", "v", "EX", 3600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		by   time.Duration
		want any
	}{{59 * time.Minute, "v"}, {time.Minute, nil}} {
		if err := c.Advance(x.by); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Do(ctx, "GET", "k"); err != nil || got != x.want {
			t.Errorf("after %s: %v, %v; want %v", x.by, got, err, x.want)
		}
	}
	if f := c.Faults(); len(f) != 0 {
		t.Errorf("faults: %v", f)
	}
}

// TestSnapshot: clusters that start from an image have what the first one had, and go ways of their own.
func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, NoSockets: true, Seed: 1, Settings: small()})
		ctx := t.Context()
		do := func(c *Cluster, want any, args ...any) {
			t.Helper()
			if got, err := c.Do(ctx, args...); err != nil || got != want {
				t.Errorf("%v = %v, %v; want %v", args, got, err, want)
			}
		}
		for i := range 100 {
			do(c, "OK", "SET", fmt.Sprint("k", i), i, "EX", 3600+i)
		}
		if err := c.Advance(time.Hour + 49*time.Second); err != nil {
			t.Fatal(err)
		}
		image, err := c.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		do(c, "OK", "SET", "later", 1)
		forks := []*Cluster{
			start(t, Config{From: image, NoSockets: true}), start(t, Config{From: image, NoSockets: true}),
		}
		for i, fork := range forks {
			do(fork, nil, "GET", "later")
			do(fork, nil, "GET", "k49")
			do(fork, "99", "GET", "k99")
			do(fork, "OK", "SET", "own", i)
		}
		await(t, "leader", func() bool { return forks[0].Leader("k99") != 0 })
		kill := fault.Fault{Verb: fault.Kill, Stores: []int{forks[0].Leader("k99")}}
		if _, err := forks[0].Inject(ctx, kill); err != nil {
			t.Fatal(err)
		}
		for i, fork := range forks {
			do(fork, fmt.Sprint(i), "GET", "own")
			do(fork, "99", "GET", "k99")
		}
		do(c, nil, "GET", "own")

		// Stores whose disks do not answer hold up no snapshot, and what they have acknowledged is in it.
		for _, text := range []string{"pause 1", "disk 2 hang"} {
			if err := doText(ctx, c, text); err != nil {
				t.Fatal(err)
			}
		}
		hung, err := c.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		do(start(t, Config{From: hung, NoSockets: true}), "1", "GET", "later")
		if _, err := Start(ctx, Config{From: image, Stores: 5, Regions: 7}); err == nil ||
			err.Error() != "5 stores, 3 replicas, 7 regions: the image has 3, 3 and 8" {
			t.Errorf("another shape: %v", err)
		}
	})
}

// TestSeedOfReads: what reads choose at random follows from Config.Seed.
func TestSeedOfReads(t *testing.T) {
	drawn := func(seed uint64) string {
		c := start(t, Config{InMemory: true, NoSockets: true, Stores: 1, Replicas: 1, Regions: 1, Seed: seed})
		set := []any{"sadd", "s"}
		for i := range 1000 {
			set = append(set, i)
		}
		if _, err := c.Do(t.Context(), set...); err != nil {
			t.Fatal(err)
		}
		var all []any
		for range 10 {
			got, err := c.Do(t.Context(), "srandmember", "s", 3)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, got)
		}
		return fmt.Sprint(all...)
	}
	first := drawn(7)
	if again, other := drawn(7), drawn(8); again != first || other == first {
		t.Errorf("seed 7: %s\nand %s\nseed 8: %s", first, again, other)
	}
}
