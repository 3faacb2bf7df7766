package sim

import (
	"strconv"
	"strings"
)

// Two operations are transactions, and one is a script. One increments a counter: it watches it, reads it, and sets it in a transaction, so it
// loses nothing, though other clients increment the counter, too. The other moves an amount from one number of a slot to
// another: whoever reads all of them sees the same sum. The
// script does that, too.

// moveText is a script that moves an amount between KEYS[1] and KEYS[2]. It also stores what replicas could differ in: a
// random number, how long a string of 70,000 bytes looks, and its arguments. Then it makes so many calls that a limit
// may end it: nothing of it stays then.
const moveText = `
local from, to = redis.call('DECRBY', KEYS[1], ARGV[1]), redis.call('INCRBY', KEYS[2], ARGV[1])
if redis.call('STRLEN', KEYS[4]) == 0 then
	redis.call('SETRANGE', KEYS[4], 69999, 'x')
end
local seen = {tostring(math.random(1000000)), tostring(#(redis.call('GET', KEYS[4]) or ''))}
for i = 3, #ARGV do
	seen[#seen + 1] = ARGV[i]
end
redis.call('SET', KEYS[3], table.concat(seen, ' '))
for i = 1, tonumber(ARGV[2]) do
	redis.call('INCR', KEYS[5])
end
return {from, to}`

// limited is the reply of a script that a limit has ended.
const limited = "limited"

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
	case moveScript:
		words := strings.Fields(o.value)
		args := []string{"EVAL", moveText, "5"}
		for _, cell := range []string{words[0], words[1], "u", "v", "w"} {
			args = append(args, cellKey(o.key, cell))
		}
		return w.call(append(args, words[2], words[3], "p", "q", "r", "s")...)
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
