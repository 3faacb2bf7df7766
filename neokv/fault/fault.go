// Package fault has what can be done to a cluster on purpose, as values. A Fault prints itself, can be read back from
// its text, and says which other one ends it. The same text stands on the command line, in a schedule and in a test:
//
//	kill 2
//	link 1 2,3 delay=20ms jitter=5ms loss=1%
//	at 1.2s for 300ms: disk 3 hang
//
// The package imports nothing of the cluster: package neokv carries faults out.
package fault

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"neokv.dev/neokv/settings"
)

// Verb is what a fault does. Verbs lists all.
type Verb string

// The verbs; `rows` says what each does.
const (
	Stop          Verb = "stop"
	Kill          Verb = "kill"
	Restart       Verb = "restart"
	Pause         Verb = "pause"
	Resume        Verb = "resume"
	Transfer      Verb = "transfer"
	StepDown      Verb = "stepdown"
	Partition     Verb = "partition"
	Mend          Verb = "mend"
	Link          Verb = "link"
	Network       Verb = "network"
	Disk          Verb = "disk"
	Clock         Verb = "clock"
	Clients       Verb = "clients"
	Split         Verb = "split"
	Merge         Verb = "merge"
	MoveReplica   Verb = "move-replica"
	AddReplica    Verb = "add-replica"
	RemoveReplica Verb = "remove-replica"
	AddStore      Verb = "add"
	Drain         Verb = "drain"
	RemoveStore   Verb = "remove"
	Wipe          Verb = "wipe"
	Fail          Verb = "fail"
	Migrate       Verb = "migrate"
	Heal          Verb = "heal"
)

// Fault is one thing that is done to a cluster. Its Verb says which other fields count. The zero value is none.
type Fault struct {
	Verb   Verb
	Stores []int // the stores that it hits, from 1, ascending; nil for all of them
	Others []int // the stores at the other side of a partition or of links; nil for all others
	Region int   // of transfer, stepdown, split, merge, and what is done to replicas
	Slot   int   // of split: the first slot of the new region, from 1; 0 to have one chosen
	To     int   // the store that gets the region, a replica of it, or of wipe all anew; of drain and remove: the store
	From   int   // the store that loses its replica

	Cancel bool // drain: the store is to keep what it has
	OneWay bool // link: messages from Stores to Others alone
	Kill   Power
	Link   Net
	Disk   Drive
	Client Client
	Refuse Refusal
	Ahead  time.Duration // clock: how far ahead the clock is, negative if it is behind
	Matrix string        // network: the name of a matrix, or places between spaces; "" for none
	Move   Migration
}

// Migration is slots that clients are shown to migrate, as those of a Redis Cluster do: see neokv.Cluster.Inject.
type Migration struct {
	First, Last int // slots, both ends included
	// From and To are stores. With both 0, the migrations that have some of the slots are called off.
	From, To int
	For      time.Duration // until all keys have gone; 0 for DefaultMigration
}

// DefaultMigration is how long a migration takes for which no time is given.
const DefaultMigration = 10 * time.Second

// check says what is wrong with a migration.
func (m *Migration) check() error {
	switch {
	case m.First < 0 || m.Last < m.First || m.Last > maxSlot:
		return fmt.Errorf("slots %d-%d: want a slot from 0 to %d, or two as in 100-199", m.First, m.Last, maxSlot)
	case m.From == 0 && m.To == 0 && m.For == 0:
		return nil
	case m.From < 1 || m.To < 1:
		return fmt.Errorf("stores %d and %d: want numbers from 1 on", m.From, m.To)
	case m.From == m.To:
		return fmt.Errorf("store %d is both FROM and TO; want two stores", m.From)
	case m.For < 0 || m.For > maxTime || m.For%time.Millisecond != 0:
		return fmt.Errorf("time %s: want whole milliseconds from 1ms to %s", m.For, maxTime)
	}
	return nil
}

// Power says how stores are killed, at once or, by kill and restart with Sync, in the middle of a sync: the Sync-th of
// all that the stores of the fault make from its beginning on. If they make fewer in two seconds, they die after these.
type Power struct {
	Keep Portion `form:"keep=SHARE" help:"share of what the store has not synced that its disk keeps"`
	Sync int     `form:"sync=N" help:"kill in the middle of the n-th sync from now, in place of at once"`
}

