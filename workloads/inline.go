package workloads

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// This file makes a workload of commands as a user types them, without a file. docs/workloads.md describes their form.
// Their words become those of a workload file, so all that is drawn and made is the same. Everything that is wrong with
// the commands is reported together, each with its command.

// Placeholders says what a command of Commands may have in braces.
const Placeholders = "{key DISTRIBUTION COUNT [KEY]}, {value SIZES}, {int SIZES}, {member}, {new}, {score} or {token}"

// maxInline bounds the bytes of a command.
const maxInline = 16 << 10

// Commands returns the workload of commands, each `[SHARE:] COMMAND WORDS`. A word in braces stands for what is drawn
// for each call. Records are loaded where a command needs what it finds there. The error is a FileError with everything
// that is wrong.
func Commands(texts []string) (*Workload, error) {
	c := &inlineCommands{w: &Workload{Name: CommandsName(texts), Text: []byte(strings.Join(texts, "\n") + "\n")}}
	if len(texts) == 0 || len(texts) > maxOps {
		return nil, &FileError{fmt.Errorf("%d commands, want 1 to %d", len(texts), maxOps)}
	}
	total := 0.0
	for _, c.text = range texts {
		c.add()
		total += c.w.Ops[len(c.w.Ops)-1].Share
	}
	for i := range c.w.Ops {
		c.w.Ops[i].Share /= total
	}
	c.load()
	if len(c.wrong) > 0 {
		return nil, &FileError{errors.Join(c.wrong...)}
	}
	return c.w, nil
}

// CommandsName returns the name that the workload of Commands has in results.
func CommandsName(texts []string) string {
	names := make([]string, len(texts))
	for i, text := range texts {
		names[i] = strings.Join(strings.Fields(text), " ")
	}
	return strings.Join(names, " | ")
}

// inlineCommands are commands while they are read.
type inlineCommands struct {
	text  string // the command that is read
	wrong []error
	w     *Workload
	keys  []*inlineKeys
}

// inlineKeys is what the commands do to keys of one form. It is a kind of records for each choice and number.
type inlineKeys struct {
	name    string
	kinds   []*recordKind
	types   []string // of the commands, each once
	found   bool     // a command needs what it finds
	counter bool
	value   sizes // of the first command with a value
}

// inlineWord is a word as it was typed.
type inlineWord struct {
	text   string
	braces bool // all of it is in braces, without quotes
	spaces bool // there are spaces in braces without quotes
}

func (c *inlineCommands) complain(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf("command %q: %s", c.text, fmt.Sprintf(format, args...)))
}

// add reads the command and adds its operation.
func (c *inlineCommands) add() {
	op := Op{Share: 1, kind: -1}
	defer func() { c.w.Ops = append(c.w.Ops, op) }()
	if len(c.text) > maxInline {
		c.text = c.text[:20] + "..."
		c.complain("more than %d bytes", maxInline)
		return
	}
	words, err := splitQuoted(c.text)
	if err != nil {
		c.complain("%v", err)
		return
	}
	if share, ok := strings.CutSuffix(first(words).text, ":"); ok {
		if x, err := strconv.ParseFloat(share, 64); err != nil || !(x >= 1e-9 && x <= 1e9) {
			c.complain("share %q, want a number from 1e-09 to 1e+09 before the colon", share)
		} else {
			op.Share = x
		}
		words = words[1:]
	}
	if first(words).text == "" {
		c.complain("want [SHARE:] COMMAND WORDS")
		return
	}
	s := &commandSpec{text: []byte(words[0].text), name: strings.ToLower(words[0].text), kind: -1}
	var keys []*inlineKeys
	for _, typed := range words[1:] {
		w, k, err := c.word(typed, s)
		if err != nil {
			c.complain("%v", err)
		}
		if k != nil {
			keys = append(keys, k)
		}
		s.words = append(s.words, w)
	}
	c.check(s)
	op.kind, op.steps, op.Reads = s.kind, []*commandSpec{s}, knownCommands[s.name].reads
	if s.does = Untracked; op.Reads {
		s.does = Read
	}
	op.Name = s.name
	for n := 2; slices.ContainsFunc(c.w.Ops, func(o Op) bool { return o.Name == op.Name }); n++ {
		op.Name = fmt.Sprintf("%s-%d", s.name, n)
	}
	for _, k := range keys {
		k.note(s)
	}
}

// first returns the first word, an empty one if there is none.
func first(words []inlineWord) (w inlineWord) {
	if len(words) > 0 {
		w = words[0]
	}
	return w
}

