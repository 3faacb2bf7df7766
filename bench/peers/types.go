package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file has the tests of hashes, sets, lists and sorted sets: commands like those of redis-benchmark's own list, on
// one key per node. With --cluster redis-benchmark replaces {tag} with a tag of the node; without it {tag} is part of
// the name.

const (
	randomInt = "__rand_int__" // redis-benchmark replaces it with twelve digits
	readSize  = 1000           // elements of a collection that is read
)

// fill is what a key holds before a run: nothing, or elements.
type fill struct {
	key   string
	add   string // the command that adds elements
	size  sizing
	parts func(i int) []any // the arguments that make element i
}

type sizing byte

const (
	empty sizing = iota // the key is removed
	read                // readSize elements, once
	// popped is more elements than the run takes: with three nodes one key may get half of all operations.
	popped
)

var (
	typeValue = strings.Repeat("x", valueBytes)

	listOf = func(size sizing) fill {
		return fill{"list:{tag}", "rpush", size, func(int) []any { return []any{typeValue} }}
	}
	hashOf = func(size sizing) fill {
		return fill{"hash:{tag}", "hset", size, func(i int) []any { return []any{element(i), typeValue} }}
	}
	setOf = func(size sizing) fill {
		return fill{"set:{tag}", "sadd", size, func(i int) []any { return []any{element(i)} }}
	}
	zsetOf = func(size sizing) fill {
		return fill{"zset:{tag}", "zadd", size, func(i int) []any { return []any{i * 7919 % keysPerTag, element(i)} }}
	}
)

func element(i int) string { return fmt.Sprintf("element:%012d", i) }

// typeTests are tests of one kind of command at several pipelines, on the ports of a cluster: those on which there is a
// requirement. neokv redis-benchmark has all of redis-benchmark's own list, but cannot fill a key before a test.
func typeTests() (all []test) {
	add := func(name string, f fill, pipelines []int, words ...string) {
		for _, pipeline := range pipelines {
			t := test{
				name: fmt.Sprintf("%s-50-%d", name, pipeline),
				doc:  fmt.Sprintf("redis-benchmark: %s -c 50 -P %d", strings.Join(short(words), " "), pipeline),
				unit: unitRate, optional: true, types: true, clients: 50, pipeline: pipeline, write: true, words: words,
				fill: f,
			}
			t.fits = func(t peerTarget) bool { return t.proxy || t.name == "redis" || t.name == "redis-cluster" }
			t.run = func(ctx context.Context, x *bench, to peerTarget, in *instance, r *measurement) error {
				return x.send(ctx, t, to, in, r)
			}
			all = append(all, t)
		}
	}
	both, single := []int{1, 16}, []int{1}
	add("incr", fill{}, both, "INCR", "counter:{tag}:"+randomInt)
	add("lpush", listOf(empty), both, "LPUSH", "list:{tag}", typeValue)
	add("rpush", listOf(empty), both, "RPUSH", "list:{tag}", typeValue)
	add("hset", hashOf(empty), both, "HSET", "hash:{tag}", "element:"+randomInt, typeValue)
	add("sadd", setOf(empty), both, "SADD", "set:{tag}", "element:"+randomInt)
	add("zadd", zsetOf(empty), both, "ZADD", "zset:{tag}", randomInt, "element:"+randomInt)
	add("lpop", listOf(popped), both, "LPOP", "list:{tag}")
	add("spop", setOf(popped), both, "SPOP", "set:{tag}")
	add("zpopmin", zsetOf(popped), both, "ZPOPMIN", "zset:{tag}")
	add("lrange-100", listOf(read), both, "LRANGE", "list:{tag}", "0", "99")
	add("hgetall-1000", hashOf(read), single, "HGETALL", "hash:{tag}")
	add("zrange-1000", zsetOf(read), single, "ZRANGE", "zset:{tag}", "0", "-1")

	mset := []string{"MSET"}
	for range 10 {
		mset = append(mset, "key:"+randomInt, typeValue)
	}
	for _, pipeline := range both {
		t := test{
			name: fmt.Sprintf("mset-10-50-%d", pipeline),
			doc:  fmt.Sprintf("redis-benchmark: MSET of 10 keys -c 50 -P %d on the proxy port", pipeline),
			unit: unitRate, optional: true, types: true, clients: 50, pipeline: pipeline, write: true, words: mset,
			proxy: true,
		}
		t.fits = func(t peerTarget) bool { return t.proxy || t.name == "redis" }
		t.run = func(ctx context.Context, x *bench, to peerTarget, in *instance, r *measurement) error {
			return x.send(ctx, t, to, in, r)
		}
		all = append(all, t)
	}
	return all
}

