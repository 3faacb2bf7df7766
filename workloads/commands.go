package workloads

import (
	"bytes"
	_ "embed"
	"slices"
	"strconv"
	"strings"
)

// commandsText has a line for each command of redis-server 7.0: its name, its arity as COMMAND tells it, and whether it
// reads, writes, or neither, and the place of its first key, 0 for none or where that depends on the call.
//
//go:embed commands.txt
var commandsText string

// knownCommand is what a check of a mix needs to know of a command.
type knownCommand struct {
	arity int // words with the name; negative: at least so many
	reads bool
	// writes is not set of scripts, and of others whose subcommands differ.
	writes bool
	key    int // place of the first key
}

var knownCommands = func() map[string]knownCommand {
	out := map[string]knownCommand{}
	for line := range strings.Lines(commandsText) {
		words := strings.Fields(line)
		arity, err := strconv.Atoi(words[1])
		if err != nil {
			panic(err) // the file is tested
		}
		key, err := strconv.Atoi(words[3])
		if err != nil {
			panic(err)
		}
		out[words[0]] = knownCommand{arity, words[2] == "read", words[2] == "write", key}
	}
	return out
}()

// MayWrite reports whether a command may change what keys hold.
func MayWrite(name string) bool {
	switch name = strings.ToLower(name); name {
	case "eval", "evalsha", "fcall", "xgroup", "exec", "replicaof", "slaveof":
		return true
	}
	return knownCommands[name].writes
}

// FirstKey returns the first key of a call, nil if it has none or the command is unknown. name is in lower case, and
// args[0] is the name as the caller wrote it.
func FirstKey(name string, args [][]byte) []byte {
	at := knownCommands[name].key
	switch name {
	case "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro":
		if at = 3; len(args) > 2 && string(args[2]) == "0" {
			at = 0
		}
	case "zunion", "zinter", "zdiff", "zintercard", "sintercard", "lmpop", "zmpop", "object", "xgroup", "xinfo", "memory":
		at = 2
	case "blmpop", "bzmpop":
		at = 3
	case "xread", "xreadgroup":
		for i, a := range args {
			if bytes.EqualFold(a, []byte("streams")) {
				at = i + 1
			}
		}
	}
	if at <= 0 || at >= len(args) {
		return nil
	}
	return args[at]
}

// changesAll reports whether a command may change records that it does not name.
func changesAll(name string) bool { return name == "flushall" || name == "flushdb" || name == "swapdb" }

// takes reports whether a call may have so many words.
func (k knownCommand) takes(words int) bool {
	return k.arity >= 0 && words == k.arity || k.arity < 0 && words >= -k.arity
}

// wanted says how many words a call must have behind the name.
func (k knownCommand) wanted() string {
	if k.arity < 0 {
		return "at least " + strconv.Itoa(-k.arity-1)
	}
	return strconv.Itoa(k.arity - 1)
}

// OpKind says what a command does to its record, so that reading back can tell what the record must hold.
type OpKind uint8

const (
	Read        OpKind = iota
	Untracked          // it may change the record in a way that reading back cannot follow
	Write              // the record or element then holds the value or score
	WriteFading        // as Write, until the record expires
	Fade               // the record may expire
	Delete
	Increment // of the number that the record holds
	Fill      // the record then has the elements that are loaded, and no others
	Push      // more elements
	Pop       // one element less, unless there is none
)

// kindOf tells what a command does, from its name and its words.
func (c *commandSpec) kindOf(of *CollectionType) OpKind {
	has := func(k wordKind) bool { return slices.ContainsFunc(c.words, func(w word) bool { return w.kind == k }) }
	literal := func(text string) bool {
		return slices.ContainsFunc(c.words, func(w word) bool {
			return w.kind == wordLiteral && strings.EqualFold(string(w.text), text)
		})
	}
	if knownCommands[c.name].reads || c.name == "watch" || c.publishes() {
		return Read
	}
	shape := c.shape()
	switch c.name {
	case "set":
		switch {
		case shape == "key value":
			return Write
		case strings.HasPrefix(shape, "key value literal ") && (literal("EX") || literal("PX")) && len(c.words) == 4:
			return WriteFading
		}
	case "setex", "psetex":
		if strings.HasPrefix(shape, "key ") && strings.HasSuffix(shape, " value") {
			return WriteFading
		}
	case "mset":
		if shape == "keysvalues" || shape == "key value" {
			return Write
		}
	case "del", "unlink":
		if shape == "keys" || shape == "key" {
			return Delete
		}
	case "incr":
		return Increment
	case "expire", "pexpire":
		if len(c.words) == 2 {
			return Fade
		}
	case "hset", "hmset", "zadd", "sadd", "rpush", "lpush":
		switch {
		case of == nil || len(c.words) < 2:
		case (c.name == "hset" || c.name == "hmset") && shape == "key member value", c.name == "zadd" &&
			shape == "key score member":
			return Write
		case c.onlyNew(of):
			return Push
		}
	case "lpop", "rpop", "spop", "zpopmin", "zpopmax":
		if shape == "key" && of != nil {
			return Pop
		}
	case "blpop", "brpop", "bzpopmin", "bzpopmax":
		if (shape == "key literal" || shape == "key int") && of != nil {
			return Pop
		}
	}
	if len(c.words) == 0 || !has(wordKey) && !has(wordKeys) && !has(wordKeysValues) {
		return Read // of no record
	}
	return Untracked
}

// shape lists the kinds of the words behind the name.
func (c *commandSpec) shape() string {
	var out []string
	for _, w := range c.words {
		out = append(out, w.kind.String())
	}
	return strings.Join(out, " ")
}

// onlyNew reports whether a command adds new elements, and does nothing else.
func (c *commandSpec) onlyNew(of *CollectionType) bool {
	want := map[string]map[*CollectionType]string{
		"hset": {hash: "new value"}, "hmset": {hash: "new value"}, "zadd": {sortedSet: "score new"}, "sadd": {set: "new"},
		"rpush": {list: "value"}, "lpush": {list: "value"},
	}[c.name][of]
	if c.says {
		want = "message"
	}
	added, ok := strings.CutPrefix(c.shape(), "key ")
	if want == "" || !ok {
		return false
	}
	return strings.ReplaceAll(added+" ", want+" ", "") == ""
}
