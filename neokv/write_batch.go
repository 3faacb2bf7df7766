package neokv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrCommitted says that a write batch was committed before. It is the error of a second Commit.
var ErrCommitted = errors.New("the batch was committed before")

// WriteBatch collects writes to the keys of one slot. Commit makes all of them at once or none, in the order in which
// they were added: together they are one command, in one Raft entry, and a reader sees either all or nothing of it.
// Keys with the same hash tag, such as {t1}:a and {t1}:b, are in one slot.
//
// A batch has at most 64 MiB, and about 4,000 of Expire and Persist: each of them may store a string of 64 KiB again.
// Commit of a larger one returns ErrTooLarge. Methods that add writes keep the first error for Commit. A WriteBatch is
// for one goroutine and one Commit.
type WriteBatch struct {
	c         *Cluster
	args      [][]byte // of NEOKV BATCH
	first     string   // the first key
	err       error
	committed bool
}

// NewWriteBatch returns an empty batch.
func (c *Cluster) NewWriteBatch() *WriteBatch { return &WriteBatch{c: c} }

// Put makes a key hold a string, whatever it held before, for the time ttl, which is rounded up to milliseconds. A ttl
// of 0 is for ever.
func (b *WriteBatch) Put(key string, value []byte, ttl time.Duration) {
	switch {
	case ttl < 0:
		b.fail(fmt.Errorf("put %q: a time to live of %s", key, ttl))
	case ttl == 0:
		b.add("SET", key, value)
	default:
		b.add("PSETEX", key, millis(ttl), value)
	}
}

// Delete removes a key, if it is there.
func (b *WriteBatch) Delete(key string) { b.add("DEL", key) }

// Expire gives a key, if it is there, the time to live ttl, rounded up to milliseconds. One of 0 or less removes the
// key.
func (b *WriteBatch) Expire(key string, ttl time.Duration) { b.add("PEXPIRE", key, millis(ttl)) }

// Persist lets a key, if it is there, live for ever.
func (b *WriteBatch) Persist(key string) { b.add("PERSIST", key) }

func millis(d time.Duration) []byte {
	return strconv.AppendInt(nil, int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

func (b *WriteBatch) add(op, key string, rest ...[]byte) {
	switch {
	case b.args == nil:
		b.args, b.first = [][]byte{[]byte("NEOKV"), []byte("BATCH")}, key
	case slotOf(key) != slotOf(b.first):
		b.fail(fmt.Errorf("%w: %q and %q", ErrCrossSlot, b.first, key))
	}
	b.args = append(append(b.args, []byte(op), []byte(key)), rest...)
}

func (b *WriteBatch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Commit makes the writes. If its error is one of ErrUnknownOutcome, because ctx has ended or a store was lost on the
// way, nobody knows whether they have happened or will happen; with any other error they have not. Commit of an empty
// batch does nothing. A second Commit returns ErrCommitted.
func (b *WriteBatch) Commit(ctx context.Context) error {
	switch {
	case b.committed:
		return ErrCommitted
	case ctx == nil:
		return ErrNilContext
	}
	b.committed = true
	if b.err != nil || len(b.args) == 0 {
		return b.err
	}
	_, err := b.c.inside.call(ctx, b.args)
	return err
}

// KeyValue is a key and the string that it holds.
type KeyValue struct {
	Key   string
	Value []byte // nil if the key holds no string
}

// scanStep is how many keys a step of ScanPrefix asks for.
const scanStep = 1000

// ScanPrefix returns the first keys, limit at most, that begin with prefix and are in the slot of tag, in the order of
// their bytes, with what they hold. tag is what keys have between braces: ScanPrefix(ctx, "t1", "{t1}:chat:", 10);
// where it is empty, it is taken from a prefix that has it. A scan that needs several steps, of 1000 keys or 1 MiB,
// does not see them all at one instant. A tag without keys has none to return.
func (c *Cluster) ScanPrefix(ctx context.Context, tag, prefix string, limit int) (found []KeyValue, err error) {
	if ctx == nil {
		return nil, ErrNilContext
	}
	if limit < 1 {
		return nil, fmt.Errorf("scan of prefix %q: limit %d, want at least 1", prefix, limit)
	}
	if _, rest, ok := strings.Cut(prefix, "{"); ok && tag == "" {
		tag, _, ok = strings.Cut(rest, "}")
		if !ok {
			tag = "" // it ends behind the prefix
		}
	}
	var after []byte
	for len(found) < limit {
		args := [][]byte{[]byte("NEOKV"), []byte("SCANPREFIX"), []byte(tag), []byte(prefix),
			strconv.AppendInt(nil, int64(min(limit-len(found), scanStep)), 10)}
		if after != nil {
			args = append(args, []byte("AFTER"), after)
		}
		reply, err := c.inside.call(ctx, args)
		if err != nil {
			return nil, err
		}
		step := reply.([]any)
		pairs := step[1].([]any)
		for i := 0; i < len(pairs); i += 2 {
			kv := KeyValue{Key: pairs[i].(string)}
			if text, ok := pairs[i+1].(string); ok {
				kv.Value = []byte(text)
			}
			found = append(found, kv)
		}
		next, more := step[0].(string)
		if !more {
			break
		}
		after = []byte(next)
	}
	return found, nil
}
