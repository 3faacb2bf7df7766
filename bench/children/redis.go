package children

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"

	"neokv.dev/bench"
)

// Durability says when a redis-server makes a write durable.
type Durability string

const (
	None     Durability = "none"     // never: no append-only file
	EverySec Durability = "everysec" // once a second
	Always   Durability = "always"   // before it answers
)

// Durabilities are all of them.
var Durabilities = []Durability{None, EverySec, Always}

// Settings returns the settings of redis-server, as words of a command line.
func (d Durability) Settings() []string {
	if d == None {
		return []string{"--appendonly", "no"}
	}
	return []string{"--appendonly", "yes", "--appendfsync", string(d)}
}

// Redis is a redis-server alone, or a Redis Cluster of three masters with a replica each. It takes no snapshots and
// does not rewrite its append-only file.
type Redis struct {
	Program    string // the redis-server to start; empty for redis-server or valkey-server, whichever is installed
	Cluster    bool
	Durability Durability
	Args       []string // further settings, as words of the command line
}

func (s Redis) String() string {
	name := "redis-server"
	if s.Cluster {
		name = "Redis Cluster"
	}
	if s.Durability == None {
		return name + ", appendonly no"
	}
	return name + ", appendonly yes, appendfsync " + string(s.Durability)
}

// Masters is how many masters a Redis Cluster has. Each has one replica.
const (
	Masters = 3
	nodes   = 2 * Masters
)

func (s Redis) start(ctx context.Context, r *Running) (err error) {
	program := s.Program
	if program == "" {
		if program, err = Find("redis-server", "valkey-server"); err != nil {
			return err
		}
	}
	more := slices.Concat(s.Durability.Settings(), s.Args)
	if !s.Cluster {
		err := r.spawnRedis(ctx, program, more, false)
		if err == nil {
			r.proxy = r.addrs[0]
		}
		return err
	}
	for range nodes {
		if err := r.spawnRedis(ctx, program, more, true); err != nil {
			return err
		}
	}
	return r.join(ctx)
}

// spawnRedis starts a redis-server and waits until it answers. Where another process takes its port first, it tries
// another one.
func (r *Running) spawnRedis(ctx context.Context, program string, more []string, cluster bool) error {
	const tries = 5
	for try := 1; ; try++ {
		ports, err := freePorts(2)
		if err != nil {
			return err
		}
		args := append([]string{"--port", strconv.Itoa(ports[0]), "--bind", "127.0.0.1", "--save", "",
			"--auto-aof-rewrite-percentage", "0", "--repl-diskless-sync-delay", "0"}, more...)
		if cluster {
			args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(ports[1]))
		}
		c := &child{program: program, args: args, ports: ports}
		if err := r.spawn(ctx, c); err != nil {
			return err
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
		err = r.await(ctx, addr, func() error { return isChild(ctx, addr, c) })
		if err != nil && c.hasEnded() && strings.Contains(c.said(), "Address already in use") && try < tries {
			r.children = r.children[:len(r.children)-1]
			continue
		}
		r.addrs = append(r.addrs, addr)
		return err
	}
}

// isChild returns an error unless the child answers at an address.
func isChild(ctx context.Context, addr string, c *child) error {
	info, err := bench.Fields(ctx, addr, "", "INFO", "server")
	if pid := strconv.Itoa(c.cmd.Process.Pid); err == nil && info["process_id"] != pid {
		err = fmt.Errorf("process %s answers, want %s", info["process_id"], pid)
	}
	return err
}

// join does what redis-cli --cluster create does, but without its pauses: slots, epochs, acquaintance, replicas.
func (r *Running) join(ctx context.Context) error {
	const slots = 16384
	first := r.children[0].ports
	ids := make([]string, nodes)
	for i, addr := range r.addrs {
		id, err := bench.Ask(ctx, addr, "", "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		ids[i], _ = id.(string)
		commands := [][]string{{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)}}
		if i < Masters {
			commands = append(commands, []string{"CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i * slots / Masters),
				strconv.Itoa((i+1)*slots/Masters - 1)})
		}
		if i > 0 {
			commands = append(commands, []string{"CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(first[0]), strconv.Itoa(first[1])})
		}
		for _, words := range commands {
			if _, err := bench.Ask(ctx, addr, "", words...); err != nil {
				return err
			}
		}
	}
	for i, addr := range r.addrs[Masters:] {
		err := r.await(ctx, "replicate", func() error {
			_, err := bench.Ask(ctx, addr, "", "CLUSTER", "REPLICATE", ids[i])
			return err
		})
		if err != nil {
			return err
		}
	}
	for i, addr := range r.addrs {
		err := r.await(ctx, "join", func() error {
			if i < Masters {
				return bench.Serves(ctx, addr, bench.Login{})
			}
			return errors.Join(bench.Serves(ctx, addr, bench.Login{}), follows(ctx, addr))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// follows returns an error unless a replica has all data of its master.
func follows(ctx context.Context, addr string) error {
	info, err := bench.Fields(ctx, addr, "", "INFO", "replication")
	if err == nil && info["master_link_status"] != "up" {
		err = fmt.Errorf("%s: role %s, link %s", addr, info["role"], info["master_link_status"])
	}
	return err
}

// freePorts finds ports on which nobody listens, below those that the system gives to outgoing connections.
func freePorts(n int) (ports []int, err error) {
	for tries := 0; len(ports) < n; tries++ {
		if tries > 1000 {
			return nil, errors.New("no free port between 12000 and 32000")
		}
		port := 12000 + rand.IntN(20000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close() // not before all are found, so that none is found twice
		ports = append(ports, port)
	}
	return ports, nil
}
