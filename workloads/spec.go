package workloads

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"go/token"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// This file reads workload files. docs/workloads.md describes their form. Everything that is wrong with a file is
// reported together, each with its line.

// FileError is the error of a workload that is unknown, or of a file with mistakes.
type FileError struct{ err error }

func (e *FileError) Error() string { return e.err.Error() }

// Bounds of a workload file.
const (
	maxFile    = 1 << 20
	maxKinds   = 100
	maxOps     = 200
	maxKeys    = 16 // of a record
	maxSteps   = 32
	maxWords   = 4096      // of a command, repetitions counted
	maxValue   = 64 << 20  // bytes
	maxCount   = 1e12      // records of a kind
	maxElement = 1_000_000 // elements of a record
	maxRoles   = 16        // parts of the clients

	maxSubscribers = 100_000
)

// recordKind is a kind of records: how many there are, their keys, and what they hold.
type recordKind struct {
	name    string
	of      *CollectionType // nil for strings
	counter bool            // strings that hold numbers
	keys    []keySpec       // several are written together
	count   expr
	load    bool
	choose  keyChoice
	value   sizes   // nil: the size that the load says
	ratio   float64 // to which values can be compressed
	many    sizes   // elements; nil: as many as the load says
	length  sizes   // of keys at least, nil for no bound
	let     map[string]expr
	owner   bool // each record belongs to one client

	// What the mix does to the records.
	inserted, deleted, fades bool
	push, pop                []int    // operations
	apart                    bool     // not all clients do both
	left                     []string // why reading back cannot follow the records
}

// keySpec is one key of a record, and what it holds if that is no value of random bytes.
type keySpec struct {
	name  template
	value sizes    // nil: that of the kind
	text  template // what the key holds, if fixed is set
	fixed bool
}

// commandSpec is one command of an operation.
type commandSpec struct {
	name   string // in small letters
	text   []byte // as it was typed
	words  []word // behind the name
	kind   int    // of the record, -1 for none
	key    int    // the fixed word that is the first key, counted from the name on; 0 if there is none
	record expr   // nil: the record of the operation
	insert bool
	does   OpKind
	added  int // elements that it adds
	scans  bool
	scan   int    // its number among the commands that have a cursor
	unit   int    // the transaction of the operation that has it, from 1 on; 0 for none
	script []byte // the text that EVALSHA names, nil for none
	says   bool   // its last word is a message, which says by whom and when it was sent
	pops   bool   // its reply may bring messages that were pushed
	line   int
}

// word is a word behind the name of a command.
type word struct {
	kind wordKind
	text []byte   // of a literal
	fill template // of a template
	size sizes    // of int, next and back; of value, nil: that of the kind
	step expr     // of next: the size of a block; of back: the distance to the older record
	key  int      // which of the keys of the record
	of   int      // of key: the kind of a record of its own, from 1 on; 0: the record of the command
}

type wordKind uint8

const (
	wordLiteral wordKind = iota
	wordTemplate
	wordKey
	wordKeys
	wordKeysValues
	wordValue
	wordMember
	wordNew
	wordScore
	wordInt
	wordCursor
	wordNext
	wordBack
	wordToken
	wordMessage
)

var wordNames = []string{"literal", "literal", "key", "keys", "keysvalues", "value", "member", "new", "score", "int",
	"cursor", "next", "back", "token", "message"}

func (k wordKind) String() string { return wordNames[k] }

// placeholders are the words that a command may have in angle brackets.
const placeholders = "<key>, <key 2>, <keys>, <keys-values>, <value>, <member>, <new>, <score>, <int SIZES>, " +
	"<cursor>, <token>, <message SIZES> of PUBLISH or LPUSH, <script NAME> behind EVALSHA, <next [key I] of SIZES within E>, <back [key I] of SIZES step E>, or expressions"

// workloadFile is a file while it is read.
type workloadFile struct {
	name  string
	wrong []error
	w     *Workload
	names map[string]expr // `let` of the kind that is read
	// scripts are the texts of scripts by their names.
	scripts map[string]string
}

func (f *workloadFile) complain(at *yaml.Node, format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Errorf("%s:%d: %s", f.name, at.Line, fmt.Sprintf(format, args...)))
}

