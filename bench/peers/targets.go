package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// peerTarget is one of the stores that are measured.
type peerTarget struct {
	name, doc string
	redis     bool     // speaks Redis
	regions   int      // of NeoKV
	proxy     bool     // has a port that takes any key
	serve     []string // further flags of neokv serve, which win over those that it has here
	start     func(ctx context.Context, x *bench, t peerTarget, s start, in *instance) error
}

func (t peerTarget) key() string { return t.name }

func (t peerTarget) about() string { return t.doc }

// targets are in the order of the tables.
var targets = []peerTarget{
	{name: "neokv", doc: "3 stores in one process, 3 replicas, 8 regions, on disk, WAL sync always, linearizable reads",
		redis: true, regions: 8,
		proxy: true, start: startNeoKV},
	{name: "neokv-apart", doc: "the same with raft.transport tcp and engine.shared_sync false; one process, too",
		redis: true, regions: 8,
		proxy: true, serve: []string{"--set", "raft.transport=tcp", "--set", "engine.shared_sync=false"},
		start: startNeoKV},
	{name: "redis", doc: "redis-server alone, appendfsync always, no rewrite", redis: true, start: startRedis},
	{name: "redis-cluster", redis: true,
		doc:   "3 masters and 3 replicas of redis-server (replicas asynchronous), appendfsync always, no rewrite",
		start: startRedisCluster},
	{name: "etcd", doc: "3 nodes of etcd 3.6, linearizable reads", start: startEtcd},
	{name: "redcon", doc: "a bare redcon server on a Go map, the ceiling of NeoKV's front end", redis: true,
		start: startRedcon},
	{name: "before", doc: "NeoKV from the program of --before, to compare with", redis: true, regions: 8, proxy: true,
		start: startNeoKV},
}

// start says how to start a target.
type start struct {
	memory      bool          // keep nothing on disk, if the target can do so
	nodeTimeout time.Duration // of Redis Cluster, 0 for its default
}

// instance is a target that runs.
type instance struct {
	servers  []*server
	addrs    []string        // addresses for clients; of a Redis Cluster the masters come first
	nodes    []*redis.Client // one per address, in the same order; none of etcd
	etcd     []*clientv3.Client
	boot     time.Duration     // how long it took until the target accepted writes everywhere
	proxy    string            // the port that takes any key, empty if there is none
	loaded   bool              // the keys of redis-benchmark are loaded
	filled   map[string]string // for each key of a test of types: which fill it holds
	prefixes []string          // prefixes of redis-benchmark's keys in a cluster, when they are known
	taker    int               // the node that accepted keys last
	dir      string
}

// start starts a target in a new folder, and returns when it accepts writes everywhere.
func (x *bench) start(ctx context.Context, t peerTarget, s start) (in *instance, err error) {
	dir, err := os.MkdirTemp(x.dir, strings.ReplaceAll(t.name, "/", "-")+"-")
	if err != nil {
		return nil, err
	}
	in = &instance{dir: dir}
	begin := time.Now()
	if err = t.start(ctx, x, t, s, in); err == nil {
		err = await(ctx, "accept writes", func() error { return in.accepts(ctx) })
	}
	if err != nil {
		for _, s := range in.servers {
			err = fmt.Errorf("%w\n%s", err, s.said())
		}
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
	for _, s := range in.servers {
		s.kill()
	}
	os.RemoveAll(in.dir)
}

// spawn starts another process of the target in a folder of its own.
func (in *instance) spawn(ctx context.Context, ready, program string, args ...string) (line string, err error) {
	s, line, err := spawn(ctx, filepath.Join(in.dir, strconv.Itoa(len(in.servers))), ready, program, args...)
	if err == nil {
		in.servers = append(in.servers, s)
	}
	return line, err
}

// connect makes clients for Redis nodes.
func (in *instance) connect(ports ...int) {
	for _, port := range ports {
		in.addrs = append(in.addrs, addr(port))
		in.nodes = append(in.nodes, redis.NewClient(&redis.Options{
			Addr: addr(port), Protocol: 2, DisableIdentity: true, MaxRetries: -1, ReadTimeout: time.Minute,
			DialerRetries: 1,
		}))
	}
}

func startNeoKV(ctx context.Context, x *bench, t peerTarget, s start, in *instance) error {
	program, where := x.neokv, []string{"--dir", filepath.Join(in.dir, "data")}
	if s.memory {
		where = []string{"--mem"}
	}
	args := append([]string{"serve", "--port", "0", "--stores", "3", "--replicas", "3", "--regions",
		strconv.Itoa(t.regions)}, where...)
	if t.name == "before" {
		program = x.before
	} else {
		for _, set := range x.set {
			args = append(args, "--set", set)
		}
	}
	args = append(args, t.serve...)
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	line, err := in.spawn(ctx, "NEOKV_READY", program, args...)
	if err != nil {
		return err
	}
	for _, field := range strings.Fields(line) {
		if list, ok := strings.CutPrefix(field, "ports="); ok {
			for _, text := range strings.Split(list, ",") {
				port, err := strconv.Atoi(text)
				if err != nil {
					return fmt.Errorf("%s: %w", line, err)
				}
				in.connect(port)
			}
		}
		if port, ok := strings.CutPrefix(field, "proxy="); ok {
			in.proxy = "127.0.0.1:" + port
		}
	}
	return nil
}

// redisServer starts a redis-server and does not wait for it.
func redisServer(ctx context.Context, in *instance, s start, port int, more ...string) error {
	appendonly := "yes"
	if s.memory {
		appendonly = "no"
	}
	_, err := in.spawn(ctx, "", "redis-server",
		append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "",
			"--appendonly", appendonly, "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
			"--repl-diskless-sync-delay", "0"}, more...)...)
	in.connect(port)
	return err
}

