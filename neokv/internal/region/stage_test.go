package region

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// entryOf makes one log entry of many calls.
func entryOf(index uint64, calls ...[][]byte) multiraft.Entry {
	cmd := make([]byte, entryHeaderBytes)
	h := entryHeader{term: 3, timeMS: 1000 + index, version: keys.Version(1000+index, index), store: 9,
		bounds: 1}
	h.put(cmd)
	for _, args := range calls {
		cmd = appendCall(cmd, &redis.Call{Args: args})
	}
	return multiraft.Entry{Index: index, Cmd: cmd}
}

func words(line string) (args [][]byte) {
	for _, w := range strings.Fields(line) {
		args = append(args, []byte(w))
	}
	return args
}

// stagedRead makes a read that may stand among the calls of a transaction. Two of them choose at random.
func stagedRead(random *rand.Rand) [][]byte {
	n := random.IntN(4)
	return words(fmt.Sprintf([]string{
		"srandmember {foo}m%d 3", "hrandfield {foo}m%d", "lrange {foo}l%d 0 -1", "get {foo}s%d", "zrank {foo}z%d 5",
		"sort {foo}l%d", "object encoding {foo}m%d", "ttl {foo}g%d",
	}[random.IntN(8)], n))
}

// stagedScripts are scripts whose arguments are calls. Two of them go on until a limit ends them, or until close to it.
var stagedScripts = []string{
	"for _, c in ipairs(ARGV) do redis.pcall(unpack(cjson.decode(c))) end return redis.call('get', KEYS[1])",
	"for _, c in ipairs(ARGV) do redis.pcall(unpack(cjson.decode(c))) end\nerror('in the middle')",
	"redis.call('set', KEYS[1], math.random(1000))\nwhile true do for _, c in ipairs(ARGV) do " +
		"redis.pcall(unpack(cjson.decode(c))) end end",
	"redis.call('incr', KEYS[1]) for i = 1, math.random(20) do for _, c in ipairs(ARGV) do " +
		"redis.pcall(unpack(cjson.decode(c))) end end redis.call('sadd', '{foo}m1', math.random(1000))",
}

// stagedLimits end about half of those scripts.
var stagedLimits = redis.ScriptLimits{Steps: 20_000, Bytes: 200_000, Calls: 60}

// stagedScript makes a call of a script.
func stagedScript(random *rand.Rand) redis.Call {
	rest := []string{"1", fmt.Sprintf("{foo}g%d", random.IntN(4))}
	for range 1 + random.IntN(6) {
		args := stagedCall(random)
		if random.IntN(3) == 0 {
			args = stagedRead(random)
		}
		rest = append(rest, fmt.Sprintf(`["%s"]`, bytes.Join(args, []byte(`","`))))
	}
	return scriptCall(stagedScripts[random.IntN(len(stagedScripts))], rest...)
}

// entryOfUnits makes one log entry of units: calls, groups, marks and waiters. It is exact if it has marks or waiters.
func entryOfUnits(index uint64, units, marks, waiters []byte, s *scripts) multiraft.Entry {
	entry := entryOf(index)
	entry.Cmd = append(append(append(append(entry.Cmd, units...), s.bytes...), marks...), waiters...)
	if n := len(marks) + len(waiters); n > 0 || len(s.bytes) > 0 {
		entry.Cmd = appendTrailer(entry.Cmd, len(s.bytes), n, len(waiters) > 0, nil, index-1)
	}
	return entry
}

// stagedWaiters makes the marks of some waiters for lists and sorted sets that the units of stagedUnits may fill. Now
// and then others wait behind them, so that the entry ends early.
func stagedWaiters(random *rand.Rand) (waiters []byte) {
	for range random.IntN(20) {
		line := []string{
			"blpop {foo}lX {foo}lY 0", "brpop {foo}lX 0", "blmove {foo}lX {foo}lY left right 0",
			"blmpop 0 1 {foo}lX right count 2", "bzpopmin {foo}zX {foo}lY 0", "bzmpop 0 1 {foo}zX max",
			"brpoplpush {foo}lX {foo}wY 0",
		}[random.IntN(7)]
		line = strings.NewReplacer("X", fmt.Sprint(random.IntN(4)), "Y", fmt.Sprint(random.IntN(4))).Replace(line)
		waiters = appendWaiter(waiters, &redis.Call{Args: words(line)}, random.IntN(20) == 0)
	}
	return waiters
}

