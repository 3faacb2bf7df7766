package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTime bounds the search for one key, in real time. Call check outside of a bubble.
const checkTime = 30 * time.Second

// check returns what is wrong with the history, nil if it is linearizable key by key.
func (h *history) check() error {
	if all := h.problems(1); len(all) > 0 {
		return all[0]
	}
	return nil
}

// problems returns what is wrong with the first most keys of which something is.
func (h *history) problems(most int) (all []error) {
	byKey := map[string][]*op{}
	for _, o := range h.ops {
		if !unchecked(o.key) {
			byKey[o.key] = append(byKey[o.key], o)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		ops := byKey[key]
		switch verdict := porcupine.CheckOperationsTimeout(modelOf(ops), forPorcupine(ops), checkTime); verdict {
		case porcupine.Ok:
		case porcupine.Illegal:
			what, first := explain(ops)
			all = append(all, found(what, "key %s: not linearizable: %s: %s\n%s", key, what, first, upTo(ops, first)))
		default:
			all = append(all, fmt.Errorf("key %s: %d operations, verdict %s after %s", key, len(ops), verdict, checkTime))
		}
		if len(all) == most {
			break
		}
	}
	return all
}

// upTo prints the last lines of a key's history up to the end of an operation.
func upTo(ops []*op, last *op) string {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.call > last.end })
	slices.SortFunc(ops, func(a, b *op) int { return int(a.call - b.call) })
	var b strings.Builder
	for _, o := range ops[max(0, len(ops)-30):] {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// forPorcupine turns one key's history into porcupine's. Unknown outcomes stay open to the end. Two sorts of them say nothing and
// are left out: reads; and, where a key is only set and read, values that nobody has read.
func forPorcupine(ops []*op) []porcupine.Operation {
	register := true
	read := map[string]bool{}
	end := int64(0)
	for _, o := range ops {
		register = register && (o.kind == set && o.ttl == 0 || o.kind == get)
		read[o.reply] = read[o.reply] || o.kind == get && o.end != 0
		end = max(end, o.call, o.end)
	}
	var out []porcupine.Operation
	for _, o := range ops {
		p := porcupine.Operation{ClientId: o.client, Input: o, Output: &o.reply, Call: o.call, Return: o.end}
		if o.end == 0 {
			if o.kind.reads() || register && !read[o.value] {
				continue
			}
			p.Output, p.Return = (*string)(nil), end+1
		}
		out = append(out, p)
	}
	return out
}