// check complains about a command that cannot be sent, and finds what routes it.
func (c *inlineCommands) check(s *commandSpec) {
	known, ok := knownCommands[s.name]
	switch {
	case !ok:
		c.complain("command %s: unknown", s.text)
		return
	case slices.Contains(apart, s.name):
		c.complain("%s: it is about the connection, the server or a transaction; want a workload file for transactions",
			s.text)
	case !known.takes(len(s.words) + 1):
		c.complain("%d words behind the command, want %s", len(s.words), known.wanted())
	}
	args := [][]byte{s.text}
	for _, w := range s.words {
		args = append(args, w.text)
	}
	key := FirstKey(s.name, args)
	for i, a := range args {
		if len(key) > 0 && len(a) > 0 && &a[0] == &key[0] {
			s.key = i
		}
	}
	if s.kind < 0 && slices.ContainsFunc(s.words, func(w word) bool { return w.kind == wordMember }) {
		c.complain("{member}: want a {key ...} whose element it is")
	}
}

// word reads a word behind the name of a command. It returns the keys that it names, nil for none.
func (c *inlineCommands) word(typed inlineWord, s *commandSpec) (w word, k *inlineKeys, err error) {
	inside := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(typed.text, "{"), "}"))
	name, rest, more := strings.Cut(strings.Join(inside, " "), " ")
	kind, known := inlineKinds[name]
	if !typed.braces || !known && !typed.spaces {
		if typed.spaces {
			return w, nil, fmt.Errorf("%s: want a placeholder as a word of its own, and other braces with spaces in quotes",
				typed.text)
		}
		return word{kind: wordLiteral, text: []byte(typed.text)}, nil, nil
	}
	w = word{kind: kind}
	switch {
	case !known:
		err = fmt.Errorf("want %s, and other braces with spaces in quotes", Placeholders)
	case kind == wordKey:
		k, err = c.key(rest, &w, s)
	case kind == wordValue:
		w.size, err = parseSizes(rest, 0, maxValue)
	case kind == wordInt:
		w.size, err = parseSizes(rest, 0, 1<<40)
	case more:
		err = fmt.Errorf("unexpected %q", rest)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", typed.text, err)
	}
	return w, k, err
}

// inlineKinds are the placeholders of a command.
var inlineKinds = map[string]wordKind{"key": wordKey, "value": wordValue, "int": wordInt, "member": wordMember,
	"new": wordNew, "score": wordScore, "token": wordToken}

// key reads what stands behind {key. Numbers belong to the distribution as long as they fit it. The record of the first
// key is that of the operation; each other key has a record of its own.
func (c *inlineCommands) key(text string, w *word, s *commandSpec) (*inlineKeys, error) {
	words := strings.Fields(text)
	choice, count, at := keyChoice{}, int64(0), len(words)-1
	for ; at > 0; at-- {
		var wrong [2]error
		choice, wrong[0] = parseChoice(strings.Join(words[:at], " "))
		if count, wrong[1] = strconv.ParseInt(words[at], 10, 64); wrong[0] == nil && wrong[1] == nil {
			break
		}
	}
	name := "key:"
	if at > 0 && len(words) > at+1 {
		name = words[at+1]
	}
	_, err := strconv.ParseFloat(name, 64)
	if at <= 0 || len(words) > at+2 || count < 1 || count > maxCount || err == nil {
		return nil, fmt.Errorf("want {key DISTRIBUTION COUNT [KEY]}: %s; COUNT 1 to %g; KEY a word that is no number",
			strings.TrimPrefix(choiceForms, "want "), float64(maxCount))
	}
	if !strings.Contains(name, "<") {
		name += "<n>"
	}
	made, err := parseTemplate(name, exprScope{record: true})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.keys, func(k *inlineKeys) bool { return k.name == name })
	if i < 0 {
		i = len(c.keys)
		c.keys = append(c.keys, &inlineKeys{name: name})
	}
	k := c.keys[i]
	at = slices.IndexFunc(c.w.kinds, func(x *recordKind) bool {
		return x.name == name && x.count == numberExpr(count) && x.choose.text == choice.text
	})
	if at < 0 {
		at = len(c.w.kinds)
		c.w.kinds = append(c.w.kinds, &recordKind{name: name, keys: []keySpec{{name: made}}, count: numberExpr(count),
			choose: choice, ratio: 1})
		k.kinds = append(k.kinds, c.w.kinds[at])
	}
	if w.of = at + 1; s.kind < 0 {
		s.kind, w.of = at, 0
	}
	return k, nil
}

// note takes what a command does to its keys.
func (k *inlineKeys) note(s *commandSpec) {
	for name, commands := range typedCommands {
		if slices.Contains(commands, s.name) && !slices.Contains(k.types, name) {
			k.types = append(k.types, name)
		}
	}
	if !slices.Contains(making, s.name) {
		k.found = true
	}
	k.counter = k.counter || slices.Contains(counting, s.name)
	for _, w := range s.words {
		if k.value == nil && w.kind == wordValue {
			k.value = w.size
		}
	}
}

