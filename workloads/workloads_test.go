package workloads

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

const seed = 42 // fixed: the bounds below are for this sample, and wide

func TestZeta(t *testing.T) {
	for _, n := range []uint64{1, 2, 999, 1000, 1001, 1500, 100_000, 1_000_000} {
		want := 0.0
		for i := n; i >= 1; i-- {
			want += math.Pow(float64(i), -Theta)
		}
		if got := Zeta(n, Theta); math.Abs(got-want) > 1e-9*want {
			t.Errorf("Zeta(%d) = %.12f, want %.12f", n, got, want)
		}
	}
	// The constant in YCSB's ScrambledZipfianGenerator.
	if got := Zeta(ycsbItems, Theta); math.Abs(got-26.46902820178302) > 1e-6 {
		t.Errorf("Zeta(%d) = %.12f", uint64(ycsbItems), got)
	}
}

func draw(d Distribution, draws int) map[uint64]int {
	rng := rand.New(rand.NewPCG(seed, 1))
	n := map[uint64]int{}
	for range draws {
		n[d.Next(rng)]++
	}
	return n
}

// within reports whether a count is the expectation of a binomial within five standard deviations and a relative slack.
func within(t *testing.T, what string, got int, p float64, draws int, slack float64) {
	t.Helper()
	mean := p * float64(draws)
	if bound := 5*math.Sqrt(mean*(1-p)) + slack*mean; math.Abs(float64(got)-mean) > bound {
		t.Errorf("%s: %d of %d draws, want %.0f +- %.0f", what, got, draws, mean, bound)
	}
}

func TestZipfian(t *testing.T) {
	const draws = 1_000_000
	for _, n := range []uint64{1, 2, 3, 100, 100_000} {
		z := NewZipfian(n, Theta)
		got := draw(z, draws)
		zetan := Zeta(n, Theta)
		// Exact for the first two. Behind them the continuous approximation has too much, by a tenth at number 2, less
		// and less further on; so ranges are compared, with a slack.
		for i := range min(n, 2) {
			within(t, fmt.Sprintf("n %d: number %d", n, i), got[i], math.Pow(float64(i+1), -Theta)/zetan, draws, 0)
		}
		for lo := uint64(2); lo < n; lo *= 4 {
			hi, sum := min(n, lo*4), 0
			for i := lo; i < hi; i++ {
				sum += got[i]
			}
			within(t, fmt.Sprintf("n %d: numbers %d to %d", n, lo, hi-1), sum, (Zeta(hi, Theta)-Zeta(lo, Theta))/zetan,
				draws,
				0.12)
		}
		for i := range got {
			if i >= n {
				t.Errorf("n %d: drew %d", n, i)
			}
		}
	}
}

func TestScrambledZipfian(t *testing.T) {
	const draws, records = 1_000_000, 10_000
	d := NewScrambledZipfian(records)
	got := draw(d, draws)
	// What falls on a record is the sum over all numbers hashed to it. The hottest two carry their own share and, on
	// average, a 1/records part of all the rest.
	zetan := Zeta(ycsbItems, Theta)
	first, second := 1/zetan, math.Pow(2, -Theta)/zetan
	rest := (1 - first - second) / records
	within(t, "hottest", got[fnv64(0)%records], first+rest, draws, 0.02)
	within(t, "second", got[fnv64(1)%records], second+rest, draws, 0.02)
	if len(got) < records*99/100 {
		t.Errorf("%d of %d records drawn", len(got), records)
	}
	// Scrambled: the two halves of the record space share the mass but for where the hottest fell.
	low := 0
	for r, n := range got {
		if r >= records {
			t.Fatalf("drew record %d of %d", r, records)
		}
		if r < records/2 {
			low += n
		}
	}
	if low < draws*4/10 || low > draws*6/10 {
		t.Errorf("%d of %d draws in the lower half", low, draws)
	}
}

func TestUniform(t *testing.T) {
	const draws, n = 1_000_000, 10
	for i, c := range draw(Uniform{n}, draws) {
		within(t, fmt.Sprint("number ", i), c, 1.0/n, draws, 0)
	}
}