// Net says what is wrong with the way from one store to another. The zero value is a good way.
//
// A lost Raft message is gone: Raft itself sends it again. Requests and answers of calls, and chunks of snapshots,
// travel like bytes on a connection: what is lost is sent again after 200 ms, 400 ms and so on, at most 2 s apart. So
// it arrives later, but once, and the shares Duplicate and Reorder do not concern it. Loss 1 lets none of it arrive.
type Net struct {
	// Cut lets nothing arrive. Calls get no answer, and chunks fail at once.
	Cut bool `form:"cut" help:"nothing arrives"`
	// Everything arrives Delay later, and up to Jitter more. The network draws the jitter for each batch of Raft
	// messages, each request, each answer and each chunk. Raft messages stay in order all the same.
	Delay  time.Duration `form:"delay=TIME" help:"everything arrives so much later, in order"`
	Jitter time.Duration `form:"jitter=TIME" help:"and up to so much later than that"`
	// Loss, Duplicate and Reorder are shares of the Raft messages, and together 1 at most. A message of the first is
	// lost. One of the second arrives twice, once at its time and once up to 20 ms later. One of the third arrives up
	// to 20 ms late, so that others overtake it.
	Loss      Portion `form:"loss=SHARE" help:"share of Raft messages that do not arrive"`
	Duplicate Portion `form:"duplicate=SHARE" help:"share of Raft messages that arrive twice"`
	Reorder   Portion `form:"reorder=SHARE" help:"share of Raft messages that others overtake"`
	// Bandwidth is how many bytes per second the link carries, 0 for no limit. The stream of Raft messages, each
	// snapshot and each call get equal parts of it, as connections would. So a snapshot delays a heartbeat by 10 ms at
	// most.
	Bandwidth settings.Bytes `form:"bandwidth=BYTES" help:"bytes per second, 0B for no limit"`
}

// check says what properties do not go together.
func (n *Net) check() error {
	if sum := n.Loss + n.Duplicate + n.Reorder; sum > 1 {
		return fmt.Errorf("loss, duplicate and reorder are %s together; want at most 100%%", sum)
	}
	return nil
}

// Drive says what is wrong with a store's disk. The zero value is a good disk.
type Drive struct {
	Latency     time.Duration  `form:"latency=TIME" help:"each read, write and sync takes so much longer"`
	Jitter      time.Duration  `form:"jitter=TIME" help:"and up to so much longer than that"`
	Hang        bool           `form:"hang" help:"syncs do not return"`
	Bandwidth   settings.Bytes `form:"bandwidth=BYTES" help:"bytes per second of reads and writes together, 0B for no limit"`
	Full        bool           `form:"full" help:"there is no space left: writes fail"`
	Free        settings.Bytes `form:"free=BYTES" help:"only so many bytes can still be written, then there is no space left; 0B for as many as the disk takes"`
	ReadErrors  bool           `form:"read-errors" help:"reads, and opening and listing, fail with an input/output error"`
	WriteErrors bool           `form:"write-errors" help:"writes fail with an input/output error"`
	SyncErrors  bool           `form:"sync-errors" help:"syncs fail with an input/output error"`
	FlippedBit  bool           `form:"flipped-bit" help:"reads return one bit that is wrong"`
	Short       int            `form:"short=N" help:"the next N tries to open, make, list or write a file fail, for want of descriptors or memory"`
}

// ShortTries is how often a store tries, before it fails, to open, make, list or write a file where each try fails for
// want of descriptors or memory.
const ShortTries = 100

// Client says what is wrong between a store and its clients. The zero value is nothing.
type Client struct {
	Refuse    bool           `form:"refuse" help:"new connections are refused"`
	Reset     bool           `form:"reset" help:"connections are reset, open ones and new ones"`
	Bandwidth settings.Bytes `form:"bandwidth=BYTES" help:"bytes per second that each client reads of its replies, 0B for no limit"`
}

// Refusal says which commands of clients a store answers with an error in place of running them. The zero value is
// none. Commands of scripts, and those of Cluster.Do, run all the same. A command that MULTI would queue makes EXEC
// fail.
type Refusal struct {
	Command string  // in capital letters, such as GET or CLIENT|LIST; empty for all
	Share   Portion // of its calls; 0 ends the refusal
	Error   string  // such as "LOADING Redis is loading the dataset in memory"; words with one space between
}

// check says what is wrong with a refusal that is in force.
func (r *Refusal) check() error {
	odd := func(c rune) bool { return !unicode.IsPrint(c) || c == utf8.RuneError }
	switch {
	case r.Share == 0:
		return nil
	case !(r.Share > 0 && r.Share <= 1):
		return errors.New("want a share from 0% to 100%")
	case r.Error == "":
		return errors.New(`no error, such as "LOADING Redis is loading the dataset in memory"`)
	case strings.ContainsFunc(r.Error, odd) || strings.Join(strings.Fields(r.Error), " ") != r.Error:
		return fmt.Errorf("error %q: want words that can be printed, with one space between", r.Error)
	case strings.ContainsFunc(r.Command, func(c rune) bool { return odd(c) || unicode.IsSpace(c) }):
		return fmt.Errorf("command %q: want its full name, such as CLIENT|LIST", r.Command)
	}
	return nil
}

