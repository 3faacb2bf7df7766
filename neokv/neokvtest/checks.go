package neokvtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// This file has the checks that miniredis has, and more of the kind. Each reads a key as Do does: past clients, their
// connections and what Fail makes these see. A check that does not hold lets the test go on, and fail.

// CheckGet checks that a key holds a string.
func (c *TestCluster) CheckGet(key, want string) {
	c.t.Helper()
	c.check(key, want, "GET", key)
}

// CheckList checks that a key holds a list of these elements, in this order.
func (c *TestCluster) CheckList(key string, want ...string) {
	c.t.Helper()
	c.check(key, want, "LRANGE", key, 0, -1)
}

// CheckSet checks that a key holds a set of these members.
func (c *TestCluster) CheckSet(key string, want ...string) {
	c.t.Helper()
	want = slices.Compact(slices.Sorted(slices.Values(want)))
	c.check(key, want, "SMEMBERS", key)
}

// CheckHash checks that a key holds a hash of these fields.
func (c *TestCluster) CheckHash(key string, want map[string]string) {
	c.t.Helper()
	c.check(key, want, "HGETALL", key)
}

// CheckSortedSet checks that a key holds a sorted set of these members with these scores.
func (c *TestCluster) CheckSortedSet(key string, want map[string]float64) {
	c.t.Helper()
	c.check(key, want, "ZRANGE", key, 0, -1, "WITHSCORES")
}

// CheckGone checks that there are no such keys.
func (c *TestCluster) CheckGone(keys ...string) {
	c.t.Helper()
	for _, key := range keys {
		if kind := c.typeOf(key); kind != "" && kind != "none" {
			c.t.Errorf("neokvtest: key %q: it is there, a %s", key, kind)
		}
	}
}

// check compares what a command reads with want: a string, a []string, a map[string]string or a map[string]float64. A
// set is read sorted.
func (c *TestCluster) check(key string, want any, command ...any) {
	c.t.Helper()
	var reply any
	err := c.within(func(ctx context.Context) (err error) {
		reply, err = c.Do(ctx, command...)
		return err
	})
	if err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE ") {
		err = fmt.Errorf("it is a %s", c.typeOf(key))
	}
	if err != nil {
		c.t.Errorf("neokvtest: key %q: %v, want %s", key, err, shown(want))
		return
	}
	list, _ := reply.([]any)
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = fmt.Sprint(x)
	}
	var got any
	same, gone := false, len(words) == 0
	switch want := want.(type) {
	case string:
		text, there := reply.(string)
		got, same, gone = text, there && text == want, !there
	case []string:
		if command[0] == "SMEMBERS" {
			slices.Sort(words)
		}
		got, same = words, slices.Equal(words, want)
	case map[string]string:
		fields := map[string]string{}
		for pair := range slices.Chunk(words, 2) {
			fields[pair[0]] = pair[1]
		}
		got, same = fields, maps.Equal(fields, want)
	case map[string]float64:
		scores := map[string]float64{}
		for pair := range slices.Chunk(words, 2) {
			scores[pair[0]], _ = strconv.ParseFloat(pair[1], 64)
		}
		got, same = scores, maps.Equal(scores, want)
	}
	switch {
	case same:
	case gone:
		c.t.Errorf("neokvtest: key %q: it is not there, want %s", key, shown(want))
	default:
		c.t.Errorf("neokvtest: key %q: it holds %s, want %s", key, shown(got), shown(want))
	}
}

// shown returns a value as a test's log has it.
func shown(value any) string {
	if scores, ok := value.(map[string]float64); ok {
		return strings.TrimPrefix(fmt.Sprintf("%v", scores), "map")
	}
	return strings.TrimPrefix(fmt.Sprintf("%q", value), "map")
}

// typeOf returns the type of a key, "none" if there is none, "" if the cluster does not say.
func (c *TestCluster) typeOf(key string) (kind string) {
	c.t.Helper()
	c.must(c.within(func(ctx context.Context) error {
		reply, err := c.Do(ctx, "TYPE", key)
		kind, _ = reply.(string)
		return err
	}))
	return kind
}
