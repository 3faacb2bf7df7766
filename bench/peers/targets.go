package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"neokv.dev/bench/children"
)

// peerTarget is one of the stores that are measured.
type peerTarget struct {
	name, doc string
	redis     bool     // speaks Redis
	regions   int      // of NeoKV
	proxy     bool     // has a port that takes any key
	serve     []string // settings of NeoKV, which win over those that all have here
	startable func(x *bench, t peerTarget, s start) (children.Startable, error)
}

func (t peerTarget) key() string { return t.name }

func (t peerTarget) about() string { return t.doc }

// targets are in the order of the tables.
var targets = []peerTarget{
	{name: "neokv", doc: "3 stores in one process, 3 replicas, 8 regions, on disk, WAL sync always, linearizable reads",
		redis: true, regions: 8,
		proxy: true, startable: startNeoKV},
	{name: "neokv-apart", doc: "the same with raft.transport tcp and engine.shared_sync false; one process, too",
		redis: true, regions: 8,
		proxy: true, serve: []string{"raft.transport=tcp", "engine.shared_sync=false"},
		startable: startNeoKV},
	{name: "redis", doc: "redis-server alone, appendfsync always, no rewrite", redis: true, startable: startRedis},
	{name: "redis-cluster", redis: true,
		doc:       "3 masters and 3 replicas of redis-server (replicas asynchronous), appendfsync always, no rewrite",
		startable: startRedisCluster},
	{name: "etcd", doc: "3 nodes of etcd 3.6, linearizable reads", startable: startEtcd},
	{name: "redcon", doc: "a bare redcon server on a Go map, the ceiling of NeoKV's front end", redis: true,
		startable: startRedcon},
	{name: "before", doc: "NeoKV from the program of --before, to compare with", redis: true, regions: 8, proxy: true,
		startable: startNeoKV},
}

// start says how to start a target.
type start struct {
	memory      bool          // keep nothing on disk, if the target can do so
	nodeTimeout time.Duration // of Redis Cluster, 0 for its default
}

// instance is a target that runs.
type instance struct {
	*children.Running
	nodes    []*redis.Client // one per address, in the same order; none of etcd
	etcd     []*clientv3.Client
	boot     time.Duration     // how long it took until the target accepted writes everywhere
	loaded   bool              // the keys of redis-benchmark are loaded
	filled   map[string]string // for each key of a test of types: which fill it holds
	prefixes []string          // prefixes of redis-benchmark's keys in a cluster, when they are known
	taker    int               // the node that accepted keys last
}

// start starts a target in a new folder, and returns when it accepts writes everywhere.
func (x *bench) start(ctx context.Context, t peerTarget, s start) (in *instance, err error) {
	what, err := t.startable(x, t, s)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	r, err := children.Start(ctx, x.dir, what)
	if err != nil {
		return nil, err
	}
	in = &instance{Running: r}
	if t.redis {
		in.connect()
	} else if err = in.connectEtcd(); err != nil {
		in.stop()
		return nil, err
	}
	if err = await(ctx, "accept writes", func() error { return in.accepts(ctx) }); err != nil {
		err = errors.Join(err, r.Err())
		in.stop()
		return nil, fmt.Errorf("start: %w", err)
	}
	in.boot = time.Since(begin)
	return in, nil
}

// stop kills the target's processes and removes its data.
func (in *instance) stop() {
	if in == nil {
		return
	}
	for _, c := range in.nodes {
		c.Close()
	}
	for _, c := range in.etcd {
		c.Close()
	}
	in.Kill()
}

// connect makes clients for Redis nodes.
func (in *instance) connect() {
	for _, addr := range in.Addrs() {
		in.nodes = append(in.nodes, redis.NewClient(&redis.Options{
			Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, ReadTimeout: time.Minute,
			DialerRetries: 1,
		}))
	}
}

func startNeoKV(x *bench, t peerTarget, s start) (children.Startable, error) {
	n := children.NeoKV{Program: x.neokv, InMemory: s.memory,
		Set: []string{"cluster.stores=3", "cluster.replicas=3", fmt.Sprint("cluster.regions=", t.regions)}}
	if t.name == "before" {
		n.Program = x.before
	} else {
		n.Set = append(n.Set, x.set...)
	}
	n.Set = append(n.Set, t.serve...)
	return n, nil
}