// read parses the text of a workload file.
func read(name, file string, in io.Reader) (*Workload, error) {
	f := &workloadFile{name: file, w: &Workload{Name: name}}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	f.w.Text = text
	var doc yaml.Node
	if err == nil {
		err = yaml.Unmarshal(text, &doc)
	}
	if err != nil {
		return nil, &FileError{fmt.Errorf("%s: %w", file, err)}
	}
	if len(doc.Content) == 0 {
		return nil, &FileError{fmt.Errorf("%s: empty, want a workload with `mix`", file)}
	}
	f.workload(doc.Content[0])
	if len(f.wrong) > 0 {
		return nil, &FileError{errors.Join(f.wrong...)}
	}
	return f.w, nil
}

// open reads a workload file of the user.
func open(path string) (*Workload, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, &FileError{fmt.Errorf("workload %s: %w", path, errors.Unwrap(err))}
	}
	defer in.Close()
	return read(path, path, in)
}

// fields returns the values of a mapping, and complains about keys that are unknown or there twice.
func (f *workloadFile) fields(n *yaml.Node, allowed ...string) map[string]*yaml.Node {
	out := map[string]*yaml.Node{}
	if n.Kind != yaml.MappingNode {
		f.complain(n, "want a mapping with some of: %s", strings.Join(allowed, ", "))
		return out
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case !slices.Contains(allowed, k.Value):
			f.complain(k, "%s: unknown, want one of %s", k.Value, strings.Join(allowed, ", "))
		case out[k.Value] != nil:
			f.complain(k, "%s: there already", k.Value)
		default:
			out[k.Value] = v
		}
	}
	return out
}

// items returns the elements of a list.
func (f *workloadFile) items(n *yaml.Node, what string, most int) []*yaml.Node {
	switch {
	case n == nil:
		return nil
	case n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > most:
		f.complain(n, "%s: want a list of 1 to %d items", what, most)
		return nil
	}
	return n.Content
}

// text returns a scalar, "" if there is none.
func (f *workloadFile) text(n *yaml.Node, what string) string {
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode {
		f.complain(n, "%s: want text", what)
		return ""
	}
	return n.Value
}

func (f *workloadFile) bool(n *yaml.Node, what string, usual bool) bool {
	if n == nil {
		return usual
	}
	v, err := strconv.ParseBool(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		f.complain(n, "%s: %q, want true or false", what, n.Value)
	}
	return v
}

// number returns a number from low to high.
func (f *workloadFile) number(n *yaml.Node, what string, usual, low, high float64) float64 {
	if n == nil {
		return usual
	}
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || !(v >= low && v <= high) {
		f.complain(n, "%s: %q, want a number from %g to %g", what, n.Value, low, high)
		return usual
	}
	return v
}

func (f *workloadFile) sizes(n *yaml.Node, what string, low, high int) sizes {
	if n == nil {
		return nil
	}
	s, err := parseSizes(f.text(n, what), low, high)
	if err != nil {
		f.complain(n, "%s: %v", what, err)
	}
	return s
}

func (f *workloadFile) expr(n *yaml.Node, what string, scope exprScope) expr {
	e, err := parseExpr(f.text(n, what), scope)
	if err != nil {
		f.complain(n, "%s: %v", what, err)
	}
	return e
}

func (f *workloadFile) template(n *yaml.Node, what string) template {
	t, err := parseTemplate(f.text(n, what), f.scope(false))
	if err != nil {
		f.complain(n, "%s: %v", what, err)
	}
	return t
}

// scope returns what an expression about a record may use.
func (f *workloadFile) scope(random bool) exprScope {
	return exprScope{names: f.names, kinds: f.kinds(), record: true, random: random}
}

func (f *workloadFile) kinds() (names []string) {
	for _, k := range f.w.kinds {
		names = append(names, k.name)
	}
	return names
}

