package sim

import (
	"strconv"
	"strings"
)

// Two operations are transactions. One increments a counter: it watches it, reads it, and sets it in a transaction, so it
// loses nothing, though other clients increment the counter, too. The other moves an amount from one number of a slot to
// another: whoever reads all of them sees the same sum.

// nobody is the reply of a transaction without effect, since a watched key has changed.
const nobody = "nil"

// ask sends an operation and returns its reply. between may be nil: see caller.
func (o *op) ask(w *respConn, between func()) (string, error) {
	switch o.kind {
	case watchedIncr:
		reply, err := w.transaction([]string{"WATCH", o.key}, []string{"GET", o.key})
		if err != nil {
			if _, refused := err.(refusal); refused {
				if _, err := w.call("UNWATCH"); err != nil {
					return "", err
				}
			}
			return "", err
		}
		n, _ := strconv.Atoi(reply)
		o.value = strconv.Itoa(n + 1)
		if between != nil {
			between()
		}
		reply, err = w.transaction([]string{"MULTI"}, []string{"SET", o.key, o.value}, []string{"EXEC"})
		if err == nil && reply == "" {
			reply = nobody
		}
		return reply, err
	case move:
		words := strings.Fields(o.value)
		return w.transaction([]string{"MULTI"}, []string{"DECRBY", cellKey(o.key, words[0]), words[2]},
			[]string{"INCRBY", cellKey(o.key, words[1]), words[2]}, []string{"EXEC"})
	}
	return w.call(o.args()...)
}

// transaction sends commands together, and returns the last one's reply, or the first error.
func (w *respConn) transaction(commands ...[]string) (reply string, err error) {
	var b []byte
	for _, c := range commands {
		b = appendCommand(b, c)
	}
	if _, err := w.nc.Write(b); err != nil {
		return "", err
	}
	refused := false
	for range commands {
		r, e := w.read()
		if err == nil {
			reply, err = r, e
			_, refused = e.(refusal)
		}
		if err != nil && !refused {
			return "", err
		}
	}
	return reply, err
}
