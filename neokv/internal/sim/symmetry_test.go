package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestManyOpenCounts checks histories of a counter with 22 increments of unknown outcome, most of them in pipelines,
// of which few took effect. The search would not end if it tried each subset.
func TestManyOpenCounts(t *testing.T) {
	in := func(line uint64, turn int, call, end int64, reply string) *op {
		return &op{kind: incr, key: "c", call: call, end: end, reply: reply, line: line, turn: turn}
	}
	for _, x := range []struct {
		name    string
		replies []string // to the last increments, one after the other; the one before them has "10"
		want    porcupine.CheckResult
	}{
		{"two took effect", []string{"13", "14", "15"}, porcupine.Ok},
		{"all took effect", []string{"33", "34", "35"}, porcupine.Ok},
		{"one more than there were", []string{"34", "35", "36"}, porcupine.Illegal},
		{"one took effect later", []string{"13", "15", "16"}, porcupine.Ok},
		{"an acknowledged one is lost", []string{"10", "11", "12"}, porcupine.Illegal},
		{"a later one is lost", []string{"13", "14", "14"}, porcupine.Illegal},
	} {
		ops := []*op{in(0, 0, 1, 2, "1"), in(0, 0, 3, 4, "2"), in(0, 0, 5, 6, "3"), in(0, 0, 7, 0, "")}
		now := int64(8)
		add := func(line uint64, turn int) {
			ops = append(ops, in(line, turn, now, 0, ""))
			now++
		}
		reply := func(line uint64, turn int, text string) {
			ops = append(ops, in(line, turn, now, now+1, text))
			now += 2
		}
		reply(0, 0, "4")
		for line := uint64(1); line <= 3; line++ {
			reply(line, 0, strconv.Itoa(4+int(line)))
			for turn := 1; turn <= 4; turn++ {
				add(line, turn)
			}
		}
		for line := uint64(4); line <= 6; line++ {
			add(line, 0)
			add(line, 5)
			add(0, 0)
		}
		for n := 8; n <= 10; n++ {
			reply(0, 0, strconv.Itoa(n))
		}
		for _, text := range x.replies {
			reply(0, 0, text)
		}
		if got := decide(ops, checkTime); got != x.want {
			t.Errorf("%s: verdict %s, want %s", x.name, got, x.want)
		}
	}
}

// TestDeadOpenCounts checks a history in which many increments of unknown outcome can no longer take effect, since one
// with a reply and a later turn has.
func TestDeadOpenCounts(t *testing.T) {
	for reply, want := range map[string]porcupine.CheckResult{"4": porcupine.Ok, "5": porcupine.Illegal} {
		var ops []*op
		for line := uint64(1); line <= 3; line++ {
			for turn := range 8 {
				ops = append(ops, &op{kind: incr, key: "c", call: int64(len(ops) + 1), line: line, turn: turn})
			}
			now := int64(len(ops) + 1)
			ops = append(ops, &op{kind: incr, key: "c", call: now, end: 99 + int64(line), reply: fmt.Sprint(line),
				line: line, turn: 8})
		}
		ops = append(ops, &op{kind: incr, key: "c", call: 200, end: 201, reply: reply})
		if got := decide(ops, checkTime); got != want {
			t.Errorf("reply %s: verdict %s, want %s", reply, got, want)
		}
	}
}

// inAnyOrder is ordered without queues: the search tries open operations in any order.
func inAnyOrder(m porcupine.Model) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return inTurn{state: m.Init()} },
		Step: func(state, input, output any) (bool, any) {
			s, o := state.(inTurn), input.(*op)
			if o.line != 0 {
				if s.next(o.line) > o.turn {
					return output.(*string) == nil, s
				}
				s.lines = slices.DeleteFunc(slices.Clone(s.lines), func(l lineTurn) bool { return l.line == o.line })
				i, _ := s.find(o.line)
				s.lines = slices.Insert(s.lines, i, lineTurn{o.line, o.turn + 1})
			}
			ok, after := m.Step(s.state, input, output)
			s.state = after
			return ok, s
		},
		Equal: func(a, b any) bool {
			x, y := a.(inTurn), b.(inTurn)
			return slices.Equal(x.lines, y.lines) && m.Equal(x.state, y.state)
		},
	}
}

// randomHistory is a history of a key that a right store could give, with two replies at most that are perhaps wrong.
// Two pipelines may be in it.
func randomHistory(random *rand.Rand) (ops []*op) {
	choices := [][]opName{{incr}, {incr, incr, incr, get, del, set}, {setNX, del}, {lpush, lpop, rpop}}
	kinds := choices[random.IntN(len(choices))]
	loss, state := random.Float64(), ""
	turns := [3]int{} // of each pipeline; the first one is none
	applied, settled := map[*op]bool{}, map[*op]bool{}
	clock := int64(0)
	for n := 2 + random.IntN(7); len(ops) < n || random.IntN(8) > 0; {
		clock++
		if len(ops) == 0 || len(ops) < n && random.IntN(3) == 0 {
			line := random.IntN(len(turns))
			o := &op{kind: kinds[random.IntN(len(kinds))], key: "c", call: clock, line: uint64(line), turn: turns[line]}
			switch o.kind {
			case set, setNX, lpush:
				o.value = strconv.Itoa(random.IntN(2))
			}
			turns[line]++
			ops = append(ops, o)
			continue
		}
		o := ops[random.IntN(len(ops))]
		tooLate := func(x *op) bool { return o.line != 0 && x.line == o.line && x.turn > o.turn && applied[x] }
		switch {
		case settled[o]:
		case applied[o]:
			settled[o] = true
			if random.Float64() > loss {
				o.end = clock
			}
		case !slices.ContainsFunc(ops, tooLate):
			state, o.reply = o.effect(state, "")
			applied[o] = true
		}
	}
	for range 2 {
		o := ops[random.IntN(len(ops))]
		if n, err := strconv.Atoi(o.reply); o.end != 0 && err == nil {
			o.reply = strconv.Itoa(n + random.IntN(4) - 1)
		}
	}
	return ops
}

// TestQueuesChangeNoVerdict compares the verdict on random histories with that of a search without queues.
func TestQueuesChangeNoVerdict(t *testing.T) {
	const histories = 20000
	verdicts := map[porcupine.CheckResult]int{}
	for seed := range uint64(histories) {
		ops := randomHistory(rand.New(rand.NewPCG(seed, 0)))
		_, operations := forPorcupine(ops)
		want := porcupine.CheckOperationsTimeout(inAnyOrder(model), operations, checkTime)
		if got := decide(ops, checkTime); got != want {
			var b strings.Builder
			for _, o := range ops {
				fmt.Fprintln(&b, o)
			}
			t.Fatalf("seed %d: verdict %s, want %s:\n%s", seed, got, want, &b)
		}
		verdicts[want]++
	}
	if verdicts[porcupine.Ok] < histories/5 || verdicts[porcupine.Illegal] < histories/5 {
		t.Errorf("verdicts %v: too few of one sort", verdicts)
	}
}
