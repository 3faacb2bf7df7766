package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// picture writes porcupine's picture of the history of a key to a file.
func (h *history) picture(key, path string) error {
	var ops []*op
	for _, o := range h.ops {
		if o.key == key {
			ops = append(ops, o)
		}
	}
	m, operations := forPorcupine(ops)
	m.DescribeOperation = func(input, output any) string {
		o, reply := input.(*op), "?"
		if got := output.(*string); got != nil {
			reply = fmt.Sprintf("%q", *got)
		}
		return strings.Join(o.args(), " ") + " = " + reply
	}
	_, info := porcupine.CheckOperationsVerbose(m, operations, checkTime)
	return porcupine.VisualizePath(m, info, path)
}

// checkTime bounds the search in the history of one key, in real time: a history is checked outside of virtual time.
const checkTime = 30 * time.Second

// check returns the first problem of the history, nil if it is linearizable key by key.
func (h *history) check() error {
	for err := range h.problems {
		return err
	}
	return nil
}

// problems checks key by key, and yields a problem of each key that has one.
func (h *history) problems(yield func(error) bool) {
	byKey := map[string][]*op{}
	for _, o := range h.ops {
		if !unchecked(o.key) {
			byKey[o.key] = append(byKey[o.key], o)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		ops := byKey[key]
		var wrong error
		switch verdict := decide(ops, checkTime); verdict {
		case porcupine.Ok:
			continue
		case porcupine.Illegal:
			what, first := explain(ops)
			wrong = &wrongKey{key, found(what, "key %s: not linearizable: %s: %s\n%s", key, what, first,
				upTo(ops, first))}
		default:
			wrong = fmt.Errorf("key %s: %d operations, verdict %s after %s", key, len(ops), verdict, checkTime)
		}
		if !yield(wrong) {
			return
		}
	}
}

// wrongKey is the error of a key whose history is not linearizable.
type wrongKey struct {
	key string
	error
}

func (w *wrongKey) Unwrap() error { return w.error }

// upTo prints the last 30 operations of a key up to the end of one of them.
func upTo(ops []*op, last *op) string {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.call > last.end })
	slices.SortFunc(ops, func(a, b *op) int { return int(a.call - b.call) })
	var b strings.Builder
	for _, o := range ops[max(0, len(ops)-30):] {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// decide searches for a linearization of the history of a key.
func decide(ops []*op, within time.Duration) porcupine.CheckResult {
	m, operations := forPorcupine(ops)
	return porcupine.CheckOperationsTimeout(m, operations, within)
}

// forPorcupine makes the history of a key one for porcupine, with its model. Operations of unknown outcome stay open to
// the end. Two sorts of them say nothing, and are left out: reads and, if clients only set and read the key, writes of
// values that no client has read.
func forPorcupine(ops []*op) (porcupine.Model, []porcupine.Operation) {
	register := true
	read := map[string]bool{}
	end := int64(0)
	for _, o := range ops {
		register = register && (o.kind == set && o.ttl == 0 || o.kind == get)
		read[o.reply] = read[o.reply] || o.kind == get && o.end != 0
		end = max(end, o.call, o.end)
	}
	var kept []*op
	var out []porcupine.Operation
	for _, o := range ops {
		p := porcupine.Operation{ClientId: o.client, Input: o, Output: &o.reply, Call: o.call, Return: o.end}
		if o.end == 0 {
			if o.kind.reads() || register && !read[o.value] {
				continue
			}
			p.Output, p.Return = (*string)(nil), end+1
		}
		kept, out = append(kept, o), append(out, p)
	}
	return modelOf(kept), out
}
