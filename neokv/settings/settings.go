// Package settings holds every knob of a cluster as fields of one struct. A knob has one name everywhere: in profiles,
// in --set, in the environment, in results and in messages. The name is made of the `key` tags on the way down the
// struct, joined with dots. The tag `help` says what the knob does and in which unit; `min`, `max` and `oneof` say
// which values are allowed. `shapes` marks settings that data keeps the form of: data that was written before a change
// stays as it is.
package settings

import (
	"time"

	"neokv.dev/neokv/internal/announce"
)

// Settings are all knobs and constants of a cluster. The zero value is not valid: begin with Default.
type Settings struct {
	Cluster ClusterKnobs `key:"cluster"`
	Members MemberKnobs  `key:"cluster"`
	Engine  EngineKnobs  `key:"engine"`
	Raft    RaftKnobs    `key:"raft"`
	Region  RegionKnobs  `key:"region"`
	Balance BalanceKnobs `key:"balance"`
	Redis   RedisKnobs   `key:"redis"`
}

// ClusterKnobs is the cluster's shape. The first start records it in the data folder.
type ClusterKnobs struct {
	Stores   int `key:"stores" shapes:"data" min:"1" max:"9" help:"logical store nodes"`
	Replicas int `key:"replicas" shapes:"data" min:"1" max:"9" help:"replicas of each region, at most one per store"`
	Regions  int `key:"regions" shapes:"data" min:"1" max:"1024" help:"regions that the 16384 slots are split into at first boot"`
}

// MemberKnobs are knobs of the cluster that no folder records.
type MemberKnobs struct {
	StoreDownAfter time.Duration `key:"store_down_after" min:"0s" max:"1000h" help:"how long a store is down until it counts as gone, and its replicas are made anew on other stores; 0s for never"`
}

// EngineKnobs are the knobs of storage. Sizes of memory are for the whole process, which divides them between the
// stores.
type EngineKnobs struct {
	MemtableSize          Bytes  `key:"memtable_size" min:"1MiB" max:"16GiB" help:"memory for the memtables of the process; each store's memtable has its share, less up to 3/8, so that not all are full at once"`
	MemtableCount         int    `key:"memtable_count" min:"2" max:"32" help:"memtables per store, queued for flush included, before writes stall"`
	BloomBits             int    `key:"bloom_bits" shapes:"data" min:"0" max:"32" help:"bloom filter bits per key, 0 for no filters"`
	BloomPrefix           string `key:"bloom_prefix" shapes:"data" oneof:"region,collection,key" help:"how much of a key the bloom filters see"`
	BlockCache            Bytes  `key:"block_cache" min:"1MiB" max:"1TiB" help:"block cache of the process, memtables not included"`
	RowCache              Bytes  `key:"row_cache" min:"0" max:"1TiB" help:"row cache of the process: the records that leaders wrote or read last; commands that read a single key find them without asking Pebble; 0 for none"`
	BlockSize             Bytes  `key:"block_size" shapes:"data" min:"1KiB" max:"1MiB" help:"size of a data block before compression"`
	L0Compaction          int    `key:"l0_compaction" min:"1" max:"100" help:"a compaction of L0 starts when it has half as many sublevels"`
	L0Stop                int    `key:"l0_stop" min:"2" max:"1000" help:"L0 sublevels at which writes stop"`
	CompactionConcurrency int    `key:"compaction_concurrency" min:"1" max:"64" help:"compactions at once in the process, at least one per store"`
	TargetFileSize        Bytes  `key:"target_file_size" shapes:"data" min:"64KiB" max:"4GiB" help:"size of a table in L0; it doubles per level"`
	LevelBase             Bytes  `key:"level_base" shapes:"data" min:"1MiB" max:"64GiB" help:"bytes in the base level before it is compacted"`
	Compression           string `key:"compression" shapes:"data" oneof:"none,snappy,minlz,zstd,tiered" help:"block compression of data, tiered: none in the upper two levels, zstd at the bottom, minlz between; the Raft log is never compressed harder than snappy"`
	OpenFiles             int    `key:"open_files" min:"128" max:"1000000" help:"tables kept open in the process, at least 128 per store"`
	WALSync               string `key:"wal_sync" oneof:"always,none" help:"whether a write is on disk before it is acknowledged"`
	SharedSync            bool   `key:"shared_sync" help:"true: one sync makes the write-ahead logs of all stores of the process durable, through a journal that they share; false: a sync each"`
	WALDir                string `key:"wal_dir" help:"folder on another disk for the write-ahead logs, empty to keep them beside the data; recorded in the data folder at first boot"`
	DiskReserve           Bytes  `key:"disk_reserve" min:"0" max:"1TiB" help:"free space that a store keeps on its disk beside what flushes need; at most an eighth of the disk, of a small one 32MiB or a third: with less left the store hands its leaders away and takes no more writes; 0 for none"`
	Durable               bool   `key:"durable" help:"true: refuse all that could lose acknowledged writes: data in memory or in a temporary folder, engine.wal_sync none"`
}

