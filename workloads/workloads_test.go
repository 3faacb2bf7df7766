package workloads

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"
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
	d := &ScrambledZipfian{records, NewZipfian(ycsbItems, Theta)}
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
	l := NewLatest(in, Theta)
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
	d := &GrowingZipfian{in, NewZipfian(ycsbItems, Theta)}
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
	seen := map[uint64]uint64{}
	for i := range uint64(100_000) {
		k := fnv64(i)
		if j, twice := seen[k]; twice {
			t.Fatalf("records %d and %d have the hash %d", j, i, k)
		}
		seen[k] = i
	}
}

// source prepares a workload for tests.
func source(t testing.TB, w *Workload, records uint64, clients int) *Source {
	t.Helper()
	s, err := NewSource(w, SourceOptions{Records: records, Elements: 10, ValueSize: 20, Clients: clients, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func find(t testing.TB, name string) *Workload {
	t.Helper()
	w, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestKeyNames(t *testing.T) {
	for _, c := range []struct {
		workload  string
		kind, key int
		record    uint64
		want      string
	}{
		{"ycsb-a", 0, 0, 0, "user6284781860667377211"},
		{"set", 0, 0, 0, "key:000000000000"},
		{"set", 0, 0, 12345, "key:000000012345"},
		{"set", 0, 0, 999_999_999_999, "key:999999999999"},
		{"incr", 0, 0, 7, "counter:000000000007"},
		{"ycsb-e", 0, 0, 99, "{user6284781860667377211}:99"},
		{"ycsb-e", 0, 0, 105, "{user" + fmt.Sprint(fnv64(1)) + "}:05"},
		{"chat", 7, 1, 12345, "{t1}:chat:c_55:9999999987654:m_12345"},
		{"chat", 2, 1, 1009, "{t4}:friend:u_206:u_201"},
	} {
		s := source(t, find(t, c.workload), 10_000, 1)
		if got := string(s.kinds[c.kind].appendKey(nil, &s.values, c.key, c.record)); got != c.want {
			t.Errorf("%s: record %d: %s, want %s", c.workload, c.record, got, c.want)
		}
	}
}

func TestExpressions(t *testing.T) {
	scope := exprScope{names: map[string]expr{"tenant": &binaryExpr{'/', nameExpr("n"), numberExpr(10)}},
		kinds: []string{"user"}, record: true, random: true}
	v := &exprValues{n: 123, records: 1000, count: func(string) int64 { return 7 }, last: func(string) int64 { return 41 },
		rng: rand.New(rand.NewPCG(seed, 1))}
	for text, want := range map[string]int64{
		"1": 1, "n": 123, "records/3": 333, "1+2*3": 7, "(1+2)*3": 9, "10-4-3": 3, "n%10": 3, "100 / 7 / 2": 7,
		"tenant": 12, "tenant*2 + 1": 25, "count(user)": 7, "last(user) % 5": 1, "hash(0)": 6284781860667377211,
		"n/0": 0, "n%(n-n)": 0, "0-5": -5, "random(1)": 0, "random(0)": 0, "9223372036854775807+1": math.MinInt64,
	} {
		e, err := parseExpr(text, scope)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := e.eval(v); got != want {
			t.Errorf("%s = %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"": "found 'EOF'", "1+": "found 'EOF'", "(1": "expected ')'", "1 2": "expected 'EOF', found 2",
		"x": `name "x": unknown`, "f(1)": `function "f": unknown`, "n // 2": "comment", "n /* */ + 2": "comment",
		"count(x)": `kind of records "x": unknown, want one of user`, "$": "illegal character",
		"99999999999999999999": "no whole number of 64 bits", "0x10": "no whole number", `"a"`: "no whole number",
		"-n": "want numbers", "n.x": "want numbers", "hash(1, 2)": "want numbers", "n<<2": `unexpected "<<"`,
		strings.Repeat("(", 1000): "found 'EOF'",
	} {
		if _, err := parseExpr(text, scope); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	scope.record, scope.random = false, false
	for _, text := range []string{"n", "random(2)", "last(user)"} {
		if _, err := parseExpr(text, scope); err == nil {
			t.Errorf("%s is allowed where there is no record", text)
		}
	}
	for text, want := range map[string]string{"user:<n>": "user:123", "<n:5>|<n%2:1>": "00123|1", "<0-7:3>": "-007",
		"": ""} {
		scope.record = true
		tmpl, err := parseTemplate(text, scope)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := string(tmpl.append(nil, v)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		text      string
		min, max  int
		mean, tol float64
	}{
		{"100", 100, 100, 100, 0},
		{"1KiB", 1024, 1024, 1024, 0},
		{"uniform 10-19", 10, 19, 14.5, 0.01},
		{"list 10:90 100:9 1000:1", 10, 1000, 28, 0.01},
		{"histogram 0-9:1 100-199:3", 0, 199, (4.5 + 3*149.5) / 4, 0.01},
		// The mean of a zipfian over 1 to N is the sum of i^(1-theta) over Zeta(N).
		{"zipfian 1-1000 0.5", 1, 1000, Zeta(1000, -0.5+1e-12) / Zeta(1000, 0.5), 0.01},
	} {
		s, err := parseSizes(c.text, 0, maxValue)
		if err != nil {
			t.Fatal(err)
		}
		const draws = 100_000
		sum, low, high := 0.0, math.MaxInt, 0
		for i := range draws {
			n := s.at((float64(i) + 0.5) / draws)
			low, high, sum = min(low, n), max(high, n), sum+float64(n)
		}
		if low != c.min || high > c.max || high < c.max*99/100 || math.Abs(sum/draws-c.mean) > c.tol*c.mean ||
			s.max() != c.max || s.String() != strings.ReplaceAll(c.text, "1KiB", "1024") {
			t.Errorf("%s: %d to %d, mean %.2f, at most %d, prints %s; want mean %.2f", c.text, low, high, sum/draws,
				s.max(), s, c.mean)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.5", "uniform", "uniform 5-1", "uniform 1-2 3", "zipfian 1-10 1.5",
		"zipfian 1-10 x", "list", "list 1", "list 1:0", "list x:1", "histogram 1:1", "99999999999", "list 1:NaN", "65MiB"} {
		if s, err := parseSizes(text, 0, maxValue); err == nil {
			t.Errorf("%q is allowed: %v", text, s)
		}
	}
}

func TestChoices(t *testing.T) {
	const draws, records = 200_000, 1000
	choose := func(text string, client, clients int) (map[uint64]int, Distribution) {
		c, err := parseChoice(text)
		if err != nil {
			t.Fatal(err)
		}
		d := c.distribution(records, NewInserts(records), false, client, clients, rand.New(rand.NewPCG(seed, 2)))
		return draw(d, draws), d
	}
	hot := func(n map[uint64]int, from, to uint64) (sum int) {
		for r, c := range n {
			if r >= from && r < to {
				sum += c
			}
		}
		return sum
	}
	n, _ := choose("hotspot 0.2 0.8", 0, 1)
	within(t, "hotspot", hot(n, 0, 200), 0.8, draws, 0)
	within(t, "the rest", hot(n, 200, 1000), 0.2, draws, 0)
	within(t, "a hot record", n[7], 0.8/200, draws, 0)
	// It moves on by 100 records every 100,000 draws of four clients: this one sees 200,000 draws, so eight places.
	n, _ = choose("hotspot 0.1 0.9 every 100000", 0, 4)
	for place := range uint64(8) {
		within(t, fmt.Sprint("place ", place), hot(n, place*100, place*100+100), 0.9/8+0.1*7/8*100/900, draws, 0.03)
	}
	within(t, "places that it has not reached", hot(n, 800, 1000), 0.1*200/900, draws, 0.03)
	n, _ = choose("sequential", 3, 4)
	if len(n) != 250 || n[3] != draws/250 || n[999] != draws/250 {
		t.Errorf("client 3 of 4 sends %d records, %d times the first", len(n), n[3])
	}
	// Above 1 the sum of (1+i)^-s is the Riemann zeta function: pi^2/6 for 2.
	n, _ = choose("zipfian 2 ordered", 0, 1)
	within(t, "the first of a steep zipfian", n[0], 6/(math.Pi*math.Pi), draws, 0.005)
	within(t, "the second", n[1], 6/(math.Pi*math.Pi)/4, draws, 0.01)
	n, _ = choose("zipfian 0.5 ordered", 0, 1)
	within(t, "the first of a flat one", n[0], 1/Zeta(records, 0.5), draws, 0)
	o := &owned{of: Uniform{records}, records: records, client: 2, clients: 7}
	for r := range draw(o, draws) {
		if r%7 != 2 || r >= records {
			t.Fatalf("client 2 of 7 draws record %d", r)
		}
	}
	if n := len(draw(o, draws)); n != 143 {
		t.Errorf("a client owns %d of 1000 records, want 143", n)
	}
	for _, text := range []string{"", "x", "uniform 1", "zipfian 1", "zipfian 0", "zipfian 11", "zipfian x", "latest 1.5",
		"latest ordered", "hotspot", "hotspot 0.2", "hotspot 0 0.5", "hotspot 0.2 1", "hotspot 0.2 0.8 every",
		"hotspot 0.2 0.8 every 0", "zipfian 0.9 0.9"} {
		if c, err := parseChoice(text); err == nil {
			t.Errorf("%q is allowed: %+v", text, c)
		}
	}
}

// Each embedded workload is whole: operations come in their shares, keys of one command have one hash tag, keys of
// records differ, and the same seed gives the same requests.
func TestWorkloads(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	for _, name := range Names() {
		w := find(t, name)
		if left := w.NotFollowed(); left != nil && name != "lock" { // whose scripts do what bench does not know
			t.Error(left)
		}
		if w.Doc == "" {
			t.Errorf("%s: about is missing", name)
		}
		s := source(t, w, 2000, 3)
		keys := map[string]string{}
		for _, k := range s.kinds {
			for n := range min(k.records, 3000) {
				tag := ""
				for i := range k.keys {
					key := string(k.appendKey(nil, &s.values, i, n))
					if at := fmt.Sprintf("%s %d", k.name, n); keys[key] != "" {
						t.Fatalf("%s: %s and %s have the key %s", name, keys[key], at, key)
					} else {
						keys[key] = at
					}
					if i > 0 && tagOf(key) != tag {
						t.Fatalf("%s: record %d has keys of %s and %s", name, n, tag, tagOf(key))
					}
					tag = tagOf(key)
				}
			}
		}
		const draws = 20_000
		count, sum := make([]int, len(w.Ops)), 0.0
		g, again := s.Generator(1), source(t, w, 2000, 3).Generator(1)
		var r, r2 Request
		for i := range draws {
			g.Next(&r)
			count[r.Op]++
			if i < 500 {
				if again.Next(&r2); fmt.Sprint(r) != fmt.Sprint(r2) {
					t.Fatalf("%s: two generators of one seed send %v and %v", name, r, r2)
				}
			}
			for _, x := range r.Steps {
				if x.Insert {
					s.Inserted(x.Kind, x.Record, true)
					if i < 500 {
						again.src.Inserted(x.Kind, x.Record, true)
					}
				}
				for _, a := range x.Args[1:] {
					if tag := tagOf(string(a)); isTag.MatchString(tag) && tag != tagOf(string(x.Key)) {
						t.Fatalf("%s: %s sends keys of two tags: %q", name, w.Ops[r.Op].Name, x.Args)
					}
				}
			}
		}
		for i, op := range w.Ops {
			sum += op.Share
			if name == "redis-benchmark" { // pushes and pops make up for each other
				continue
			}
			if op.of > 0 {
				within(t, name+" "+op.Name, count[i], op.Share*float64(op.of*op.remainder), draws, 0.01) // client 1 of 2
				continue
			}
			within(t, name+" "+op.Name, count[i], op.Share, draws, 0.01)
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: shares add up to %g", name, sum)
		}
	}
	if _, err := Find("ycsb-z"); err == nil || !strings.Contains(err.Error(), "want one of bigkey, blocking-queue, cache, chat") {
		t.Errorf("ycsb-z: %v", err)
	}
}

// isTag matches what tagOf returns of a key with a hash tag.
var isTag = regexp.MustCompile(`^\{[a-z]+:?\d+$`)

// tagOf returns what decides on the slot of a key.
func tagOf(key string) string {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i:], '}'); j > 1 {
			return key[i : i+j]
		}
	}
	return key
}

// Scans are of 1 to 100 records, evenly, and a thread that fills is read as far as it goes.
func TestScans(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	const draws = 100_000
	g := source(t, find(t, "ycsb-e"), 1000, 1).Generator(0)
	var r Request
	lengths, scans := make([]int, 101), 0
	for range draws {
		if g.Next(&r); r.Op == 0 {
			lengths[len(r.Steps[0].Args)-1]++
			scans++
		}
	}
	for n := 1; n <= 100; n++ {
		within(t, fmt.Sprint("scans of ", n), lengths[n], 1.0/100, scans, 0)
	}
	g = source(t, find(t, "ycsb-e"), 3, 1).Generator(0)
	for range 1000 {
		if g.Next(&r); r.Op == 0 && len(r.Steps[0].Args) > 4 {
			t.Fatalf("of three records %d are read", len(r.Steps[0].Args)-1)
		}
	}
}

// A page goes back from a message of a conversation, and stays in it.
func TestPages(t *testing.T) {
	s := source(t, find(t, "chat"), 1000, 1) // 100 conversations with 10 messages each
	g := s.Generator(0)
	var r Request
	for {
		if g.Next(&r); g.src.workload.Ops[r.Op].Name == "history" && r.Steps[0].Record >= 900 {
			break
		}
	}
	if len(r.Steps) != 2 || len(r.Steps[0].Args) != 11 || len(r.Steps[1].Args) != 11 {
		t.Fatalf("one page of 10 messages, and none behind it: %v", r.Steps)
	}
	last := "9"
	for i, a := range r.Steps[0].Args[1:] { // {t0}:chat:c_17:9999999999082:m_917
		words := strings.Split(string(a), ":")
		if words[2] != strings.Split(string(r.Steps[0].Args[1]), ":")[2] || words[3] <= last && i > 0 {
			t.Errorf("entry %d of the page is %s", i, a)
		}
		last = words[3]
	}
}

// Loaded records hold what reading back expects, and values have the sizes and the content that are asked for.
func TestValues(t *testing.T) {
	w, err := read("mine", "mine.yaml", strings.NewReader(`
records:
  - {key: "a<n>", value: uniform 100-300, compress: 3, length: uniform 20-30}
  - {kind: h, type: hash, key: "h<n>", elements: list 2:1 4:1, value: 10}
  - {kind: z, type: zset, key: "z<n>"}
mix: [{do: GET <key>}]`))
	if err != nil {
		t.Fatal(err)
	}
	s := source(t, w, 300, 1)
	g := s.Generator(0)
	var r, look Request
	var all []byte
	for i := range s.Loaded() {
		g.Load(&r, i)
		x := r.Steps[len(r.Steps)-1]
		switch x.Kind {
		case 0:
			if n := len(x.Args[1]); n < 20 || n > 30 || len(x.Args[2]) < 100 || len(x.Args[2]) > 300 {
				t.Fatalf("a key of %d bytes, a value of %d", n, len(x.Args[2]))
			}
			all = append(all, x.Args[2]...)
			if !s.Is(0, x.Record, [][]byte{x.Args[2]}, x.Value) || s.Is(0, x.Record, [][]byte{x.Args[2]}, x.Value+1) ||
				s.Is(0, x.Record, [][]byte{nil}, x.Value) {
				t.Fatalf("record %d does not hold value %d", x.Record, x.Value)
			}
		case 1, 2:
			args := r.Steps[1].Args[2:]
			if n := s.ElementsOf(x.Kind, x.Record); len(args) != 2*n || x.Kind == 1 && n != 2 && n != 4 {
				t.Fatalf("record %d has %d arguments for %d elements", x.Record, len(args), n)
			}
			value, id := slices.Clone(args[4-x.Kind]), ElementValue(x.Value, 1)
			place := s.Place(x.Kind, x.Record, 1)
			g.Look(&look, x.Kind, x.Record, 1)
			if got := string(look.Steps[0].Args[1]) + " " + string(look.Steps[0].Args[2]); got != place {
				t.Fatalf("looks at %s, want %s", got, place)
			}
			if !s.Is(x.Kind, x.Record, [][]byte{value}, id) || s.Is(x.Kind, x.Record, [][]byte{value}, id+1) {
				t.Fatalf("%s does not hold value %d: %q", place, id, args)
			}
		}
	}
	if ratio := float64(len(all)) / float64(len(snappy.Encode(nil, all))); math.Abs(ratio-3) > 0.4 {
		t.Errorf("values compress to 1/%.2f, want 1/3", ratio)
	}
}

func TestFilesRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "x.yaml: empty, want a workload with `mix`"},
		{"a: [", "x.yaml: yaml: line 1: did not find expected node content"},
		{"about: nothing", "x.yaml:1: mix: missing, want the operations"},
		{`abut: x
records:
  - {key: "a<m>", choose: zipfian 1, value: big, type: tree, count: n, load: perhaps}
  - {kind: b, keys: [{key: "b<n"}, {text: x}], elements: 3}
  - {kind: b}
mix:
  - {op: a, do: GTE <key>}
  - {op: a, do: GET <key> <value>, share: -1}
  - {do: SET <key>}
  - {do: HSET <key> <member> 1, on: c}
  - {do: "[SADD <key> <new>]*0"}
  - {op: w, do: SET <key> <value>, absent: 0.5}
  - {op: t, do: SET <key> <valu>}
  - {op: i, do: PING, insert: true}
`, "x.yaml:1: abut: unknown, want one of about, storage, scripts, records, subscribers, mix\n" +
			"x.yaml:5: kind of records \"b\": there already\n" +
			"x.yaml:3: type \"tree\": unknown, want one of string, counter, hash, list, set, zset\n" +
			"x.yaml:3: key: template \"a<m>\": expression \"m\": name \"m\": unknown, want one of n, records\n" +
			"x.yaml:3: count: expression \"n\": name \"n\": unknown, want one of records\n" +
			"x.yaml:3: load: \"perhaps\", want true or false\n" +
			"x.yaml:3: choose: \"zipfian 1\": exponent out of range, want more than 0 and less than 10, and not 1\n" +
			"x.yaml:3: value: \"big\": " + sizesForms + "\n" +
			"x.yaml:4: key: template \"b<n\": no > behind <n\n" +
			"x.yaml:4: keys: want `key`, and at most one of `value` and `text`\n" +
			"x.yaml:4: elements: records of this type have none\n" +
			"x.yaml:5: kind of records \"b\": want either `key` or `keys`\n" +
			"x.yaml:7: do: command GTE: unknown\n" +
			"x.yaml:8: share: \"-1\", want a number from 1e-09 to 1e+09\n" +
			"x.yaml:8: do: GET <key> <value>: 2 words behind the command, want 1\n" +
			"x.yaml:8: op \"a\": there already\n" +
			"x.yaml:9: do: SET <key>: 1 words behind the command, want at least 2\n" +
			"x.yaml:10: on: kind of records \"c\" unknown, want one of record, b, b\n" +
			"x.yaml:10: do: <key>: there is no kind of records\n" +
			"x.yaml:11: do: \"[SADD <key> <new>]*0\": want [words]*N, at most 4096 words in all\n" +
			"x.yaml:12: absent: only operations that read may ask for absent keys\n" +
			"x.yaml:13: do: template \"<valu>\": expression \"valu\": name \"valu\": unknown, want one of n, records; want " +
			placeholders + "\n" +
			"x.yaml:14: insert: the operation has no record"},
	} {
		if _, err := read("x", "x.yaml", strings.NewReader(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%s\nerror\n%v\nwant\n%s", c.text, err, c.want)
		}
	}
	if _, err := read("x", "x.yaml", strings.NewReader(strings.Repeat("#", maxFile+1))); err == nil {
		t.Error("a file too large is read")
	}
	if _, err := Find("no/such.yaml"); err == nil || err.Error() != "workload no/such.yaml: no such file or directory" {
		t.Errorf("%v", err)
	}
	_, err := read("x", "x.yaml", strings.NewReader(`
records: [{key: "a<n>"}]
mix:
  - {op: a, do: [MULTI, SET <key> <value>, EXEC]}
  - {op: b, do: [multi: [GET <key>, WATCH <key>, multi: [GET <key>]]]}
  - {op: c, do: [{multi: [GET <key>], do: GET <key>}]}
  - {op: d, do: [multi: []]}
  - {op: e, do: [multi: [SCAN <cursor>]]}
  - {op: f, do: [multi: [EVALSHA <script a> 1 <key>], EVALSHA <script c> 1 <key>, EVAL <script a> 1 <key>]}
scripts: {a: return 1, b: return 2}`))
	want := `x.yaml:4: do: MULTI: want the commands of a transaction as {multi: [command, command]}
x.yaml:4: do: EXEC: want the commands of a transaction as {multi: [command, command]}
x.yaml:5: multi: WATCH: want it before the transaction
x.yaml:5: multi: there is none within another one
x.yaml:6: multi: want no ` + "`do`, `on` or `record`" + ` beside it; its commands may have them
x.yaml:7: multi: want a list of 1 to 32 items
x.yaml:8: multi: SCAN: want it before the transaction
x.yaml:9: multi: EVALSHA: want it before the transaction
x.yaml:9: do: script "c": unknown, want one of a, b
x.yaml:9: do: template "<script a>": expression "script a": 1:8: expected 'EOF', found a; want ` + placeholders + `
`
	want = strings.TrimSuffix(want, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("transactions: %v;\nwant %s", err, want)
	}
	_, err = read("x", "x.yaml", strings.NewReader(`
subscribers: {clients: 0, do: PSUBSCRIBE a}
mix:
  - {do: PUBLISH a <message 10>}
  - {do: SET a <message 100>}`))
	want = `x.yaml:4: do: <message 10>: ` + "\"10\"" + `: want 48 to 67108864
x.yaml:5: do: SET a <message 100>: want <message SIZES> only behind PUBLISH or SPUBLISH and a channel, or LPUSH or RPUSH and a key
x.yaml:2: clients: "0", want a number from 1 to 100000
x.yaml:2: do: want SUBSCRIBE or SSUBSCRIBE with one channel, in which <n> is the number of the client`
	if err == nil || err.Error() != want {
		t.Errorf("subscribers: %v;\nwant %s", err, want)
	}
	_, err = read("x", "x.yaml", strings.NewReader("mix: [{do: PUBLISH a <message 50>}]"))
	if want = "x.yaml:1: subscribers: missing, want who gets the messages"; err == nil || err.Error() != want {
		t.Errorf("subscribers: %v;\nwant %s", err, want)
	}
	untracked, err := read("x", "x.yaml", strings.NewReader(`
records: [{key: "a<n>"}, {kind: l, type: list, key: "l<n>"}, {kind: c, type: counter, key: "c<n>"}]
mix:
  - {do: APPEND <key> <value>}
  - {do: RPUSH <key> <value>, on: l}
  - {do: DEL <key>, on: l}
  - {op: x, do: EXPIRE <key> 1, on: c}`))
	want = "workload x: verify: reading back cannot follow records of kind record (x:4: APPEND), " +
		"nor records of kind l (their sizes change and they are removed, without `owner: true`), " +
		"nor records of kind c (counters that are removed)"
	if err != nil || untracked.Verifiable() == nil || untracked.Verifiable().Error() != want {
		t.Errorf("%v, %v; want %s", err, untracked.Verifiable(), want)
	}
	partly, err := read("x", "x.yaml", strings.NewReader(`
records: [{key: "a<n>"}, {kind: b, key: "b<n>"}]
mix:
  - {do: [GET <key>, "BITCOUNT <key>", APPEND <key> <value>]}
  - {do: SETBIT <key> 1 1}
  - {do: SET <key> <value>, on: b}`))
	if got := strings.Join(partly.NotFollowed(), "\n"); err != nil || partly.Verifiable() != nil ||
		got != "records of kind record (x:4: APPEND, x:5: SETBIT)" {
		t.Errorf("%v, %v: %q", err, partly.Verifiable(), got)
	}
	flushed, err := read("x", "x.yaml", strings.NewReader(`
records: [{key: "a<n>"}]
mix: [{do: SET <key> <value>}, {do: FLUSHALL}]`))
	if err != nil || flushed.Verifiable() == nil {
		t.Errorf("%v, FLUSHALL is taken for harmless", err)
	}
}

// FuzzWorkloadFile reads files that nobody has thought of, and draws from those that are valid.
func FuzzWorkloadFile(f *testing.F) {
	files, err := embedded.ReadDir(".")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := embedded.ReadFile(file.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := read("x", "x.yaml", strings.NewReader(text))
		if err != nil || strings.Contains(text, "MiB") || len(text) > 10_000 {
			return
		}
		s, err := NewSource(w, SourceOptions{Records: 100, Elements: 3, ValueSize: 10, Clients: 2, Seed: 1})
		if err != nil || s.RequestBytes() > 1<<20 || s.LoadBytes() > 1<<20 {
			return
		}
		g := s.Generator(1)
		var r Request
		for i := range min(3, s.Loaded()) {
			g.Load(&r, i)
		}
		for range 10 {
			g.Next(&r)
		}
	})
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

// An iteration goes on, in the collection where it began, with the cursor that the server returned. A client that sends
// several calls before an answer has as many iterations, and each goes on in turn.
func TestIterations(t *testing.T) {
	for _, c := range []struct{ do, first, next string }{
		{"HSCAN <key> <cursor> COUNT 10", `^HSCAN h\d+ 0 COUNT 10$`, "HSCAN %s %d COUNT 10"},
		{"SCAN <cursor> COUNT 5", `^SCAN 0 COUNT 5$`, "SCAN %[2]d COUNT 5"},
	} {
		w, err := read("x", "x.yaml", strings.NewReader("records: [{type: hash, key: h<n>}]\nmix: [do: "+c.do+"]"))
		if err != nil {
			t.Fatal(err)
		}
		g := source(t, w, 1000, 1).Generator(0)
		var r Request
		next := func() (x RequestStep, text string) {
			g.Next(&r)
			return r.Steps[0], string(bytes.Join(r.Steps[0].Args, []byte(" ")))
		}
		begin := func() RequestStep {
			x, text := next()
			if !regexp.MustCompile(c.first).MatchString(text) || x.GoesOn || !x.Scan {
				t.Fatalf("%s: %q, want the beginning of an iteration", c.do, text)
			}
			return x
		}
		a, b, failed := begin(), begin(), begin()
		_ = failed // nothing is told of a call without an answer
		for cursor := uint64(math.MaxUint64); cursor > math.MaxUint64-100; cursor -= 2 {
			if !g.Scanned(&a.Effect, fmt.Append(nil, cursor)) || !g.Scanned(&b.Effect, fmt.Append(nil, cursor-1)) {
				t.Fatalf("%s: an iteration has ended", c.do)
			}
			for i, x := range []*RequestStep{&a, &b} {
				y, text := next()
				want := fmt.Sprintf(c.next, "h"+fmt.Sprint(x.Record), cursor-uint64(i))
				if text != want || !y.GoesOn || y.Record != x.Record {
					t.Fatalf("%s: %q, want %q", c.do, text, want)
				}
				*x = y
			}
		}
		if g.Scanned(&a.Effect, []byte("0")) || g.Scanned(&b.Effect, []byte("odd")) {
			t.Errorf("%s: an iteration goes on", c.do)
		}
		begin()
		// A thousand calls at once, again and again: what waits takes no more room.
		for range 50 {
			var sent []RequestStep
			for range 1000 {
				x, _ := next()
				sent = append(sent, x)
			}
			for i := range sent {
				g.Scanned(&sent[i].Effect, []byte("7"))
			}
		}
		if n := cap(g.scans[0].list); n > 4000 {
			t.Errorf("%s: room for %d iterations", c.do, n)
		}
	}
	for do, want := range map[string]string{
		"GET <key> <cursor>":                        "want <cursor> only in SCAN, HSCAN, SSCAN and ZSCAN",
		"[TYPE <key>, HSCAN <key> <cursor>]":        "want <cursor> in the first command",
		"[{record: n+1, do: HSCAN <key> <cursor>}]": "want <cursor> in the first command",
	} {
		_, err := read("x", "x.yaml", strings.NewReader("records: [{type: hash, key: h<n>}]\nmix: [do: "+do+"]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", do, err, want)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			s, err := NewSource(find(b, name), SourceOptions{Records: 1_000_000, Elements: 10, ValueSize: 100, Clients: 1,
				Seed: seed})
			if err != nil {
				b.Fatal(err)
			}
			g := s.Generator(0)
			var r Request
			b.ReportAllocs()
			for b.Loop() {
				g.Next(&r)
			}
		})
	}
}

// Numbers have zeros before them up to a width, which leaves out the sign, and all of their digits.
func TestPadded(t *testing.T) {
	for _, n := range []int64{0, 1, 9, 10, 99, 12_345, math.MaxInt64, -1, -10, math.MinInt64} {
		for width := range maxWidth + 1 {
			want := fmt.Sprintf("x%0*d", width, n)
			if n < 0 { // there the width has the sign
				want = fmt.Sprintf("x%0*d", width+1, n)
			}
			if got := string(appendPadded([]byte("x"), n, width)); got != want {
				t.Fatalf("%d, width %d: %s, want %s", n, width, got, want)
			}
		}
	}
}
