package chat

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// client is one of the clients of a chat. It acts for the users and groups that are its own: those whose number in the
// tenant leaves the client's number when it is divided by the number of clients. So nobody else changes a group between
// its reading and its writing.
type client struct {
	*Chat
	id       int
	db       Database
	random   *rand.Rand
	messages int           // that it has tried to send
	commits  int           // of any kind
	users    map[int][]int // by tenant: those that it has registered
	retired  map[int]bool  // groups with a change of unknown outcome: their count may still change
}

func (c *Chat) newClient(id int, db Database) *client {
	return &client{Chat: c, id: id, db: db, random: rand.New(rand.NewPCG(c.o.Seed, uint64(id))),
		users: make(map[int][]int), retired: make(map[int]bool)}
}

// acts are what clients do, with their weights. They resemble those of the workload.
var acts = []struct {
	weight int
	do     func(c *client, ctx context.Context, t int)
}{
	{25, (*client).send},
	{15, (*client).history},
	{12, (*client).deliver},
	{8, (*client).register},
	{6, (*client).login},
	{2, (*client).logout},
	{5, (*client).profile},
	{6, (*client).friend},
	{9, (*client).group},
}

// run does one thing after the other until ctx ends.
func (c *client) run(ctx context.Context) {
	total := 0
	for _, a := range acts {
		total += a.weight
	}
	calls := context.WithoutCancel(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(c.random.ExpFloat64() * float64(c.o.Think))):
		}
		if ctx.Err() != nil {
			return
		}
		t := c.o.Tenants[c.random.IntN(len(c.o.Tenants))]
		n := c.random.IntN(total)
		if len(c.users[t]) == 0 {
			c.register(calls, t)
			continue
		}
		for _, a := range acts {
			if n -= a.weight; n < 0 {
				a.do(c, calls, t)
				break
			}
		}
	}
}

// own chooses one of the users that the client has registered.
func (c *client) own(t int) int { return c.users[t][c.random.IntN(len(c.users[t]))] }

// anyOf chooses a number below n that is the client's own.
func (c *client) anyOf(n int) int {
	return c.id + c.o.Clients*c.random.IntN((n-c.id-1)/c.o.Clients+1)
}

// text is one that no other commit has.
func (c *client) text() string {
	c.commits++
	return fmt.Sprintf("%d-%d%s", c.id, c.commits, strings.Repeat(".", c.random.IntN(100)))
}

// register makes a user, unless there is one.
func (c *client) register(ctx context.Context, t int) {
	u := t*tenantUsers + c.anyOf(tenantUsers)
	if _, found, err := c.get(ctx, c.db, userKey(t, u)); found || err != nil {
		return
	}
	if c.commit(ctx, c.db, "user", fmt.Sprint("u_", u),
		Write{Key: userKey(t, u), Value: nameOf(u) + " " + c.text()},
		Write{Key: usernameKey(t, nameOf(u)), Value: fmt.Sprint("u_", u)}) == nil {
		c.users[t] = append(c.users[t], u)
	}
}

// profile finds a user by name.
func (c *client) profile(ctx context.Context, t int) {
	u := t*tenantUsers + c.random.IntN(tenantUsers)
	if _, found, _ := c.get(ctx, c.db, usernameKey(t, nameOf(u))); found {
		c.get(ctx, c.db, userKey(t, u))
		c.get(ctx, c.db, sessionKey(t, u))
	}
}

// login begins a session in the place of the last one.
func (c *client) login(ctx context.Context, t int) {
	u := c.own(t)
	ttl := time.Hour
	if c.random.IntN(2) == 0 {
		ttl = time.Duration(100+c.random.IntN(2000)) * time.Millisecond
	}
	c.commit(ctx, c.db, "login", fmt.Sprint("of u_", u),
		Write{Key: sessionKey(t, u), Delete: true}, Write{Key: sessionKey(t, u), Value: c.text(), TTL: ttl})
}

func (c *client) logout(ctx context.Context, t int) {
	u := c.own(t)
	c.commit(ctx, c.db, "logout", fmt.Sprint("of u_", u), Write{Key: sessionKey(t, u), Delete: true})
}