// RaftKnobs are the knobs of replication, and of how writes share log entries.
type RaftKnobs struct {
	BatchMaxOps     int           `key:"batch_max_ops" min:"1" max:"65536" help:"commands in one Raft entry"`
	BatchMaxBytes   Bytes         `key:"batch_max_bytes" min:"1KiB" max:"64MiB" help:"bytes of commands in one Raft entry; a command larger than that has an entry of its own"`
	BatchMaxDelay   time.Duration `key:"batch_max_delay" min:"0s" max:"100ms" help:"after an entry with writes of four connections or more, how long the next entry waits at most for these connections to write again, but never longer than that entry took; 0s: it never waits"`
	MaxInflight     int           `key:"max_inflight" min:"1" max:"32" help:"entries of a region proposed and not yet applied"`
	ReadSets        bool          `key:"read_sets" help:"true: a leader looks up what the writes of an entry need and sends it along, so that other replicas need not; only while no other entry of the region is in flight"`
	RTT             time.Duration `key:"rtt" min:"1ms" max:"1s" help:"length of a Raft tick, whole milliseconds"`
	ElectionTicks   int           `key:"election_ticks" min:"5" max:"1000" help:"ticks without a leader before a replica campaigns"`
	LeaderReturn    time.Duration `key:"leader_return" min:"0s" max:"24h" help:"how long the store that led a region at first must be well again before it leads the region again; 0s for never"`
	SnapshotEntries int           `key:"snapshot_entries" min:"10" max:"10000000" help:"entries applied between two snapshot records of a replica; each lets its log be cut"`
	Transport       string        `key:"transport" oneof:"memory,tcp" help:"how stores of one process reach each other"`

	RaftConstants
}

// RegionKnobs say when regions are split and merged without a command, and how fast replicas move.
type RegionKnobs struct {
	MaxBytes   Bytes `key:"max_bytes" min:"0" max:"1TiB" help:"a region with more bytes than this in the tables of a store is split; 0 for no splits by size"`
	MergeBytes Bytes `key:"merge_bytes" min:"0" max:"1TiB" help:"two neighbours that are quiet and together smaller than this are merged, but never below cluster.regions regions; at most a quarter of max_bytes; 0 for no merges"`
	SplitLoad  int   `key:"split_load" min:"0" max:"1000000000" help:"a region with more commands per second than this is split; 0 for no splits by load"`
	MoveRate   Bytes `key:"move_rate" min:"0" max:"1TiB" help:"bytes per second of region snapshots that a store sends, to replicas that join or were away, all together; 0 for no limit"`
}

// BalanceKnobs say what of the cluster's plan is carried out without a command.
type BalanceKnobs struct {
	Replicas bool `key:"replicas" help:"true: replicas move between stores by themselves, until these have equally many bytes, regions have cluster.replicas replicas in different zones, and each store is the home of its share; false: only replicas of stores that are gone or draining move"`
}

// The values of redis.unknown_outcome.
const (
	CloseUnknown = "close"
	ErrorUnknown = "error"
)

