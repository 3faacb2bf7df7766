package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/bench/ab"
	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// proofFlags say what a proof is, and where.
type proofFlags struct {
	prove    bool
	path     string
	handicap string
}

func (f *proofFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.prove, "prove", false,
		"try ab itself: measure A against A, with B stopped now and then in every other round, and append the rounds "+
			"to --proof")
	flags.StringVar(&f.path, "proof", "neokv-proof.jsonl",
		"`file` of a proof; what it says stands under every table of the same setup")
	flags.StringVar(&f.handicap, "handicap", "5%", "`percent` of the time for which --prove stops B")
}

// check completes the plan of a proof.
func (f *proofFlags) check(flags *pflag.FlagSet, plan *ab.Plan) error {
	var wrong mistakes
	if !f.prove {
		wrong.check(!flags.Changed("handicap"), "--handicap is for --prove")
		if _, err := os.Stat(f.path); flags.Changed("proof") {
			wrong.check(err == nil, "--proof: %v", err)
		}
		return errors.Join(wrong...)
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(f.handicap, "%"), 64)
	wrong.check(err == nil && percent >= 1 && percent <= 50 && strings.HasSuffix(f.handicap, "%"),
		"--handicap %s: want a share such as 5%%, from 1%% to 50%%", f.handicap)
	wrong.check(!flags.Changed("b"), "--b: with --prove B is A, and stopped now and then")
	wrong.check(plan.A.Targets == nil, "--a: --prove stops processes, so it has to start them")
	for _, name := range []string{"out", "format", "primary"} {
		wrong.check(!flags.Changed(name), "--%s and --prove exclude each other", name)
	}
	plan.Handicap = percent / 100
	return errors.Join(wrong...)
}

// openProof opens the file for another sitting, and sets the plan to go on where the last one ended.
func (f *proofFlags) openProof(c *cobra.Command, plan *ab.Plan) (file *os.File, proof *compare.Proof, err error) {
	if file, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Size() == 0 {
		proof = &compare.Proof{Name: f.path}
		proof.Header = turnsHeader(c, plan)
		return file, proof, results.WriteLine(file, "file of blocks", proof.Header)
	}
	proof, size, err := compare.ReadProof(file, f.path)
	if err != nil {
		return nil, nil, &usageError{f.path + ": " + err.Error()}
	}
	if h := proof.Header; h.Handicap != plan.Handicap {
		return nil, nil, &usageError{fmt.Sprintf("--handicap: %s has rounds with %g%%", f.path, 100*h.Handicap)}
	}
	plan.Load.Seed, plan.First = proof.Header.Seed, proof.Next()
	if err = file.Truncate(size); err == nil { // whatever was cut off behind
		_, err = file.Seek(size, io.SeekStart)
	}
	return file, proof, err
}

// turnsHeader describes a plan.
func turnsHeader(c *cobra.Command, plan *ab.Plan) compare.TurnsHeader {
	return compare.TurnsHeader{Format: compare.FileFormat, Started: time.Now(), Command: commandLine(c),
		A: plan.A.String(), B: plan.B.String(), Control: plan.Control, Together: plan.Together, Seed: plan.Load.Seed,
		Handicap: plan.Handicap}
}

// usualRounds is how many rounds ab makes unless it is told otherwise.
const usualRounds = 10

// measure makes another sitting of a proof, and says what all of them say.
func (f *proofFlags) measure(c *cobra.Command, p process, plan *ab.Plan) (err error) {
	file, proof, err := f.openProof(c, plan)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	now := &compare.Turns{Header: turnsHeader(c, plan)}
	err = plan.Run(c.Context(), func(b compare.Block) error {
		arm := b
		arm.Side = compare.SideA // which it is, held back or not
		now.Blocks = []compare.Block{arm}
		if other := proof.Other(now); other != "" {
			return &usageError{fmt.Sprintf("%s is of another setup: %s; --proof names another file", f.path, other)}
		}
		proof.Blocks = append(proof.Blocks, b)
		return results.WriteLine(file, "file of blocks", b)
	})
	if len(proof.Blocks) == 0 {
		return err
	}
	for _, line := range proof.Rates(usualRounds, compare.Primary(&proof.Blocks[0].Header)) {
		fmt.Fprintln(p.stdout, line)
	}
	_, printed := fmt.Fprintln(p.stdout, f.path)
	return errors.Join(err, printed)
}

// compareTurns compares the arms of a run, with what the proof of its setup says.
func compareTurns(run *compare.Turns) *compare.Delta {
	d := run.Compare()
	if run.Header.Proof == "" {
		return d
	}
	file, err := os.Open(run.Header.Proof)
	if errors.Is(err, fs.ErrNotExist) {
		return d
	}
	var proof *compare.Proof
	if err == nil {
		defer file.Close()
		proof, _, err = compare.ReadProof(file, run.Header.Proof)
	}
	if err != nil {
		d.Warnings = append(d.Warnings, fmt.Sprintf("%s: %v", run.Header.Proof, err))
		return d
	}
	d.Proof = proof.Of(run)
	return d
}
