package neokv

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/workloads/forms"
)

// The most expensive calls that chance finds, and their ends:
//
//	go test ./neokv -run TestEveryCallEnds -stops.seed=7                a seed; a few long calls, as make test has them
//	go test ./neokv -run TestEveryCallEnds -stops.all -timeout=2h -v    every command of the table, ended in every way
//	go test ./neokv -run TestEveryCallEnds -stops.all -stops.only='^z'  those whose names match
var (
	stopsAll  = flag.Bool("stops.all", false, "TestEveryCallEnds: every command of the table, ended in every way")
	stopsOnly = flag.String("stops.only", "", "expression for the names of commands that -stops.all tries")
	stopsSeed = flag.Uint64("stops.seed", 0, "seed of TestEveryCallEnds; 0 takes a fresh one")
)

const (
	// long is how long a call must have run before it is ended.
	long = 200 * time.Millisecond
	// aloneAtMost is how long -stops.all waits to see how long a read takes.
	aloneAtMost = 2 * time.Second
	// callBytes is how much the arguments of a call have, about. On a fast machine too few calls may be long: then
	// there are more passes over the table, with twice as much each time.
	callBytes, passes = 8 << 20, 4
	// tries is how many calls of a form are made before none of them is long.
	tries = 4
)

// TestEveryCallEnds runs the most expensive calls of the command table that chance finds, on three stores, and ends the
// stores meanwhile. They end soon, whatever they run. Afterwards a write is done, or it is not.
func TestEveryCallEnds(t *testing.T) {
	if raceBuild {
		t.Skip("these calls take ten times as long under the race detector")
	}
	x := newEnder(t)
	left := map[string]int{"read": 3, "write": 2, "own": 1} // how many long calls there must be, of each kind
	if *stopsAll {
		left = map[string]int{"read": 40, "write": 30, "own": 5}
		x.rest()
	}
	if *stopsOnly != "" {
		left = map[string]int{}
	}
	only := regexp.MustCompile(*stopsOnly)
	order := x.Perm(len(x.rows))
	for i := range passes * len(order) {
		row := &x.rows[order[i%len(order)]]
		x.pass = i / len(order)
		kind := "own"
		if row.Writes() {
			kind = "write"
		} else if row.IsData() {
			kind = "read"
		}
		wanted := left[kind] > 0 || *stopsAll && x.pass == 0
		if row.Container || !wanted || !only.MatchString(row.Name) {
			continue
		}
		for _, form := range row.Of() {
			if x.try(row, form) {
				left[kind]--
			}
			if t.Failed() {
				return
			}
		}
	}
	for kind, n := range left {
		if n > 0 {
			t.Errorf("%d long calls too few of the kind %s", n, kind)
		}
	}
}

// ender makes calls on clusters that start from one image, and ends them.
type ender struct {
	*testing.T
	*rand.Rand
	image  *Image
	rows   []forms.Row
	calls  forms.Generator
	before string // the digest of the image
	pass   int

	c     *Cluster // nil: none runs
	dirty bool     // a call may have changed it
}

