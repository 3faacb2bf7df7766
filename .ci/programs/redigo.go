package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomodule/redigo/redis"
)

var zpopScript = redis.NewScript(1, `
    local r = redis.call('ZRANGE', KEYS[1], 0, 0)
    if r ~= nil then
        r = r[1]
        redis.call('ZREM', KEYS[1], r)
    end
    return r
`)

// redigo is the examples of redigo's documentation: a pipelined transaction, and ZPOP by WATCH and by a script.
func redigo(ctx context.Context, addrs []string) error {
	c, err := redis.DialContext(ctx, "tcp", addrs[0])
	if err != nil {
		return err
	}
	defer c.Close()

	c.Send("MULTI")
	c.Send("INCR", "redigo_foo")
	c.Send("INCR", "redigo_bar")
	if counts, err := redis.Ints(c.Do("EXEC")); err != nil || !slices.Equal(counts, []int{1, 1}) {
		return fmt.Errorf("MULTI: %v, %v", counts, err)
	}

	for i, member := range []string{"red", "blue", "green"} {
		c.Send("ZADD", "redigo_zset", i, member)
	}
	if _, err := c.Do(""); err != nil {
		return err
	}
	if _, err := c.Do("WATCH", "redigo_zset"); err != nil {
		return err
	}
	members, err := redis.Strings(c.Do("ZRANGE", "redigo_zset", 0, 0))
	if err != nil || !slices.Equal(members, []string{"red"}) {
		return fmt.Errorf("WATCH: %q, %v", members, err)
	}
	c.Send("MULTI")
	c.Send("ZREM", "redigo_zset", members[0])
	if queued, err := c.Do("EXEC"); err != nil || queued == nil {
		return fmt.Errorf("WATCH: %v, %v", queued, err)
	}
	if member, err := redis.String(zpopScript.Do(c, "redigo_zset")); err != nil || member != "blue" {
		return fmt.Errorf("Script: %q, %v", member, err)
	}
	return nil
}
