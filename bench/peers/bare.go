package main

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/tidwall/redcon"
)

// bareCommand is the target redcon: redcon's own server on a map, without logs, replicas or disk. It is the ceiling of
// what a server with this front end can do.
func bareCommand() *cobra.Command {
	var port int
	c := &cobra.Command{
		Use:    "redcon",
		Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			s := bareServer{seed: maphash.MakeSeed()}
			for i := range s.shards {
				s.shards[i].values = map[string][]byte{}
			}
			return redcon.ListenAndServe(addr(port), s.serve, nil, nil)
		},
	}
	c.Flags().IntVar(&port, "port", 6379, "")
	return c
}

type bareServer struct {
	seed           maphash.Seed
	misses, errors atomic.Int64
	shards         [64]struct {
		sync.RWMutex
		values map[string][]byte
	}
}

// serve answers what the load sends. redcon gives a command memory of its own, so that a value can be kept as it is.
func (s *bareServer) serve(c redcon.Conn, cmd redcon.Command) {
	args := cmd.Args
	switch name := strings.ToLower(string(args[0])); {
	case name == "set" && len(args) == 3:
		shard := &s.shards[maphash.Bytes(s.seed, args[1])%64]
		shard.Lock()
		shard.values[string(args[1])] = args[2]
		shard.Unlock()
		c.WriteString("OK")
	case name == "get" && len(args) == 2:
		shard := &s.shards[maphash.Bytes(s.seed, args[1])%64]
		shard.RLock()
		v, ok := shard.values[string(args[1])]
		shard.RUnlock()
		if !ok {
			s.misses.Add(1)
			c.WriteNull()
			return
		}
		c.WriteBulk(v)
	case name == "info":
		c.WriteBulkString(fmt.Sprintf("# Server\r\nredis_version:redcon\r\n"+
			"# Stats\r\nkeyspace_misses:%d\r\ntotal_error_replies:%d\r\n",
			s.misses.Load(), s.errors.Load()))
	case name == "ping":
		c.WriteString("PONG")
	case name == "config": // redis-benchmark asks for settings that it prints
		c.WriteArray(2)
		c.WriteBulk(args[len(args)-1])
		c.WriteBulkString("")
	default:
		s.errors.Add(1)
		c.WriteError("ERR unknown command " + strconv.Quote(name))
	}
}
