package redis

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis/redistest"
)

var (
	replicaCalls = flag.Int("replicas.calls", 10_000, "random calls of TestReplicasStoreTheSame")
	replicaSeed  = flag.Uint64("replicas.seed", 0, "seed of its random choices; 0 for any")
)

// replicas are one region on several stores that apply the same log, and should store the same. The leader applies each
// entry when it comes, for a client that may have no room for the reply. Each follower is behind in its own way; it
// throws the replies away, flushes its engine, and forgets what a restart would have it forget.
type replicas struct {
	testing.TB
	*rand.Rand
	leader    *region
	out       Reply // of the leader
	followers []*lateReplica
	now       uint64
	calls     int
	full      int
	set       ReadSet
	reads     int
	again     int              // reads that readAgain has compared
	done      map[*Command]int // calls that have changed what is stored
}

// lateReplica is a replica that groups the log for its batches.
type lateReplica struct {
	*region
	name   string
	log    []logEntry // not applied yet
	groups bool       // of random lengths; else all that there is makes a batch
	pieces int        // one of so many calls has a batch end behind it, within an entry; 0 for none
	out    Reply
}

// logEntry is one of the log: some calls, at a time.
type logEntry struct {
	index, timeMS, version uint64
	calls                  []Call
	reads                  []byte   // the leader's read set, nil for none
	replies                [][]byte // the leader's; nil where it had no room
	proto                  int
}

func newReplicas(t testing.TB, random *rand.Rand) *replicas {
	return &replicas{TB: t, Rand: random, leader: newRegion(t), now: start, done: map[*Command]int{},
		followers: []*lateReplica{
			{region: newRegion(t), name: "all at once"},
			{region: newRegion(t), name: "in groups", groups: true},
			{region: newRegion(t), name: "in pieces", groups: true, pieces: 4},
		}}
}

// apply runs an entry on a replica, and calls each with the replies and with the batch. No call may return an error: it
// would fence every store. Where each reports true the batch is committed and another one begun, as apply does in the
// middle of a long entry; the read set does not hold behind that.
func (w *replicas) apply(d *region, b *engine.Batch, e *logEntry, out *Reply,
	each func(i int, reply []byte, b *engine.Batch) (cut bool)) *engine.Batch {
	d.state.ApplyIndex, d.state.TimeMS = e.index, max(d.state.TimeMS, e.timeMS)
	reads := e.reads
	for i := range e.calls {
		d.w.Batch, d.w.State, d.w.Index, d.w.VersionBase = b, &d.state, e.index, e.version
		out.Buf = out.Buf[:0]
		var err error
		if reads, err = d.w.Expect(e.calls[i].Args, reads); err != nil {
			w.Fatalf("%q: %v", e.calls[i].Args, err)
		}
		if err := d.w.Run(e.calls[i].Command, e.calls[i].Args, out); err != nil {
			w.Fatalf("%.1000q: %v", e.calls[i].Args, err)
		}
		if each(i, out.Buf, b) {
			w.commit(d, b)
			b, reads = d.e.NewBatch(), nil
			if w.IntN(4) == 0 { // a restart, which takes up what the stage has kept
				choice := d.w.AppendChoice(nil)
				d.w = Writer{Index: e.index}
				if err := d.w.RestoreChoice(choice); err != nil {
					w.Fatal(err)
				}
			}
		}
	}
	return b
}

// write has the leader apply an entry.
func (w *replicas) write(calls []Call) {
	w.now += w.Uint64N(100)
	e := logEntry{w.leader.state.ApplyIndex + 1, w.now, w.Uint64N(1000), calls, w.readAhead(calls),
		make([][]byte, len(calls)), 2 + w.IntN(2)}
	out := &w.out
	*out = Reply{Buf: out.Buf, Proto: e.proto}
	if w.IntN(2) == 0 {
		out.Room, out.More = w.IntN(1000), func(int) int { return 0 }
	}
	b := w.leader.e.NewBatch()
	defer w.closeFailed(b)
	before := b.Len()
	w.apply(w.leader, b, &e, out, func(i int, reply []byte, b *engine.Batch) bool {
		if b.Len() > before {
			w.done[calls[i].Command]++
		}
		before = b.Len()
		if out.Full {
			w.full++
			return false // and it stays full for the entry's other calls
		}
		w.one(&calls[i], reply)
		e.replies[i] = append([]byte{}, reply...)
		return false
	})
	w.commit(w.leader, b)
	w.calls += len(calls)
	w.readAgain(&e)
	for _, f := range w.followers {
		f.log = append(f.log, e)
	}
}