func startRedis(ctx context.Context, _ *bench, _ peerTarget, s start, in *instance) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	return redisServer(ctx, in, s, ports[0])
}

// startRedisCluster does what redis-cli --cluster create does, but without its pauses: slots, epochs, acquaintance,
// replicas.
func startRedisCluster(ctx context.Context, _ *bench, _ peerTarget, s start, in *instance) error {
	ports, err := freePorts(12)
	if err != nil {
		return err
	}
	for i := range 6 {
		more := []string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(ports[6+i])}
		if s.nodeTimeout > 0 {
			more = append(more, "--cluster-node-timeout", strconv.FormatInt(s.nodeTimeout.Milliseconds(), 10))
		}
		if err := redisServer(ctx, in, s, ports[i], more...); err != nil {
			return err
		}
	}
	const masters = 3
	var ids []string
	for i, c := range in.nodes {
		if err := await(ctx, "redis-server", func() error { return c.Ping(ctx).Err() }); err != nil {
			return err
		}
		p := c.Pipeline()
		id := p.Do(ctx, "CLUSTER", "MYID")
		p.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i < masters {
			p.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", i*16384/masters, (i+1)*16384/masters-1)
		}
		if i > 0 {
			p.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", ports[0], ports[6])
		}
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
		ids = append(ids, id.Val().(string))
	}
	for i, c := range in.nodes[masters:] {
		if err := await(ctx, "replicate", func() error {
			return c.Do(ctx, "CLUSTER", "REPLICATE",
				ids[i]).Err()
		}); err != nil {
			return err
		}
	}
	for _, c := range in.nodes {
		err := await(ctx, "join", func() error {
			info, err := c.ClusterInfo(ctx).Result()
			if err == nil && !(strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_known_nodes:6")) {
				err = errors.New(info)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, c := range in.nodes[masters:] {
		err := await(ctx, "follow", func() error {
			f, err := infoFields(ctx, c, "replication")
			if err == nil && f["master_link_status"] != "up" {
				err = errors.New("link is " + f["master_link_status"])
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func startRedcon(ctx context.Context, _ *bench, _ peerTarget, _ start, in *instance) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = in.spawn(ctx, "", self, "redcon", "--port", strconv.Itoa(ports[0]))
	in.connect(ports[0])
	return err
}

func startEtcd(ctx context.Context, x *bench, _ peerTarget, _ start, in *instance) error {
	ports, err := freePorts(6)
	if err != nil {
		return err
	}
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("n%d=http://%s", i, addr(ports[3+i])))
	}
	for i := range 3 {
		client, peer := "http://"+addr(ports[i]), "http://"+addr(ports[3+i])
		_, err := in.spawn(ctx, "", x.etcd, "--name", fmt.Sprintf("n%d", i), "--data-dir", "data", "--log-level",
			"error",
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(members, ","), "--quota-backend-bytes", strconv.Itoa(8<<30))
		if err != nil {
			return err
		}
		in.addrs = append(in.addrs, addr(ports[i]))
	}
	for i := range etcdConnections {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{in.addrs[i%3]}, DialTimeout: 10 * time.Second,
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
