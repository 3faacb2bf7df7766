package neokv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
)

// TestWriteBatch makes writes in order, all of them or none.
func TestWriteBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, NoSockets: true, Seed: 1})
		ctx := t.Context()
		want := func(want any, args ...any) {
			t.Helper()
			if got, err := c.Do(ctx, args...); err != nil || got != want {
				t.Errorf("%v = %v, %v; want %v", args, got, err, want)
			}
		}
		want(int64(1), "HSET", "{t}:hash", "f", "v")
		want("OK", "SET", "{t}:gone", "v")
		want("OK", "SET", "{t}:mortal", "v", "EX", 5)
		b := c.NewWriteBatch()
		b.Put("{t}:hash", []byte("a string"), 0)
		b.Put("{t}:short", []byte("lived"), 1500*time.Microsecond)
		b.Delete("{t}:gone")
		b.Delete("{t}:absent")
		b.Expire("{t}:absent", time.Hour)
		b.Persist("{t}:mortal")
		b.Put("{t}:twice", []byte("1"), 0)
		b.Put("{t}:twice", []byte("2"), time.Hour)
		b.Put("{t}:back", nil, 0)
		b.Expire("{t}:back", -time.Second)
		if err := b.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		want("a string", "GET", "{t}:hash")
		want(int64(2), "PTTL", "{t}:short")
		want(int64(0), "EXISTS", "{t}:gone", "{t}:absent", "{t}:back")
		want(int64(-1), "TTL", "{t}:mortal")
		want("2", "GET", "{t}:twice")
		want(int64(3600), "TTL", "{t}:twice")
		time.Sleep(2 * time.Millisecond)
		want(nil, "GET", "{t}:short")
		if err := b.Commit(ctx); !errors.Is(err, ErrCommitted) {
			t.Errorf("a second Commit: %v", err)
		}
		if err := c.NewWriteBatch().Commit(ctx); err != nil {
			t.Errorf("an empty batch: %v", err)
		}

		// A leader that has lost its quorum cannot say what becomes of a batch.
		if _, err := c.Inject(ctx, fault.Fault{Verb: fault.Partition}); err != nil {
			t.Fatal(err)
		}
		cancelled, because := context.WithCancelCause(ctx)
		enough := errors.New("enough")
		time.AfterFunc(time.Second, func() { because(enough) })
		b = c.NewWriteBatch()
		b.Put("{t}:twice", nil, 0)
		if err := b.Commit(cancelled); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, enough) {
			t.Errorf("a batch without an answer: %v", err)
		}
	})
}

// TestWriteBatchRefusals: a batch that cannot be is an error at Commit, of a kind that can be told, and writes nothing.
func TestWriteBatchRefusals(t *testing.T) {
	c, closed := start(t, Config{InMemory: true, NoSockets: true}), start(t, Config{InMemory: true, NoSockets: true})
	closed.Close()
	ctx := t.Context()
	commit := func(c *Cluster, ctx context.Context, fill func(*WriteBatch)) error {
		b := c.NewWriteBatch()
		b.Put("a", []byte("v"), 0)
		fill(b)
		return b.Commit(ctx)
	}
	scan := func(c *Cluster, ctx context.Context, limit int) error {
		_, err := c.ScanPrefix(ctx, "t", "", limit)
		return err
	}
	nothing := func(*WriteBatch) {}
	long := func(b *WriteBatch) { b.Delete("{a}" + string(make([]byte, 9<<20))) }
	var none context.Context
	for _, x := range []struct {
		name string
		err  error
		is   error
		text string
	}{
		{"no context", commit(c, none, nothing), ErrNilContext, ""},
		{"closed", commit(closed, ctx, nothing), ErrClosed, ""},
		{"two slots", commit(c, ctx, func(b *WriteBatch) { b.Delete("b") }), ErrCrossSlot,
			`keys are in different slots: "a" and "b"`},
		{"a large value", commit(c, ctx, func(b *WriteBatch) { b.Put("a", make([]byte, 64<<20), 0) }), ErrTooLarge, ""},
		{"a huge value", commit(c, ctx, func(b *WriteBatch) { b.Put("a", make([]byte, 513<<20), 0) }), ErrTooLarge, ""},
		{"a long key", commit(c, ctx, long), ErrTooLarge, ""},
		{"a time to live below 0", commit(c, ctx, func(b *WriteBatch) { b.Put("a", nil, -time.Second) }), nil,
			`put "a": a time to live of -1s`},
		{"no context for a scan", scan(c, none, 1), ErrNilContext, ""},
		{"a scan when closed", scan(closed, ctx, 1), ErrClosed, ""},
		{"a scan for nothing", scan(c, ctx, 0), nil, `scan of prefix "": limit 0, want at least 1`},
	} {
		if x.err == nil || x.is != nil && !errors.Is(x.err, x.is) || x.text != "" && x.err.Error() != x.text {
			t.Errorf("%s: %v; want %v %s", x.name, x.err, x.is, x.text)
		}
		if errors.Is(x.err, ErrUnknownOutcome) {
			t.Errorf("%s: the outcome is known: %v", x.name, x.err)
		}
	}
	if got, err := c.Do(ctx, "GET", "a"); got != nil || err != nil {
		t.Errorf("GET a = %v, %v; want nil", got, err)
	}
}

// TestScanPrefix finds keys of one slot in order, whatever their lengths and types.
func TestScanPrefix(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	ctx := t.Context()
	var want []string
	b := c.NewWriteBatch()
	for i := range 2500 {
		key := fmt.Sprintf("{t}:m:%d", i*i)
		want = append(want, key)
		b.Put(key, fmt.Append(nil, i), 0)
	}
	b.Put("{t}:l", nil, 0)
	b.Put("{t}:n", nil, 0)
	b.Put("x{t}:m:", nil, 0)
	if err := b.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(ctx, "RPUSH", "{t}:m:list", "v"); err != nil {
		t.Fatal(err)
	}
	want = append(want, "{t}:m:list")
	slices.Sort(want)
	for _, limit := range []int{1, 7, 1001, len(want), 1 << 20} {
		found, err := c.ScanPrefix(ctx, "t", "{t}:m:", limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, kv := range found {
			got = append(got, kv.Key)
			n, m := 0, 0
			fmt.Sscanf(kv.Key, "{t}:m:%d", &n)
			if fmt.Sscanf(string(kv.Value), "%d", &m); m*m != n || (kv.Value == nil) != (kv.Key == "{t}:m:list") {
				t.Errorf("%s holds %q", kv.Key, kv.Value)
			}
		}
		if !slices.Equal(got, want[:min(limit, len(want))]) {
			t.Errorf("limit %d: %d keys, not the first %d in order", limit, len(got), min(limit, len(want)))
		}
	}
	if found, err := c.ScanPrefix(ctx, "", "{t}:m:", 1000); err != nil || len(found) == 0 {
		t.Errorf("without a tag: %d keys, %v; want those of the prefix's tag", len(found), err)
	}
	for _, none := range []string{"{t", "t}", "{}", "{t:m:"} {
		if found, err := c.ScanPrefix(ctx, "", none, 10); err != nil || len(found) > 0 {
			t.Errorf("without a tag, %q: %v, %v; want nothing", none, found, err)
		}
	}
	if found, err := c.ScanPrefix(ctx, "another", "{t}:m:", 10); len(found) != 0 || err != nil {
		t.Errorf("in another slot: %v, %v", found, err)
	}
}
