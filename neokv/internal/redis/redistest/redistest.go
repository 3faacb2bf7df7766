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
	// History has the last calls before it that named its keys. If it names no keys, these are calls that named a key
	// which only one of the two replies has. Their replies may be equal.
	History []Difference
}

func (d Difference) String() string {
	where := fmt.Sprintf("call %d", d.Number)
	if d.Case != "" {
		where += ", " + d.Case
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
	for _, cs := range Cases {
		if cs.Server && o.DataOnly || cs.Plain && o.Cluster || cs.Cluster && !o.Cluster {
			continue
		}
		tag := o.Tag
		if cs.OneRegion && o.Spread {
			tag = "{s}"
		}
		if err := c.exchange(cs.Name, parseCalls(cs.Calls, tag)); err != nil || c.enough() {
			return &c.report, err
		}
		for _, scan := range cs.Scans {
			if err := c.scan(cs.Name, parseCalls(scan, tag)[0]); err != nil || c.enough() {
				return &c.report, err
			}
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
	o         Options
	want, got peer
	report    Report
	past      []Difference // all calls since the keys were deleted last
}

type peer struct {
	net.Conn
	r *bufio.Reader
}

func connect(o Options) (*comparison, error) {
	c := &comparison{o: o, report: Report{Excepted: make(map[string]int)}}
	want, err := o.Want()
	if err != nil {
		return nil, fmt.Errorf("connect to the server that is right: %w", err)
	}
	c.want = peer{want, bufio.NewReader(want)}
	got, err := o.Got()
	if err != nil {
		c.close()
		return nil, fmt.Errorf("connect to the server in question: %w", err)
	}
	c.got = peer{got, bufio.NewReader(got)}
	for _, p := range []peer{c.want, c.got} {
		if o.Proto == 3 {
			if _, err := p.exchange([][][]byte{toBytes([]string{"hello", "3"})}, false); err != nil {
				c.close()
				return nil, err
			}
		}
		if _, err := p.exchange([][][]byte{toBytes([]string{"flushall"})}, false); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *comparison) close() {
	for _, p := range []peer{c.want, c.got} {
		if p.Conn != nil {
			_ = p.Close()
		}
	}
}

func (c *comparison) enough() bool { return len(c.report.Differences) >= max(1, cmp.Or(c.o.Most, 10)) }

// exchange sends calls to both sides and compares the replies.
func (c *comparison) exchange(name string, calls [][][]byte) error {
	silent := mayBeSilent(calls)
	if silent {
		calls = append(calls, toBytes([]string{"client", "reply", "on"}), toBytes([]string{"echo", endOfSilence}))
	}
	want, err := c.want.exchange(calls, silent)
	if err != nil {
		return fmt.Errorf("the server that is right: %w", err)
	}
	got, err := c.got.exchange(calls, silent)
	if err != nil {
		return fmt.Errorf("the server in question: %w", err)
	}
	if silent { // some replies may be missing, so replies cannot be matched to calls
		c.report.Calls += len(calls)
		return c.one(Difference{Number: c.report.Calls, Case: name, Call: slices.Concat(calls...),
			Want: ReplyValue{Kind: '*', Items: want}, Got: ReplyValue{Kind: '*', Items: got}})
	}
	for i, call := range calls {
		c.report.Calls++
		d := Difference{Number: c.report.Calls, Case: name, Call: call, Want: want[i], Got: got[i]}
		if i > 0 {
			d.Before = &Difference{Call: calls[i-1], Want: want[i-1], Got: got[i-1]}
		}
		if i+1 < len(calls) {
			d.Behind = &Difference{Call: calls[i+1], Want: want[i+1], Got: got[i+1]}
		}
		if err := c.one(d); err != nil {
			return err
		}
	}
	return nil
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
	d.Before, d.Behind = nil, nil
	c.past = append(c.past, d)
	return nil
}

// historyCalls is how many calls a history has at most.
const historyCalls = 20

// history finds a difference's History. The reference server finds the keys of the calls.
func (c *comparison) history(d *Difference) (calls []Difference, err error) {
	asked, err := c.want.exchange([][][]byte{slices.Concat(toBytes([]string{"command", "getkeys"}), d.Call)}, false)
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

// exchange sends calls and returns as many replies, or, where some may be missing, those before endOfSilence.
func (p peer) exchange(calls [][][]byte, silent bool) ([]ReplyValue, error) {
	var out []byte
	for _, call := range calls {
		out = AppendCall(out, call...)
	}
	if err := p.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := p.Write(out)
		sent <- err
	}()
	values := make([]ReplyValue, 0, len(calls))
	var err error
	for i, call := range calls {
		var v ReplyValue
		if v, err = Read(p.r); err != nil {
			err = fmt.Errorf("reply %d of %d, to %q: %w", i+1, len(calls), call, err)
			_ = p.Close() // ends the write
			break
		}
		if silent && string(v.Text) == endOfSilence {
			break
		}
		values = append(values, v)
	}
	return values, errors.Join(err, <-sent)
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
		replies, err := p.exchange([][][]byte{call}, false)
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