func startRedis(_ *bench, _ peerTarget, s start) (children.Startable, error) {
	return children.Redis{Durability: durability(s)}, nil
}

func startRedisCluster(_ *bench, _ peerTarget, s start) (children.Startable, error) {
	r := children.Redis{Cluster: true, Durability: durability(s)}
	if s.nodeTimeout > 0 {
		r.Args = []string{"--cluster-node-timeout", strconv.FormatInt(s.nodeTimeout.Milliseconds(), 10)}
	}
	return r, nil
}

func durability(s start) children.Durability {
	if s.memory {
		return children.None
	}
	return children.Always
}

func startRedcon(*bench, peerTarget, start) (children.Startable, error) {
	ports, err := children.FreePorts(1)
	if err != nil {
		return nil, err
	}
	at := addr(ports[0])
	return children.Program{Args: [][]string{{"redcon", "--port", strconv.Itoa(ports[0])}}, Addrs: []string{at},
		Ready: func(context.Context) error { return listens(at) }}, nil
}

func startEtcd(x *bench, _ peerTarget, _ start) (children.Startable, error) {
	ports, err := children.FreePorts(6)
	if err != nil {
		return nil, err
	}
	p := children.Program{Path: x.etcd}
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("n%d=http://%s", i, addr(ports[3+i])))
	}
	for i := range 3 {
		client, peer := "http://"+addr(ports[i]), "http://"+addr(ports[3+i])
		p.Args = append(p.Args, []string{"--name", fmt.Sprintf("n%d", i), "--data-dir", "data", "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(members, ","), "--quota-backend-bytes", strconv.Itoa(8 << 30)})
		p.Addrs = append(p.Addrs, addr(ports[i]))
	}
	p.Ready = func(context.Context) error {
		for _, at := range p.Addrs {
			if err := listens(at); err != nil {
				return err
			}
		}
		return nil
	}
	return p, nil
}

// listens returns an error unless a server accepts connections.
func listens(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		err = c.Close()
	}
	return err
}

func (in *instance) connectEtcd() error {
	for i := range etcdConnections {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{in.Addrs()[i%3]}, DialTimeout: 10 * time.Second,
			Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		in.etcd = append(in.etcd, c)
	}
	return nil
}

// accepts writes a key in every 128th slot. It sends each to all nodes and fails if no node accepts it. All nodes of
// etcd must accept a key.
func (in *instance) accepts(ctx context.Context) error {
	for _, c := range in.etcd {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		_, err := c.Put(ctx, "probe", "")
		cancel()
		if err != nil {
			return err
		}
	}
	if in.nodes == nil {
		return nil
	}
	taken := make([]bool, len(probeKeys))
	var last error
	for _, c := range in.nodes {
		replies, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range probeKeys {
				p.Set(ctx, key, "", 0)
			}
			return nil
		})
		if err != nil {
			last = err
		}
		for i, r := range replies {
			taken[i] = taken[i] || r.Err() == nil
		}
	}
	for i, ok := range taken {
		if !ok {
			return fmt.Errorf("slot %d: %w", i*probeEvery, last)
		}
	}
	return nil
}

const probeEvery = 128

// probeKeys has a key for every 128th slot.
var probeKeys = func() (keys [16384 / probeEvery]string) {
	for i, found := 0, 0; found < len(keys); i++ {
		key := "probe:" + strconv.Itoa(i)
		if slot := int(crc16(key)) % 16384; slot%probeEvery == 0 && keys[slot/probeEvery] == "" {
			keys[slot/probeEvery] = key
			found++
		}
	}
	return keys
}()

// crc16 is the sum that places keys in slots: CRC-16/XMODEM, as in the Redis Cluster specification.
func crc16(s string) (sum uint16) {
	for i := range len(s) {
		sum ^= uint16(s[i]) << 8
		for range 8 {
			high := sum&0x8000 != 0
			if sum <<= 1; high {
				sum ^= 0x1021
			}
		}
	}
	return sum
}

// infoFields reads a section of INFO.
func infoFields(ctx context.Context, c *redis.Client, section string) (map[string]string, error) {
	text, err := c.Info(ctx, section).Result()
	fields := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	return fields, err
}