// send sends a message to a neighbour who is registered.
func (c *client) send(ctx context.Context, t int) {
	from := c.own(t)
	conv := from
	if c.random.IntN(2) == 0 {
		conv = t*tenantUsers + (from%tenantUsers+tenantUsers-1)%tenantUsers
	}
	a, b := neighbours(t, conv)
	to := a + b - from
	if _, found, err := c.get(ctx, c.db, userKey(t, to)); !found || err != nil {
		return
	}
	n := c.messages*c.o.Clients + c.id
	c.messages++
	c.commit(ctx, c.db, "message", fmt.Sprint("m_", n),
		Write{Key: msgKey(t, n), Value: bodyOf(conv, from, to, n, c.text())},
		Write{Key: chatKey(t, conv, n)},
		Write{Key: convKey(t, a, conv), Value: convOf(n)},
		Write{Key: convKey(t, b, conv), Value: convOf(n)},
		Write{Key: offlineKey(t, to, n)})
}

// history reads the newest messages of a conversation.
func (c *client) history(ctx context.Context, t int) {
	u := c.own(t)
	timeline, err := c.scan(ctx, c.db, tagOf(t), keyOf(t, "chat:c_%d:", u), 10)
	if err != nil {
		return
	}
	for _, e := range timeline {
		c.get(ctx, c.db, msgKey(t, numberIn(e.Key)))
	}
	c.scan(ctx, c.db, tagOf(t), keyOf(t, "conv:u_%d:", u), 10)
}

// deliver reads the messages that wait for a user, and takes them out of the queue.
func (c *client) deliver(ctx context.Context, t int) {
	u := c.own(t)
	queue, err := c.scan(ctx, c.db, tagOf(t), keyOf(t, "offline:u_%d:", u), 5)
	if err != nil || len(queue) == 0 {
		return
	}
	var writes []Write
	for _, e := range queue {
		if _, _, err := c.get(ctx, c.db, msgKey(t, numberIn(e.Key))); err != nil {
			return
		}
		writes = append(writes, Write{Key: e.Key, Delete: true})
	}
	c.commit(ctx, c.db, "delivery", fmt.Sprintf("of %d messages to u_%d", len(writes), u), writes...)
}

// friend makes friends of a user and one of the next five, or ends a friendship.
func (c *client) friend(ctx context.Context, t int) {
	a := c.own(t)
	b := t*tenantUsers + (a%tenantUsers+1+c.random.IntN(5))%tenantUsers
	_, found, err := c.get(ctx, c.db, friendKey(t, a, b))
	if err != nil {
		return
	}
	there, back := Write{Key: friendKey(t, a, b), Delete: true}, Write{Key: friendKey(t, b, a), Delete: true}
	kind := "end of friendship"
	if !found {
		kind = "friendship"
		there.Value, back.Value = c.text(), c.text()
		there.Delete, back.Delete = false, false
	}
	c.commit(ctx, c.db, kind, fmt.Sprintf("of u_%d and u_%d", a, b), there, back)
}

// group lets a user join a group, or leave it. The count is read, and written with the change.
func (c *client) group(ctx context.Context, t int) {
	if c.id >= tenantGroups {
		return
	}
	g := t*tenantGroups + c.anyOf(tenantGroups)
	u := t*tenantUsers + c.random.IntN(20)
	if c.retired[g] {
		return
	}
	value, found, err := c.get(ctx, c.db, groupKey(t, g))
	count, ok := parseGroup(value)
	if err != nil || found && !ok {
		return
	}
	_, member, err := c.get(ctx, c.db, memberKey(t, g, u))
	if err != nil {
		return
	}
	record, index := Write{Key: memberKey(t, g, u), Delete: true}, Write{Key: userGroupKey(t, u, g), Delete: true}
	kind := "leaving"
	if count--; !member {
		kind = "joining"
		count += 2
		record.Value, record.Delete, index.Delete = c.text(), false, false
	}
	err = c.commit(ctx, c.db, kind, fmt.Sprintf("g_%d by u_%d", g, u), record, index,
		Write{Key: groupKey(t, g), Value: groupOf(count, c.text())})
	c.retired[g] = err != nil && c.o.Unknown(err)
}
