package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"neokv.dev/profiles"
	"neokv.dev/workloads"
)

func workloadsCommand(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "workloads",
		Short: "List the workloads, or show one and what it sends",
		Example: `  neokv workloads
  neokv workloads show chat
  neokv workloads show ./mine.yaml --requests 20`,
		Args: verbsOnly,
		RunE: func(*cobra.Command, []string) error { return listWorkloads(p) },
	}
	c.AddCommand(&cobra.Command{
		Use:     "list",
		Short:   "List the embedded workloads and what they send",
		Example: `  neokv workloads list`,
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return listWorkloads(p) },
	}, showWorkloadCommand(p))
	return c
}

func listWorkloads(p process) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, x := range workloads.All() {
		fmt.Fprintf(w, "%s\t%s\n", x.Name, x.Doc)
	}
	return w.Flush()
}

func showWorkloadCommand(p process) *cobra.Command {
	var requests int
	var seed uint64
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Check a workload, and show its file or some of its requests",
		Long: `Check a workload and show its file. With --requests the output has so many requests of one client, with the
records, elements and sizes of values of the profile default: a line for each command, with its operation.`,
		Example: `  neokv workloads show chat
  neokv workloads show ./mine.yaml --requests 20 --seed 7`,
		Args: wantArgs(1, 1, "one: the name of a workload or the path of a YAML file"),
		RunE: func(_ *cobra.Command, args []string) error {
			if requests < 0 || requests > 1_000_000 {
				return &usageError{fmt.Sprintf("--requests %d: want 0 to 1000000", requests)}
			}
			w, err := workloads.Find(args[0])
			if err != nil {
				return &usageError{err.Error()}
			}
			if requests > 0 {
				return showRequests(p, w, requests, seed)
			}
			_, err = p.stdout.Write(w.Text)
			return err
		},
	}
	c.Flags().IntVar(&requests, "requests", 0, "`n`: how many requests to show, in place of the file")
	c.Flags().Uint64Var(&seed, "seed", 0, "feeds every random choice; 0 picks one")
	return c
}

// showRequests prints what one client sends.
func showRequests(p process, w *workloads.Workload, n int, seed uint64) error {
	r, err := profiles.Resolve(profiles.ValueSources{})
	if err != nil {
		return err
	}
	for seed == 0 {
		seed = rand.Uint64() >> 11
	}
	s, err := workloads.NewSource(w, workloads.SourceOptions{
		Records: uint64(r.Load.Records), Elements: r.Load.Elements, ValueSize: int(r.Load.ValueSize), Clients: 1, Seed: seed,
	})
	if err != nil {
		return &usageError{err.Error()}
	}
	fmt.Fprintf(p.stdout, "# %s\n# %s\n# seed %d\n", w.Name, s.Kinds(), seed)
	g := s.Generator(0)
	var request workloads.Request
	for range n {
		g.Next(&request)
		left := 0 // commands of the transaction that is shown
		for _, step := range request.Steps {
			if step.Together > 0 {
				left = step.Together
				fmt.Fprintf(p.stdout, "%s: MULTI\n", w.Ops[request.Op].Name)
			}
			words := make([]string, len(step.Args))
			for i, a := range step.Args {
				words[i] = quoted(a)
			}
			if _, err := fmt.Fprintf(p.stdout, "%s: %s\n", w.Ops[request.Op].Name, strings.Join(words, " ")); err != nil {
				return err
			}
			if step.Insert {
				s.Inserted(step.Kind, step.Record, true)
			}
			if left--; left == 0 {
				fmt.Fprintf(p.stdout, "%s: EXEC\n", w.Ops[request.Op].Name)
			}
		}
	}
	return nil
}

// quoted returns an argument for people: as it is if it is a plain word, else quoted, and cut if it is long.
func quoted(arg []byte) string {
	const most = 40
	plain := len(arg) > 0
	for _, b := range arg {
		plain = plain && b > ' ' && b < 0x7f && b != '"'
	}
	switch {
	case !plain && len(arg) > most:
		return fmt.Sprintf("%q... (%d bytes)", arg[:most/4], len(arg))
	case !plain:
		return fmt.Sprintf("%q", arg)
	}
	return string(arg)
}