// Zeta against the Riemann zeta function, whose Laurent series at 1 has the Stieltjes constants as coefficients: the
// sum up to n is zeta(theta) + n^(1-theta)/(1-theta) + n^-theta/2 but for a term in n^(-theta-1).
func TestZetaPublished(t *testing.T) {
	const euler, stieltjes1, stieltjes2 = 0.57721566490153286, -0.07281584548367672, -0.00969036319287232
	x := Theta - 1
	riemann := 1/x + euler - stieltjes1*x + stieltjes2*x*x/2
	for _, n := range []uint64{10_000, 1_000_000, 1_000_000_000} {
		f := float64(n)
		want := riemann + math.Pow(f, 1-Theta)/(1-Theta) + math.Pow(f, -Theta)/2
		if got := Zeta(n, Theta); math.Abs(got-want) > 1e-7 {
			t.Errorf("Zeta(%d) = %.9f; want %.9f", n, got, want)
		}
	}
}

// The newest record is to Latest what number 0 is to a zipfian over as many, also while records are inserted.
func TestLatest(t *testing.T) {
	const draws = 300_000
	in := NewInserts(500)
	l := NewLatest(in)
	for _, records := range []uint64{500, 501, 1000, 100_000} {
		for in.Acknowledged() < records {
			in.Done(in.Next(), true)
		}
		in.Next() // under way: not to be read
		rng := rand.New(rand.NewPCG(seed, records))
		got := map[uint64]int{}
		for range draws {
			got[l.Next(rng)]++
		}
		zetan := Zeta(records, Theta)
		for i := range uint64(2) {
			within(t, fmt.Sprintf("%d records: %d before the newest", records, i), got[records-1-i],
				math.Pow(float64(i+1), -Theta)/zetan, draws, 0)
		}
		newest := 0 // tenth of all
		for r, n := range got {
			if r >= records {
				t.Fatalf("record %d of %d was read", r, records)
			}
			if r >= records-records/10 {
				newest += n
			}
		}
		within(t, fmt.Sprintf("%d records: the newest tenth", records), newest, Zeta(records/10, Theta)/zetan, draws,
			0.03)
		in.Done(records, true)
	}
}

// Grown one by one a zipfian is the same as made at once.
func TestZipfianGrows(t *testing.T) {
	z := NewZipfian(10, Theta)
	for n := uint64(11); n <= 5000; n++ {
		z.grow(n)
	}
	want := NewZipfian(5000, Theta)
	if math.Abs(z.zetan-want.zetan) > 1e-9 || math.Abs(z.eta-want.eta) > 1e-9 || z.n != 5000 {
		t.Errorf("grown %+v; want %+v", z, want)
	}
	z.grow(1_000_000)
	if *z != *NewZipfian(1_000_000, Theta) {
		t.Errorf("grown %+v; want %+v", z, NewZipfian(1_000_000, Theta))
	}
}

// GrowingZipfian is a scrambled zipfian whatever the number of records, and the hottest record stays when others are
// inserted.
func TestGrowingZipfian(t *testing.T) {
	const draws = 300_000
	in := NewInserts(1000)
	d := growingZipfian(0, in)
	for _, records := range []uint64{1000, 1023, 1024, 1500} {
		for in.Acknowledged() < records {
			in.Done(in.Next(), true)
		}
		got := draw(d, draws)
		zetan := Zeta(ycsbItems, Theta)
		hash := fnv64(0)
		hottest := hash % 2048
		for half := uint64(1024); hottest >= records; half /= 2 {
			hottest = hash % half
		}
		// A record takes the hashes of one that is not there yet, if there is such a one, so up to 2/records of the
		// rest.
		if n := float64(got[hottest]) / draws; n < 1/zetan || n > 1/zetan+3/float64(records) {
			t.Errorf("%d records: record %d has %.4f of the draws; want %.4f", records, hottest, n, 1/zetan)
		}
		for r := range got {
			if r >= records {
				t.Fatalf("drew record %d of %d", r, records)
			}
		}
		if len(got) < int(records)*95/100 {
			t.Errorf("%d of %d records drawn", len(got), records)
		}
	}
}

