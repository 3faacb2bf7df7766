package compare

import (
	"bytes"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
)

// proofOf makes a proof of so many rounds, in every second of which B is slower by a share. Blocks vary by noise.
func proofOf(rounds int, slower, noise float64) *Proof {
	random := rand.New(rand.NewPCG(*seed, 7))
	p := &Proof{Name: "proof.jsonl"}
	p.Header = TurnsHeader{Format: FileFormat, A: "as it is", Control: true, Seed: 7, Handicap: slower}
	for round := range rounds {
		for _, side := range []Side{SideA, SideB, SideAgain} {
			b := Block{Round: round, Side: side, Header: results.Header{Groups: []results.ClientGroup{{Name: "set"}},
				Duration: time.Second}}
			speed := 1000 * math.Exp(noise*random.NormFloat64())
			if round%2 == 1 && side == SideB {
				speed, b.Handicap = speed*(1-slower), slower
			}
			b.Summary.Groups = []results.GroupSummary{{GroupStats: results.GroupStats{Name: "set",
				Total: results.OpStats{Count: 1000, PerSecond: speed}}}}
			p.Blocks = append(p.Blocks, b)
		}
	}
	return p
}

// TestProof: a proof finds what is there, and seldom what is not.
func TestProof(t *testing.T) {
	for _, x := range []struct {
		name          string
		proof         *Proof
		rounds        int
		want, missing []string
	}{
		{"quiet", proofOf(80, .05, .005), 10, []string{
			`^proof of this setup, proof.jsonl: 40 equal rounds and 40 in which B was held back$`,
			`^false alarms: 0 of 4 tables as measured \(at most 52.7 %\), [0-9] of 500 dealt anew`,
			`^found: B stopped for 5.0 % of the time in 4 of 4 tables as measured \(at least 47.3 %\)$`,
			`by 2.0 % in (500|49.) .*, 5.0 % in 500 \(at least 99.4 %\) and 10.0 % in 500 \(at least 99.4 %\)$`,
		}, nil},
		{"noisy", proofOf(80, .05, .2), 10, []string{`^found: B stopped for 5.0 % of the time in 0 of 4`,
			`by 2.0 % in [0-9] .*5.0 % in 1?[0-9] `}, nil},
		{"too short", proofOf(18, .05, .005), 10, []string{"9 equal rounds .*; tables of 10 rounds take more$"},
			[]string{"found"}},
		{"no table of held rounds", proofOf(21, .05, .005), 11, []string{"false alarms: 0 of 1 "},
			[]string{"found: B stopped"}},
	} {
		text := strings.Join(x.proof.Rates(x.rounds, []string{"throughput"}), "\n")
		for _, want := range x.want {
			if !regexp.MustCompile("(?m)" + want).MatchString(text) {
				t.Errorf("%s: no %s in\n%s", x.name, want, text)
			}
		}
		for _, no := range x.missing {
			if strings.Contains(text, no) {
				t.Errorf("%s: %s in\n%s", x.name, no, text)
			}
		}
	}
}

// TestProofFile: a proof is read back, and knows its setup.
func TestProofFile(t *testing.T) {
	p := proofOf(3, .05, .01)
	write := func(h TurnsHeader) string {
		var file bytes.Buffer
		if err := results.WriteLine(&file, "file of blocks", h); err != nil {
			t.Fatal(err)
		}
		for _, b := range p.Blocks {
			if err := results.WriteLine(&file, "file of blocks", b); err != nil {
				t.Fatal(err)
			}
		}
		return file.String()
	}
	whole := write(p.Header)
	got, size, err := ReadProof(strings.NewReader(whole+`{"round":`), "x")
	if err != nil || size != int64(len(whole)) || got.Next() != 3 || len(got.Blocks) != 9 {
		t.Errorf("%d of %d bytes, %v", size, len(whole), err)
	}
	run := p.Header
	run.Handicap = 0
	if _, _, err := ReadProof(strings.NewReader(write(run)), "x"); err == nil {
		t.Error("a run is taken for a proof")
	}
	for want, change := range map[string]func(*Turns){
		"": func(*Turns) {},
		"measured: 1s after 0s of warm-up and 2s after 0s": func(r *Turns) {
			r.Blocks[0].Header.Duration = 2 * time.Second
		},
		"A: as it is and redis=none": func(r *Turns) { r.Header.A = "redis=none" },
		"one has a copy of A":        func(r *Turns) { r.Header.Control = false },
	} {
		r := &Turns{Header: run, Blocks: []Block{p.Blocks[0], p.Blocks[1]}}
		if change(r); !strings.HasPrefix(p.Other(r), want) || (p.Other(r) == "") != (want == "") {
			t.Errorf("%q, want %q", p.Other(r), want)
		}
	}
}

// TestBounds: those of Clopper and Pearson, 1934.
func TestBounds(t *testing.T) {
	for _, x := range []struct {
		k, n        int
		most, least float64
	}{{0, 60, .0487, 0}, {0, 300, .0099, 0}, {3, 10, .6066, .0873}, {10, 10, 1, .7411}, {0, 0, 1, 0}} {
		if most, least := AtMost(x.k, x.n), AtLeast(x.k, x.n); math.Abs(most-x.most) > 1e-4 ||
			math.Abs(least-x.least) > 1e-4 {
			t.Errorf("%d of %d: at most %.4f, at least %.4f; want %.4f, %.4f", x.k, x.n, most, least, x.most, x.least)
		}
	}
}
