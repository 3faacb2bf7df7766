package sim

import (
	"cmp"
	"math"
	"slices"
)

// queued is the place of an open operation in a queue, which holds open operations that do the same: of one kind, with
// one value. The model lets them take effect in the order of their calls alone, since any other order comes to the
// same. Else the search would try each subset of them, and would not end where they are many.
//
// Why the order of calls is enough: take a linearization of the history, and the instants in it at which operations of
// one queue take effect. From the first instant to the last, let another operation take effect instead: the one that
// was called first, of all in the queue that have not yet taken effect in this new order and may do so by then. An
// operation may once it is called and all operations of its pipeline with a reply and an earlier turn have taken
// effect. There always is one: by the i-th instant i operations of the queue had taken effect, so at least i may. Those
// of the queue for which no instant is left take effect at the end, behind all replies. What the key holds at each
// reply stays the same. Pipelines still take effect in turn:
//
//   - Two operations of the queue in one pipeline: the one with the earlier turn was called first, and may take effect
//     if the other may. So it does first.
//   - An operation of the queue and one with a reply and an earlier turn: the queue's operation waits for it.
//   - An operation of the queue and one with a reply and a later turn: the queue holds only operations of this pipeline
//     between the same two replies. All the instants were before the later reply's operation took effect, and still
//     are. A queue of several pipelines, and of operations outside of pipelines, has no operation with such a reply
//     behind it.
//   - An operation of the queue and an open one that does something else: an operation with a reply stands between
//     their turns, and keeps them apart. Where a pipeline has no reply between open operations that do different
//     things, none of these is in a queue.
//
// Operations outside of the queue take effect when they did, so this can be done with one queue after the other. Keys
// that expire have no queues, since there the effect of an operation depends on its time.
type queued struct {
	line  uint64 // the pipeline, or a number given to all operations of the queue that are in none
	turn  int
	from  int       // it may take effect once the line has come so far: behind the last reply before it
	ahead []*queued // of each line in the queue, the last one called before
}

// openSpan is a part of a pipeline: the open operations from a turn on, up to the next operation with a reply.
type openSpan struct {
	line uint64
	from int
}

// queueName tells queues apart. Its span is the zero one unless an operation with a reply stands behind it.
type queueName struct {
	kind  opName
	value string
	openSpan
}

// queues puts the open operations of a key into queues. The operations are those that porcupine gets, of a key that
// does not expire.
func queues(ops []*op) map[*op]*queued {
	ops = slices.Clone(ops)
	slices.SortStableFunc(ops, func(a, b *op) int { return cmp.Compare(a.call, b.call) })
	var (
		in       = map[*op]openSpan{}
		opens    = map[openSpan]*op{}  // the first one
		mixed    = map[openSpan]bool{} // does not all do the same
		followed = map[openSpan]bool{} // by an operation with a reply
		from     = map[uint64]int{}
	)
	for _, o := range ops {
		switch part := (openSpan{o.line, from[o.line]}); {
		case o.line == 0:
		case o.end != 0:
			followed[part] = true
			from[o.line] = o.turn + 1
		default:
			if opens[part] == nil {
				opens[part] = o
			}
			in[o] = part
			mixed[part] = mixed[part] || o.kind != opens[part].kind || o.value != opens[part].value
		}
	}
	all := map[*op]*queued{}
	tails := map[queueName][]*queued{} // of each line, the last one so far
	made := map[queueName]uint64{}     // the lines of those in no pipeline
	for _, o := range ops {
		part := in[o]
		if o.end != 0 || mixed[part] {
			continue
		}
		name := queueName{kind: o.kind, value: o.value}
		if followed[part] {
			name.openSpan = part
		}
		q := &queued{line: o.line, turn: o.turn, from: part.from, ahead: slices.Clone(tails[name])}
		if o.line == 0 {
			if made[name] == 0 {
				made[name] = math.MaxUint64 - uint64(len(made))
			}
			q.line, q.turn = made[name], len(all)
		}
		all[o] = q
		tails[name] = append(slices.DeleteFunc(tails[name], func(t *queued) bool { return t.line == q.line }), q)
	}
	return all
}
