package compare

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/stats"

	"neokv.dev/results"
)

// Proof is what rounds in which nothing differs, or B was held back, say of the conclusions of other runs of that
// setup. Its blocks are those of one arm: in even rounds all of them are alike, in odd rounds B was stopped for a share
// of the time.
type Proof struct {
	Turns
	Name string // of its file
}

// ReadProof reads a file to which sittings append. Size is how much of it is whole.
func ReadProof(r io.Reader, name string) (p *Proof, size int64, err error) {
	p = &Proof{Name: name}
	p.Header, p.Blocks, size, err = results.ReadLines[TurnsHeader, Block](r, "blocks", FileFormat,
		func(h *TurnsHeader) int { return h.Format })
	if err == nil && p.Header.Handicap == 0 {
		err = errors.New("not a proof: want a file that neokv ab --prove has written")
	}
	return p, size, err
}

// Next returns the number of the round that follows those of the file.
func (p *Proof) Next() (round int) {
	for _, b := range p.Blocks {
		round = max(round, b.Round+1)
	}
	return round
}

// Other says in what the setup of a run differs from that of the proof, "" if in nothing that its rates depend on: the
// load, the block, the machine, and what A is.
func (p *Proof) Other(r *Turns) string {
	if len(p.Blocks) == 0 || len(r.Blocks) == 0 {
		return "" // nobody knows yet
	}
	a := []*results.Header{&p.Blocks[0].Header}
	var b []*results.Header
	for i := range r.Blocks {
		if r.Blocks[i].Side != SideB {
			b = append(b, &r.Blocks[i].Header)
		}
	}
	if p.Header.Control != r.Header.Control || p.Header.Together != r.Header.Together {
		return "one has a copy of A or measures its arms together, and the other does not"
	}
	if p.Header.A != r.Header.A {
		return fmt.Sprintf("A: %s and %s", p.Header.A, r.Header.A)
	}
	for _, c := range setupOf(a, b) {
		if slices.Contains([]string{"load", "measured", "target", "durability", "machine"}, c.Name) && c.A != c.B {
			return fmt.Sprintf("%s: %s and %s", c.Name, orNone(c.A), orNone(c.B))
		}
	}
	return ""
}

// Of says what the proof says of a run.
func (p *Proof) Of(r *Turns) (lines []string) {
	if other := p.Other(r); other != "" {
		return []string{fmt.Sprintf("no proof of this setup: %s is of another one, %s", p.Name, other)}
	}
	return p.Rates(len(r.Rounds()), r.primary())
}

// drawn is how many tables are drawn from the blocks of a proof, and planted are the changes that they get.
const drawn = 500

var planted = []float64{0.02, 0.05, 0.10}

// Rates says how often conclusions from so many rounds are false, and how often they find what is there, with bounds
// that hold in 95 of 100 proofs.
func (p *Proof) Rates(rounds int, primary []string) (lines []string) {
	var equal, held []Round
	stopped := 0.0
	for _, r := range p.numbered() {
		if r.number%2 == 0 {
			equal = append(equal, r.Round)
		} else {
			held = append(held, r.Round)
			stopped += r.handicap
		}
	}
	head := fmt.Sprintf("proof of this setup, %s: %s and %d in which B was held back", p.Name,
		results.Plural(int64(len(equal)), "equal round"), len(held))
	if rounds == 0 || len(equal) < rounds {
		return []string{fmt.Sprintf("%s; tables of %s take more", head, results.Plural(int64(rounds), "round"))}
	}
	random := rand.New(rand.NewPCG(p.Header.Seed, uint64(rounds)))
	whole := func(all []Round, is func(Verdict) bool) (k, n int) {
		for some := range slices.Chunk(all, rounds) {
			if len(some) == rounds {
				if n++; is(verdictOf(some, primary)) {
					k++
				}
			}
		}
		return k, n
	}
	differs := func(v Verdict) bool { return v == Better || v == Worse || v == Differs }
	worse := func(v Verdict) bool { return v == Worse || v == Differs }
	k, n := whole(equal, differs)
	text := fmt.Sprintf("false alarms: %d of %d tables as measured (at most %s)", k, n, percent(AtMost(k, n)))
	k = 0
	for range drawn {
		if differs(verdictOf(deal(random, equal, rounds, 1), primary)) {
			k++
		}
	}
	lines = append(lines, head,
		text+fmt.Sprintf(", %d of %d dealt anew (at most %s)", k, drawn, percent(AtMost(k, drawn))))
	if k, n := whole(held, worse); n > 0 {
		lines = append(lines, fmt.Sprintf("found: B stopped for %s of the time in %d of %d tables as measured (at "+
			"least %s)", percent(stopped/float64(len(held))), k, n, percent(AtLeast(k, n))))
	}
	var found []string
	for _, change := range planted {
		k := 0
		for range drawn {
			if worse(verdictOf(deal(random, equal, rounds, 1+change), primary)) {
				k++
			}
		}
		found = append(found, fmt.Sprintf("%s in %d (at least %s)", percent(change), k, percent(AtLeast(k, drawn))))
	}
	return append(lines, fmt.Sprintf("found of %d tables dealt anew: B worse in time and CPU by %s", drawn,
		list(found)))
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// deal draws rounds, and deals the blocks of each anew to its arms. B gets a change for the worse.
func deal(random *rand.Rand, all []Round, rounds int, factor float64) (out []Round) {
	for _, i := range random.Perm(len(all))[:rounds] {
		blocks := [][]results.Figure{all[i].A, all[i].B}
		if all[i].Control != nil {
			blocks = append(blocks, all[i].Control)
		}
		random.Shuffle(len(blocks), func(i, k int) { blocks[i], blocks[k] = blocks[k], blocks[i] })
		r := Round{A: blocks[0], B: slices.Clone(blocks[1])}
		if len(blocks) > 2 {
			r.Control = blocks[2]
		}
		for i := range r.B {
			switch f := &r.B[i]; {
			case f.Kind == results.Counted || f.Better == "":
			case f.Better == results.Lower:
				f.Value *= factor
			case strings.HasSuffix(f.Name, "throughput"): // the rate that was reached has a ceiling
				f.Value /= factor
			}
		}
		out = append(out, r)
	}
	return out
}

// verdictOf returns the verdict of the conclusion alone.
func verdictOf(rounds []Round, primary []string) Verdict {
	keep := func(figures []results.Figure) []results.Figure {
		return slices.DeleteFunc(slices.Clone(figures), func(f results.Figure) bool {
			return !slices.Contains(primary, f.Name) && !(&Row{Name: f.Name}).Loss()
		})
	}
	var few []Round
	for _, r := range rounds {
		x := Round{A: keep(r.A), B: keep(r.B)}
		if r.Control != nil {
			x.Control = keep(r.Control)
		}
		few = append(few, x)
	}
	d := newTable(few, primary, quick)
	d.finish()
	return d.Conclusion.Verdict
}

// AtMost is the bound of Clopper and Pearson: the probability of what came k times in n trials at which only one of
// twenty series has as few. It is 1 without trials.
func AtMost(k, n int) float64 {
	if k >= n {
		return 1
	}
	low, high := 0.0, 1.0
	for range 60 {
		p := (low + high) / 2
		if (stats.BinomialDist{N: n, P: p}).CDF(float64(k)) > 1-Level {
			low = p
		} else {
			high = p
		}
	}
	return high
}

// AtLeast is the bound on the other side.
func AtLeast(k, n int) float64 { return 1 - AtMost(n-k, n) }