// Fails reports whether a store that works on such a disk fails, sooner or later.
func (d Drive) Fails() bool {
	return d.Full || d.Free > 0 || d.ReadErrors || d.WriteErrors || d.SyncErrors || d.FlippedBit ||
		d.Short >= ShortTries
}

// row is what the package knows of a verb. Parse, String, End, Draw, the help of the command line and the table in
// docs/cluster.md follow from the rows. Package neokv knows how a verb is carried out.
type row struct {
	verb Verb
	help string
	args []arg
	end  func(f Fault) Fault                   // returns the fault that ends f; nil where f does not last
	draw func(*rand.Rand, DrawOptions, *Fault) // fills in a fault at random; nil where none is drawn
}

// rows are all verbs.
var rows = []row{
	{Stop, "stop stores cleanly", []arg{stores}, another(Restart), drawOne},
	{Kill, "cut the power of stores: what they have not synced is gone", []arg{stores, power}, another(Restart), drawKill},
	{Restart, "start stores again, or stop and start those that run; with sync, kill them as they start",
		[]arg{stores, power}, nil, nil},
	{Pause, "stop the processes of stores as SIGSTOP would", []arg{stores}, another(Resume), drawOne},
	{Resume, "let paused stores go on", []arg{stores}, nil, nil},
	{Transfer, "move the leadership of a region to a store, where it stays until heal", []arg{region, target}, nil,
		drawTransfer},
	{StepDown, "move the leadership of a region to another store, where it stays until heal", []arg{region}, nil, nil},
	{Partition, "cut all links between some stores and others", []arg{stores, others}, another(Mend), drawPartition},
	{Mend, "make the links between some stores and others good again", []arg{stores, others}, nil, nil},
	{Link, "make links between some stores and others bad", []arg{stores, others, oneWay, net}, another(Link), drawLink},
	{Network, "give all links the delays of a matrix, as 3 regions, or of the cloud regions in which stores 1, 2, 3 " +
		"and so on stand, as us-east-1 eu-west-1", []arg{matrix}, another(Network), drawNetwork},
	{Disk, "make the disks of stores bad", []arg{stores, drive}, another(Disk), drawDisk},
	{Clock, "set the clocks of stores ahead, or behind with a minus", []arg{stores, offset}, another(Clock), drawClock},
	{Clients, "disturb the clients of stores", []arg{stores, client}, another(Clients), drawClients},
	{Split, "split a region in two, before a slot or where that halves it", []arg{region, slot}, nil, drawSplit},
	{Merge, "merge the region to the right of a region into it", []arg{region}, nil, drawMerge},
	{Fail, "answer commands with an error in place of running them, at the ports of stores; at the proxy port, too, with all",
		[]arg{stores, command, refusal}, func(f Fault) Fault {
			return Fault{Verb: Fail, Stores: f.Stores, Refuse: Refusal{Command: f.Refuse.Command}}
		}, drawFail},
	{Migrate, "show clients that slots migrate from a store to another, with ASK, and then move the leadership of their " +
		"regions, or call that off", []arg{slots, migration}, nil, drawMigrate},
	{MoveReplica, "move a region's replica from a store to another", []arg{region, source, goal}, nil, drawMove},
	{AddReplica, "give a region one more replica, on a store", []arg{region, target}, nil, drawAdd},
	{RemoveReplica, "take the replica on a store from a region", []arg{region, loser}, nil, drawRemove},
	{AddStore, "add a new store, which has no replicas yet", nil, nil, nil},
	{Drain, "move all replicas of a store to others, or have it keep what it has", []arg{target, cancel}, nil, nil},
	{RemoveStore, "remove a store that has no replicas, for good", []arg{target}, nil, nil},
	{Wipe, "delete what a store has, or had on a disk that is gone: it comes back empty, and gets its replicas anew",
		[]arg{target}, nil, nil},
	{Heal, "end all faults and start the stores that are down", nil, nil, nil},
}

// another returns a function that keeps the stores of a fault and changes its verb.
func another(v Verb) func(Fault) Fault {
	return func(f Fault) Fault { return Fault{Verb: v, Stores: f.Stores, Others: f.Others, OneWay: f.OneWay} }
}

func rowOf(v Verb) *row {
	if i := slices.IndexFunc(rows, func(r row) bool { return r.verb == v }); i >= 0 {
		return &rows[i]
	}
	return nil
}

// Verbs returns all verbs.
func Verbs() (all []Verb) {
	for _, r := range rows {
		all = append(all, r.verb)
	}
	return all
}