func (f *workloadFile) workload(n *yaml.Node) {
	fields := f.fields(n, "about", "storage", "scripts", "records", "subscribers", "mix")
	f.readScripts(fields["scripts"])
	f.w.Doc = strings.TrimSpace(f.text(fields["about"], "about"))
	f.w.Storage = f.bool(fields["storage"], "storage", false)
	records := f.items(fields["records"], "records", maxKinds)
	for _, r := range records { // first the names, since kinds may count each other
		k := &recordKind{name: "record"}
		if r.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(r.Content); i += 2 {
				if r.Content[i].Value == "kind" {
					k.name = r.Content[i+1].Value
				}
			}
		}
		if slices.Contains(f.kinds(), k.name) {
			f.complain(r, "kind of records %q: there already", k.name)
		}
		if !token.IsIdentifier(k.name) {
			f.complain(r, "kind of records %q: want letters, digits and underscores, and no keyword of Go", k.name)
		}
		f.w.kinds = append(f.w.kinds, k)
	}
	for i, r := range records {
		f.kind(r, f.w.kinds[i])
	}
	if fields["mix"] == nil {
		f.complain(n, "mix: missing, want the operations")
		return
	}
	total := 0.0
	for _, m := range f.items(fields["mix"], "mix", maxOps) {
		f.op(m)
		total += f.w.Ops[len(f.w.Ops)-1].Share
	}
	for i := range f.w.Ops {
		f.w.Ops[i].Share /= total
	}
	if len(f.w.Ops) > 0 {
		f.checkParts(fields["mix"])
	}
	f.subscribers(n, fields["subscribers"])
	f.w.leave()
}

// subscribers reads who gets what the mix publishes.
func (f *workloadFile) subscribers(file, n *yaml.Node) {
	publishes := slices.ContainsFunc(f.w.Ops, func(op Op) bool {
		return slices.ContainsFunc(op.steps, (*commandSpec).publishes)
	})
	pushes := slices.ContainsFunc(f.w.Ops, func(op Op) bool {
		return slices.ContainsFunc(op.steps, func(c *commandSpec) bool { return c.says && !c.publishes() })
	})
	for _, op := range f.w.Ops {
		for _, c := range op.steps {
			c.pops = pushes && poppers[c.name]
		}
	}
	if n == nil {
		if publishes {
			f.complain(file, "subscribers: missing, want who gets the messages")
		}
		return
	}
	fields := f.fields(n, "clients", "do")
	s := &Subscribers{Clients: int(f.number(fields["clients"], "clients", 1, 1, maxSubscribers))}
	words := strings.SplitN(f.text(fields["do"], "do"), " ", 2)
	s.Command = words[0]
	if name := strings.ToLower(s.Command); len(words) != 2 || name != "subscribe" && name != "ssubscribe" {
		f.complain(n, "do: want SUBSCRIBE or SSUBSCRIBE with one channel, in which <n> is the number of the client")
		return
	}
	f.names = nil
	var err error
	if s.channel, err = parseTemplate(words[1], exprScope{record: true}); err != nil {
		f.complain(fields["do"], "do: %v", err)
	}
	if !publishes {
		f.complain(n, "subscribers: no operation has a <message SIZES> for them")
	}
	f.w.Subscribers = s
}

// publishes reports whether a command says something to subscribers.
func (c *commandSpec) publishes() bool {
	return c.says && (c.name == "publish" || c.name == "spublish")
}

// poppers are the commands whose replies have elements that they take from lists.
var poppers = map[string]bool{"lpop": true, "rpop": true, "blpop": true, "brpop": true, "lmove": true, "blmove": true,
	"rpoplpush": true, "brpoplpush": true}

func (f *workloadFile) readScripts(n *yaml.Node) {
	switch {
	case n == nil:
		return
	case n.Kind != yaml.MappingNode:
		f.complain(n, "scripts: want names with the texts of scripts")
		return
	}
	f.scripts = map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		f.scripts[name] = f.text(n.Content[i+1], "scripts: "+name)
	}
}

// script returns the word that names a script, and its text.
func (f *workloadFile) script(text string) (word, []byte, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(text, "<script "), ">")
	script, there := f.scripts[name]
	if !there {
		names := slices.Sorted(maps.Keys(f.scripts))
		return word{}, nil, fmt.Errorf("script %q: unknown, want one of %s", name, strings.Join(names, ", "))
	}
	sum := sha1.Sum([]byte(script))
	return word{kind: wordLiteral, text: hex.AppendEncode(nil, sum[:])}, []byte(script), nil
}