func newEnder(t *testing.T) *ender {
	seed := *stopsSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("again: go test ./neokv -run TestEveryCallEnds -stops.seed=%d -stops.all=%v", seed, *stopsAll)
	x := &ender{T: t, Rand: rand.New(rand.NewPCG(seed, 0))}
	t.Cleanup(x.close)
	x.calls = forms.Generator{Rand: x.Rand, Tag: "{t}", Slot: 15891, Size: 20_000}
	if *stopsAll {
		x.calls.Size = 60_000
	}
	c := start(t, Config{InMemory: true, NoSockets: true, Regions: 2, Settings: patient()})
	defer c.Close()
	reply, err := c.Do(t.Context(), "command")
	if err == nil {
		x.rows, err = forms.Rows(reply)
	}
	if err != nil || len(x.rows) < 200 {
		t.Fatalf("%d commands: %v", len(x.rows), err)
	}
	for _, row := range x.rows {
		x.calls.Commands = append(x.calls.Commands, strings.ReplaceAll(row.Name, " ", "|"))
	}
	begin := time.Now()
	err = x.calls.Load(func(call forms.Call) error {
		args := make([]any, len(call))
		for i, a := range call {
			args[i] = a.Text + strings.Repeat("x", a.Fill)
		}
		_, err := c.Do(t.Context(), args...)
		return err
	})
	if err == nil {
		x.image, err = c.Snapshot(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if x.before, err = digest(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Logf("loaded in %s: %s", time.Since(begin).Round(time.Millisecond), x.before)
	return x
}

// fresh is a cluster with the data of the image.
func (x *ender) fresh() *Cluster {
	if x.c != nil && !x.dirty {
		return x.c
	}
	x.close()
	// Not by start: its clean-up would hold each cluster, with the data of its stores, until the end of the test.
	c, err := Start(x.Context(), Config{From: x.image, NoSockets: true, Settings: patient()})
	if err != nil {
		x.Fatal(err)
	}
	x.c, x.dirty = c, false
	for x.c.Leader("{t}") == 0 {
		time.Sleep(time.Millisecond)
	}
	return x.c
}

func (x *ender) close() {
	if x.c != nil {
		x.c.Close()
		x.c = nil
	}
}

// running is a call that has been sent to a store.
type running struct {
	net.Conn
	store int
	begun time.Time
	done  chan struct{} // closed when the reply or the end of the connection has come
	// When done is closed.
	took  time.Duration
	reply string
	err   error
}

func (x *ender) begin(call forms.Call) *running {
	c := x.fresh()
	store := max(1, c.Leader("{t}"))
	conn, err := c.Dial(x.Context(), c.Addrs()[store-1])
	if err != nil {
		x.Fatal(err)
	}
	w := bufio.NewWriterSize(conn, 1<<16)
	if err = call.Write(w); err == nil {
		err = w.Flush()
	}
	if err != nil {
		x.Fatal(err)
	}
	r := &running{Conn: conn, store: store, begun: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer conn.Close()
		r.reply, r.err = forms.ReadReply(bufio.NewReaderSize(conn, 1<<16))
		r.took = time.Since(r.begun)
	}()
	return r
}

// within reports whether the call has ended within a time since it began.
func (r *running) within(d time.Duration) bool {
	t := time.NewTimer(time.Until(r.begun.Add(d)))
	defer t.Stop()
	select {
	case <-r.done:
		return true
	case <-t.C:
		return false
	}
}

// try makes calls of a form until one runs long, and ends it in one way, or in all. It returns false if none does.
func (x *ender) try(row *forms.Row, form string) bool {
	var most time.Duration
	ran := ""
	for range tries {
		if x.calls.Keys = 0; !*stopsAll || row.Writes() {
			x.calls.Keys = 48 << x.pass
		}
		call := x.calls.Costly(form, callBytes<<x.pass>>(3*x.IntN(3)))
		if expiresSoon(call) {
			continue
		}
		r := x.begin(call)
		x.dirty = row.Writes() || row.Name == "client pause"
		if !r.within(long) {
			x.end(row, call, r)
			return true
		}
		if ran == "" || r.took > most {
			most, ran = r.took, fmt.Sprintf("%.150s => %.60s", call, r.reply)
		}
	}
	x.Logf("%s: %s at most: %s", form, most.Round(10*time.Microsecond), ran)
	return false
}

// ways are the ways in which stores end. N is the one that the client is connected to.
var ways = []string{"kill N", "stop N", "kill all", "stop all", "close"}

// expiresSoon reports whether a call gives a key one second to live: what a digest finds would depend on when it looks.
func expiresSoon(call forms.Call) bool {
	for i, a := range call[:len(call)-1] {
		switch strings.ToLower(a.Text) {
		case "ex":
			if call[i+1].Text == "1" {
				return true
			}
		case "expire", "setex":
			if i == 0 && len(call) > 2 && call[2].Text == "1" {
				return true
			}
		}
	}
	return false
}

// end ends the stores while the call runs, in some way, and then in all others if all are asked for. It sees what has
// become of the data.
func (x *ender) end(row *forms.Row, call forms.Call, r *running) {
	some := ways
	if !*stopsAll {
		some = ways[x.IntN(len(ways)):][:1]
	}
	told := ""
	after := x.before
	for i, way := range some {
		if i > 0 {
			r = x.begin(call)
			x.dirty = true
			if r.within(long) {
				told += fmt.Sprintf(", took %s before %s", r.took.Round(time.Millisecond), way)
				continue
			}
		}
		what := strings.Replace(way, "N", fmt.Sprint(r.store), 1)
		told += fmt.Sprintf(", %s %s", what, x.inject(what, call).Round(time.Millisecond))
		select {
		case <-r.done:
		case <-time.After(soon):
			x.Fatalf("the client of %.150s still waits after %s", call, what)
		}
		if x.dirty = true; way == "close" {
			continue
		}
		verb, stores, _ := strings.Cut(what, " ")
		if _, err := x.c.Inject(x.Context(), fault.MustParse("restart "+stores)); err != nil {
			x.Fatalf("after %s: %v", verb, err)
		}
		if row.Writes() && after == x.before {
			after = x.alone(call)
		}
		x.whole(what, call, after, r.err == nil && !strings.HasPrefix(r.reply, "-"))
	}
	x.close()
	switch {
	case row.Writes():
	case *stopsAll:
		r := x.begin(call)
		if !r.within(aloneAtMost) {
			r.Conn.Close()
			<-r.done
			told = ": more than " + aloneAtMost.String() + " alone" + told
		} else {
			told = ": " + r.took.String() + " alone" + told
		}
	default:
		told = ": more than " + long.String() + " alone" + told
	}
	x.Logf("%.150s%s", call, told)
}

// rest tells how long the ends take while no call runs.
func (x *ender) rest() {
	told := ""
	for _, way := range ways {
		x.fresh()
		x.dirty = true
		what := strings.Replace(way, "N", "1", 1)
		told += fmt.Sprintf(", %s %s", what, x.inject(what, forms.Call{}).Round(time.Millisecond))
	}
	x.Logf("nothing%s", told)
}

// inject ends stores, and returns how long that took.
func (x *ender) inject(what string, during fmt.Stringer) time.Duration {
	x.Helper()
	begin, done := time.Now(), make(chan error, 1)
	go func() {
		if what == "close" {
			done <- x.c.Close()
			return
		}
		_, err := x.c.Inject(context.Background(), fault.MustParse(what))
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			x.Fatalf("%s during %.150s: %v", what, during, err)
		}
	case <-time.After(soon):
		x.Fatalf("%s during %.150s takes more than %s", what, during, soon)
	}
	if what == "close" {
		x.c = nil
	}
	return time.Since(begin)
}

// alone runs a write to its end on a cluster of its own, and returns what holds then.
func (x *ender) alone(call forms.Call) string {
	other := &ender{T: x.T, Rand: x.Rand, image: x.image}
	defer other.close()
	r := other.begin(call)
	for wait := time.Second; !r.within(wait) && wait < 2*soon; wait += time.Second {
	}
	x.Logf("%.150s: %s alone => %.60s", call, time.Since(r.begun).Round(time.Millisecond), r.reply)
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		got, err := digest(x.Context(), other.c)
		if err == nil {
			return got
		}
		if time.Since(begin) > 4*soon {
			x.Fatal(err) // else the write goes on, longer than its client waited
		}
	}
}

// whole wants the cluster to serve, its replicas to be equal, and its data to be what it was, or what the call has
// made of it; if the client has heard so, only the latter.
func (x *ender) whole(what string, call forms.Call, after string, heard bool) {
	x.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		got, err := digest(x.Context(), x.c)
		sums := ""
		if err == nil {
			var reply any
			if reply, err = x.c.Do(x.Context(), "neokv", "checksum"); err == nil {
				sums = fmt.Sprint(reply)
			}
		}
		switch {
		case strings.Contains(sums, " different "):
			x.Fatalf("%s during %.150s: %s", what, call, sums)
		case strings.Contains(sums, " equal ") && !strings.Contains(sums, " incomplete "):
			if got == after || got == x.before && !heard {
				return
			}
			x.Fatalf("%s during %.150s: the keys are\n%s\nthey were\n%s\nand should be\n%s", what, call, got, x.before, after)
		case time.Since(begin) > 4*soon:
			x.Fatalf("%s during %.150s: does not serve: %v, %s", what, call, err, sums)
		}
	}
}

// digest says what the keys of the image hold.
func digest(ctx context.Context, c *Cluster) (string, error) {
	length := map[string]string{"string": "strlen", "hash": "hlen", "set": "scard", "list": "llen", "zset": "zcard"}
	var all []string
	for _, kind := range "shelz" {
		for i := range 3 {
			key := fmt.Sprintf("{t}%c%d", kind, i+1)
			is, err := c.Do(ctx, "type", key)
			if err != nil {
				return "", err
			}
			if command := length[fmt.Sprint(is)]; command != "" {
				n, err := c.Do(ctx, command, key)
				if err != nil {
					return "", err
				}
				all = append(all, fmt.Sprintf("%s %v of %v", key, is, n))
			}
		}
	}
	n, err := c.Do(ctx, "dbsize")
	all = append(all, fmt.Sprint(n, " keys"))
	return strings.Join(slices.Clip(all), ", "), err
}