// stagedUnits makes some units: calls, scripts, and groups of them. Most groups have marks, of keys that units before
// them may have changed.
func stagedUnits(random *rand.Rand, n int) (units, marks []byte, s *scripts) {
	s = new(scripts)
	scripted := random.IntN(3) > 0
	if scripted {
		s.limit(stagedLimits)
	}
	for ; n > 0; n-- {
		if scripted && random.IntN(4) == 0 {
			units = s.appendCall(units, new(stagedScript(random)))
			continue
		}
		if random.IntN(3) > 0 {
			units = appendCall(units, &redis.Call{Args: stagedCall(random)})
			continue
		}
		var calls []redis.Call
		for range 1 + random.IntN(20) {
			calls = append(calls, redis.Call{Args: stagedCall(random)})
			if random.IntN(4) == 0 {
				calls = append(calls, redis.Call{Args: stagedRead(random)})
			}
			if scripted && random.IntN(12) == 0 {
				calls = append(calls, stagedScript(random))
			}
		}
		watched := random.IntN(3)
		for range watched {
			key := fmt.Sprintf("{foo}%c%d", "slcmzg"[random.IntN(6)], random.IntN(4))
			marks = (&mark{key: []byte(key), live: random.IntN(5) == 0, dirty: random.IntN(50) == 0,
				expires: uint64(random.IntN(2)) << random.IntN(12)}).append(marks)
		}
		units = s.appendGroup(units, redis.GroupExec, watched, calls)
	}
	return units, marks, s
}

// apply applies a log from where the replica is, in updates of random sizes.
func (r still) apply(t testing.TB, random *rand.Rand, log []multiraft.Entry) {
	t.Helper()
	for from := int(r.machine.state.ApplyIndex); from < len(log); from = int(r.machine.state.ApplyIndex) {
		n := min(len(log)-from, 1+random.IntN(8))
		if _, err := r.machine.Update(append([]multiraft.Entry{}, log[from:from+n]...)); err != nil || r.fs.Failed() != nil {
			t.Fatal(err, r.fs.Failed())
		}
	}
}

// stagedCall makes a call whose effect shows whether it ran once, or at another place: counters, lists, random members,
// versions.
func stagedCall(random *rand.Rand) [][]byte {
	n := random.IntN(4)
	switch random.IntN(12) {
	case 0, 1:
		return words(fmt.Sprintf("append {foo}s%d %d", n, random.IntN(1000)))
	case 2, 3:
		return words(fmt.Sprintf("rpush {foo}l%d %d %d", n, random.IntN(1000), random.IntN(1000)))
	case 4:
		return words(fmt.Sprintf("incr {foo}c%d", n))
	case 5:
		line := fmt.Sprintf("sadd {foo}m%d", n)
		for range 75 {
			line += fmt.Sprint(" ", random.IntN(100_000))
		}
		return words(line)
	case 6, 7:
		return words(fmt.Sprintf("spop {foo}m%d %d", n, 1+random.IntN(5)))
	case 8:
		return words(fmt.Sprintf("spop {foo}m%d", n))
	case 9:
		return words(fmt.Sprintf("zadd {foo}z%d %d %d", n, random.IntN(100), random.IntN(1000)))
	case 10:
		return words(fmt.Sprintf("ltrim {foo}l%d 0 %d", n, random.IntN(100)))
	}
	switch random.IntN(40) {
	case 0:
		return words(fmt.Sprintf("del {foo}m%d {foo}l%d {foo}s%d", n, n, n))
	case 1:
		if random.IntN(20) == 0 {
			return words("flushall")
		}
	case 5, 6, 7, 8:
		return words(fmt.Sprintf("neokv batch del {foo}s%d set {foo}g%d %d pexpire {foo}g%d 5 del {foo}m%d", n, n,
			random.IntN(1000), random.IntN(4), random.IntN(4)))
	case 2, 3, 4:
		return words(fmt.Sprintf("copy {foo}m%d {foo}m%d replace", n, random.IntN(4)))
	}
	return words(fmt.Sprintf("getset {foo}g%d %d", n, random.IntN(1000)))
}

