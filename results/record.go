// Package results has the results of a benchmark: the result file, the table on the screen, and the facts about the
// machine without which a figure means nothing. It knows nothing of how load is made.
package results

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Format is the version of the result files that this package writes and reads. It changes when a reader of the version
// before would refuse or misread a newer file; a new field does not change it.
const Format = 4

// Header is the first line of a result file: all that is needed to repeat the run and to judge it. It says what was in
// force when the cluster had booted and before the load began. What changes during a run, such as process_procs, is in
// the intervals.
type Header struct {
	Format  int       `json:"format"`
	Started time.Time `json:"started"`

	// What was run. The caller fills these in, and leaves out what is secret. Profile and Settings are those of a
	// cluster that was booted for the run.
	Command  []string          `json:"command,omitempty"` // the command line
	Profile  string            `json:"profile,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`

	// The load that was asked for, with its defaults filled in.
	Groups   []ClientGroup `json:"groups"`
	Duration time.Duration `json:"duration_ns"` // of the measured part
	Warmup   time.Duration `json:"warmup_ns"`
	Seed     uint64        `json:"seed"`
	Verify   bool          `json:"verify,omitempty"`
	Schedule *Schedule     `json:"schedule,omitempty"` // what the run does beside the load
	Search   string        `json:"search,omitempty"`   // how it looks for rates, "" if it does not
	// LoadedBefore is set if the run found the records that another one has loaded.
	LoadedBefore bool `json:"loaded_before,omitempty"`

	// On what. NewHeader fills in Build and Machine, the run fills in Target.
	Build   Build        `json:"build"`
	Machine Machine      `json:"machine"`
	Cluster ClusterShape `json:"cluster"`
	Target  Target       `json:"target"`
}

// ClientGroup is a group of clients that send the same load. The groups of a run send at the same time.
type ClientGroup struct {
	Name       string   `json:"name"`
	Workload   string   `json:"workload"`
	Content    *Content `json:"content,omitempty"` // of the file of the workload, the recording or the commands
	Keys       string   `json:"keys"`              // the distribution of keys
	Clients    int      `json:"clients"`
	Pipeline   int      `json:"pipeline"`
	Operations int      `json:"operations,omitempty"` // of all clients together; 0 is as many as the time allows
	OneNode    bool     `json:"one_node,omitempty"`   // the operations of a pipeline go to one node of a cluster
	OneSlot    bool     `json:"one_slot,omitempty"`   // they are about keys of one slot
	Rate       string   `json:"rate"`                 // of all clients of the group together; "" for a closed loop
	Records    uint64   `json:"records"`
	Elements   int      `json:"elements,omitempty"` // elements of a record that is a collection
	ValueBytes string   `json:"value_bytes"`        // sizes of values, "" if nothing has a value
}

// OpenLoop reports whether the clients sent operations on a schedule.
func (g ClientGroup) OpenLoop() bool { return g.Rate != "" }

// Build says which program measured.
type Build struct {
	Version  string            `json:"version"`
	Commit   string            `json:"commit,omitempty"`
	Modified bool              `json:"modified,omitempty"` // the tree had uncommitted changes
	Go       string            `json:"go"`
	Modules  map[string]string `json:"modules,omitempty"`
}

// Machine says what the program ran on, and how much of it the program's Go runtime used: with a target that runs
// elsewhere that is the load generator's. In a container these are the container's figures where the system shows them.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	GOMAXPROCS  int    `json:"gomaxprocs,omitempty"`
	GCPercent   int    `json:"gc_percent,omitempty"` // GOGC
	MemoryBytes uint64 `json:"memory_bytes"`
	OS          string `json:"os"`
	Kernel      string `json:"kernel"`
	Arch        string `json:"arch"`
}

// ClusterShape describes the cluster that this process booted for the run. It is zero for a target that ran already.
type ClusterShape struct {
	InProcess bool       `json:"in_process"`
	Stores    int        `json:"stores,omitempty"`
	Replicas  int        `json:"replicas,omitempty"`
	Regions   int        `json:"regions,omitempty"`
	Sync      string     `json:"sync,omitempty"`      // engine.wal_sync
	Transport string     `json:"transport,omitempty"` // raft.transport
	InMemory  bool       `json:"in_memory,omitempty"`
	Data      DataFolder `json:"data,omitzero"`
	Logs      DataFolder `json:"logs,omitzero"` // of the write-ahead logs, if they are apart from the data
}