func (f *workloadFile) kind(n *yaml.Node, k *recordKind) {
	fields := f.fields(n, "kind", "type", "let", "key", "keys", "count", "load", "choose", "value", "compress", "elements",
		"length", "owner")
	f.names = map[string]expr{}
	if let := fields["let"]; let != nil {
		if let.Kind != yaml.MappingNode {
			f.complain(let, "let: want names with expressions")
		} else {
			for i := 0; i+1 < len(let.Content); i += 2 {
				name := let.Content[i].Value
				if e := f.expr(let.Content[i+1], "let "+name, f.scope(false)); e != nil {
					f.names[name] = e
				}
			}
		}
	}
	switch name := f.text(fields["type"], "type"); name {
	case "", "string":
	case "counter":
		k.counter = true
	default:
		i := slices.IndexFunc(collectionTypes, func(c *CollectionType) bool { return c.name == name })
		if i < 0 {
			f.complain(fields["type"], "type %q: unknown, want one of string, counter, hash, list, set, zset", name)
		} else {
			k.of = collectionTypes[i]
		}
	}
	k.let = f.names
	f.keysOf(n, fields, k)
	count := &yaml.Node{Kind: yaml.ScalarNode, Value: "records", Line: n.Line}
	if fields["count"] != nil {
		count = fields["count"]
	}
	k.count = f.expr(count, "count", exprScope{kinds: f.kinds()[:slices.Index(f.kinds(), k.name)]})
	k.load = f.bool(fields["load"], "load", true)
	k.choose = keyChoice{kind: "uniform", text: "uniform"}
	if c := fields["choose"]; c != nil {
		var err error
		if k.choose, err = parseChoice(f.text(c, "choose")); err != nil {
			f.complain(c, "choose: %v", err)
		}
	}
	k.value = f.sizes(fields["value"], "value", 0, maxValue)
	k.ratio = f.number(fields["compress"], "compress", 1, 1, 100)
	k.many = f.sizes(fields["elements"], "elements", 1, maxElement)
	if k.many != nil && k.of == nil {
		f.complain(fields["elements"], "elements: records of this type have none")
	}
	k.length = f.sizes(fields["length"], "length", 1, 64<<10)
	k.owner = f.bool(fields["owner"], "owner", false)
}

func (f *workloadFile) keysOf(n *yaml.Node, fields map[string]*yaml.Node, k *recordKind) {
	switch {
	case (fields["key"] == nil) == (fields["keys"] == nil):
		f.complain(n, "kind of records %q: want either `key` or `keys`", k.name)
	case fields["key"] != nil:
		k.keys = []keySpec{{name: f.template(fields["key"], "key")}}
	case k.of != nil || k.counter:
		f.complain(fields["keys"], "keys: only a record of strings may have several")
	}
	for _, item := range f.items(fields["keys"], "keys", maxKeys) {
		x := f.fields(item, "key", "value", "text")
		if x["key"] == nil || x["value"] != nil && x["text"] != nil {
			f.complain(item, "keys: want `key`, and at most one of `value` and `text`")
			continue
		}
		k.keys = append(k.keys, keySpec{
			name: f.template(x["key"], "key"), value: f.sizes(x["value"], "value", 0, maxValue),
			text: f.template(x["text"], "text"), fixed: x["text"] != nil,
		})
	}
}

func (f *workloadFile) op(n *yaml.Node) {
	fields := f.fields(n, "op", "share", "on", "do", "insert", "absent", "clients")
	op := Op{Name: f.text(fields["op"], "op"), kind: -1}
	op.Share = f.number(fields["share"], "share", 1, 1e-9, 1e9)
	op.absent = f.number(fields["absent"], "absent", 0, 0, 1)
	op.remainder, op.of = f.part(fields["clients"])
	insert := f.bool(fields["insert"], "insert", false)
	on := f.kindNamed(fields["on"])
	if fields["on"] == nil && len(f.w.kinds) > 0 {
		on = 0
	}
	if fields["do"] == nil {
		f.complain(n, "do: missing, want a command, or a list of them")
	} else if fields["do"].Kind == yaml.SequenceNode {
		for _, step := range f.items(fields["do"], "do", maxSteps) {
			f.step(step, &op, on)
		}
	} else {
		f.command(fields["do"], &op, on, nil)
	}
	op.Reads = len(op.steps) > 0
	for i, c := range op.steps {
		if op.Name == "" {
			op.Name = c.name
		}
		if c.kind >= 0 && c.record == nil {
			op.kind = c.kind
			c.insert = insert && i == 0
		}
		op.Reads = op.Reads && knownCommands[c.name].reads
		if f.effects(c); op.of > 0 && (c.does == Push || c.does == Pop) && c.kind >= 0 {
			f.w.kinds[c.kind].apart = true
		}
	}
	switch {
	case insert && op.kind < 0:
		f.complain(n, "insert: the operation has no record")
	case insert:
		f.w.kinds[op.kind].inserted = true
	}
	if op.absent > 0 && !op.Reads {
		f.complain(n, "absent: only operations that read may ask for absent keys")
	}
	if op.Name != "" && slices.ContainsFunc(f.w.Ops, func(o Op) bool { return o.Name == op.Name }) {
		f.complain(n, "op %q: there already", op.Name)
	}
	f.w.Ops = append(f.w.Ops, op)
}