// Usage returns the form of the verb, such as "kill STORES [keep=SHARE] [sync=N]", what it does, and what there is to
// choose from: a title and, in a line each, properties with their meanings or the names of matrices and places.
func (v Verb) Usage() (form, help, choices string, among []string) {
	r := rowOf(v)
	form = string(v)
	for _, a := range r.args {
		form += " " + a.form
		choices, among = a.choices, a.among // of the last one
	}
	return form, r.help, choices, among
}

// Lasts reports whether the fault is in force until another one ends it.
func (f Fault) Lasts() bool { r := rowOf(f.Verb); return r != nil && r.end != nil }

// End returns the fault that ends f, which lasts.
func (f Fault) End() Fault { return rowOf(f.Verb).end(f) }

// Ended reports whether nothing is in force after f: it is none, or the end of one of its own verb, as "disk 2 ok".
func (f Fault) Ended() bool { return !f.Lasts() || f.String() == f.End().String() }

// String returns the text of the fault, which Parse reads.
func (f Fault) String() string {
	r := rowOf(f.Verb)
	if r == nil {
		return "none"
	}
	words := []string{string(f.Verb)}
	for _, a := range r.args {
		if word := a.print(&f); word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// MarshalText writes the fault as String does.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the fault as Parse does.
func (f *Fault) UnmarshalText(text []byte) (err error) {
	*f, err = Parse(string(text))
	return err
}

// maxText is the longest text of a fault, in bytes.
const maxText = 1 << 10

// Parse reads the text of a fault: a verb and its arguments, between spaces. Its error lists every problem.
func Parse(text string) (Fault, error) {
	if len(text) > maxText {
		return Fault{}, fmt.Errorf("fault: %d bytes of text; want at most %d", len(text), maxText)
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return Fault{}, fmt.Errorf("fault: no text; want one of %s", list(Verbs()))
	}
	r := rowOf(Verb(words[0]))
	if r == nil {
		return Fault{}, fmt.Errorf("fault: unknown verb %q%s; want one of %s", words[0],
			settings.DidYouMean(words[0], texts(Verbs())), list(Verbs()))
	}
	f := Fault{Verb: r.verb}
	words = words[1:]
	var problems []error
	for _, a := range r.args {
		switch {
		case len(words) == 0 && !a.optional:
			problems = append(problems, fmt.Errorf("no %s", a.name))
		case len(words) == 0, a.word != "" && words[0] != a.word:
		case a.rest:
			problems = append(problems, a.parse(&f, words))
			words = nil
		default:
			problems = append(problems, a.parse(&f, words[:1]))
			words = words[1:]
		}
	}
	if len(words) > 0 {
		problems = append(problems, fmt.Errorf("%q is too much", strings.Join(words, " ")))
	}
	if err := errors.Join(problems...); err != nil {
		form, _, _, _ := r.verb.Usage()
		return Fault{}, fmt.Errorf("fault %q: %s; want %s", text, oneLine(err), form)
	}
	return f, nil
}

// MustParse is Parse for a text that the program has made. It panics if the text is wrong.
func MustParse(text string) Fault {
	f, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return f
}

// Check says which stores of the fault a cluster with stores from 1 to storeCount does not have, and whether the fault is
// none.
func (f Fault) Check(storeCount int) error {
	all := make([]int, storeCount)
	for i := range all {
		all[i] = i + 1
	}
	return f.CheckAmong(all)
}

// CheckAmong is Check for a cluster with these stores, by number.
func (f Fault) CheckAmong(stores []int) error {
	want := strings.Trim(strings.ReplaceAll(fmt.Sprint(stores), " ", ", "), "[]")
	if n := len(stores); n > 0 && stores[n-1] == n {
		want = fmt.Sprintf("1 to %d", n)
	}
	var problems []error
	if rowOf(f.Verb) == nil {
		problems = append(problems, fmt.Errorf("unknown verb %q", f.Verb))
	}
	if err := f.Refuse.check(); err != nil {
		problems = append(problems, err)
	}
	if err := f.Move.check(); err != nil {
		problems = append(problems, err)
	}
	for _, s := range slices.Concat(f.Stores, f.Others, []int{f.To, f.From, f.Move.From, f.Move.To}) {
		if s > 0 && !slices.Contains(stores, s) {
			problems = append(problems, fmt.Errorf("there is no store %d; want %s", s, want))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("fault %q: %s", f, oneLine(err))
	}
	return nil
}

// oneLine returns the text of joined errors with semicolons in place of line ends.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func texts(verbs []Verb) (out []string) {
	for _, v := range verbs {
		out = append(out, string(v))
	}
	return out
}

func list(verbs []Verb) string { return strings.Join(texts(verbs), ", ") }