// Synced returns the folder whose syncs a write waits for.
func (c ClusterShape) Synced() DataFolder {
	if c.Logs != (DataFolder{}) {
		return c.Logs
	}
	return c.Data
}

// Target says what answered.
type Target struct {
	Addrs   []string `json:"addrs"` // as given
	Nodes   []string `json:"nodes"` // as found out
	Cluster bool     `json:"cluster"`
	Version string   `json:"version"` // redis_version of INFO
	// Info holds more fields of the target's INFO: of NeoKV what is in force there, such as its shape and wal_sync; of
	// a Redis whether it keeps an append-only file, and how it syncs that.
	Info map[string]string `json:"info,omitempty"`
}

// NeoKV reports whether the target is a NeoKV.
func (t *Target) NeoKV() bool { return t.Info["neokv_version"] != "" }

// Kind says what the target is, without what differs from one build to the next, or from one hour to the next: its
// version, and the regions of a NeoKV.
func (t *Target) Kind() string {
	if !t.NeoKV() {
		return t.product()
	}
	return fmt.Sprintf("NeoKV with %s stores and %s replicas, %s transport", t.Info["stores"], t.Info["replicas"],
		t.Info["raft_transport"])
}

// product names the program that answered, without its version.
func (t *Target) product() string {
	name := "Redis"
	switch {
	case t.NeoKV():
		return "NeoKV"
	case t.Info["server_name"] == "valkey":
		name = "Valkey"
	}
	if t.Cluster {
		return name + " Cluster of " + Plural(int64(len(t.Nodes)), "node")
	}
	return name
}

// version is that of the product.
func (t *Target) version() string {
	return cmp.Or(t.Info["neokv_version"], t.Info["valkey_version"], t.Version)
}

// notDurable is NotDurable of a target that ran already.
func (t *Target) notDurable() string {
	switch {
	case t.NeoKV() && t.Info["in_memory"] == "1":
		return "in memory"
	case t.Info["wal_sync"] == "none":
		return "sync none"
	case t.Info["aof_enabled"] == "0":
		return "no append-only file"
	case t.Info["appendfsync"] != "" && t.Info["appendfsync"] != "always":
		return "appendfsync " + t.Info["appendfsync"]
	}
	return ""
}

// Durability says when an acknowledged write outlives a power failure, "" if that is not known.
func (h *Header) Durability() string {
	c, info := h.Cluster, h.Target.Info
	switch why := h.NotDurable(); {
	case why != "":
		return "not durable (" + why + ")"
	case c.InProcess:
		return "sync " + c.Sync + " on " + c.Synced().FileSystem
	case h.Target.NeoKV():
		return "sync " + info["wal_sync"]
	case info["appendfsync"] != "":
		return "appendfsync " + info["appendfsync"]
	}
	return ""
}

// NotDurable returns why a power failure could take an acknowledged write away. It is empty if that cannot happen, or
// if it is not known.
func (h *Header) NotDurable() string {
	c := h.Cluster
	switch {
	case !c.InProcess:
		return h.Target.notDurable()
	case c.InMemory:
		return "in memory"
	case c.Sync == "none":
		return "sync none"
	case c.Data.RAMDisk():
		return c.Data.FileSystem + " is a RAM disk"
	case c.Logs.RAMDisk():
		return c.Logs.FileSystem + " of the logs is a RAM disk"
	}
	return ""
}

// Phases of a run, in their order.
const (
	PhaseLoad   = "load"
	PhaseWarmup = "warmup"
	PhaseStep   = "step" // of a curve
	PhaseRun    = "run"
	PhaseVerify = "verify"
)

// Interval is a second of a phase, or longer in a long run; the first and the last one may be shorter. An operation
// belongs to the interval in which its reply came.
type Interval struct {
	Phase     string        `json:"phase"`
	At        time.Time     `json:"at"`             // when it ended
	Since     float64       `json:"since"`          // seconds from the phase's start to its own
	Seconds   float64       `json:"seconds"`        // its length
	Groups    []GroupStats  `json:"groups"`         // in the header's order
	Work      Work          `json:"work,omitempty"` // what the target did meanwhile
	Generator GeneratorLoad `json:"generator,omitzero"`
	Events    []Event       `json:"events,omitempty"` // what the schedule of the run did
}

