// Package chat does what a chat server asks of its database, and checks what has become of the data. Its keys are those
// of the workload chat (workloads/chat.yaml): users and the index of their names, friends, conversations, messages with
// a timeline, offline queues, groups and sessions. It runs on anything that is a Database.
//
// Run has clients at work; they may run while the database suffers. What they have written, and what they know of its
// fate, is in a ledger. Each read is compared with it, and at the end Check reads everything:
//
//   - A read sees a write that was acknowledged before the read began, or a later one.
//   - A commit happens as a whole: if one of its writes is seen, all of them are.
//   - A scan has its keys in the order of their bytes.
//   - A user and the user's name point at each other, and friends do.
//   - A message has its body and one entry in the timeline, which has the newest message first.
//   - The two entries of a conversation are the same, and name one of its messages.
//   - An offline queue has the messages that were sent and not delivered.
//   - A group's count is that of its member records, and each member has an entry in the index of groups.
//   - A session ends with its time to live.
package chat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
)

// Database is all that a chat server needs of a database: the one small interface between the chat and those that serve
// it. Its methods may run concurrently.
type Database interface {
	// Get returns the value of a key. found is false if there is none.
	Get(ctx context.Context, key string) (value string, found bool, err error)
	// Scan returns the first keys, limit at most, that begin with a prefix, in the order of their bytes. tag is their hash
	// tag.
	Scan(ctx context.Context, tag, prefix string, limit int) ([]Stored, error)
	// Commit makes writes to keys of one hash tag, all or none of them, in order.
	Commit(ctx context.Context, writes []Write) error
}

// Stored is a key and its value.
type Stored struct{ Key, Value string }

// Write gives a key a value, or removes the key.
type Write struct {
	Key, Value string
	TTL        time.Duration // the time to live of the value, 0 for none
	Delete     bool
}

// Options say how a Chat works.
type Options struct {
	Seed    uint64        // of all random choices
	Clients int           // 1 to 10
	Tenants []int         // each has a hash tag, and so a slot: tenant 7 has t7
	Think   time.Duration // the mean time between two operations of a client
	Timeout time.Duration // of one call of the database
	// Unknown reports whether nobody knows if a commit has happened, or will happen, that returned an error. Any other
	// error says that it has not.
	Unknown func(error) bool
	// Skew is how far a clock by which keys expire may be ahead or behind, at most.
	Skew time.Duration
}

// Stats counts what clients have done.
type Stats struct {
	Done    map[string]int // commits that were acknowledged, by what they do, such as "message"
	Unknown int            // commits of unknown outcome
	Refused int            // commits that did not happen
	Reads   int            // gets and scans that were answered
}

// Chat is clients of a database, and their ledger.
type Chat struct {
	o Options
	l *ledger

	mu    sync.Mutex
	stats Stats
	found findings // what reads of the clients have shown
}

// New returns a Chat.
func New(o Options) *Chat {
	return &Chat{o: o, l: newLedger(o.Skew), stats: Stats{Done: make(map[string]int)}}
}

// Run has all clients at work until ctx ends. What they have begun by then comes to its end. The error says what they
// have read that cannot be; that a database does not answer is none.
func (c *Chat) Run(ctx context.Context, db Database) error {
	var clients sync.WaitGroup
	for i := range c.o.Clients {
		clients.Go(func() { c.newClient(i, db).run(ctx) })
	}
	clients.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found.err()
}

// Stats returns what clients have done so far.
func (c *Chat) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Done = maps.Clone(s.Done)
	return s
}

// note takes note of a problem that a read has shown, if err is one.
func (c *Chat) note(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found.add(err)
}

// get reads a key, and compares what it finds with the ledger. The error says that there was no answer.
func (c *Chat) get(ctx context.Context, db Database, key string) (value string, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	from := c.l.now()
	value, found, err = db.Get(ctx, key)
	if err != nil {
		return "", false, err
	}
	c.read()
	c.note(c.l.judge(sighting{key: key, value: value, found: found, from: from, to: c.l.now()}))
	return value, found, nil
}

// scan reads keys with a prefix, and compares what it finds with the ledger. The error says that there was no answer.
func (c *Chat) scan(ctx context.Context, db Database, tag, prefix string, limit int) ([]Stored, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	from := c.l.now()
	entries, err := db.Scan(ctx, tag, prefix, limit)
	if err != nil {
		return nil, err
	}
	c.read()
	c.note(inOrder(prefix, entries))
	to := c.l.now()
	for _, e := range entries {
		c.note(c.l.judge(sighting{key: e.Key, value: e.Value, found: true, from: from, to: to}))
	}
	return entries, nil
}

func (c *Chat) read() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Reads++
}

// commit makes writes and enters them in the ledger. kind is what they do, what is its subject. The error is that of
// the database.
func (c *Chat) commit(ctx context.Context, db Database, kind, what string, writes ...Write) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	d := c.l.begin(kind+" "+what, writes)
	err := db.Commit(ctx, writes)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.l.acknowledge(d)
		c.stats.Done[kind]++
	case c.o.Unknown(err):
		c.l.lose(d)
		c.stats.Unknown++
	default:
		if wrong := c.l.refuse(d, err); wrong != nil {
			c.found.add(wrong)
		}
		c.stats.Refused++
	}
	return err
}

// inOrder returns an error if a scan has a key that it should not have, or has its keys out of order.
func inOrder(prefix string, entries []Stored) error {
	for i, e := range entries {
		switch {
		case len(e.Key) < len(prefix) || e.Key[:len(prefix)] != prefix:
			return fmt.Errorf("scan of %s: %s is none of its keys", prefix, e.Key)
		case i > 0 && entries[i-1].Key >= e.Key:
			return fmt.Errorf("scan of %s: %s comes before %s", prefix, entries[i-1].Key, e.Key)
		}
	}
	return nil
}

// findings are problems: some of each shape, since the first ones of many tell enough.
type findings struct {
	texts  []string
	shapes map[string]int
	more   int // that are not kept
}

// How many problems findings keep, of one shape and of all.
const mostAlike, mostFindings = 2, 40

func (f *findings) add(err error) {
	if f.shapes == nil {
		f.shapes = make(map[string]int)
	}
	shape := shapeOf(err.Error())
	if f.shapes[shape]++; f.shapes[shape] > mostAlike || len(f.texts) == mostFindings {
		f.more++
		return
	}
	f.texts = append(f.texts, err.Error())
}

// shapeOf returns what a problem has in common with others of its sort: the kind of its first key, and the words
// without numbers.
func shapeOf(text string) string {
	var shape []string
	for i, word := range strings.Fields(text) {
		if _, key, ok := strings.Cut(word, "}:"); ok && i == 0 {
			word, _, _ = strings.Cut(key, ":")
		}
		if !strings.ContainsAny(word, "0123456789.") {
			shape = append(shape, word)
		}
	}
	return strings.Join(shape, " ")
}

// err returns an error with a line for each problem, nil if there are none.
func (f *findings) err() error {
	if f.more > 0 {
		return fmt.Errorf("%s\nand %d more", strings.Join(f.texts, "\n"), f.more)
	}
	if len(f.texts) > 0 {
		return errors.New(strings.Join(f.texts, "\n"))
	}
	return nil
}
