package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"neokv.dev/profiles"
)

func profilesCommand(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "profiles",
		Short: "List the profiles, or show every setting of one",
		Example: `  neokv profiles
  neokv profiles show small --set engine.bloom_bits=16`,
		Args: verbsOnly,
		RunE: func(*cobra.Command, []string) error { return listProfiles(p) },
	}
	c.AddCommand(&cobra.Command{
		Use:     "list",
		Short:   "List the embedded profiles and when to take them",
		Example: `  neokv profiles list`,
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return listProfiles(p) },
	}, showProfileCommand(p))
	return c
}

func listProfiles(p process) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, name := range profiles.Names() {
		r, err := profiles.Resolve(profiles.ValueSources{Profile: name})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\n", name, r.About)
	}
	return w.Flush()
}

func showProfileCommand(p process) *cobra.Command {
	var set []string
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the effective settings of a profile, and where each comes from",
		Example: `  neokv profiles show default
  neokv profiles show ./mine.yaml --set raft.rtt=5ms
  NEOKV_ENGINE_BLOOM_BITS=16 neokv profiles show small`,
		Args: wantArgs(1, 1, "one: the name of a profile or the path of a YAML file"),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := profiles.Resolve(profiles.ValueSources{Profile: args[0], Env: p.env, Set: set})
			if err != nil {
				return err
			}
			if r.About != "" {
				fmt.Fprintf(p.stdout, "# %s\n", r.About)
			}
			for _, note := range r.Notes {
				fmt.Fprintf(p.stdout, "# - %s\n", note)
			}
			w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
			for _, v := range r.Values() {
				fmt.Fprintf(w, "%s\t%s\t%s\n", v.Name, cmp.Or(v.Value, `""`), v.From)
			}
			return w.Flush()
		},
	}
	setFlags(c.Flags(), &set, "change a setting")
	return c
}