// GroupStats are the figures of one group of clients.
type GroupStats struct {
	Name   string `json:"name"`
	Ledger Ledger `json:"ledger"`
	Incidents
	Ops   []OpStats `json:"ops"`
	Total OpStats   `json:"total"`
	// Waited counts the operations of an open loop that were due while all clients were busy. Wait is how long these
	// waited until one was free, which their response times have in them.
	Waited int64    `json:"waited,omitempty"`
	Wait   *Latency `json:"wait,omitempty"`
	// Messages says what subscribers got of what the group published, nil where nobody subscribed.
	Messages *Messages `json:"messages,omitempty"`
	// PushToPop says how long elements took through the lists of the group, nil where nothing was pushed and popped.
	PushToPop *PushToPop `json:"push_to_pop,omitempty"`
}

// PushToPop says how long elements took that were pushed in the measured part and popped there, by the same group.
type PushToPop struct {
	Elements int64 `json:"elements"`
	// Time is from the planned start of the push, in a closed loop from its send, to the reply of the pop.
	Time Latency `json:"time"`
}

// Messages says what became of messages, in the measured part. A message is due at each subscriber of its channel if
// its PUBLISH was answered without error.
type Messages struct {
	Subscribers int   `json:"subscribers"`
	Channels    int   `json:"channels"`
	Due         int64 `json:"due"`
	Received    int64 `json:"received"`
	Lost        int64 `json:"lost,omitempty"` // not received a second after the end
	Odd         int64 `json:"odd,omitempty"`  // came twice, or behind a later one of the same client
	// Time is from the planned start of PUBLISH, in a closed loop from its send, to the receipt by a subscriber.
	Time Latency `json:"time"`
}

// Ledger says where operations went. Of a whole run, Offered = OK + Errors + Unknown + Dropped + InFlight. Of an
// interval, Offered and the InFlight of the interval before are that sum.
type Ledger struct {
	// Offered counts operations that were due by the schedule of an open loop, or begun in a closed loop.
	Offered int64 `json:"offered"`
	OK      int64 `json:"ok"`                // answered without error
	Errors  int64 `json:"errors"`            // failed, and took no effect
	Unknown int64 `json:"unknown,omitempty"` // sent, and nobody knows whether they took effect
	Dropped int64 `json:"dropped,omitempty"` // never sent, since the run ended before
	// InFlight counts operations that were offered and had not ended at the end of the span. Behind counts those of
	// them that were due and not sent.
	InFlight int64 `json:"in_flight,omitempty"`
	Behind   int64 `json:"behind,omitempty"`
}

// Balance returns what is missing from a ledger that begins with so many operations in flight: 0 if it adds up.
func (l Ledger) Balance(inFlight int64) int64 {
	return inFlight + l.Offered - l.OK - l.Errors - l.Unknown - l.Dropped - l.InFlight
}

// Add takes in the ledger of the span that follows.
func (l *Ledger) Add(next Ledger) {
	l.Offered += next.Offered
	l.OK += next.OK
	l.Errors += next.Errors
	l.Unknown += next.Unknown
	l.Dropped += next.Dropped
	l.InFlight, l.Behind = next.InFlight, next.Behind
}

// GeneratorLoad says what the load generator cost, and whether it kept up.
type GeneratorLoad struct {
	// Cores is how many cores the process of the generator used on average. Where that process also runs the cluster,
	// it has the cluster's share, too.
	Cores float64 `json:"cores"`
	// Busy is the share of the machine's cores that were busy with anything, from 0 to 1.
	Busy float64 `json:"busy"`
	// Late is how much later than intended operations of an open loop left, where their client waited for nothing else.
	Late *Latency `json:"late,omitempty"`
}

// Event is something that the schedule of a run did.
type Event struct {
	At      float64 `json:"at"` // seconds from the start of the measured part
	Do      string  `json:"do"`
	Outcome string  `json:"outcome,omitempty"` // what has come of it, if Do does not tell
	Error   string  `json:"error,omitempty"`
}

// Incidents counts what happened besides good answers.
type Incidents struct {
	// Kinds counts failed operations by kind: the first word of an error reply; "unknown outcome"; or what happened to
	// the connection: "connect", "connection", "timeout", "protocol".
	Kinds map[string]int64 `json:"errors_by_kind,omitempty"`
	// Moved and Asked count redirections that clients followed, and Retried operations that they sent again. Those are
	// no errors.
	Moved   int64 `json:"moved,omitempty"`
	Asked   int64 `json:"asked,omitempty"`
	Retried int64 `json:"retried,omitempty"`
}