// RedisKnobs are the knobs of what clients see: connections, routing, expiry and limits.
type RedisKnobs struct {
	ClusterEnabled bool          `key:"cluster_enabled" help:"false: stores take any key and pass commands on instead of redirecting"`
	LeaderlessWait time.Duration `key:"leaderless_wait" min:"0s" max:"60s" help:"how long a command may wait for its region to have a leader, and for Raft"`
	UnknownOutcome string        `key:"unknown_outcome" oneof:"close,error" help:"what a client gets for a write of which nobody knows whether it was made, or will be: close: its connection is closed, as by a Redis that dies; error: -ERR write outcome unknown"`
	CommandTime    time.Duration `key:"command_time" min:"0s" max:"24h" help:"how long a command that only reads may take; beyond, it is ended and answered with an error; 0s for no limit"`
	StandIn        bool          `key:"stand_in" help:"true: the address of a store that is down redirects clients; false: it refuses connections, as that of a dead Redis does"`
	FollowerRead   bool          `key:"follower_read" help:"true: each store has a second address, at which it is a replica of the regions that it follows, and serves reads of these to connections that sent READONLY"`
	MaxClients     int           `key:"max_clients" min:"1" max:"1000000" help:"connections per listener"`
	MaxBulkLen     Bytes         `key:"max_bulk_len" min:"1MiB" max:"512MiB" help:"longest argument of a command"`

	ScriptSteps int   `key:"script_steps" min:"1000" max:"1000000000" help:"instructions of one script; memory, and what its calls read and write, count, too; beyond, the script is ended and what it wrote undone"`
	ScriptBytes Bytes `key:"script_bytes" min:"64KiB" max:"1GiB" help:"bytes of strings and tables that one script makes, replies to its calls included, also of those that it no longer uses; beyond, the script is ended and undone"`
	ScriptCalls int   `key:"script_calls" min:"1" max:"10000000" help:"commands that one script calls, for what they change takes memory on each store, up to some 450 bytes for each; beyond, the script is ended and undone"`

	RequirePass string `key:"requirepass" secret:"true" help:"password that clients give with AUTH, empty for none; a cluster needs one to listen beyond loopback"`

	ClusterAnnounce              string `key:"cluster_announce" help:"addresses that clients are told: HOST:PORT, for each store with commas between, or for all with {n} or {port} in it; behind outside= or NETWORK= for clients from there; empty for the address at which a client has come in, and the ports listened on"`
	ClusterAnnounceHostname      string `key:"cluster_announce_hostname" help:"host names that clients are told beside the addresses: one for all stores, also with {n} in it, or one for each with commas between; empty for none"`
	ClusterPreferredEndpointType string `key:"cluster_preferred_endpoint_type" oneof:"ip,hostname,unknown-endpoint" help:"whether clients are sent to the address, to the host name, or to a port of the host that they know"`

	ExpireInterval time.Duration `key:"expire_interval" min:"0s" max:"24h" help:"how often the leader of a region looks through the next 1000 of its keys and deletes those that have expired; 0s for never"`

	QueryBufferLimit      Bytes         `key:"query_buffer_limit" min:"1MiB" max:"64GiB" help:"bytes of one command that a client may send; beyond, its connection is closed"`
	OutputBufferLimit     Bytes         `key:"output_buffer_limit" min:"0" max:"64GiB" help:"bytes of replies that a client without subscriptions may leave unread; beyond, its connection is closed; 0 for no limit"`
	OutputBufferSoftLimit Bytes         `key:"output_buffer_soft_limit" min:"0" max:"64GiB" help:"bytes of replies that a client without subscriptions may leave unread for output_buffer_soft_time; 0 for no limit"`
	OutputBufferSoftTime  time.Duration `key:"output_buffer_soft_time" min:"0s" max:"24h" help:"how long a client may exceed output_buffer_soft_limit"`
	PubsubBufferLimit     Bytes         `key:"pubsub_buffer_limit" min:"0" max:"64GiB" help:"bytes of messages and replies that a client with subscriptions may leave unread; beyond, its connection is closed; 0 for no limit"`
	PubsubBufferSoftLimit Bytes         `key:"pubsub_buffer_soft_limit" min:"0" max:"64GiB" help:"bytes of messages and replies that a client with subscriptions may leave unread for pubsub_buffer_soft_time; 0 for no limit"`
	PubsubBufferSoftTime  time.Duration `key:"pubsub_buffer_soft_time" min:"0s" max:"24h" help:"how long a client may exceed pubsub_buffer_soft_limit"`
	ClientMemory          Bytes         `key:"client_memory" min:"0" max:"1TiB" help:"bytes that all clients of the process hold in buffers; beyond, the connections that hold most are closed; 0 for no limit"`
	TrackingTableMaxKeys  int           `key:"tracking_table_max_keys" min:"0" max:"1000000000" help:"keys that clients of a port have read and may cache (CLIENT TRACKING); beyond, the clients of some keys are told that these have changed; 0 for no bound"`
	NotifyKeyspaceEvents  string        `key:"notify_keyspace_events" help:"events of keys that are published, as Redis names their classes: K and E for the channels, g$lshzxnm or A for the events; empty for none"`
	Timeout               time.Duration `key:"timeout" min:"0s" max:"87600h" help:"how long a connection may be idle, whole seconds; 0 for ever"`
	TCPKeepalive          time.Duration `key:"tcp_keepalive" min:"0s" max:"24h" help:"silence after which a client's machine is probed, whole seconds; 0 for never"`

	RedisConstants
}

// RaftConstants are values that nobody needs to tune, so they have no key. Tests make them small.
type RaftConstants struct {
	// SnapshotBytes is how many bytes of entries a replica applies before it takes the next snapshot record, if
	// raft.snapshot_entries does not come first. With 64 MiB a restart reads a short log even if its entries are large.
	SnapshotBytes Bytes
	// CompactionOverhead is how many entries before a snapshot record stay in the log, for followers that are a little
	// behind. With 2000 a follower that was away for a moment needs no snapshot.
	CompactionOverhead int
}

