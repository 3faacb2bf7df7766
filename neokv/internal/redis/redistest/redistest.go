// Package redistest compares two servers that speak Redis's protocol. It sends the same calls to both and compares the
// replies byte for byte. The calls are written cases, and random calls from a seed. It reaches either server by a
// net.Conn.
package redistest

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options say what to compare.
type Options struct {
	// Want connects to the reference server, which is right by definition, Got to the server under test. Run empties
	// both first.
	Want, Got func() (net.Conn, error)
	Seed      uint64
	Calls     int // random calls, at least
	// Proto is the protocol version that both connections switch to, 2 or 3.
	Proto int
	// Tag stands in front of every key of random calls and {t} in the keys of cases; see CallGenerator.
	Tag string
	// Spread says that the keys of random calls may lie in several regions; see CallGenerator.
	Spread bool
	// Cluster says that the reference server is a Redis Cluster; see CallGenerator.
	Cluster bool
	// DataOnly leaves out the cases and families that need a whole server.
	DataOnly bool
	// Through, if it is not nil, makes the call that is sent of each call, such as EVAL of a script that makes the call.
	Through func(call [][]byte) [][]byte
	// Most is the number of differences at which the run ends; 0 means 10.
	Most int
}

// Difference is one call that the two servers answered differently.
type Difference struct {
	Number    int    // the call's number in the run
	Case      string // empty for random calls
	Call      [][]byte
	Want, Got ReplyValue
	Before    *Difference // the call before it in the same pipeline, nil for none; its replies may be equal
	Behind    *Difference // the call after it, likewise
	Other     bool        // the other connection sent it
	Inside    bool        // it was in a transaction, and the replies are elements of those of EXEC
	// History has the last calls before it that named its keys. If it names no keys, these are calls that named a key
	// which only one of the two replies has. Their replies may be equal.
	History []Difference
}

func (d Difference) String() string {
	where := fmt.Sprintf("call %d", d.Number)
	if d.Case != "" {
		where += ", " + d.Case
	}
	if d.Other {
		where += ", other connection"
	}
	if d.Inside {
		where += ", in EXEC"
	}
	b := fmt.Appendf(nil, "%s: %q\n\twant %c %v\n\tgot  %c %v", where, d.Call, d.Want.Kind, d.Want, d.Got.Kind, d.Got)
	for _, p := range d.History {
		b = fmt.Appendf(b, "\n\tafter call %d: %.300q: %c %.300v", p.Number, p.Call, p.Want.Kind, p.Want)
		if !p.Want.Equal(p.Got) {
			b = fmt.Appendf(b, ", got %c %.300v", p.Got.Kind, p.Got)
		}
	}
	return string(b)
}

// Report is the outcome of a run.
type Report struct {
	Calls       int
	Differences []Difference
	Excepted    map[string]int // reason -> how often
	Errors      int            // calls that both answered with the same error
}

// pipelined is how many random calls are under way at once.
const pipelined = 64

// callTimeout bounds the wait for replies.
const callTimeout = 30 * time.Second

