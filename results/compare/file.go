package compare

import (
	"fmt"
	"io"
	"regexp"
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
	Format  int       `json:"blocks_format"`
	Started time.Time `json:"started"`
	Command []string  `json:"command,omitempty"`
	A       string    `json:"a"`
	B       string    `json:"b"`
	Control bool      `json:"control"`
	Seed    uint64    `json:"seed"`
	// Primary figures were named before the run. It is empty for those of the load.
	Primary []string `json:"primary,omitempty"`
}

// Block is what one arm did in one round, with processes and data of its own.
type Block struct {
	Round   int             `json:"round"` // from 0
	Side    Side            `json:"side"`
	Started time.Time       `json:"started"`
	Header  results.Header  `json:"header"`
	Summary results.Summary `json:"summary"`
}

// ReadTurns reads a run. A last line that is cut off is left out.
func ReadTurns(r io.Reader) (*Turns, error) {
	header, blocks, _, err := results.ReadLines[TurnsHeader, Block](r, "blocks", FileFormat,
		func(h *TurnsHeader) int { return h.Format })
	return &Turns{header, blocks}, err
}

// Rounds returns the figures of the rounds that are complete.
func (r *Turns) Rounds() (out []Round) {
	rounds := map[int]*Round{}
	last := -1
	for i := range r.Blocks {
		b := &r.Blocks[i]
		x := rounds[b.Round]
		if x == nil {
			x = &Round{}
			rounds[b.Round] = x
		}
		last = max(last, b.Round)
		figures := b.Summary.Figures(&b.Header)
		switch b.Side {
		case SideA:
			x.A = figures
		case SideB:
			x.B = figures
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
	primary := r.Header.Primary
	if primary == nil && len(r.Blocks) > 0 {
		primary = Primary(&r.Blocks[0].Header)
	}
	d := Rounds(r.Rounds(), primary)
	d.A, d.B, d.Setup = r.Header.A, r.Header.B, r.setup(d.Rounds)
	d.Warnings = append(d.Warnings, r.warnings()...)
	return d
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

// each returns lines about the blocks, with how many blocks have each. Of lines that differ in their figures alone it
// returns the first.
func (r *Turns) each(of func(*results.Summary) []string) (out []string) {
	counts := map[string]int{}
	for i := range r.Blocks {
		for _, w := range of(&r.Blocks[i].Summary) {
			kind := digits.ReplaceAllString(w, "")
			if counts[kind]++; counts[kind] == 1 {
				out = append(out, w)
			}
		}
	}
	for i, w := range out {
		out[i] = fmt.Sprintf("%d of %d blocks, the first: %s", counts[digits.ReplaceAllString(w, "")], len(r.Blocks), w)
	}
	return out
}

var digits = regexp.MustCompile(`[0-9]+([.,][0-9]+)*`)