// TestStages applies one random log whose entries have many units. The model applies each update as one stage. The
// other replica has stages of some hundred bytes, is cut off at random bytes of its write-ahead log, and goes on from
// there, often inside an entry. Both hold the same in the end, and no record of a stage is left. So does a replica that
// got a snapshot from inside an entry.
//
// A replica that starts inside an entry without the bits of the marks, or those of the waiters, ends with something
// else.
func TestStages(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	if err := checkStages(t, seed, 8, Mistakes{}); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	found := func(m Mistakes) bool {
		for log := range uint64(10) { // some logs have no unit where it matters
			if checkStages(t, seed+log, 30, m) != nil {
				return true
			}
		}
		return false
	}
	if !found(Mistakes{LostMarks: true}) {
		t.Errorf("seed %d: replicas that lose the bits of marks hold the same", seed)
	}
	if !found(Mistakes{LostServed: true}) {
		t.Errorf("seed %d: replicas that lose which waiters are served hold the same", seed)
	}
	for _, m := range []redis.ScriptMistakes{{KeptWrites: true}, {Chance: true}, {Capacity: true}, {MapOrder: true}} {
		if !found(Mistakes{Scripts: m}) {
			t.Errorf("seed %d: replicas of which one has the mistake %+v hold the same", seed, m)
		}
	}
}

// checkStages returns an error if a replica differs from the model after it has been inside an entry so many times.
func checkStages(t *testing.T, seed uint64, enough int, mistakes Mistakes) error {
	random := rand.New(rand.NewPCG(seed, 0))
	var log []multiraft.Entry
	for len(log) < 60 {
		units, marks, scripts := stagedUnits(random, 1+random.IntN(30))
		log = append(log, entryOfUnits(uint64(len(log)+1), units, marks, stagedWaiters(random), scripts))
	}
	model := openStill(t, disk.Mem())
	defer model.close(t)
	model.machine.unitBytes = 2000
	model.apply(t, random, log)
	want := model.content(t)

	inside := 0
	for replicas := 0; inside < enough; replicas++ {
		if replicas == 60 {
			t.Fatalf("seed %d: %d starts inside an entry, want %d", seed, inside, enough)
		}
		r := openStill(t, disk.Mem())
		for range 8 {
			r.o.Mistakes, r.machine.unitBytes = mistakes, 2000
			r.machine.stageBytes = 50 + random.IntN(2000)
			from := int(r.machine.state.ApplyIndex)
			r.apply(t, random, log[:min(len(log), from+random.IntN(10))])
			if err := r.machine.Sync(); err != nil {
				t.Fatal(err)
			}
			from = int(r.machine.state.ApplyIndex)
			r.apply(t, random, log[:min(len(log), from+1+random.IntN(10))])
			left := r.fs.Crash(random.IntN(101), random)
			r.close(t)
			r = openStill(t, left)
			if !r.machine.insideEntry() {
				continue
			}
			if inside++; inside%2 == 0 && r.machine.state.ApplyIndex > 0 { // another replica goes on from there
				to := openStill(t, disk.Mem())
				if err := to.machine.RecoverFromSnapshot(bytes.NewReader(r.snapshot(t)), nil); err != nil ||
					to.fs.Failed() != nil {
					t.Fatal(err, to.fs.Failed())
				}
				r.close(t)
				r = to
			}
		}
		r.o.Mistakes, r.machine.unitBytes = mistakes, 2000
		r.machine.stageBytes = stageBytes
		r.apply(t, random, log)
		got := r.content(t)
		r.close(t)
		if !maps.Equal(got, want) {
			return fmt.Errorf("%d records, want %d, or they differ", len(got), len(want))
		}
	}
	t.Logf("%d starts inside an entry", inside)
	return nil
}