// Run empties both servers, then compares the written cases and at least o.Calls random calls. An error is one of the
// connection or of the protocol, and names the calls that were under way. Differences are in the report.
func Run(o Options) (*Report, error) {
	c, err := connect(o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	for _, cs := range Cases() {
		if cs.Server && o.DataOnly || cs.Plain && o.Cluster || cs.Cluster && !o.Cluster {
			continue
		}
		tag := o.Tag
		if cs.OneRegion && o.Spread {
			tag = "{s}"
		}
		calls := parseCalls(strings.ReplaceAll(cs.Calls, "{p}", strconv.Itoa(max(o.Proto, 2))), tag)
		if err := c.exchange(cs.Name, calls); err != nil || c.enough() {
			return &c.report, err
		}
		for _, scan := range cs.Scans {
			if err := c.scan(cs.Name, parseCalls(scan, tag)[0]); err != nil || c.enough() {
				return &c.report, err
			}
		}
	}
	if !o.DataOnly {
		if err := c.exchange("", loads()); err != nil {
			return &c.report, err
		}
	}
	g := CallGenerator{Rand: rand.New(rand.NewPCG(o.Seed, 0)), Tag: o.Tag, Spread: o.Spread, Cluster: o.Cluster,
		Proto: o.Proto}
	for end := c.report.Calls + o.Calls; c.report.Calls < end && !c.enough(); {
		var calls, alone [][][]byte
		for len(calls) < pipelined && alone == nil {
			var made [][][]byte
			for _, call := range g.Calls(o.DataOnly) {
				made = append(made, toBytes(call))
			}
			if mayBeSilent(made) {
				alone = made
				break
			}
			calls = append(calls, made...)
		}
		for _, calls := range [][][][]byte{calls, alone} {
			if err := c.exchange("", calls); err != nil {
				return &c.report, err
			}
		}
	}
	return &c.report, nil
}

type comparison struct {
	o Options
	*pair
	other  *pair // nil until a call needs it
	report Report
	past   []Difference // all calls since the keys were deleted last
}

// pair is a connection to either server.
type pair struct {
	want, got peer
	queued    [][][]byte // since MULTI
}

type peer struct {
	net.Conn
	r       *bufio.Reader
	through func(call [][]byte) [][]byte
	proto   int
}

func connect(o Options) (*comparison, error) {
	p, err := connectPair(o)
	if err != nil {
		return nil, err
	}
	c := &comparison{o: o, pair: p, report: Report{Excepted: make(map[string]int)}}
	for _, p := range []peer{c.want, c.got} {
		if _, err := p.exchange([][][]byte{toBytes([]string{"flushall"})}); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func connectPair(o Options) (*pair, error) {
	p := &pair{}
	want, err := o.Want()
	if err != nil {
		return nil, fmt.Errorf("connect to the server that is right: %w", err)
	}
	p.want = peer{Conn: want, r: bufio.NewReader(want)}
	got, err := o.Got()
	if err != nil {
		p.close()
		return nil, fmt.Errorf("connect to the server in question: %w", err)
	}
	p.got = peer{Conn: got, r: bufio.NewReader(got)}
	if o.Proto == 3 {
		for _, x := range []peer{p.want, p.got} {
			if _, err := x.exchange([][][]byte{toBytes([]string{"hello", "3"})}); err != nil {
				p.close()
				return nil, err
			}
		}
	}
	p.want.through, p.got.through = o.Through, o.Through
	p.want.proto, p.got.proto = o.Proto, o.Proto
	return p, nil
}

func (c *comparison) close() {
	c.pair.close()
	if c.other != nil {
		c.other.close()
	}
}

func (p *pair) close() {
	for _, x := range []peer{p.want, p.got} {
		if x.Conn != nil {
			_ = x.Close()
		}
	}
}

func (c *comparison) enough() bool { return len(c.report.Differences) >= max(1, cmp.Or(c.o.Most, 10)) }

// otherConnection stands before the name of a call that another connection sends, when the calls before it have been
// answered.
const otherConnection = "@"

// exchange sends calls to both sides and compares the replies.
func (c *comparison) exchange(name string, calls [][][]byte) (err error) {
	for n := 0; len(calls) > 0; calls = calls[n:] {
		p, skip := c.pair, 0
		if isCall(calls[0], otherConnection) {
			if c.other == nil {
				if c.other, err = connectPair(c.o); err != nil {
					return err
				}
			}
			p, skip = c.other, 1
		}
		var own [][][]byte
		for n = 0; n < len(calls) && isCall(calls[n], otherConnection) == (skip > 0); n++ {
			own = append(own, calls[n][skip:])
		}
		if err := c.exchangeOn(p, name, own); err != nil {
			return err
		}
	}
	return nil
}

// exchangeOn sends calls by a pair of connections.
func (c *comparison) exchangeOn(p *pair, name string, calls [][][]byte) error {
	if mayBeSilent(calls) { // some replies may be missing, so replies cannot be matched to calls
		calls = append(calls, toBytes([]string{"client", "reply", "on"}), toBytes([]string{"echo", endOfSilence}))
		want, err := p.want.converse(calls)
		if err != nil {
			return fmt.Errorf("the server that is right: %w", err)
		}
		got, err := p.got.converse(calls)
		if err != nil {
			return fmt.Errorf("the server in question: %w", err)
		}
		c.report.Calls += len(calls)
		return c.one(Difference{Number: c.report.Calls, Case: name, Call: slices.Concat(calls...),
			Want: ReplyValue{Kind: '$', Text: want}, Got: ReplyValue{Kind: '$', Text: got}})
	}
	want, err := p.want.exchange(calls)
	if err != nil {
		return fmt.Errorf("the server that is right: %w", err)
	}
	got, err := p.got.exchange(calls)
	if err != nil {
		return fmt.Errorf("the server in question: %w", err)
	}
	all := make([]Difference, len(calls))
	for i, call := range calls {
		c.report.Calls++
		if isCall(call, byScript) {
			call = call[1:]
		}
		all[i] = Difference{Number: c.report.Calls, Case: name, Call: call, Want: want[i], Got: got[i],
			Other: p == c.other}
	}
	for _, d := range inPlace(all) {
		compared := []Difference{d}
		switch name := d.name(); {
		case string(d.Want.Text) == "QUEUED":
			p.queued = append(p.queued, d.Call)
		case name == "exec":
			if elements := d.elements(p.queued); elements != nil {
				compared = elements
			}
			fallthrough
		case name == "discard", name == "reset":
			p.queued = nil
		}
		for _, d := range compared {
			if err := c.one(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// elements returns the calls of a transaction, which EXEC has answered on both sides with an element for each.
func (d *Difference) elements(queued [][][]byte) []Difference {
	if n := len(queued); n == 0 || len(d.Want.Items) != n || len(d.Got.Items) != n {
		return nil
	}
	all := make([]Difference, len(queued))
	for i, call := range queued {
		all[i] = *d
		all[i].Call, all[i].Want, all[i].Got, all[i].Inside = call, d.Want.Items[i], d.Got.Items[i], true
	}
	return inPlace(all)
}

// inPlace gives calls their neighbours.
func inPlace(all []Difference) []Difference {
	placed := slices.Clone(all)
	for i := range placed {
		placed[i].Before, placed[i].Behind = nil, nil
		if i > 0 {
			placed[i].Before = &all[i-1]
		}
		if i+1 < len(all) {
			placed[i].Behind = &all[i+1]
		}
	}
	return placed
}

// scan compares what both sides' scans return from a call's cursor to the end.
func (c *comparison) scan(name string, call [][]byte) error {
	want, err := c.want.scan(call)
	if err != nil {
		return fmt.Errorf("the server that is right: %w", err)
	}
	got, err := c.got.scan(call)
	if err != nil {
		return fmt.Errorf("the server in question: %w", err)
	}
	c.report.Calls++
	return c.one(Difference{Number: c.report.Calls, Case: name, Call: call, Want: want, Got: got})
}

// one compares the replies to a call, and remembers it.
func (c *comparison) one(d Difference) (err error) {
	if !c.compare(d) {
		found := &c.report.Differences[len(c.report.Differences)-1]
		if found.History, err = c.history(found); err != nil {
			return err
		}
	}
	if d.Want.Kind == '+' && d.Got.Kind == '+' && (d.name() == "flushall" || d.name() == "flushdb") {
		c.past = c.past[:0]
	}
	if string(d.Want.Text) != "QUEUED" { // else it has not run yet
		d.Before, d.Behind = nil, nil
		c.past = append(c.past, d)
	}
	return nil
}

// historyCalls is how many calls a history has at most.
const historyCalls = 20

// history finds a difference's History. The reference server finds the keys of the calls.
func (c *comparison) history(d *Difference) (calls []Difference, err error) {
	asked, err := c.want.exchange([][][]byte{slices.Concat(toBytes([]string{"command", "getkeys"}), d.Call)})
	if err != nil {
		return nil, fmt.Errorf("the server that is right: %w", err)
	}
	keys := asked[0].Items
	if len(keys) == 0 {
		want, got := d.Want.leaves(), d.Got.leaves()
		keys = append(without(want, got), without(got, want)...)
	}
	for _, p := range slices.Backward(c.past) {
		if len(calls) < historyCalls &&
			slices.ContainsFunc(p.Call, func(arg []byte) bool { return (ReplyValue{Text: arg}).among(keys) }) {
			calls = append(calls, p)
		}
	}
	slices.Reverse(calls)
	return calls, nil
}

// without returns those of some values whose text is in none of others.
func without(values, others []ReplyValue) []ReplyValue {
	return slices.DeleteFunc(slices.Clone(values), func(v ReplyValue) bool { return v.among(others) })
}

// among reports whether others hold a value's text.
func (v ReplyValue) among(others []ReplyValue) bool {
	return slices.ContainsFunc(others, func(o ReplyValue) bool { return bytes.Equal(v.Text, o.Text) })
}

// endOfSilence is echoed behind calls that may have no replies.
const endOfSilence = "end of silence"

// mayBeSilent reports whether replies may be missing, because a call is CLIENT REPLY. Such calls are not sent together
// with others.
func mayBeSilent(calls [][][]byte) bool {
	return slices.ContainsFunc(calls, func(call [][]byte) bool {
		return len(call) > 1 && bytes.EqualFold(call[0], []byte("client")) && bytes.EqualFold(call[1], []byte("reply"))
	})
}

// exchange sends calls and returns as many replies.
func (p peer) exchange(calls [][][]byte) ([]ReplyValue, error) {
	sent, err := p.send(calls)
	if err != nil {
		return nil, err
	}
	values := make([]ReplyValue, len(calls))
	for i, call := range calls {
		if values[i], err = Read(p.r); err != nil {
			err = fmt.Errorf("reply %d of %d, to %q: %w", i+1, len(calls), call, err)
			_ = p.Close() // ends the write
			break
		}
	}
	return values, errors.Join(err, <-sent)
}

// converse sends calls and returns all that comes back, up to endOfSilence. An array may lack elements.
func (p peer) converse(calls [][][]byte) (got []byte, err error) {
	sent, err := p.send(calls)
	if err != nil {
		return nil, err
	}
	for end := []byte(endOfSilence + "\r\n"); !bytes.HasSuffix(got, end); {
		b, err := p.r.ReadByte()
		if err != nil {
			_ = p.Close() // ends the write
			return nil, errors.Join(fmt.Errorf("after %q: %w", got, err), <-sent)
		}
		got = append(got, b)
	}
	return got, <-sent
}

// send sends calls. The channel tells how that ended.
func (p peer) send(calls [][][]byte) (sent chan error, err error) {
	var out []byte
	for _, call := range calls {
		switch {
		case p.through != nil:
			call = p.through(call)
		case isCall(call, byScript):
			call = evalOf(call[1:], p.proto)
		}
		out = AppendCall(out, call...)
	}
	if err := p.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	sent = make(chan error, 1)
	go func() {
		_, err := p.Write(out)
		sent <- err
	}()
	return sent, nil
}

// maxScan is how many calls a scan may take.
const maxScan = 10_000

// scan sends a SCAN, HSCAN, SSCAN or ZSCAN and follows its cursors to the end. It returns the last reply with the
// elements of all replies, each once, since a scan may return an element twice. It returns any other kind of reply as
// it is.
func (p peer) scan(call [][]byte) (ReplyValue, error) {
	piece := unordered[strings.ToLower(string(call[0]))].piece
	call = slices.Clone(call)
	var all []ReplyValue
	for range maxScan {
		replies, err := p.exchange([][][]byte{call})
		if err != nil {
			return ReplyValue{}, err
		}
		v := replies[0]
		if len(v.Items) != 2 || len(v.Items[1].Items)%piece != 0 {
			return v, nil
		}
		all = append(all, v.Items[1].Items...)
		if call[2] = v.Items[0].Text; string(call[2]) == "0" {
			v.Items[1].Items = all
			v.Items[1].sort(piece)
			pieces := slices.Collect(slices.Chunk(v.Items[1].Items, piece))
			v.Items[1].Items = slices.Concat(slices.CompactFunc(pieces, func(a, b []ReplyValue) bool {
				return slices.EqualFunc(a, b, ReplyValue.Equal)
			})...)
			return v, nil
		}
	}
	return ReplyValue{}, fmt.Errorf("%q: no end after %d calls, the next cursor is %s", call, maxScan, call[2])
}

// compare reports whether two replies are equal or may differ. If neither, it adds a difference to the report.
func (c *comparison) compare(d Difference) bool {
	d.order()
	if d.Want.Equal(d.Got) {
		if d.Want.Kind == '-' {
			c.report.Errors++
		}
		return true
	}
	if d.onlyTime() || d.chosen() || d.sorted() {
		return true
	}
	if d.plain(c.past) {
		c.report.Differences = append(c.report.Differences, d)
		return false
	}
	for _, e := range Exceptions {
		if e.Matches(d.Call, d.Want, d.Got) {
			c.report.Excepted[e.Reason]++
			return true
		}
	}
	c.report.Differences = append(c.report.Differences, d)
	return false
}

func toBytes(args []string) [][]byte {
	b := make([][]byte, len(args))
	for i, a := range args {
		b[i] = []byte(a)
	}
	return b
}
