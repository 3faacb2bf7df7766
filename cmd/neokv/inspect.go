package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"neokv.dev/neokv"
	"neokv.dev/neokv/settings"
	"neokv.dev/results"
)

func inspectCommand(p process) *cobra.Command {
	asJSON, largest := false, 10
	c := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Look at a data folder, or a backup, that no cluster uses: what it has and what is damaged",
		Long: `Look at a data folder, or a backup, that no cluster uses. inspect says what a start needs and does not
find, compares all checksums, and lists stores, regions, keyspaces with their sizes, and the largest keys. It changes
nothing in the folder. It ends with status 3 if something is wrong there, and with 1 if it cannot tell.`,
		Args: wantArgs(1, 1, "DIR"),
		PreRunE: func(*cobra.Command, []string) error {
			if largest < 0 {
				return &usageError{fmt.Sprintf("inspect: --largest %d: want a number from 0", largest)}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			x, err := neokv.Inspect(c.Context(), args[0], largest)
			if err != nil {
				return err
			}
			if asJSON {
				err = results.PrintJSON(p.stdout, x)
			} else {
				printInspection(p.stdout, x)
			}
			if n := len(x.Wrong); err == nil && n > 0 {
				err = &statusError{statusBroken, fmt.Sprintf("inspect: %d wrong in %s", n, x.Dir)}
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	c.Flags().IntVar(&largest, "largest", largest, "how many of the largest keys to list")
	return c
}

func printInspection(w io.Writer, x neokv.Inspection) {
	size := func(n int64) string { return settings.Bytes(n).About() }
	kind, end := "data folder", "the logs are complete"
	if x.Copy != "" {
		kind = "data folder, made as a backup"
	}
	if !x.Closed {
		end = "not closed cleanly: the next start completes the logs"
	}
	fmt.Fprintf(w, "%s: %s, format %d, cluster %s, start %d, %s\n", x.Dir, kind, x.Format, x.Cluster, x.Start, end)
	fmt.Fprintf(w, "%d stores, %d replicas; %d regions at first\n\n", x.Shape.Stores, x.Shape.Replicas, x.Shape.Regions)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STORE\tFILES\tTABLES\tREGIONS\tKEYSPACE\tKEYS\tBYTES\tIN TABLES")
	for _, s := range x.Stores {
		front := fmt.Sprintf("%d\t%s\t%d\t%d", s.Store, size(s.Bytes), s.Tables, len(s.Regions))
		for _, k := range s.Keyspaces {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", front, k.Name, k.Keys, size(k.Bytes), size(k.Tables))
			front = "\t\t\t"
		}
		if len(s.Keyspaces) == 0 {
			fmt.Fprintf(t, "%s\tcannot be read\t\t\t\n", front)
		}
		if s.Unnamed > 0 {
			fmt.Fprintf(t, "\t\t\t\tof deleted keys\t\t%s\t\n", size(s.Unnamed))
		}
	}
	t.Flush()
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "REGION\tSLOTS\tVERSION\tSTORE\tPHASE\tAPPLIED\tLOGGED")
	type row struct {
		neokv.InspectedRegion
		store int
	}
	var rows []row
	for _, s := range x.Stores {
		for _, r := range s.Regions {
			rows = append(rows, row{r, s.Store})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.Region - b.Region })
	for _, r := range rows {
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%s\t%d\t%d\n", r.Region, r.Slots, r.Version, r.store, r.Phase, r.Applied,
			r.Logged)
	}
	t.Flush()
	fmt.Fprintf(w, "\n%d keys", x.Keys)
	for i, name := range slices.Sorted(maps.Keys(x.Types)) {
		fmt.Fprintf(w, "%s%d %s", []string{": ", ", "}[min(i, 1)], x.Types[name], name)
	}
	fmt.Fprintf(w, "; %d with an expiry\n", x.Expire)
	if len(x.Largest) > 0 {
		t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "LARGEST KEY\tTYPE\tSLOT\tBYTES\tELEMENTS")
		for _, k := range x.Largest {
			elements := fmt.Sprint(k.Elements)
			if k.Type == "string" {
				elements = ""
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", shortKey(k.Key), k.Type, k.Slot, size(k.Bytes), elements)
		}
		t.Flush()
	}
	fmt.Fprintln(w)
	if len(x.Wrong) == 0 {
		fmt.Fprintln(w, "nothing is wrong")
	}
	for _, d := range x.Wrong {
		fmt.Fprintln(w, "wrong:", strings.Join(strings.Fields(d.String()), " "))
	}
}

// shortKey prints a key as Go does, cut where it is long.
func shortKey(key string) string {
	const most = 60
	if text := fmt.Sprintf("%q", key); len(text) <= most {
		return text
	}
	return fmt.Sprintf("%.*q...", most, key)
}