// short returns a command without values and repetitions.
func short(words []string) (out []string) {
	for _, w := range words {
		if w != typeValue {
			out = append(out, w)
		}
	}
	return out
}

func typeNames() (out []string) {
	for _, t := range tests {
		if t.types {
			out = append(out, t.name)
		}
	}
	return out
}

// keysOf returns the names of a fill's key: one per node of a cluster.
func (in *instance) keysOf(ctx context.Context, t test) ([]string, error) {
	if t.fill.key == "" {
		return nil, nil
	}
	if len(in.nodes) < 2 || t.proxy {
		return []string{t.fill.key}, nil
	}
	if in.prefixes == nil {
		var err error
		if in.prefixes, err = in.taggedPrefixes(ctx); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, p := range in.prefixes {
		// One of Redis Cluster's own has a brace in it: {8M}}.
		tag := strings.TrimSuffix(strings.TrimPrefix(p, "key:"), ":")
		names = append(names, strings.ReplaceAll(t.fill.key, "{tag}", tag))
	}
	return names, nil
}

// prepare fills the keys of a test before a run of n operations, and waits until the target has nothing else to do.
func (in *instance) prepare(ctx context.Context, t test, n int) error {
	names, err := in.keysOf(ctx, t)
	if err != nil {
		return err
	}
	size := 0
	switch t.fill.size {
	case read:
		size = readSize
	case popped:
		size = n/(len(names)+1)*2 + 1000
	}
	for _, name := range names {
		id := fmt.Sprint(name, size)
		if t.fill.size == read && in.filled[name] == id {
			continue
		}
		in.note(name, id)
		if err := in.pipelined(ctx, func(p redis.Pipeliner) { p.Del(ctx, name) }); err != nil {
			return err
		}
		const perCommand, perPipeline = 100, 5000
		for first := 0; first < size; first += perPipeline {
			err := in.pipelined(ctx, func(p redis.Pipeliner) {
				for i := first; i < min(first+perPipeline, size); i += perCommand {
					args := []any{t.fill.add, name}
					for k := i; k < min(i+perCommand, size); k++ {
						args = append(args, t.fill.parts(k)...)
					}
					p.Do(ctx, args...)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return in.settle(ctx)
}

// note remembers what a key holds. Only fills that are read are kept; others are filled anew each time.
func (in *instance) note(name, id string) {
	if in.filled == nil {
		in.filled = map[string]string{}
	}
	in.filled[name] = id
}

// settle waits, for at most ten seconds, until the target uses less than a tenth of a core. Until then it may still
// compact what was loaded.
func (in *instance) settle(ctx context.Context) error {
	const look = 250 * time.Millisecond
	before, err := in.Use()
	for range 40 {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		time.Sleep(look)
		after, useErr := in.Use()
		if useErr != nil || after.CPU-before.CPU < look/10 {
			return useErr
		}
		before = after
	}
	return nil
}

// drained returns an error if a run has popped all elements that there were.
func (in *instance) drained(ctx context.Context, t test) error {
	if t.fill.size != popped {
		return nil
	}
	names, err := in.keysOf(ctx, t)
	if err != nil {
		return err
	}
	for _, name := range names {
		var left *redis.IntCmd
		if err := in.pipelined(ctx, func(p redis.Pipeliner) { left = p.Exists(ctx, name) }); err != nil {
			return err
		}
		if left.Val() == 0 {
			return fmt.Errorf("%s ran dry", name)
		}
	}
	return nil
}