// OpStats are the figures of one kind of operation, or of all together. The operations that were due are those of
// Count, Errors and Unanswered.
type OpStats struct {
	Name      string  `json:"name"`
	Count     int64   `json:"count"`           // answered without error
	Errors    int64   `json:"errors"`          // answered with an error, or never sent for want of a connection
	Misses    int64   `json:"misses"`          // how many of Count were answered with null or an empty array
	Reads     bool    `json:"reads,omitempty"` // it only reads, so an answer is a hit or a miss
	PerSecond float64 `json:"per_second"`
	// Unanswered counts operations that were due and had no answer when their time was over: of unknown outcome, in
	// flight at the end, and in an open loop those that were dropped.
	Unanswered int64 `json:"unanswered,omitempty"`
	// Service counts from the send, so it has no operation that was never sent. Response counts from the intended
	// start; only an open loop has it.
	Service  Latency  `json:"service"`
	Response *Latency `json:"response,omitempty"`
}

// Due returns how many operations were due.
func (op *OpStats) Due() int64 { return op.Count + op.Errors + op.Unanswered }

// Latency returns the latency to look at: response time in an open loop, else service time.
func (op *OpStats) Latency() *Latency {
	if op.Response != nil {
		return op.Response
	}
	return &op.Service
}

// Latency has the figures of a Distribution.
type Latency struct {
	Mean float64  `json:"mean_us"` // no more than the true one if Censored is not 0
	P50  Quantile `json:"p50"`
	P95  Quantile `json:"p95"`
	P99  Quantile `json:"p99"`
	P999 Quantile `json:"p999"`
	Max  Quantile `json:"max"`
	// Censored counts operations without a good answer. They are in all figures with the time that they had waited.
	Censored int64 `json:"censored,omitempty"`
	// HDR and CensoredHDR are the histograms of the Distribution, V2 compressed and base64. The total of several
	// operations has none.
	HDR         string `json:"hdr,omitempty"`
	CensoredHDR string `json:"censored_hdr,omitempty"`
}

// Summary is the last line.
type Summary struct {
	Seconds   float64        `json:"seconds"` // of the measured part: warm-up excluded
	Groups    []GroupSummary `json:"groups"`
	Work      Work           `json:"work,omitempty"` // what the target did in the measured part
	Generator GeneratorLoad  `json:"generator,omitzero"`
	Events    []Event        `json:"events,omitempty"`
	// Warmup says how long the warm-up took, where the run found its end from the data.
	Warmup float64 `json:"warmup,omitempty"`
	// Warnings says what a reader must know before believing the figures.
	Warnings []string `json:"warnings,omitempty"`
	// Interrupted says that the user ended the run early. Failure says why a run could not go on.
	Interrupted bool   `json:"interrupted,omitempty"`
	Failure     string `json:"failure,omitempty"`
	// FirstErrors holds the first message of each kind of error.
	FirstErrors map[string]string `json:"first_errors,omitempty"`
	// Curve has the rates that a run tried, where it tried several.
	Curve *Curve `json:"curve,omitempty"`
	// NoAnswer is the longest time in the measured part, in us, in which no operation of any group had a good answer.
	NoAnswer int64 `json:"no_answer_us,omitempty"`
	// Nodes are the figures of the nodes of a cluster over the measured part.
	Nodes []NodeStats `json:"nodes,omitempty"`
	// SLO says what the measured part had to hold, nil for nothing. A curve has an SLO of its own.
	SLO *SLO `json:"slo,omitempty"`
}

// NodeStats are the figures of one node of a cluster. An operation belongs to the node that it was sent to last.
type NodeStats struct {
	Addr       string  `json:"addr"`
	Slots      int     `json:"slots"` // that it served in the end
	PerSecond  float64 `json:"per_second"`
	Count      int64   `json:"count"` // answered without error
	Errors     int64   `json:"errors"`
	Unanswered int64   `json:"unanswered"` // sent, without an answer in time
	Mean       float64 `json:"service_mean_us"`
	Max        int64   `json:"service_max_us"` // of the answers
	NoAnswer   int64   `json:"no_answer_us"`   // the longest time without a good answer
}