// readAgain compares the replies to the reads at the end of an entry with those to the same reads by a view.
func (w *replicas) readAgain(e *logEntry) {
	d := w.leader
	d.now = func() uint64 { return d.state.TimeMS }
	for i := len(e.calls) - 1; i >= 0 && e.calls[i].Command.Write == nil; i-- {
		c := &e.calls[i]
		run := Run{Calls: []Call{*c}, Out: Reply{Proto: e.proto}}
		if run.Calls[0].Command.InUnit != nil {
			run.Calls[0].Command = &Command{Name: c.Command.Name, Read: c.Command.InUnit}
		}
		if want := e.replies[i]; want != nil && !bytes.Contains(want, []byte(errWriteLimit)) &&
			!slices.Contains(c.Command.Tips, "nondeterministic_output") {
			if err := d.read(func(r *Reader) error { r.work = new(engine.Work); return r.Execute(&run) }); err != nil {
				w.Fatalf("%q: %v", c.Args, err)
			}
			if w.again++; string(run.Out.Buf) != string(want) {
				w.Fatalf("%.1000q: in its unit it replies %.300q, by a view %.300q", c.Args, want, run.Out.Buf)
			}
		}
	}
}

// readAhead is the leader's read set for the calls, if it makes one.
func (w *replicas) readAhead(calls []Call) []byte {
	if w.IntN(4) == 0 {
		return nil
	}
	v := w.leader.e.NewView()
	defer v.Close()
	w.set.Begin(v, w.leader.state.CollectedIn)
	for i := range calls {
		if err := w.set.Add(&calls[i]); err != nil {
			w.Fatalf("%q: %v", calls[i].Args, err)
		}
	}
	w.reads += w.set.Reads
	return bytes.Clone(w.set.Bytes)
}

func (w *replicas) commit(d *region, b *engine.Batch) {
	if err := errors.Join(d.w.Finish(), b.Commit(false)); err != nil {
		w.Fatal(err)
	}
}

// closeFailed closes the batch of an entry that has failed, so that its engine can be closed.
func (w *replicas) closeFailed(b *engine.Batch) {
	if w.Failed() {
		b.Close()
	}
}

// read runs a call that reads on the leader. Of some elements there may be as many replies as the caller likes, so room
// is bounded.
func (w *replicas) read(call Call) {
	run := Run{Calls: []Call{call}, Out: Reply{Proto: 2 + w.IntN(2), Room: 1 << 20, More: func(int) int { return 0 }}}
	if w.IntN(8) == 0 {
		run.Out.Room = w.IntN(200)
	}
	w.leader.now = func() uint64 { return w.now }
	if err := w.leader.read(func(r *Reader) error { return r.Execute(&run) }); err != nil {
		w.Fatalf("%q: %v", call.Args, err)
	}
	w.calls++
	if !run.Out.Full {
		w.one(&call, run.Out.Buf)
	}
}

// one checks that a reply is one value.
func (w *replicas) one(call *Call, reply []byte) {
	v, err := redistest.Parse(reply)
	if err != nil {
		w.Fatalf("%q: reply %.200q: %v", call.Args, reply, err)
	}
	if v.Kind == '-' && len(reply) > 1024 {
		w.Fatalf("%q: an error of %d bytes", call.Args, len(reply))
	}
}

