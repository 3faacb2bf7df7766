package region

import (
	"errors"
	"fmt"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// answers finds, while an entry is applied, the run that each call is from. It has none if nobody waits for the entry.
type answers struct {
	b          *proposal
	part, call int // the next call is the call-th of this part
}

// next returns the run of the next call and the index of that call there.
func (a *answers) next() (run *redis.Run, call int) {
	for a.b.parts[a.part].from+a.call == a.b.parts[a.part].to {
		a.part, a.call = a.part+1, 0
	}
	part := &a.b.parts[a.part]
	return part.p.Run, part.from + a.call
}

// marks are those of the entry that is being applied. Which of their keys its units have changed so far is in the
// machine's stage, since a stage may end between these units.
type marks struct {
	all     []mark
	of      map[string][]int // the marks of a key
	next    int              // the first mark of the next group
	effects int              // how many of the effects have been looked at
	on      map[string][]int // the waiters for a key
	first   int              // the first waiter; the others follow
	served  int              // how many of the effects serve has looked at
}

// mark begins an entry with marks. inside says that some of its units are applied already.
func (m *machine) mark(encoded []byte, inside bool) (err error) {
	k := &m.marks
	k.of, k.effects = make(map[string][]int), len(m.effects.All)
	k.served = k.effects
	if !inside || m.o.Mistakes.LostMarks {
		m.stage.Touched = m.stage.Touched[:0]
	}
	for len(encoded) > 0 {
		var x mark
		if x, encoded, err = parseMark(encoded); err != nil {
			return err
		}
		switch {
		case x.row != nil:
			if k.on == nil {
				k.on, k.first = make(map[string][]int), len(k.all)
			}
			m.places = x.row.AppendWaits(m.places[:0], x.args)
			for _, place := range m.places {
				key := string(x.args[place])
				if of := k.on[key]; len(of) == 0 || of[len(of)-1] != len(k.all) { // it may name a key twice
					k.on[key] = append(of, len(k.all))
				}
			}
		case k.on != nil:
			return errors.New("decode entry: a watched key behind a waiter")
		default:
			k.of[string(x.key)] = append(k.of[string(x.key)], len(k.all))
		}
		k.all = append(k.all, x)
	}
	if k.on != nil && inside && m.o.Mistakes.LostServed {
		for i := k.first; i < 8*len(m.stage.Touched); i++ {
			m.stage.Touched[i/8] &^= 1 << (i % 8)
		}
	}
	m.writer.Effects = &m.effects
	return nil
}

// unmark ends an entry with marks.
func (m *machine) unmark() {
	if len(m.marks.all) == 0 {
		return
	}
	m.marks = marks{}
	if !m.collecting {
		m.writer.Effects = nil
		m.effects.Reset()
	}
}

// touch notes the marks whose keys the present unit has changed.
func (m *machine) touch() {
	k := &m.marks
	for _, e := range m.effects.All[k.effects:] {
		if e.What != redis.Flushed {
			m.touchKey(&e, k.of[string(e.Key)])
			continue
		}
		for key, of := range k.of {
			if e.Slots.Contains(topology.SlotOf([]byte(key))) {
				m.touchKey(&e, of)
			}
		}
	}
	k.effects = len(m.effects.All)
}

func (m *machine) touchKey(e *redis.Effect, of []int) {
	for _, i := range of {
		if e.What == redis.Told || e.What != redis.Changed && !m.marks.all[i].live {
			continue
		}
		m.setBit(i)
	}
}

// bit reports whether a watched key is touched, or a waiter served.
func (m *machine) bit(i int) bool {
	return i/8 < len(m.stage.Touched) && m.stage.Touched[i/8]&(1<<(i%8)) != 0
}

func (m *machine) setBit(i int) {
	for i/8 >= len(m.stage.Touched) {
		m.stage.Touched = append(m.stage.Touched, 0)
	}
	m.stage.Touched[i/8] |= 1 << (i % 8)
}

// serve serves the waiters among the marks whose keys the present unit has filled: the keys in the order in which they
// were filled, and the waiters for a key in their order. What serving fills, it serves, too. It reports whether the
// entry has to end here, since others wait for a key that still has elements. b waits for the entry, nil if nobody
// does. A key that a unit has changed a thousand times is looked at once.
func (m *machine) serve(w *redis.Writer, b *proposal) (cut bool, err error) {
	k := &m.marks
	looked := map[string]int{} // how many effects there were behind the last look at a key
	for ; k.served < len(m.effects.All); k.served++ {
		e := m.effects.All[k.served]
		if e.What != redis.Changed || k.served < looked[string(e.Key)] {
			continue
		}
		if b != nil && b.short {
			b.left = append(b.left, string(e.Key))
		}
		on := k.on[string(e.Key)]
		for _, i := range on {
			if m.bit(i) {
				continue
			}
			x, out := &k.all[i], &m.discard
			var run *redis.Run
			if w.Seen, w.Published, m.effects.By = nil, nil, nil; b == nil {
				out.Discard(keptReplyBytes)
			} else {
				run = b.waiters[i-k.first].p.Run
				out, m.effects.By = &run.Out, run.By
			}
			served, err := w.Serve(x.row, x.args, e.Key, out)
			if err != nil {
				return false, err
			}
			if !served {
				continue
			}
			m.setBit(i)
			if run != nil {
				run.Ends = append(run.Ends, len(out.Buf))
			}
		}
		for _, i := range on {
			x := &k.all[i]
			if !x.more || !m.bit(i) {
				continue
			}
			ready, err := w.Ready(x.row, e.Key)
			if err != nil {
				return false, err
			}
			if ready {
				if cut = true; b != nil {
					b.left = append(b.left, string(e.Key))
				}
				break
			}
		}
		looked[string(e.Key)] = len(m.effects.All)
	}
	return cut, nil
}

// nothing takes back the null of a blocking pop that waits.
func (a *answers) nothing() {
	if a.b == nil || !a.b.parts[a.part].p.blocks() {
		return
	}
	run := a.b.parts[a.part].p.Run
	run.Out.Buf, run.Ends[len(run.Ends)-1] = run.Out.Buf[:0], 0
}

// unmarked takes the next group's marks, and reports whether the group has an effect: no unit of the entry before it
// has changed one of the keys, and none has expired as of the entry that the client may have seen.
func (m *machine) unmarked(w *redis.Writer, count int) (ok bool, err error) {
	k := &m.marks
	if all := len(k.all) - k.next; count > all || k.on != nil && k.next+count > k.first {
		return false, fmt.Errorf("decode entry: a group has %d marks, and %d are left", count, all)
	}
	first := k.next
	k.next += count
	for i := first; i < k.next; i++ {
		x := &k.all[i]
		if x.dirty || m.bit(i) {
			return false, nil
		}
		if x.live && w.Expired(x.expires) && !m.o.Mistakes.DeadMarks {
			return false, nil
		}
	}
	return true, nil
}

// group runs the calls of a group, or passes over them if the group has no effect. It returns what is left of the read
// set.
func (m *machine) group(w *redis.Writer, u unit, reads []byte, a *answers) (_ []byte, calls uint64, err error) {
	ok, err := m.unmarked(w, u.marks)
	if err != nil {
		return nil, 0, err
	}
	if !ok {
		a.drop(0, "")
	}
	var before redis.Point
	bounded, held := ok && many(u.calls), w.Batch.Held()
	if bounded {
		if before, err = w.Save(); err != nil {
			return nil, 0, err
		}
		held = w.Batch.Held()
	}
	looked, written := 0, 0 // what reads and writes have gone through
	w.BeginGroup()
	defer w.EndGroup()
	for rest := u.calls; len(rest) > 0; calls++ {
		if m.args, rest, err = parseCall(rest, m.args[:0]); err != nil {
			return nil, 0, err
		}
		if calls > 0 && m.o.Mistakes.CutGroups && m.full() {
			if err := m.endStage(w.Index, 0); err != nil {
				return nil, 0, err
			}
			reads = nil
		}
		if len(m.texts) > 0 {
			if err := withText(m.args, m.texts); err != nil {
				return nil, 0, err
			}
		}
		if reads, err = w.Expect(m.args, reads); err != nil {
			return nil, 0, err
		}
		if !ok {
			m.pass(a)
			continue
		}
		row := find(m.args, true)
		if row == nil {
			return nil, 0, fmt.Errorf("unknown command %q in a group", m.args[0])
		}
		sum, script := &written, row == redis.Script || row == redis.ScriptRead
		if w.Work = &m.work; row.Write == nil && !script {
			sum, w.Choices = &looked, &m.choices
		}
		if looked > m.unitWork && sum == &looked {
			m.refuse(a)
		} else if err := m.call(w, row, a); err != nil {
			return nil, 0, err
		} else if !script {
			*sum += 1 + w.Spent()
		}
		w.Choices = nil
		why := ""
		switch {
		case !bounded:
		case w.Batch.Held()-held > m.unitBytes:
			why = fmt.Sprintf("ERR %v: it writes more than %d bytes at once", ErrTooLarge, m.unitBytes)
		case written > m.unitWork:
			why = redis.ErrUnitWrites
		}
		if why != "" {
			if err := w.Undo(before); err != nil {
				return nil, 0, err
			}
			ok = false
			a.drop(int(calls)+1, why)
		}
	}
	return reads, calls, nil
}

// refuse answers the next call, a read of a group whose reads have gone through too much together. Replicas need not
// agree about that, since nothing else follows from a read of a client: one that has no room for a reply goes through
// less. So reads and writes count apart. Scripts, also those that only read, have limits of their own, the same on all
// replicas.
func (m *machine) refuse(a *answers) {
	if a.b != nil {
		run, _ := a.next()
		run.Out.Error(redis.ErrUnitReads)
		run.Ends = append(run.Ends, len(run.Out.Buf))
		a.call++
	}
}

// fewCalls is how many calls a group may have whose writes need not be counted.
const fewCalls = 16

// many reports whether a group has so many calls, or a script, that what they write has to be bounded while they run: a
// call of some bytes may write a string of 64 KiB again, or move an element. What a call writes of its arguments is
// bounded before.
func many(calls []byte) bool {
	var room [8][]byte
	for n := 0; len(calls) > 0; n++ {
		if n == fewCalls {
			return true
		}
		var args [][]byte
		var err error
		if args, calls, err = parseCall(calls, room[:0]); err != nil {
			return false
		}
		if redis.ScriptText(args) > 0 {
			return true
		}
	}
	return false
}

// drop says that the present group has no effect. It takes back the replies of the calls that have run.
func (a *answers) drop(ran int, why string) {
	if a.b == nil {
		return
	}
	a.call -= ran
	run, call := a.next()
	before := len(run.Ends) - ran
	start := 0
	if before > 0 {
		start = run.Ends[before-1]
	}
	run.Out.Buf = run.Out.Buf[:start]
	for i := range run.Ends[before:] {
		run.Ends[before+i] = start
	}
	if at := run.GroupAt(call); at >= 0 { // else its callers have been answered
		run.Dropped = append(run.Dropped, redis.Drop{Group: at, Error: why})
	}
	a.call += ran
}

// pass gives the next call an empty reply.
func (m *machine) pass(a *answers) {
	if a.b != nil {
		run, _ := a.next()
		run.Ends = append(run.Ends, len(run.Out.Buf))
		a.call++
	}
}

// walks reports whether a group has a read that goes over keys or elements. That makes the batch index all its writes,
// so it is cheaper to begin a stage with the group.
func (m *machine) walks(calls []byte) bool {
	for len(calls) > 0 {
		var err error
		if m.args, calls, err = parseCall(calls, m.args[:0]); err != nil {
			return false // group meets it, too
		}
		if row := find(m.args, true); row != nil && row.Iterates() {
			return true
		}
	}
	return false
}