// part reads which part of the clients sends an operation: "1 of 3" are those whose number divided by 3 leaves 1.
func (f *workloadFile) part(n *yaml.Node) (remainder, of int) {
	if n == nil {
		return 0, 0
	}
	if k, err := fmt.Sscanf(f.text(n, "clients"), "%d of %d", &remainder, &of); k != 2 || err != nil || of < 2 ||
		of > maxRoles || remainder < 0 || remainder >= of {
		f.complain(n, "clients: %q, want I of N, with N from 2 to %d and I from 0 to N-1", n.Value, maxRoles)
		return 0, 0
	}
	return remainder, of
}

// checkParts complains about clients that would send nothing, and about parts of different sizes.
func (f *workloadFile) checkParts(n *yaml.Node) {
	roles := f.w.roles()
	for _, op := range f.w.Ops {
		if op.of != 0 && op.of != roles {
			f.complain(n, "clients: %d of %d and others of %d; want the same number in all operations", op.remainder, op.of,
				roles)
			return
		}
	}
	for client := range uint64(roles) {
		if !slices.ContainsFunc(f.w.Ops, func(o Op) bool { return o.sends(client) }) {
			f.complain(n, "clients: those of %d of %d have no operation", client, roles)
		}
	}
}

// kindNamed returns the index of a kind, -1 without a name or for one that is unknown.
func (f *workloadFile) kindNamed(n *yaml.Node) int {
	if n == nil {
		return -1
	}
	i := slices.Index(f.kinds(), f.text(n, "on"))
	if i < 0 {
		f.complain(n, "on: kind of records %q unknown, want one of %s", n.Value, strings.Join(f.kinds(), ", "))
	}
	return i
}

// step reads one command of several: text, or a mapping that names another record.
func (f *workloadFile) step(n *yaml.Node, op *Op, on int) {
	if n.Kind != yaml.MappingNode {
		f.command(n, op, on, nil)
		return
	}
	fields := f.fields(n, "do", "on", "record", "multi")
	if multi := fields["multi"]; multi != nil {
		f.multi(multi, fields, op, on)
		return
	}
	own := on // the kind whose record the operation chooses
	if fields["on"] != nil {
		on = f.kindNamed(fields["on"])
	}
	if fields["do"] == nil {
		f.complain(n, "do: missing, want a command")
		return
	}
	var record expr
	if fields["record"] != nil {
		f.names = f.letOf(own)
		record = f.expr(fields["record"], "record", f.scope(true))
	} else if fields["on"] != nil {
		f.complain(n, "record: missing, want an expression for the number of the other record")
	}
	f.command(fields["do"], op, on, record)
}

// multi reads the commands of a transaction.
func (f *workloadFile) multi(n *yaml.Node, fields map[string]*yaml.Node, op *Op, on int) {
	if len(fields) > 1 {
		f.complain(n, "multi: want no `do`, `on` or `record` beside it; its commands may have them")
	}
	unit := 1
	for _, c := range op.steps {
		unit = max(unit, c.unit+1)
	}
	for _, step := range f.items(n, "multi", maxSteps) {
		if step.Kind == yaml.MappingNode && slices.ContainsFunc(step.Content, func(x *yaml.Node) bool {
			return x.Value == "multi"
		}) {
			f.complain(step, "multi: there is none within another one")
			continue
		}
		from := len(op.steps)
		f.step(step, op, on)
		for _, c := range op.steps[from:] {
			if c.unit = unit; c.name == "watch" || c.scans || c.script != nil {
				f.complain(step, "multi: %s: want it before the transaction", c.text)
			}
		}
	}
}

