package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"neokv.dev/neokv"
	"neokv.dev/results"
)

// printVersion prints the version in a line.
func printVersion(w io.Writer) error {
	b := results.NewHeader().Build
	_, err := fmt.Fprintf(w, "neokv %s, %s, %s %s/%s\n", neokv.Version, b, b.Go, runtime.GOOS, runtime.GOARCH)
	return err
}

func versionCommand(p process) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of the program and of what it is made of",
		Example: `  neokv version`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := results.NewHeader().Build
			commit := cmp.Or(b.Commit, "unknown")
			if b.Modified {
				commit += ", modified"
			}
			w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintf(w, "neokv\t%s\nmodule\t%s\ncommit\t%s\ngo\t%s\n", neokv.Version, b.Version, commit, b.Go)
			for _, module := range slices.Sorted(maps.Keys(b.Modules)) {
				fmt.Fprintf(w, "%s\t%s\n", module, b.Modules[module])
			}
			return w.Flush()
		},
	}
}