func TestFNV(t *testing.T) {
	// FNV-1a of eight zero bytes is 0xa8c7f832281a39c5, negative as a signed number: YCSB takes the absolute value.
	if got, want := fnv64(0), uint64(0x573807cdd7e5c63b); got != want {
		t.Errorf("fnv64(0) = %#x, want %#x", got, want)
	}
	seen := map[string]uint64{}
	for i := range uint64(100_000) {
		k := string(ycsbKey(nil, i))
		if j, twice := seen[k]; twice {
			t.Fatalf("records %d and %d have the key %s", j, i, k)
		}
		seen[k] = i
	}
}

func TestKeyNames(t *testing.T) {
	for _, c := range []struct {
		name   func([]byte, uint64) []byte
		record uint64
		want   string
	}{
		{ycsbKey, 0, "user6284781860667377211"},
		{plainKey, 0, "key:000000000000"},
		{plainKey, 12345, "key:000000012345"},
		{plainKey, 999_999_999_999, "key:999999999999"},
		{absentKey, 12345, "key:000000012345-"},
		{counterKey, 7, "counter:000000000007"},
		{threadKey, 99, "{user6284781860667377211}:99"},
		{threadKey, 105, "{user" + fmt.Sprint(fnv64(1)) + "}:05"},
	} {
		if got := string(c.name(nil, c.record)); got != c.want {
			t.Errorf("record %d: %s, want %s", c.record, got, c.want)
		}
	}
}

func TestWorkloads(t *testing.T) {
	for _, name := range Names() {
		w, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if w.of != nil {
			continue // TestCollections
		}
		const records, valueBytes, draws = 1000, 20, 20_000
		src := NewSource(w, records, 1, valueBytes, seed)
		keys := map[string]bool{} // that were written
		var r Request
		g := src.Generator(rand.New(rand.NewPCG(seed, 1)))
		for i := range uint64(records) {
			g.Load(&r, i)
			if string(r.Args[0]) != "SET" || len(r.Args) != 3 || !bytes.Equal(r.Args[2], src.Value(r.Value)) ||
				len(r.Args[2]) != valueBytes {
				t.Fatalf("%s: load sends %q", name, r.Args)
			}
			if string(r.Args[1]) != string(src.AppendKey(nil, i, false)) {
				t.Fatalf("%s: record %d has the key %s", name, i, r.Args[1])
			}
			keys[string(r.Args[1])] = true
		}
		if len(keys) != records {
			t.Errorf("%s: %d keys loaded, want %d", name, len(keys), records)
		}
		count := make([]int, len(w.Ops))
		var last ValueID
		for range draws {
			g.Next(&r)
			count[r.Op]++
			op := w.Ops[r.Op]
			key := string(r.Args[1])
			want := []string{op.Command, string(src.AppendKey(nil, r.Record, op.Kind == Increment))}
			there := true
			switch op.Kind {
			case ReadAbsent:
				want[1], there = want[1]+"-", false
			case Insert:
				there = false
				want = append(want, string(src.Value(r.Value)))
				src.Inserts().Done(r.Record, true)
			case Write:
				if op.Then == "" {
					want = append(want, string(src.Value(r.Value)))
				}
			case WriteFading:
				want = append(want, string(src.Value(r.Value)), "EX", "60")
			case Increment:
				there = false
			case Scan:
				want = []string{op.Command}
				for i := range r.Args[1:] {
					want = append(want, string(src.AppendKey(nil, r.Record+uint64(i), false)))
					if !keys[want[i+1]] {
						t.Fatalf("%s: scans %s, which is not there", name, want[i+1])
					}
					if tag, _, _ := strings.Cut(want[i+1], "}"); tag != key[:len(tag)] {
						t.Fatalf("%s: scans %s and %s in one request", name, key, want[i+1])
					}
				}
			}
			if fmt.Sprintf("%q", r.Args) != fmt.Sprintf("%q", want) || there != keys[key] {
				t.Fatalf("%s: %s sends %q; want %q", name, op.Name, r.Args, want)
			}
			if then := fmt.Sprintf("%s", r.Then); op.Then != "" &&
				then != fmt.Sprintf("[%s %s %s]", op.Then, key, src.Value(r.Value)) ||
				op.Then == "" && len(r.Then) > 0 {
				t.Fatalf("%s: %s goes on with %q", name, op.Name, r.Then)
			}
			if op.Kind == Insert {
				keys[key] = true
			}
			if op.Kind == Write || op.Kind == WriteFading || op.Kind == Insert {
				if r.Value == last {
					t.Fatalf("%s: the same value twice in a row", name)
				}
				last = r.Value
			}
		}
		sum := 0.0
		for i, op := range w.Ops {
			within(t, name+" "+op.Name, count[i], op.Share, draws, 0)
			sum += op.Share
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Errorf("%s: shares add up to %g", name, sum)
		}
	}
	if _, err := Find("ycsb-z"); err == nil {
		t.Error("found ycsb-z")
	}
}

