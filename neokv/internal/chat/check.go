package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// everything is more keys than a tenant has.
const everything = 1 << 20

// ErrNoAnswer says that a read of Check had no answer.
var ErrNoAnswer = errors.New("no answer")

// Check reads all that the clients may have written, by Scan and Get alone, and compares it with the ledger and with
// what must hold in itself. Run must have ended, and what commits of unknown outcome may still do must be over. The
// error has a line for each of the first problems, with the keys that are wrong; or it is ErrNoAnswer.
func (c *Chat) Check(ctx context.Context, db Database) error {
	var found findings
	for _, t := range c.o.Tenants {
		if err := c.checkTenant(ctx, db, t, &found); err != nil {
			return fmt.Errorf("tenant %s: %w", tagOf(t), err)
		}
	}
	return found.err()
}

// checkTenant adds what is wrong with a tenant to found.
func (c *Chat) checkTenant(ctx context.Context, db Database, t int, found *findings) error {
	note := func(format string, args ...any) { found.add(fmt.Errorf(format, args...)) }
	// Nothing changes any more, but that keys expire: what a read shows had happened before the first one.
	settled := c.l.now()
	from := c.l.now()
	entries, err := db.Scan(ctx, tagOf(t), keyOf(t, ""), everything)
	if err != nil {
		return fmt.Errorf("scan: %w: %w", ErrNoAnswer, err)
	}
	if err := inOrder(keyOf(t, ""), entries); err != nil {
		found.add(err)
	}
	x := &tenantData{t: t, values: make(map[string]string), note: note}
	for _, e := range entries {
		x.values[e.Key] = e.Value
		x.order = append(x.order, e.Key)
	}

	// What is seen may show that other commits have happened: then all that they have written must be there, too.
	keys := c.l.keys(keyOf(t, ""))
	for _, key := range x.order {
		if _, ok := slices.BinarySearch(keys, key); !ok {
			note("%s is %.50q; nobody wrote it", key, x.values[key])
		}
	}
	sight := func(key string) sighting {
		value, there := x.values[key]
		return sighting{key: key, value: value, found: there, from: from, to: settled}
	}
	for before := -1; before != c.l.sights(); {
		before = c.l.sights()
		for _, key := range keys {
			c.l.judge(sight(key))
		}
	}
	for _, key := range keys {
		if err := c.l.judge(sight(key)); err != nil {
			found.add(err)
		}
		value, there, err := db.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("get %s: %w: %w", key, ErrNoAnswer, err)
		}
		got := sighting{key: key, value: value, found: there, from: from, to: settled}
		if err := c.l.judge(got); err != nil && got != sight(key) {
			found.add(fmt.Errorf("a scan has found something else: %w", err))
		}
	}
	x.checkUsers()
	x.checkFriends()
	x.checkMessages()
	x.checkQueues()
	x.checkConversations()
	x.checkGroups()
	return nil
}

// tenantData is all that a scan has found of a tenant.
type tenantData struct {
	t      int
	values map[string]string
	order  []string // the keys, as they came
	note   func(format string, args ...any)
}

// each calls fn with the keys of a kind and their words, in the order of the scan.
func (x *tenantData) each(kind string, fn func(key string, words []string)) {
	for _, key := range x.order {
		if words := parts(key); words[0] == kind {
			fn(key, words)
		}
	}
}

// want checks that a key is there, since another one is.
func (x *tenantData) want(key, since string) bool {
	_, ok := x.values[key]
	if !ok {
		x.note("%s is there, and %s is not", since, key)
	}
	return ok
}

// checkUsers: users and names point at each other.
func (x *tenantData) checkUsers() {
	x.each("user", func(key string, words []string) {
		name := usernameKey(x.t, firstWord(x.values[key]))
		if x.want(name, key) && x.values[name] != words[1] {
			x.note("%s has the name of %s, which is that of %.50q", key, name, x.values[name])
		}
	})
	x.each("username", func(key string, words []string) {
		user := keyOf(x.t, "user:%s", x.values[key])
		if x.want(user, key) && firstWord(x.values[user]) != words[1] {
			x.note("%s names %s, whose name is %.50q", key, user, firstWord(x.values[user]))
		}
	})
}

// checkFriends: friendships are in both directions.
func (x *tenantData) checkFriends() {
	x.each("friend", func(key string, words []string) {
		x.want(keyOf(x.t, "friend:%s:%s", words[2], words[1]), key)
	})
}

// checkMessages: a message has one entry in a timeline, that of its conversation, and an entry has a message. The
// newest message comes first.
func (x *tenantData) checkMessages() {
	places := make(map[string][]string) // of messages in timelines
	before := ""
	x.each("chat", func(key string, words []string) {
		message := keyOf(x.t, "msg:%s", words[3])
		places[message] = append(places[message], key)
		if x.want(message, key) {
			if c, _, _, _ := parseBody(x.values[message]); key != chatKey(x.t, c, numberIn(key)) {
				x.note("%s is not the place of %s, which is %.50q", key, message, x.values[message])
			}
		}
		if before != "" && parts(before)[1] == words[1] && numberIn(before) < numberIn(key) {
			x.note("%s comes before %s, which is newer", before, key)
		}
		before = key
	})
	x.each("msg", func(key string, words []string) {
		if at := places[key]; len(at) != 1 {
			x.note("%s has %d entries in timelines, want one: %q", key, len(at), at)
		}
	})
}

// checkQueues: what waits for a user is a message to that user.
func (x *tenantData) checkQueues() {
	x.each("offline", func(key string, words []string) {
		message := keyOf(x.t, "msg:%s", words[3])
		if !x.want(message, key) {
			return
		}
		if _, _, to, _ := parseBody(x.values[message]); words[1] != fmt.Sprint("u_", to) {
			x.note("%s is in the queue of %s, and %s is to u_%d", key, words[1], message, to)
		}
	})
}

// checkConversations: both users have the same entry, which names a message of the conversation.
func (x *tenantData) checkConversations() {
	x.each("conv", func(key string, words []string) {
		c := numberIn(key)
		a, b := neighbours(x.t, c)
		other := convKey(x.t, b, c)
		if key == other {
			other = convKey(x.t, a, c)
		}
		if x.want(other, key) && x.values[other] != x.values[key] {
			x.note("%s is %.50q, and %s is %.50q; want the same", key, x.values[key], other, x.values[other])
		}
		n, _ := parseConv(x.values[key])
		message := msgKey(x.t, n)
		if !x.want(message, key) {
			return
		}
		if of, _, _, _ := parseBody(x.values[message]); of != c {
			x.note("%s names %s, which is of c_%d", key, message, of)
		}
	})
}

// checkGroups: a group has as many members as it counts, and each of them has it in the index.
func (x *tenantData) checkGroups() {
	members := make(map[string]int)
	x.each("group_member", func(key string, words []string) {
		group := keyOf(x.t, "group:%s", words[1])
		members[group]++
		x.want(group, key)
		x.want(keyOf(x.t, "user_groups:%s:%s", words[2], words[1]), key)
	})
	x.each("user_groups", func(key string, words []string) {
		x.want(keyOf(x.t, "group_member:%s:%s", words[2], words[1]), key)
	})
	x.each("group", func(key string, words []string) {
		if count, ok := parseGroup(x.values[key]); !ok || count != members[key] {
			x.note("%s is %.50q, and there are %d member records", key, x.values[key], members[key])
		}
	})
}