// command reads a command with its words, and checks its arity.
func (f *workloadFile) command(n *yaml.Node, op *Op, on int, record expr) {
	c := &commandSpec{kind: on, record: record, line: n.Line}
	text := f.text(n, "do")
	tokens, err := splitCommand(text)
	if err != nil || len(tokens) == 0 {
		f.complain(n, "do: %q: %v", text, err)
		return
	}
	c.text, c.name = []byte(tokens[0]), strings.ToLower(tokens[0])
	for i, t := range tokens[1:] {
		var w word
		if i == 0 && strings.HasPrefix(c.name, "evalsha") && strings.HasPrefix(t, "<script ") {
			w, c.script, err = f.script(t)
		} else {
			w, err = f.word(t, on)
		}
		if err != nil {
			f.complain(n, "do: %v", err)
			return
		}
		c.words = append(c.words, w)
	}
	known, ok := knownCommands[c.name]
	if !ok {
		f.complain(n, "do: command %s: unknown", tokens[0])
		return
	}
	if c.name == "multi" || c.name == "exec" || c.name == "discard" {
		f.complain(n, "do: %s: want the commands of a transaction as {multi: [command, command]}", tokens[0])
		return
	}
	words := 1
	ofRecord := false
	for _, w := range c.words {
		switch w.kind {
		case wordKeys:
			words += len(f.w.kinds[on].keys)
		case wordKeysValues:
			words += 2 * len(f.w.kinds[on].keys)
		default:
			words++
		}
		ofRecord = ofRecord || w.kind >= wordKey && w.kind <= wordScore || w.kind == wordNext || w.kind == wordBack
		if w.kind == wordNew || (w.kind == wordValue || w.kind == wordMessage) && f.ofKind(on) == list {
			c.added++
		}
	}
	if !known.takes(words) {
		f.complain(n, "do: %s: %d words behind the command, want %s", text, words-1, known.wanted())
	}
	if !ofRecord {
		c.kind = -1
	}
	if at := slices.IndexFunc(c.words, func(w word) bool { return w.kind == wordMessage }); at >= 0 {
		c.says = at == 1 && len(c.words) == 2 &&
			slices.Contains([]string{"publish", "spublish", "lpush", "rpush"}, c.name)
		if !c.says {
			f.complain(n, "do: %s: want <message SIZES> only behind PUBLISH or SPUBLISH and a channel, or LPUSH or RPUSH and "+
				"a key", text)
		}
	}
	switch at := slices.IndexFunc(c.words, func(w word) bool { return w.kind == wordCursor }); {
	case at < 0:
	case c.name != "scan" && c.name != "hscan" && c.name != "sscan" && c.name != "zscan":
		f.complain(n, "do: %s: want <cursor> only in SCAN, HSCAN, SSCAN and ZSCAN", text)
	case ofRecord && (len(op.steps) > 0 || record != nil):
		f.complain(n, "do: %s: want <cursor> in the first command of an operation, about the record that it chooses", text)
	default:
		c.scans, c.scan = true, f.w.scans
		f.w.scans++
	}
	op.steps = append(op.steps, c)
}

// letOf returns the names that expressions about a kind may use.
func (f *workloadFile) letOf(i int) map[string]expr {
	if i < 0 {
		return nil
	}
	return f.w.kinds[i].let
}

func (f *workloadFile) ofKind(i int) *CollectionType {
	if i < 0 {
		return nil
	}
	return f.w.kinds[i].of
}

// effects notes what a command does to the records of its kind.
func (f *workloadFile) effects(c *commandSpec) {
	c.does = c.kindOf(f.ofKind(c.kind))
	if c.kind < 0 {
		return
	}
	k := f.w.kinds[c.kind]
	switch c.does {
	case Delete:
		k.deleted = true
	case WriteFading, Fade:
		k.fades = true
	case Push:
		k.push = append(k.push, len(f.w.Ops))
	case Pop:
		k.pop = append(k.pop, len(f.w.Ops))
	}
}