// SLO is what the measured part of a run had to hold, and whether it did.
type SLO struct {
	Text   string `json:"text"`             // as the user wrote it, with the bound of errors
	Broken string `json:"broken,omitempty"` // which conditions did not hold, "" if all did
}

// String says whether the SLO held.
func (s *SLO) String() string {
	if s.Broken == "" {
		return "SLO " + s.Text + ": holds"
	}
	return "SLO " + s.Text + ": does not hold: " + s.Broken
}

// Measured reports whether the run came as far as to have figures.
func (s *Summary) Measured() bool {
	return s.Curve != nil ||
		slices.ContainsFunc(s.Groups, func(g GroupSummary) bool { return g.Inserted != nil || g.Total.Due() > 0 })
}

// Succeeded reports whether any operation of the last phase that the run came to was answered without an error.
func (s *Summary) Succeeded() bool {
	answered, due := int64(0), int64(0)
	if s.Curve != nil {
		for _, step := range s.Curve.Rows {
			answered, due = answered+step.Total.Count, due+step.Total.Due()
		}
	}
	for _, g := range s.Groups {
		answered, due = answered+g.Total.Count, due+g.Total.Due()
	}
	return answered > 0 || due == 0 && slices.ContainsFunc(s.Groups, func(g GroupSummary) bool {
		return g.Inserted != nil && g.Inserted.Insert.Count > 0
	})
}

// GroupSummary are the figures of one group of clients over the measured part.
type GroupSummary struct {
	GroupStats
	// Inserted describes the load phase, nil if the workload has none.
	Inserted *Inserted `json:"inserted,omitempty"`
	// Verified says what reading back found. It is nil if the run read nothing back.
	Verified *Verified `json:"verified,omitempty"`
}

// Curve is latency against rate, or against the number of clients of a closed loop.
type Curve struct {
	SLO  string `json:"slo,omitempty"` // what a rate must hold
	Rows []Step `json:"steps"`         // in the order in which they ran
	// The rates, in operations per second, from which on the group lags behind its schedule, breaks the SLO, and the
	// target gives no more; 0 where the highest rate did not.
	Lags      float64 `json:"lags,omitempty"`
	Breaks    float64 `json:"breaks,omitempty"`
	Saturates float64 `json:"saturates,omitempty"`
	// Best is the highest rate that held the SLO in a search. Confirmed is set if a run of its own at that rate held
	// it, too.
	Best      float64 `json:"best,omitempty"`
	Confirmed bool    `json:"confirmed,omitempty"`
	// Above is the lowest rate above Best that a search found not to hold; 0 if there is none. Stopped says why it went
	// no higher than Best, or, without a Best, no lower.
	Above   float64 `json:"above,omitempty"`
	Stopped string  `json:"stopped,omitempty"`
	// Measured is the rate of the measured part, 0 without one.
	Measured float64 `json:"measured,omitempty"`
}

// Step is one rate of a curve, or one number of clients.
type Step struct {
	Rate    float64 `json:"rate"`              // offered, operations per second; in a closed loop what was reached
	Clients int     `json:"clients,omitempty"` // of a closed loop; 0 in a curve of rates
	Seconds float64 `json:"seconds"`
	GroupStats
	Why string `json:"why,omitempty"` // why the rate did not hold, "" if it did
}

// Inserted are the figures of the load phase.
type Inserted struct {
	Seconds float64 `json:"seconds"`
	Incidents
	Insert OpStats `json:"insert"`
}

// Verified is what reading back found.
type Verified struct {
	Seconds float64 `json:"seconds"`
	What    string  `json:"what,omitempty"` // what was compared: "record", "element" or "size"; "" is a record
	Checked int64   `json:"checked"`        // how many were compared
	Lost    int64   `json:"lost"`           // how many of these hold something that they may not
	// Examples describe the first records that are lost.
	Examples []string `json:"examples,omitempty"`
	// Unjudged counts records of which too many writes had an unknown outcome. Ignored counts writes to records that
	// were not followed, because there were too many.
	Unjudged int64 `json:"unjudged,omitempty"`
	Ignored  int64 `json:"ignored,omitempty"`
	// NotFollowed says which kinds of records were not followed, and why.
	NotFollowed []string `json:"not_followed,omitempty"`
	// Complete is set if everything was read.
	Complete bool `json:"complete"`
}