// load says which records are loaded, and of which type they are: of keys of one form as many as any command names.
func (c *inlineCommands) load() {
	for _, k := range c.keys {
		slices.Sort(k.types)
		if len(k.types) > 1 {
			c.wrong = append(c.wrong, fmt.Errorf("keys %s: commands of the types %s have them; want a KEY of its own for "+
				"each type, as in {key uniform 1000 queue:}", k.name, strings.Join(k.types, " and ")))
			continue
		}
		most := slices.MaxFunc(k.kinds, func(a, b *recordKind) int {
			return cmp.Compare(a.count.(numberExpr), b.count.(numberExpr))
		})
		for _, kind := range k.kinds {
			kind.value, kind.counter = k.value, k.counter
			kind.load = kind == most && k.found && len(k.types) == 1
			kind.keys[0].fixed = !kind.load // nothing of it is a value
			for _, of := range collectionTypes {
				if slices.Contains(k.types, of.name) {
					kind.of = of
				}
			}
		}
	}
}

// typed lists commands by the type of their keys, as far as that can be loaded.
var typedCommands = map[string][]string{
	"string": strings.Fields(`append bitcount bitfield bitfield_ro bitop bitpos decr decrby get getbit getdel getex
		getrange getset incr incrby incrbyfloat lcs mget mset msetnx psetex set setbit setex setnx setrange strlen substr`),
	"hash": strings.Fields(`hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset
		hsetnx hstrlen hvals`),
	"list": strings.Fields(`blmove blmpop blpop brpop brpoplpush lindex linsert llen lmove lmpop lpop lpos lpush lpushx
		lrange lrem lset ltrim rpop rpoplpush rpush rpushx`),
	"set": strings.Fields(`sadd scard sdiff sdiffstore sinter sintercard sinterstore sismember smembers smismember smove
		spop srandmember srem sscan sunion sunionstore`),
	"zset": strings.Fields(`bzmpop bzpopmax bzpopmin zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard
		zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrangestore zrank
		zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan
		zscore zunion zunionstore`),
}

// counting are commands for strings with numbers.
var counting = strings.Fields("incr incrby decr decrby incrbyfloat")

// making are commands that make the key they are about, or do not care for it. No record is loaded for them alone.
var making = slices.Concat(counting, strings.Fields(`set setex psetex setnx getset mset msetnx append setrange setbit
	hset hmset hsetnx hincrby hincrbyfloat lpush rpush sadd zadd zincrby del unlink expire pexpire`))

// splitQuoted splits a command into words as redis-cli does. Outside of quotes, spaces in braces end no word.
func splitQuoted(text string) (words []inlineWord, err error) {
	const spaces = " \t\r\n"
	for rest := strings.Trim(text, spaces); rest != ""; rest = strings.TrimLeft(rest, spaces) {
		w, depth, from := inlineWord{braces: rest[0] == '{'}, 0, rest
		for rest != "" && (depth > 0 || !strings.Contains(spaces, rest[:1])) {
			b := rest[0]
			if depth == 0 && (b == '"' || b == '\'') {
				inside, after, ok := cutQuoted(rest)
				if !ok || after != "" && !strings.Contains(spaces, after[:1]) {
					return nil, errors.New("unbalanced quotes")
				}
				w.text, w.braces, rest = w.text+inside, false, after
				continue
			}
			switch {
			case b == '{':
				w.braces = w.braces && (depth > 0 || w.text == "")
				depth++
			case b == '}' && depth > 0:
				depth--
			case depth == 0:
				w.braces = false
			case strings.Contains(spaces, rest[:1]):
				w.spaces = true
			}
			w.text, rest = w.text+rest[:1], rest[1:]
		}
		if depth > 0 {
			return nil, fmt.Errorf("%s: no } behind {; want braces that are no placeholder in quotes", from)
		}
		words = append(words, w)
	}
	return words, nil
}

// cutQuoted cuts what stands in quotes from a text that begins with one. In single quotes \' alone is an escape. In
// double quotes these are the ones of Redis, which Go writes in the same way.
func cutQuoted(text string) (inside, after string, ok bool) {
	if text[0] == '"' {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", "", false
		}
		inside, err = strconv.Unquote(quoted)
		return inside, text[len(quoted):], err == nil
	}
	for i := 1; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], `\'`):
			i++
		case text[i] == '\'':
			return strings.ReplaceAll(text[1:i], `\'`, `'`), text[i+1:], true
		}
	}
	return "", "", false
}