// TestUnitIsNeverCut applies entries of many NEOKV BATCH, or of transactions, in stages of one unit each, and cuts the
// replica off at random bytes of its write-ahead log: what a unit writes together is found together. One value is long,
// so that it lies in pieces.
func TestUnitIsNeverCut(t *testing.T) {
	for _, grouped := range []bool{false, true} {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		if err := checkUnits(t, seed, grouped, Mistakes{}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if err := checkUnits(t, seed, grouped, Mistakes{CutGroups: true}); grouped && err == nil {
			t.Errorf("seed %d: stages that end in groups are not found", seed)
		}
	}
}

// checkUnits returns an error if a replica has a part of a unit.
func checkUnits(t *testing.T, seed uint64, grouped bool, mistakes Mistakes) error {
	random := rand.New(rand.NewPCG(seed, 0))
	long := strings.Repeat("v", 70_000)
	var log []multiraft.Entry
	n := 0
	for len(log) < 40 {
		var units []byte
		for range 1 + random.IntN(8) {
			n++
			line := fmt.Sprintf("set {foo}a %d del {foo}h set {foo}b %d set {foo}c %d%s", n, n, n, long)
			if !grouped {
				units = appendCall(units, &redis.Call{Args: words("neokv batch " + line)})
			} else {
				w := words(line)
				units = new(scripts).appendGroup(units, redis.GroupExec, 0,
					[]redis.Call{{Args: w[:3]}, {Args: w[3:5]}, {Args: w[5:8]}, {Args: w[8:]}})
			}
			units = appendCall(units, &redis.Call{Args: words("hset {foo}h f v")})
		}
		log = append(log, entryOfUnits(uint64(len(log)+1), units, nil, nil, new(scripts)))
	}
	r := openStill(t, disk.Mem())
	inside := 0
	for range 25 {
		r.o.Mistakes = mistakes
		r.machine.stageBytes = 1
		from := int(r.machine.state.ApplyIndex)
		r.apply(t, random, log[:min(len(log), from+random.IntN(2))])
		if err := r.machine.Sync(); err != nil {
			t.Fatal(err)
		}
		from = int(r.machine.state.ApplyIndex)
		r.apply(t, random, log[:min(len(log), from+1+random.IntN(2))])
		left := r.fs.Crash(random.IntN(101), random)
		r.close(t)
		r = openStill(t, left)
		if r.machine.insideEntry() {
			inside++
		}
		v := r.o.Engine.NewView()
		var values []string
		for _, key := range []string{"{foo}a", "{foo}b"} {
			b, ok, err := v.Get(keys.AppendMetadata(nil, topology.SlotOf([]byte(key)), []byte(key)))
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				m, err := keys.ParseMetadata(b)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, string(m.Value))
			}
		}
		var out redis.Run
		out.Calls = []redis.Call{{Command: redis.Lookup([]byte("getrange")), Args: words("getrange {foo}c 0 -70001")}}
		reader := redis.Reader{View: v}
		if err := reader.Execute(&out); err != nil {
			t.Fatal(err)
		}
		v.Close()
		if len(values) == 0 && string(out.Out.Buf) == "$0\r\n\r\n" {
			continue
		}
		if len(values) != 2 || values[0] != values[1] ||
			string(out.Out.Buf) != fmt.Sprintf("$%d\r\n%s\r\n", len(values[0]), values[0]) {
			r.close(t)
			return fmt.Errorf("a unit in part: %q, and %q in the long string", values, out.Out.Buf)
		}
	}
	r.close(t)
	t.Logf("%d starts inside an entry", inside)
	return nil
}

// TestStagesBoundBatches has one entry write 100 times as much as a stage holds, and delete ranges a hundred times.
// Each ends a stage.
func TestStagesBoundBatches(t *testing.T) {
	r := openStill(t, disk.Mem())
	defer r.close(t)
	r.machine.stageBytes = 64 << 10
	value := []byte(strings.Repeat("v", 4<<10))
	var calls [][][]byte
	for i := range 1600 {
		calls = append(calls, [][]byte{[]byte("set"), fmt.Appendf(nil, "{foo}%d", i), value})
	}
	for range 100 {
		calls = append(calls, words("flushall"), words("rpush {foo}l a b c"))
	}
	if _, err := r.machine.Update([]multiraft.Entry{entryOf(1, calls...)}); err != nil || r.fs.Failed() != nil {
		t.Fatal(err, r.fs.Failed())
	}
	if got := r.counters.Stages.Load(); got < 200 || got > 250 {
		t.Errorf("%d stages; want one for each 64 KiB of 6,400, and one for each of 100 ranges", got)
	}
	if n := len(r.content(t)); n != 5 { // the list, its elements, the region state
		t.Errorf("%d records, want 5", n)
	}
}