// Scans are of 1 to 100 records, evenly, and a thread that fills is read as far as it goes.
func TestScans(t *testing.T) {
	w, _ := Find("ycsb-e")
	const draws = 100_000
	g := NewSource(w, 1000, 1, 10, seed).Generator(rand.New(rand.NewPCG(seed, 1)))
	var r Request
	lengths, scans := make([]int, ThreadRecords+1), 0
	for range draws {
		if g.Next(&r); w.Ops[r.Op].Kind == Scan {
			lengths[len(r.Args)-1]++
			scans++
		}
	}
	for n := 1; n <= ThreadRecords; n++ {
		within(t, fmt.Sprint("scans of ", n), lengths[n], 1.0/ThreadRecords, scans, 0)
	}
	g = NewSource(w, 3, 1, 10, seed).Generator(rand.New(rand.NewPCG(seed, 1)))
	for range 1000 {
		if g.Next(&r); w.Ops[r.Op].Kind == Scan && (len(r.Args) > 4 || r.Record+uint64(len(r.Args)-1) > 3) {
			t.Fatalf("of three records %d are read from number %d on", len(r.Args)-1, r.Record)
		}
	}
}

func TestReach(t *testing.T) {
	for name, want := range map[string]int{"set": 1, "ycsb-e": ThreadRecords, "lpop": 1, "hash": 1000,
		"queue": PageElements} {
		w, _ := Find(name)
		if got := Reach(w.Ops, 1000); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	w, _ := Find("lpop")
	if got := Reach([]Op{w.Loading()}, 1000); got != 1000 {
		t.Errorf("loading lpop: %d, want 1000", got)
	}
}

// collections is a model of Redis for the commands of the workloads: what elements hold, by key and element. Elements
// of a list are numbered.
type collections struct {
	held map[string]map[string]string
	// front and back are the numbers of a list's next elements.
	front, back map[string]int
}

// run returns how many elements were answered, added, or removed; it fails at a command that is not as in Redis.
func (c *collections) run(t *testing.T, args [][]byte) int {
	t.Helper()
	command, key := string(args[0]), string(args[1])
	var rest []string
	for _, a := range args[2:] {
		rest = append(rest, string(a))
	}
	of, step := c.held[key], 1
	if of == nil {
		of = map[string]string{}
		c.held[key] = of
	}
	wants := map[string]int{"HGET": 1, "SISMEMBER": 1, "ZREVRANK": 1, "ZSCORE": 1, "LRANGE": 2, "ZREVRANGE": 3}
	if n, fixed := wants[command]; fixed && len(rest) != n {
		t.Fatalf("%q: %d arguments", args, len(rest))
	}
	before := len(of)
	switch command {
	case "DEL":
		delete(c.held, key)
		c.front[key], c.back[key] = 0, 0
		return before
	case "HSET", "ZADD":
		for step = 2; len(rest) >= step; rest = rest[step:] {
			if command == "HSET" {
				of[rest[0]] = rest[1]
			} else if _, err := strconv.ParseFloat(rest[0], 64); err == nil {
				of[rest[1]] = rest[0]
			}
		}
	case "SADD":
		for ; len(rest) >= step; rest = rest[step:] {
			of[rest[0]] = ""
		}
	case "RPUSH", "LPUSH":
		for ; len(rest) >= step; rest = rest[step:] {
			if command == "RPUSH" {
				of[strconv.Itoa(c.back[key])] = rest[0]
				c.back[key]++
			} else {
				c.front[key]--
				of[strconv.Itoa(c.front[key])] = rest[0]
			}
		}
	case "LPOP":
		delete(of, strconv.Itoa(c.front[key]))
		c.front[key]++
		return before - len(of)
	case "SPOP", "ZPOPMIN":
		for member := range of {
			delete(of, member)
			return 1
		}
		return 0
	case "HGET", "ZREVRANK", "ZSCORE", "SISMEMBER":
		if _, there := of[rest[0]]; there {
			return 1
		}
		return 0
	case "HGETALL", "SMEMBERS":
		return before
	case "LRANGE", "ZREVRANGE":
		return min(before, 10)
	default:
		t.Fatalf("%q: not a command of any workload", args)
	}
	if len(rest) != 0 {
		t.Fatalf("%q: %q is left", args, rest)
	}
	return len(of) - before
}

// Collections are loaded with the elements asked for, also where others were before; what is read or popped is there;
// and where elements come and go there are never fewer than were loaded, and few more.
func TestCollections(t *testing.T) {
	const records, elements, valueBytes, draws, clients = 100, 7, 20, 20_000, 3
	for _, name := range Names() {
		w, _ := Find(name)
		if w.of == nil {
			continue
		}
		src := NewSource(w, records, elements, valueBytes, seed)
		c := &collections{held: map[string]map[string]string{}, front: map[string]int{}, back: map[string]int{}}
		var generators []*Generator
		for i := range uint64(clients) {
			generators = append(generators, src.Generator(rand.New(rand.NewPCG(seed, i))))
		}
		var r Request
		first := map[uint64]ValueID{} // of a record
		for i := range uint64(2 * records) {
			generators[0].Load(&r, i%records)
			if command, key := string(r.Args[0]), string(r.Args[1]); command != "DEL" || len(r.Args) != 2 ||
				key != string(r.Then[1]) || !strings.HasPrefix(key, w.of.prefix) {
				t.Fatalf("%s: load begins with %q", name, r.Args)
			}
			c.run(t, r.Args)
			first[r.Record] = r.Value
			if got := c.run(t, r.Then); got != elements {
				t.Fatalf("%s: %q adds %d elements", name, r.Then, got)
			}
			for n, v := range c.held[string(r.Then[1])] {
				if w.HasValues() && len(v) != valueBytes {
					t.Fatalf("%s: element %s is %q", name, n, v)
				}
			}
		}
		if len(c.held) != records {
			t.Fatalf("%s: %d keys loaded", name, len(c.held))
		}
		last := map[[2]uint64]ValueID{} // by record and element
		for record, v := range first {
			for i := range elements {
				last[[2]uint64{record, uint64(i)}] = ElementValue(v, i)
			}
		}
		count, pushes := make([]int, len(w.Ops)), 0
		for i := range draws {
			g := generators[i%clients]
			g.Next(&r)
			op := w.Ops[r.Op]
			count[r.Op]++
			if string(r.Args[0]) != op.Command || string(r.Args[1]) != string(src.AppendKey(nil, r.Record, false)) ||
				len(r.Then) > 0 {
				t.Fatalf("%s: %s of record %d sends %q, %q", name, op.Name, r.Record, r.Args, r.Then)
			}
			got := c.run(t, r.Args)
			size := len(c.held[string(r.Args[1])])
			switch op.Kind {
			case Push:
				if pushes++; r.Element != 0 {
					t.Fatalf("%s: %q is of element %d", name, r.Args, r.Element)
				}
				if got != 1 {
					t.Fatalf("%s: %q adds %d elements", name, r.Args, got)
				}
			case Write:
				last[[2]uint64{r.Record, uint64(r.Element)}] = r.Value
				if got != 0 || size != elements {
					t.Fatalf("%s: %q adds %d elements to what is loaded", name, r.Args, got)
				}
			default: // a set's members are others after a while, and pops alone end
				if got == 0 && op.Command != "SISMEMBER" && len(w.Ops) > 1 {
					t.Fatalf("%s: %q finds nothing", name, r.Args)
				}
			}
			if len(w.Ops) > 1 && (size < elements || size > elements+clients*maxOwed) {
				t.Fatalf("%s: %q leaves %d elements", name, r.Args, size)
			}
		}
		for i, op := range w.Ops {
			within(t, name+" "+op.Name, count[i], op.Share, draws, 0)
		}
		if w.Counts() != (pushes > 0 || w.Ops[0].Kind == Pop) {
			t.Errorf("%s: counts %v", name, w.Counts())
		}
		// What is looked at in the end is what was written.
		for at, v := range last {
			generators[0].Look(&r, at[0], int(at[1]), false)
			held := c.held[string(r.Args[1])]
			if w.Counts() {
				if want := fmt.Sprintf("[%s %s]", w.of.count, r.Args[1]); fmt.Sprintf("%s", r.Args) != want {
					t.Fatalf("%s: looks with %q, want %s", name, r.Args, want)
				}
			} else if text := []byte(held[string(r.Args[2])]); string(r.Args[0]) != w.of.read || !src.Is(text, v) ||
				src.Is(text, v+1) {
				t.Fatalf("%s: %q finds %q, value %d was written", name, r.Args, text, v)
			}
		}
	}
}

// Only what is acknowledged is readable, in whatever order acknowledgements come, and what failed is inserted again.
func TestInserts(t *testing.T) {
	for _, records := range []uint64{1, 63, 64, 100} {
		rng := rand.New(rand.NewPCG(seed, records))
		in := NewInserts(records)
		done := map[uint64]bool{}
		var open []uint64
		upTo := records
		for step := range 20_000 {
			if open = append(open, in.Next()); len(open) < 50 && step < 19_000 {
				continue
			}
			for range 2 {
				if len(open) == 0 {
					break
				}
				i := rng.IntN(len(open))
				record := open[i]
				open = append(open[:i], open[i+1:]...)
				ok := rng.IntN(10) > 0
				if in.Done(record, ok); ok {
					if done[record] {
						t.Fatalf("record %d was given out twice", record)
					}
					done[record] = true
				}
			}
			for done[upTo] {
				upTo++
			}
			if got := in.Acknowledged(); got != upTo {
				t.Fatalf("%d records: step %d: %d acknowledged; want %d", records, step, got, upTo)
			}
		}
		if in.Acknowledged() < records+1000 {
			t.Errorf("%d records: only %d at the end", records, in.Acknowledged())
		}
	}
}

func TestSameSeedSameRequests(t *testing.T) {
	w, _ := Find("ycsb-a")
	requests := func() (out []string) {
		g := NewSource(w, 1000, 1, 16, seed).Generator(rand.New(rand.NewPCG(seed, 7)))
		var r Request
		for range 100 {
			g.Next(&r)
			out = append(out, fmt.Sprintf("%q", r.Args))
		}
		return out
	}
	if a, b := requests(), requests(); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("two generators of one seed differ")
	}
}

func BenchmarkNext(b *testing.B) {
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			w, _ := Find(name)
			g := NewSource(w, 1_000_000, 10, 100, seed).Generator(rand.New(rand.NewPCG(seed, 1)))
			var r Request
			b.ReportAllocs()
			for b.Loop() {
				g.Next(&r)
			}
		})
	}
}