// RedisConstants are values that nobody needs to tune, so they have no key. Tests make them small.
type RedisConstants struct {
	// CountTime is how long DBSIZE, INFO keyspace and RANDOMKEY may count keys. They estimate the number of keys that
	// they have not reached by then. With 200 ms a dashboard still gets its answer in time.
	CountTime time.Duration
	// MaxHeldBytes bounds the bytes of commands that a server holds while they wait for a leader. Beyond it the server
	// answers such commands at once. 64 MiB are 10,000 clients with 6 KiB each.
	MaxHeldBytes Bytes
	// ExpireKeys is how many keys of a region the leader checks for expiry in each ExpireInterval.
	ExpireKeys int
	// ExpireSample is how many keys the leader checks besides, from a random place on where some may have expired; it
	// goes on while many have. Redis does the same with 20. 0 turns samples off.
	ExpireSample int
	// ReclaimKeys is about how many elements of deleted collections a store deletes in one step, which is one batch of
	// the engine.
	ReclaimKeys int
	// ReclaimRange is how many elements a deleted collection must have for a store to delete them with one range
	// deletion, and not one by one. A range deletion slows down reads of its memtable, so small collections do not get
	// one.
	ReclaimRange int
	// ReclaimRest is how long a store rests after each step, as a multiple of the step's time. With 7, deleting takes
	// an eighth of a core at most.
	ReclaimRest int
}

// Constants returns settings in which only the constants are set.
func Constants() (s Settings) {
	s.Raft.RaftConstants = RaftConstants{SnapshotBytes: 64 << 20, CompactionOverhead: 2000}
	s.Redis.RedisConstants = RedisConstants{
		CountTime: 200 * time.Millisecond, MaxHeldBytes: 64 << 20, ExpireKeys: 1000, ExpireSample: 64,
		ReclaimKeys: 1024, ReclaimRange: 1000, ReclaimRest: 7,
	}
	return s
}

// Lease returns how long a leader may answer reads after a read index round, without another round. It is two ticks and
// 20 ms shorter than the shortest election time-out. If the settings leave no room it is 0, and every read takes a
// round.
func (r RaftKnobs) Lease() time.Duration {
	return max(0, time.Duration(r.ElectionTicks-2)*r.RTT-20*time.Millisecond)
}

// Default returns the settings of the profile `default`: on disk, synced, for a laptop.
func Default() Settings {
	s := Constants()
	s.Cluster = ClusterKnobs{Stores: 3, Replicas: 3, Regions: 8}
	s.Members = MemberKnobs{StoreDownAfter: 30 * time.Minute}
	s.Engine = EngineKnobs{
		MemtableSize: 48 << 20, MemtableCount: 4, BloomBits: 10, BloomPrefix: "key",
		BlockCache: 256 << 20, RowCache: 64 << 20, BlockSize: 16 << 10, L0Compaction: 16, L0Stop: 64,
		CompactionConcurrency: 3, TargetFileSize: 4 << 20, LevelBase: 64 << 20, Compression: "snappy", OpenFiles: 1024,
		WALSync: "always", SharedSync: true, DiskReserve: 256 << 20,
	}
	s.Raft = RaftKnobs{
		BatchMaxOps: 512, BatchMaxBytes: 256 << 10, BatchMaxDelay: 3 * time.Millisecond, MaxInflight: 1, ReadSets: true,
		RTT: 30 * time.Millisecond, ElectionTicks: 10, LeaderReturn: 5 * time.Second, Transport: "memory", SnapshotEntries: 10000,
		RaftConstants: s.Raft.RaftConstants,
	}
	s.Region = RegionKnobs{MaxBytes: 4 << 30, MoveRate: 64 << 20}
	s.Redis = RedisKnobs{
		ClusterEnabled: true, LeaderlessWait: 2 * time.Second, UnknownOutcome: CloseUnknown, StandIn: true, MaxClients: 10000,
		MaxBulkLen: 512 << 20, ScriptSteps: 1_000_000, ScriptBytes: 32 << 20, ScriptCalls: 100_000,
		ClusterPreferredEndpointType: announce.IP, ExpireInterval: time.Minute, QueryBufferLimit: 1 << 30,
		PubsubBufferLimit: 32 << 20, PubsubBufferSoftLimit: 8 << 20, PubsubBufferSoftTime: time.Minute,
		TrackingTableMaxKeys: 1_000_000, ClientMemory: 512 << 20,
		TCPKeepalive: 300 * time.Second, RedisConstants: s.Redis.RedisConstants,
	}
	return s
}