// splitCommand splits a command at spaces outside of angle brackets, and writes out repetitions: [<new> <value>]*3.
func splitCommand(text string) (out []string, err error) {
	var group []string // the words of an open bracket
	inside := false
	add := func(w string) {
		if inside {
			group = append(group, w)
		} else {
			out = append(out, w)
		}
	}
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		if rest[0] == '[' {
			if inside {
				return nil, errors.New("[ within [ ]")
			}
			inside, group, rest = true, nil, rest[1:]
			continue
		}
		if rest[0] == ']' {
			times, after, _ := strings.Cut(strings.TrimPrefix(rest, "]"), " ")
			n, err := strconv.Atoi(strings.TrimPrefix(times, "*"))
			if !inside || !strings.HasPrefix(times, "*") || err != nil || n < 1 || n*len(group) > maxWords {
				return nil, fmt.Errorf("want [words]*N, at most %d words in all", maxWords)
			}
			for range n {
				out = append(out, group...)
			}
			inside, rest = false, after
			continue
		}
		end, depth := 0, 0
		for ; end < len(rest); end++ {
			switch c := rest[end]; {
			case c == '<':
				depth++
			case c == '>':
				depth--
			}
			if depth <= 0 && (rest[end] == ' ' || inside && rest[end] == ']') {
				break
			}
		}
		if depth > 0 {
			return nil, errors.New("no > behind <")
		}
		add(rest[:end])
		rest = rest[end:]
	}
	switch {
	case inside:
		return nil, errors.New("no ] behind [")
	case len(out) == 0:
		return nil, errors.New("want a command")
	case len(out) > maxWords:
		return nil, fmt.Errorf("more than %d words", maxWords)
	}
	return out, nil
}

// word parses a word behind the command's name. on is the kind of the record.
func (f *workloadFile) word(text string, on int) (word, error) {
	inside, isPlaceholder := strings.CutPrefix(text, "<")
	inside, closed := strings.CutSuffix(inside, ">")
	if !strings.Contains(text, "<") {
		return word{kind: wordLiteral, text: []byte(text)}, nil
	}
	name, rest, _ := strings.Cut(inside, " ")
	kind := map[string]wordKind{"key": wordKey, "keys": wordKeys, "keys-values": wordKeysValues, "value": wordValue,
		"member": wordMember, "new": wordNew, "score": wordScore, "int": wordInt, "cursor": wordCursor, "next": wordNext,
		"back": wordBack, "token": wordToken, "message": wordMessage}[name]
	if !isPlaceholder || !closed || strings.Contains(inside, "<") || kind == wordLiteral {
		f.names = f.letOf(on)
		t, err := parseTemplate(text, f.scope(false))
		if err != nil {
			return word{}, fmt.Errorf("%w; want %s", err, placeholders)
		}
		return word{kind: wordTemplate, fill: t}, nil
	}
	w := word{kind: kind}
	if on < 0 && kind != wordInt && kind != wordCursor && kind != wordToken && kind != wordMessage {
		return w, fmt.Errorf("%s: there is no kind of records", text)
	}
	var err error
	switch kind {
	case wordKey:
		if rest != "" {
			w.key, err = f.keyIndex(rest, on)
		}
		rest = ""
	case wordMember, wordNew, wordScore:
		if f.ofKind(on) == nil {
			return w, fmt.Errorf("%s: the records are no collections", text)
		}
	case wordInt:
		w.size, err = parseSizes(rest, 0, 1<<40)
		rest = ""
	case wordMessage:
		w.size, err = parseSizes(rest, StampBytes, maxValue)
		rest = ""
	case wordNext, wordBack:
		by := map[wordKind]string{wordNext: " within ", wordBack: " step "}[kind]
		if number, after, found := strings.Cut(strings.TrimPrefix(rest, "key "), " "); found &&
			strings.HasPrefix(rest, "key ") {
			if w.key, err = f.keyIndex(number, on); err != nil {
				break
			}
			rest = after
		}
		size, step, found := strings.Cut(strings.TrimPrefix(rest, "of "), by)
		if !found || !strings.HasPrefix(rest, "of ") {
			return w, fmt.Errorf("%s: want %s", text, placeholders)
		}
		if w.size, err = parseSizes(size, 1, 10_000); err == nil {
			f.names = f.letOf(on)
			w.step, err = parseExpr(step, f.scope(false))
		}
		rest = ""
	}
	if err == nil && rest != "" {
		err = fmt.Errorf("unexpected %q", rest)
	}
	if err != nil {
		return w, fmt.Errorf("%s: %w", text, err)
	}
	return w, nil
}

// keyIndex parses the number of a key of a record, counted from 1.
func (f *workloadFile) keyIndex(text string, on int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > len(f.w.kinds[on].keys) {
		return 0, fmt.Errorf("key %s: want 1 to %d", text, len(f.w.kinds[on].keys))
	}
	return n - 1, nil
}
