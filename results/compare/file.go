package compare

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"neokv.dev/results"
)

// Side is one of the arms that take turns.
type Side string

const (
	SideA     Side = "A"
	SideB     Side = "B"
	SideAgain Side = "A'" // a copy of A
)

// FileFormat is the version of the files of blocks. Since version 2 the order of a round is drawn at random.
const FileFormat = 2

// Turns is what a run measured in which arms took turns: a file with a line of
// results.WriteLine for the header and for each block.
type Turns struct {
	Header TurnsHeader
	Blocks []Block
}

// TurnsHeader is the first line.
type TurnsHeader struct {
	Format   int       `json:"blocks_format"`
	Started  time.Time `json:"started"`
	Command  []string  `json:"command,omitempty"`
	A        string    `json:"a"`
	B        string    `json:"b"`
	Control  bool      `json:"control"`
	Seed     uint64    `json:"seed"`
	Together bool      `json:"together,omitempty"` // the arms of a round were measured at the same time
	// Handicap is set in a proof: for which share of the time B is stopped in odd rounds.
	Handicap float64 `json:"handicap,omitempty"`
	// Proof is the file of the proof that was there when the run was made.
	Proof string `json:"proof,omitempty"`
	// Primary figures were named before the run. It is empty for those of the load.
	Primary []string `json:"primary,omitempty"`
}

// Block is what one arm did in one round, with processes and data of its own.
type Block struct {
	Round   int       `json:"round"` // from 0
	Side    Side      `json:"side"`
	Started time.Time `json:"started"`
	// Handicap is for which share of the time the arm was stopped.
	Handicap float64         `json:"handicap,omitempty"`
	Header   results.Header  `json:"header"`
	Summary  results.Summary `json:"summary"`
}

// ReadTurns reads a run. A last line that is cut off is left out.
func ReadTurns(r io.Reader) (*Turns, error) {
	header, blocks, _, err := results.ReadLines[TurnsHeader, Block](r, "blocks", FileFormat,
		func(h *TurnsHeader) int { return h.Format })
	return &Turns{header, blocks}, err
}

// Rounds returns the figures of the rounds that are complete.
func (r *Turns) Rounds() (out []Round) {
	for _, x := range r.numbered() {
		out = append(out, x.Round)
	}
	return out
}

// numberedRound is a round with its number, and for which share of it B was stopped.
type numberedRound struct {
	Round
	number   int
	handicap float64
}

func (r *Turns) numbered() (out []numberedRound) {
	rounds := map[int]*numberedRound{}
	last := -1
	for i := range r.Blocks {
		b := &r.Blocks[i]
		x := rounds[b.Round]
		if x == nil {
			x = &numberedRound{number: b.Round}
			rounds[b.Round] = x
		}
		last = max(last, b.Round)
		figures := b.Summary.Figures(&b.Header)
		switch b.Side {
		case SideA:
			x.A = figures
		case SideB:
			x.B, x.handicap = figures, b.Handicap
		case SideAgain:
			x.Control = figures
		}
	}
	for i := range last + 1 {
		if x := rounds[i]; x != nil && x.A != nil && x.B != nil && (x.Control != nil || !r.Header.Control) {
			out = append(out, *x)
		}
	}
	return out
}

// Compare compares the arms.
func (r *Turns) Compare() *Delta {
	d := Rounds(r.Rounds(), r.primary())
	d.A, d.B, d.Setup = r.Header.A, r.Header.B, r.setup(d.Rounds)
	d.Warnings = append(d.Warnings, r.warnings()...)
	for i := range r.Blocks {
		if err := Comparable(&r.Blocks[0].Header, &r.Blocks[i].Header); err != nil { // a file was edited while ab ran
			d.CannotTell("blocks are of different loads: " + strings.ReplaceAll(err.Error(), "\n", "; "))
			break
		}
	}
	return d
}

// CheckPrimary returns an error, once the first round is complete, if a user named a figure that none of its blocks
// has.
func (r *Turns) CheckPrimary() error {
	if r.Header.Primary == nil || len(r.Blocks) > 3 {
		return nil
	}
	rounds := r.Rounds()
	if len(rounds) != 1 {
		return nil
	}
	var wrong []error
	figures := slices.Concat(rounds[0].A, rounds[0].B)
	for _, name := range r.Header.Primary {
		if !slices.ContainsFunc(figures, func(f results.Figure) bool { return f.Name == name }) {
			var names []string
			for _, f := range named(rounds) {
				names = append(names, f.Name)
			}
			wrong = append(wrong, fmt.Errorf("--primary: no figure %s; there are %s", name, strings.Join(names, ", ")))
		}
	}
	return errors.Join(wrong...)
}

// primary returns the figures that make the conclusion.
func (r *Turns) primary() []string {
	if r.Header.Primary == nil && len(r.Blocks) > 0 {
		return Primary(&r.Blocks[0].Header)
	}
	return r.Header.Primary
}

// setup says what the arms were and what was sent to them.
func (r *Turns) setup(rounds int) []Condition {
	var a, b []*results.Header
	for i := range r.Blocks {
		block := &r.Blocks[i]
		h := block.Header
		h.Seed = r.Header.Seed // that of a block has the round in it
		if block.Side == SideB {
			b = append(b, &h)
		} else {
			a = append(a, &h)
		}
	}
	if a == nil || b == nil {
		return nil
	}
	arms := "A and B"
	if r.Header.Control {
		arms = "A, B and A again"
	}
	text := fmt.Sprintf("%d of %s", rounds, arms)
	return append(setupOf(a, b), Condition{"rounds", text, text})
}

// warnings returns what the blocks warn of.
func (r *Turns) warnings() []string {
	return r.each(func(s *results.Summary) []string { return s.Warnings })
}

// Impaired returns what made targets slower than their settings say.
func (r *Turns) Impaired() []string {
	return r.each(func(s *results.Summary) []string { return s.Work.Impaired() })
}

// each returns lines about the blocks, with how many blocks have each.
func (r *Turns) each(of func(*results.Summary) []string) []string {
	var lines [][]string
	for i := range r.Blocks {
		lines = append(lines, of(&r.Blocks[i].Summary))
	}
	return counted("blocks", lines)
}

// counted returns the lines of several runs, each with how many runs have it; what is the word for these. Of lines that
// differ in their figures alone it returns the first.
func counted(what string, lines [][]string) (out []string) {
	counts := map[string]int{}
	for _, l := range lines {
		for _, line := range l {
			kind := digits.ReplaceAllString(line, "")
			if counts[kind]++; counts[kind] == 1 {
				out = append(out, line)
			}
		}
	}
	for i, line := range out {
		out[i] = fmt.Sprintf("%d of %d %s, the first: %s", counts[digits.ReplaceAllString(line, "")], len(lines), what,
			line)
	}
	return out
}

var digits = regexp.MustCompile(`[0-9]+([.,][0-9]+)*`)