// catchUp has a follower apply what it has not yet.
func (w *replicas) catchUp(f *lateReplica) {
	for len(f.log) > 0 {
		n := len(f.log)
		if f.groups {
			n = 1 + w.IntN(n)
		}
		w.applyGroup(f, f.log[:n])
		f.log = f.log[n:]
		switch w.IntN(8) {
		case 0:
			f.w = Writer{}
		case 1:
			if err := f.e.Flush(); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// applyGroup has a follower apply some entries in one batch, or in several if it applies in pieces.
func (w *replicas) applyGroup(f *lateReplica, entries []logEntry) {
	b := f.e.NewBatch()
	defer func() { w.closeFailed(b) }()
	for i := range entries {
		e := &entries[i]
		f.out = Reply{Buf: f.out.Buf, Proto: e.proto}
		b = w.apply(f.region, b, e, &f.out, func(i int, reply []byte, _ *engine.Batch) bool {
			w.one(&e.calls[i], reply)
			if want := e.replies[i]; want != nil && string(want) != string(reply) {
				w.Fatalf("%.1000q: the leader replies %.300q, the follower %s %.300q", e.calls[i].Args, want, f.name,
					reply)
			}
			return f.pieces > 0 && w.IntN(f.pieces) == 0
		})
	}
	w.commit(f.region, b)
}

// compare has the followers catch up, and checks that all store the same, and nothing that neither a record nor an
// orphan record names.
func (w *replicas) compare() {
	leader := w.kept(w.leader)
	for _, f := range w.followers {
		w.catchUp(f)
		if a, b := w.leader.state, f.state; a != b {
			w.Fatalf("region state %+v, the follower %s has %+v", a, f.name, b)
		}
		here := w.kept(f.region)
		if maps.Equal(leader, here) {
			continue
		}
		for key, value := range leader {
			if other, ok := here[key]; !ok || other != value {
				w.Errorf("under %.200q there is %.100q, the follower %s has %.100q, %v", key, value, f.name, other, ok)
			}
		}
		w.Fatalf("%d records, the follower %s has %d", len(leader), f.name, len(here))
	}
	for _, d := range w.all() {
		d.reclaim()
	}
}

func (w *replicas) all() []*region {
	all := []*region{w.leader}
	for _, f := range w.followers {
		all = append(all, f.region)
	}
	return all
}

// kept is what a replica stores and all others have to. Counts of a sorted set that goes in the batch in which they are
// made are never written.
func (w *replicas) kept(d *region) map[string]string {
	all := d.stored()
	if err := sound(all); err != nil {
		w.Fatal(err)
	}
	maps.DeleteFunc(all, func(key, _ string) bool { return keys.Keyspace(key[0]) == keys.ZSetRank && orphan(all, key) })
	return all
}

// orphan reports whether the key of a count is that of a sorted set which has been deleted.
func orphan(all map[string]string, key string) bool {
	k, err := keys.ParseRedis([]byte(key))
	if err != nil {
		return false
	}
	version, _, ok := k.Subkey()
	o := keys.Orphan{Slot: k.Slot, User: k.User, Version: version}
	_, deleted := all[string(o.AppendKey(nil))]
	return ok && deleted
}

// sound says what is wrong with all that a region stores: elements that nothing names, or records that count them
// wrongly.
func sound(all map[string]string) error {
	type heldKey struct {
		keys.Metadata
		elements, scores uint64
		orphan           bool
	}
	named := map[string]*heldKey{} // by data key and version
	name := func(k []byte, version uint64) string {
		return string(binary.BigEndian.AppendUint64(append([]byte{byte(keys.Data)}, k[1:]...), version))
	}
	for key, value := range all {
		switch ks := keys.Keyspace(key[0]); {
		case ks == keys.RedisMetadata:
			m, err := keys.ParseMetadata([]byte(value))
			if err != nil {
				return err
			}
			if m.Apart() {
				named[name([]byte(key), m.Version)] = &heldKey{Metadata: m}
			}
		case ks == keys.MetaInfo && keys.Category(key[1]) == keys.CategoryOrphan:
			o, err := keys.ParseOrphan([]byte(key), []byte(value))
			if err != nil {
				return err
			}
			id := name(keys.AppendMetadata(nil, o.Slot, o.User), o.Version)
			if named[id] != nil {
				return fmt.Errorf("key %q: version %d is named twice", o.User, o.Version)
			}
			named[id] = &heldKey{Metadata: keys.Metadata{Type: o.Type, Size: o.Size}, orphan: true}
		}
	}
	for key, value := range all {
		ks := keys.Keyspace(key[0])
		if ks != keys.Data && ks != keys.ZSetScore && ks != keys.ZSetRank {
			continue
		}
		k, err := keys.ParseRedis([]byte(key))
		if err != nil {
			return err
		}
		if k.Legacy() {
			if _, both := all[string(keys.AppendMetadata(nil, k.Slot, k.User))]; both {
				return fmt.Errorf("key %q: a legacy string beside a record", k.User)
			}
			continue
		}
		version, sub, ok := k.Subkey()
		if !ok {
			return fmt.Errorf("key %q is neither of a subkey nor of a score", key)
		}
		c := named[name([]byte(key)[:len(key)-len(k.Rest)], version)]
		switch {
		case c == nil:
			return fmt.Errorf("key %q: nothing names version %d", k.User, version)
		case ks == keys.ZSetRank && (c.Type != keys.ZSet || c.Size < countUntil):
			return fmt.Errorf("key %q: counts of %+v", k.User, c.Metadata)
		case ks == keys.ZSetRank:
		case ks == keys.ZSetScore:
			c.scores++
			_, score, member := parseScoreKey(k)
			stored, there := all[string(subkeyOf(k.Slot, k.User, version, member))]
			if !there || keys.Score([]byte(stored)) != score || math.IsNaN(score) ||
				value != string(keys.ScoreSign(keys.Score([]byte(stored)))) {
				return fmt.Errorf("key %q: member %q: score %v, %q, and %q as a value", k.User, member, score, value,
					stored)
			}
			if value != "" && !c.Skiplist && !c.orphan {
				return fmt.Errorf("key %q: member %q has a score of -0 in a listpack", k.User, member)
			}
		case c.Type == keys.String:
			most := c.Size // of an orphan it counts pieces
			if !c.orphan {
				most = elementsOf(&c.Metadata)
			}
			if i := binary.BigEndian.Uint64(sub); len(sub) != 8 || i >= most || len(value) == 0 ||
				len(value) > pieceBytes {
				return fmt.Errorf("string %q: a piece %x of %d bytes, its record says %+v", k.User, sub, len(value),
					c.Metadata)
			}
		case c.Type != keys.List && ks == keys.Data && !bytes.Equal(sub, keys.AppendElement(nil, nameIn(sub))):
			return fmt.Errorf("%v %q: subkey %x does not begin with the hash of its name", c.Type, k.User, sub)
		case c.Type == keys.List && !c.orphan:
			if i := binary.BigEndian.Uint64(sub); i < c.Head || i >= c.Tail {
				return fmt.Errorf("list %q: an element at %d, its record says %d to %d", k.User, i, c.Head, c.Tail)
			}
			c.elements++
		default:
			c.elements++
		}
	}
	for id, c := range named {
		if c.Type == keys.String {
			if !c.orphan && c.Size <= uint64(pieceBytes) {
				return fmt.Errorf("string %q: %d bytes in pieces", id, c.Size)
			}
			continue
		}
		if c.orphan && writeLimit < 1<<24 && c.elements <= c.Size && c.scores <= c.elements {
			continue // a refused write has left it
		}
		if c.elements != c.Size || c.Type == keys.ZSet && c.scores != c.Size ||
			c.Type == keys.List && !c.orphan && c.Tail-c.Head != c.Size {
			return fmt.Errorf("%v %q: %d elements, %d scores, its record says %+v", c.Type, id, c.elements, c.scores,
				c.Metadata)
		}
	}
	return nil
}

// TestReplicasStoreTheSame runs random calls of every command, most of them with some arguments that make no sense
// there:
//
//	go test ./neokv/internal/redis -run TestReplicasStoreTheSame -replicas.calls=1000000 -replicas.seed=7
func TestReplicasStoreTheSame(t *testing.T) {
	seed := *replicaSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-replicas.seed=%d", seed)
	limit(t, 20<<10)
	w := newReplicas(t, rand.New(rand.NewPCG(seed, 0)))
	if w.IntN(2) == 0 { // some writes are refused
		setWriteLimit(t, 50+w.IntN(500))
	}
	shortPieces(t, 1+w.IntN(40))
	g := &redistest.CallGenerator{Rand: w.Rand, Tag: "{t}", Piece: pieceBytes}
	seen := map[string]int{}
	var calls []Call
	most := *replicaCalls
	if testing.Short() {
		most /= 10
	}
	var left []string // of sure, to come
	for last := 0; w.calls < most || len(left) > 0 && !testing.Short(); {
		var some [][][]byte
		surely := w.IntN(10) == 0
		if surely {
			if len(left) == 0 {
				left = slices.Clone(sure)
			}
			i := w.IntN(len(left))
			for call := range strings.SplitSeq(left[i], "; ") {
				some = append(some, bytes.Fields([]byte(call)))
			}
			left = slices.Delete(left, i, i+1)
		} else {
			some = odd(g)
		}
		for _, args := range some {
			row := withOwn.Find(args, new(Reply))
			switch {
			case row == nil || !row.CheckArity(len(args)):
				continue
			case row.Write != nil:
				if strings.HasPrefix(row.Name, "flush") && !surely && w.IntN(10) > 0 {
					continue
				}
				calls = append(calls, Call{row, args})
			case row.InUnit != nil || row.Read != nil && w.IntN(2) == 0:
				calls = append(calls, Call{row, args})
			case row.Read != nil:
				w.read(Call{row, args})
			}
			seen[row.FullName()]++
		}
		switch key := []byte(g.Key()); w.IntN(50) {
		case 0:
			calls = append(calls, Call{removeExpired, [][]byte{[]byte(removeExpired.Name), key, []byte(g.Key())}})
		}
		if w.IntN(3) == 0 && len(calls) > 0 {
			w.write(calls)
			calls = nil
		}
		if f := w.followers[w.IntN(len(w.followers))]; f.groups && w.IntN(3) == 0 {
			w.catchUp(f)
		}
		if w.calls > last+1200 {
			w.compare()
			last = w.calls
		}
	}
	w.write(calls)
	w.compare()
	t.Logf("%d calls, %d of them without room for the reply; %d reads in read sets; %d reads compared with a view", w.calls,
		w.full, w.reads, w.again)
	if testing.Short() {
		return // too few calls to reach every command
	}
	for _, row := range withOwn.Rows() {
		for _, c := range append([]*Command{row}, row.Sub...) {
			switch {
			case (c.Read != nil || c.Write != nil || c.InUnit != nil) && seen[c.FullName()] == 0:
				t.Errorf("%s is not called", c.FullName())
			case c.Write != nil && w.done[c] == 0:
				t.Errorf("%s is called %d times, and has never changed anything", c.FullName(), seen[c.FullName()])
			}
		}
	}
	if w.done[removeExpired] == 0 {
		t.Errorf("%s has never changed anything", removeExpired.Name)
	}
}

// sure are calls of which the last one changes something, of each command that writes; the test makes all of them now
// and then.
var sure = strings.Split(strings.TrimSpace(`
set {t}a 5; append {t}a 1
set {t}a 5; decr {t}a
set {t}a 5; decrby {t}a 2
set {t}a 5; incr {t}a
set {t}a 5; incrby {t}a 3
set {t}a 5; incrbyfloat {t}a 1.5
set {t}a 5; getset {t}a 6
set {t}a 5; getdel {t}a
set {t}a 5; getex {t}a ex 100
set {t}a 5; setrange {t}a 3 x
del {t}a; setnx {t}a 5
setex {t}a 10 v
psetex {t}a 10 v
mset {t}a 1 {t}b 2
del {t}a {t}b; msetnx {t}a 1 {t}b 2
set {t}a 5; rename {t}a {t}b
set {t}a 5; del {t}b; renamenx {t}a {t}b
set {t}a 5; copy {t}a {t}b replace
set {t}a 5; unlink {t}a
set {t}a 5; expire {t}a 10
set {t}a 5; pexpire {t}a 10
set {t}a 5; expireat {t}a 1800000000
set {t}a 5; pexpireat {t}a 1800000000000
set {t}a 5 ex 10; persist {t}a
neokv batch set {t}a 6 psetex {t}b 100 7
del {t}set1; sadd {t}set1 a b; neokv batch del {t}set1 set {t}a 5 pexpire {t}a 9 persist {t}a
neokv legacyset {t}a 5
flushdb
flushall
del {t}hash1; hset {t}hash1 a 1 b 2; hdel {t}hash1 a
del {t}hash1; hset {t}hash1 a 1; hincrby {t}hash1 a 3
del {t}hash1; hset {t}hash1 a 1; hincrbyfloat {t}hash1 a 0.5
del {t}hash1; hsetnx {t}hash1 a 1
del {t}hash1; hmset {t}hash1 a 1; hmset {t}hash1 a 2
del {t}set1; sadd {t}set1 a b c; srem {t}set1 b
del {t}set1; sadd {t}set1 a b c; spop {t}set1
del {t}set1 {t}set2; sadd {t}set1 a b c; smove {t}set1 {t}set2 a
del {t}set1 {t}set2; sadd {t}set1 a b c; sadd {t}set2 b c d; sinterstore {t}set3 {t}set1 {t}set2
del {t}set1 {t}set2; sadd {t}set1 a b c; sadd {t}set2 b c d; sunionstore {t}set3 {t}set1 {t}set2
del {t}set1 {t}set2; sadd {t}set1 a b c; sadd {t}set2 b c d; sdiffstore {t}set1 {t}set1 {t}set2
del {t}list1; rpush {t}list1 a b a; lrem {t}list1 0 a
del {t}list1; rpush {t}list1 a b a; linsert {t}list1 before b x
del {t}list1; rpush {t}list1 a b a; lset {t}list1 1 x
del {t}list1; rpush {t}list1 a b a; ltrim {t}list1 1 1
del {t}list1; rpush {t}list1 a b a; lpop {t}list1
del {t}list1; rpush {t}list1 a b a; rpop {t}list1 2
del {t}list1; rpush {t}list1 a b a; lmpop 2 {t}list2 {t}list1 left count 2
del {t}list1 {t}list2; rpush {t}list1 a b a; lmove {t}list1 {t}list2 left right
del {t}list1 {t}list2; rpush {t}list1 a b a; rpoplpush {t}list1 {t}list2
del {t}list1 {t}list2; rpush {t}list1 a b a; blpop {t}list2 {t}list1 0.01
del {t}list1 {t}list2; rpush {t}list1 a b a; brpop {t}list2 {t}list1 0.01
del {t}list1 {t}list2; rpush {t}list1 a b a; blmpop 0.01 2 {t}list2 {t}list1 left count 2
del {t}list1 {t}list2; rpush {t}list1 a b a; blmove {t}list1 {t}list2 left right 0.01
del {t}list1 {t}list2; rpush {t}list1 a b a; brpoplpush {t}list1 {t}list2 0.01
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; bzpopmin {t}zset1 0.01
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; bzpopmax {t}zset1 0.01
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; bzmpop 0.01 1 {t}zset1 min count 2
del {t}list1; rpush {t}list1 a; rpushx {t}list1 b; lpushx {t}list1 c; lpush {t}list1 d
del {t}list1; rpush {t}list1 3 1 2; sort {t}list1 store {t}list2
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; zincrby {t}zset1 5 a
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; zrem {t}zset1 a
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; zpopmin {t}zset1
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; zpopmax {t}zset1 2
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; zmpop 1 {t}zset1 min
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; zremrangebyrank {t}zset1 0 1
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; zremrangebyscore {t}zset1 2 3
del {t}zset1; zadd {t}zset1 0 a 0 b 0 c; zremrangebylex {t}zset1 [a (c
del {t}zset1; zadd {t}zset1 1 a 2 b 3 c; zrangestore {t}zset2 {t}zset1 0 1
del {t}zset1 {t}zset2; zadd {t}zset1 1 a 2 b; zadd {t}zset2 3 b 4 c; zunionstore {t}zset3 2 {t}zset1 {t}zset2
del {t}zset1 {t}zset2; zadd {t}zset1 1 a 2 b; zadd {t}zset2 3 b 4 c; zinterstore {t}zset3 2 {t}zset1 {t}zset2
del {t}zset1 {t}zset2; zadd {t}zset1 1 a 2 b; zadd {t}zset2 3 b 4 c; zdiffstore {t}zset3 2 {t}zset1 {t}zset2
`), "\n")

// deep makes a call that looks for a place far inside a large collection, or changes much of one, mostly behind one
// that adds to it. Of the collections {t}zset8, {t}zset9 and so on no other calls take anything but those that remove
// all keys, so they grow large and stay.
func deep(g *redistest.CallGenerator) (calls [][][]byte) {
	from := g.IntN(1500)
	to := from + g.IntN(50)
	if g.IntN(8) == 0 {
		to = from + g.IntN(1500)
	}
	n, m := 7+g.IntN(3), 7+g.IntN(3)
	kind := 1 + g.IntN(3)
	line := [][]string{
		inSet: {
			fmt.Sprintf("sunionstore {t}set1 {t}set%d {t}set%d", n, m),
			fmt.Sprintf("sinterstore {t}set1 {t}set%d {t}set%d", n, m),
			fmt.Sprintf("sdiffstore {t}set1 {t}set%d {t}set%d", n, m),
			fmt.Sprintf("spop {t}set%d %d", n, to-from),
		},
		inZSet: {
			fmt.Sprintf("sort {t}zset%d by nosort limit %d %d store {t}list%d", n, from, to-from, m),
			fmt.Sprintf("sort {t}zset%d by nosort desc limit %d %d store {t}list1", n, from, to-from),
			fmt.Sprintf("zrangestore {t}zset1 {t}zset%d %d %d", n, from, to),
			fmt.Sprintf("zrangestore {t}zset1 {t}zset%d +inf 0 byscore rev limit %d %d", n, from, to-from),
			fmt.Sprintf("zremrangebyrank {t}zset%d %d %d", n, from, to),
			fmt.Sprintf("zremrangebyscore {t}zset%d %d %d", n, from%100, from%100+1),
			fmt.Sprintf("zpopmin {t}zset%d %d", n, to-from),
			fmt.Sprintf("zpopmax {t}zset%d %d", n, to-from),
			fmt.Sprintf("zunionstore {t}zset1 2 {t}zset%d {t}zset%d", n, m),
			fmt.Sprintf("zinterstore {t}zset1 2 {t}zset%d {t}zset%d", n, m),
			fmt.Sprintf("zdiffstore {t}zset1 2 {t}zset%d {t}zset%d", n, m),
			fmt.Sprintf("copy {t}zset%d {t}zset1 replace", n),
		},
		inList: {
			fmt.Sprintf("linsert {t}list%d before %d x", n, g.IntN(3000)),
			fmt.Sprintf("lrem {t}list%d %d %d", n, g.IntN(7)-3, g.IntN(3000)),
			fmt.Sprintf("lpop {t}list%d %d", n, to-from),
			fmt.Sprintf("ltrim {t}list%d %d %d", n, g.IntN(50), -1-g.IntN(50)),
			fmt.Sprintf("sort {t}list%d store {t}list1", n),
		},
	}[kind]
	if g.IntN(3) > 0 {
		calls = append(calls, large(g, kind, n))
	}
	return append(calls, bytes.Fields([]byte(line[g.IntN(len(line))])))
}

// odd makes a call, mostly a random one of the comparison with Redis with some arguments replaced.
func odd(g *redistest.CallGenerator) [][][]byte {
	switch g.IntN(100) {
	case 0:
		return [][][]byte{large(g, g.IntN(4), 1+g.IntN(3))}
	case 1, 2, 3: // the replies of which may be cut, and what they do may not
		return deep(g)
	case 4, 5, 6:
		return [][][]byte{ownCall(g)}
	}
	if g.IntN(4) == 0 {
		row := withOwn.Rows()[g.IntN(len(withOwn.Rows()))]
		args := [][]byte{[]byte(row.Name)}
		if n := len(row.Sub); n > 0 {
			args = append(args, []byte(row.Sub[g.IntN(n)].Name))
		}
		for range g.IntN(8) {
			args = append(args, oddArgument(g))
		}
		return [][][]byte{args}
	}
	var calls [][][]byte
	for _, call := range g.Calls(true) {
		var args [][]byte
		for i, a := range call {
			args = append(args, []byte(a))
			if i > 0 && g.IntN(8) == 0 {
				args[i] = oddArgument(g)
			}
		}
		if g.IntN(20) == 0 {
			args = append(args, oddArgument(g))
		}
		calls = append(calls, args)
	}
	return calls
}

// ownCall makes a call of a command that Redis does not have, or that the server runs outside of units.
func ownCall(g *redistest.CallGenerator) [][]byte {
	milliseconds := func() string { return fmt.Sprint(1 + g.IntN(10_000)) }
	words := []string{"neokv"}
	switch g.IntN(5) {
	case 4:
		return callOf([]string{"randomkey", "dbsize", "keys *", "scan 0"}[g.IntN(4)])
	case 0:
		words = append(words, "LegacySet", g.Key(), g.Value())
		if g.IntN(2) == 0 {
			words = append(words, "px", milliseconds())
		}
	case 1:
		key := g.Key()
		words = append(words, "scanprefix", "{t}", key[:g.IntN(len(key)+1)], fmt.Sprint(1+g.IntN(20)))
		if g.IntN(2) == 0 {
			words = append(words, "after", g.Key())
		}
	default:
		words = append(words, "batch")
		for range 1 + g.IntN(8) {
			key := g.Key()
			switch g.IntN(6) {
			case 0:
				words = append(words, "DEL", key)
			case 1:
				words = append(words, "pexpire", key, fmt.Sprint(g.IntN(10_000)-100))
			case 2:
				words = append(words, "persist", key)
			case 3:
				words = append(words, "psetex", key, milliseconds(), g.Value())
			default:
				words = append(words, "set", key, g.Value())
			}
		}
	}
	args := make([][]byte, len(words))
	for i, word := range words {
		if args[i] = []byte(word); i > 1 && g.IntN(60) == 0 {
			args[i] = oddArgument(g)
		}
	}
	return args
}

var oddNumbers = strings.Fields(`
	0 -0 -0.0 1 -1 2 3 -3 5 10 64 1024 3.5 -2.5 1e3 1e400 -1e400 1e-400 nan NaN -nan inf -inf +inf infinity (1 (-inf
	[a (a [ ( - + [\xff 9223372036854775807 -9223372036854775808 9223372036854775806 -9223372036854775807
	9223372036854775808 18446744073709551615 4611686018427387904 4294967296 4294967295 2147483648 2147483647
	-2147483648 1.7976931348623157e308 -1.7976931348623157e308 5e-324 0x1p-1074 0x10 1e308 01 +1 1_0`)

var oddWords = strings.Fields(`
	nx xx gt lt ch incr get ex px exat pxat keepttl persist limit count withscores withvalues weights aggregate sum
	min max byscore bylex rev left right before after match type rank maxlen replace db store asc desc alpha by get
	# * samples idx len withmatchlen minmatchlen encoding string list {t}hash1 {t}set1 {t}list1 {t}zset1 {t}a {t}b
	{t}hash2 {t}set2 {t}list2 {t}zset2 {s}zset {t}`)

func oddArgument(g *redistest.CallGenerator) []byte {
	switch g.IntN(5) {
	case 0, 1:
		return []byte(oddNumbers[g.IntN(len(oddNumbers))])
	case 2, 3:
		return []byte(oddWords[g.IntN(len(oddWords))])
	}
	b := make([]byte, g.IntN(12))
	for i := range b {
		b[i] = byte(g.IntN(256))
	}
	return b
}

// What large adds to.
const (
	inHash = iota
	inSet
	inZSet
	inList
)

// large makes a call that adds many elements to a collection.
func large(g *redistest.CallGenerator, kind, number int) [][]byte {
	args := bytes.Fields(fmt.Append(nil, []string{"hset {t}hash", "sadd {t}set", "zadd {t}zset", "rpush {t}list"}[kind],
		number))
	for range 100 + g.IntN(1500) {
		if kind == inZSet {
			score := fmt.Append(nil, g.IntN(100))
			if g.IntN(5) == 0 {
				score = []byte("-0")
			}
			args = append(args, score)
		}
		args = append(args, fmt.Append(nil, g.IntN(3000)))
		if kind == inHash {
			args = append(args, []byte("v"))
		}
	}
	return args
}

// FuzzCommand runs any arguments on any commands, in both protocols, on two replicas.
func FuzzCommand(f *testing.F) {
	f.Add([]byte("\x00\x01a"))
	f.Add([]byte("\x01\x01a\x01v\x02ex\x0210"))
	f.Add([]byte("\x0f\x01a\x0210\x02nx\x05b\r\nad"))
	f.Add([]byte("\x18\x04sync"))
	for i, row := range withOwn.Rows() { // each with a few words
		in := []byte{byte(i)}
		for _, word := range strings.Fields("{t}zset1 1 m " + row.Name) {
			in = append(append(in, byte(len(word))), word...)
		}
		f.Add(append(in, 0x80, byte(i), 1, 'a'))
	}
	for _, line := range []string{"batch set a 123456789 del a", "batch psetex a 9 v pexpire a -1 persist b",
		"batch set a", "scanprefix a a 2 after a"} {
		in := []byte{byte(len(withOwn.rows) - 1)} // NEOKV
		for _, word := range strings.Fields(line) {
			in = append(append(in, byte(len(word))), word...)
		}
		f.Add(in)
	}
	w := newReplicas(f, nil)
	shortPieces(f, 8)
	flush := Call{data.Lookup([]byte("flushall")), [][]byte{[]byte("flushall")}}
	f.Fuzz(func(t *testing.T, in []byte) {
		w.TB, w.Rand = t, rand.New(rand.NewPCG(uint64(len(in)), uint64(crc32.ChecksumIEEE(in))))
		for _, d := range w.all() {
			d.t = t
		}
		w.write([]Call{flush})
		var calls []Call
		for len(in) > 0 {
			args := [][]byte{[]byte("nosuch")}
			if n := int(in[0]); n < len(withOwn.rows) {
				args[0] = []byte(withOwn.rows[n].Name)
			}
			for in = in[1:]; len(in) > 0 && in[0] < 0x80; {
				n := min(int(in[0]), len(in)-1)
				args = append(args, in[1:1+n])
				in = in[1+n:]
			}
			if len(in) > 0 { // a byte from 0x80 on ends the call
				in = in[1:]
			}
			out := Reply{}
			row := withOwn.Find(args, &out)
			switch {
			case row == nil:
				w.one(&Call{nil, args}, out.Buf)
			case !row.CheckArity(len(args)):
				out.WrongArity(row)
				w.one(&Call{row, args}, out.Buf)
			case row.Write != nil || row.InUnit != nil || row.Read != nil && w.IntN(2) == 0:
				calls = append(calls, Call{row, args})
			case row.Read != nil:
				w.read(Call{row, args})
			}
			if len(in) == 0 || w.IntN(3) == 0 {
				w.write(calls)
				calls = nil
			}
		}
		w.compare()
	})
}
