package main

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
)

// rueidisCalls is the examples of rueidis's README: a pipeline, a transaction with WATCH, a Lua script.
func rueidisCalls(ctx context.Context, addrs []string) error {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs, DisableCache: true})
	if err != nil {
		return err
	}
	defer client.Close()

	err = client.Dedicated(func(c rueidis.DedicatedClient) error {
		if err := c.Do(ctx, c.B().Watch().Key("{rueidis}1", "{rueidis}2").Build()).Error(); err != nil {
			return err
		}
		if err := c.Do(ctx, c.B().Mget().Key("{rueidis}1", "{rueidis}2").Build()).Error(); err != nil {
			return err
		}
		replies := c.DoMulti(ctx,
			c.B().Multi().Build(),
			c.B().Set().Key("{rueidis}1").Value("1").Build(),
			c.B().Set().Key("{rueidis}2").Value("2").Build(),
			c.B().Exec().Build(),
		)
		done, err := replies[3].ToArray()
		if err != nil || len(done) != 2 {
			return fmt.Errorf("%d replies, %v", len(done), err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("Dedicated: %v", err)
	}

	script := rueidis.NewLuaScript("return {KEYS[1],KEYS[2],ARGV[1],ARGV[2]}")
	list, err := script.Exec(ctx, client, []string{"{rueidis}1", "{rueidis}2"}, []string{"a1", "a2"}).ToArray()
	if err != nil || len(list) != 4 {
		return fmt.Errorf("NewLuaScript: %v, %v", list, err)
	}
	return nil
}
