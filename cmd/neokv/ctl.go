package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"neokv.dev/bench"
	"neokv.dev/neokv"
	"neokv.dev/neokv/admin"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/settings"
	"neokv.dev/results"
)

func ctlCommand(p process) *cobra.Command {
	var f ctlFlags
	c := &cobra.Command{
		Use:   "ctl",
		Short: "See the state of a running cluster, back it up, split and merge its regions, and hurt it on purpose",
		Long: `See the state of a running cluster, back it up, split and merge its regions, and hurt it on purpose: kill
stores, cut links, make disks fail, move leaders.

A neokv serve listens for this on its control port, on loopback. Without --control, ctl takes the only cluster that
this user runs.

STORES and OTHERS are numbers between commas, or all. A fault stays until another one ends it: "ok" as the last word,
resume, restart, mend, or heal, which ends all.`,
		Example: `  neokv ctl status
  neokv ctl kill 2
  neokv ctl partition 1 2,3
  neokv ctl link 1 2 delay=20ms jitter=5ms loss=1%
  neokv ctl disk 3 hang
  neokv ctl heal
  neokv ctl split 3 5000
  neokv ctl merge 3
  neokv ctl add
  neokv ctl drain 4
  neokv ctl remove 4
  neokv ctl move-replica 3 1 4
  neokv ctl migrate 100-199 1 2 for 30s
  neokv ctl plan
  neokv ctl backup copy`,
		Args: verbsOnly,
		RunE: wantVerb,
	}
	c.PersistentFlags().StringVar(&f.control, "control", p.variable(controlVariable),
		"`address` of the control port, as host:port or port; "+controlVariable+" in the environment says so, too")
	c.AddCommand(ctlStatus(p, &f),
		f.verb(p, "watch", "Keep the status on the screen until Ctrl-C", watchStatus),
		f.verb(p, "faults", "Print the faults that are in force, as ctl takes them",
			func(ctx context.Context, p process, port *admin.Announcement) error {
				status, err := port.Status(ctx)
				if err == nil {
					printFaults(p.stdout, status.Faults)
				}
				return err
			}))
	c.AddCommand(ctlPlan(p, &f), ctlBackup(p, &f))
	for _, v := range fault.Verbs() {
		do := ctlDo(p, &f, v)
		if v == fault.Migrate {
			showMigrations(p, &f, do)
		}
		c.AddCommand(do)
	}
	return c
}

// controlVariable is a variable of the environment with the address of a control port. serve --exec sets it.
const controlVariable = "NEOKVCTL_ADDR"

// ctlFlags are the flags of all verbs of ctl.
type ctlFlags struct{ control string }

// port returns the control port that the flags name, or the only one there is.
func (f *ctlFlags) port(ctx context.Context, p process) (*admin.Announcement, error) {
	folder := admin.Folder(p.variable)
	all, err := admin.Find(ctx, folder)
	if err != nil {
		return nil, err
	}
	var known strings.Builder
	for _, a := range all {
		fmt.Fprintf(&known, "\n  --control %s  pid %d, stores %s, %s", a.Addr, a.PID, strings.Join(a.Stores, ","),
			cmp.Or(a.Dir, "in memory"))
	}
	want := strings.Replace(f.control, "localhost:", "127.0.0.1:", 1)
	if want != "" && !strings.Contains(want, ":") {
		want = ":" + want
	}
	found := slices.DeleteFunc(slices.Clone(all),
		func(a admin.Announcement) bool { return !strings.HasSuffix(a.Addr, want) })
	switch {
	case len(found) == 1:
		return &found[0], nil
	case want == "" && len(all) == 0:
		return nil, fmt.Errorf("ctl: no cluster of this user runs (see %s); neokv serve starts one", folder)
	case want == "":
		return nil, &usageError{"ctl: several clusters run; want one of:" + known.String()}
	case len(all) == 0:
		return nil, fmt.Errorf("ctl: no cluster of this user has the control port %s; none runs (see %s)", f.control, folder)
	}
	return nil, fmt.Errorf("ctl: no cluster of this user has the control port %s; there are:%s", f.control, &known)
}

// verb makes a verb without arguments that asks the control port.
func (f *ctlFlags) verb(p process, use, short string,
	run func(context.Context, process, *admin.Announcement) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		port, err := f.port(c.Context(), p)
		if err != nil {
			return err
		}
		return run(c.Context(), p, port)
	}}
}

// ctlDo is the verb that carries out a fault.
func ctlDo(p process, f *ctlFlags, v fault.Verb) *cobra.Command {
	form, help, choices, among := v.Usage()
	short := strings.ToUpper(help[:1]) + help[1:]
	long := short + "."
	if choices != "" {
		long += "\n\n" + choices + ":\n  " + strings.Join(among, "\n  ")
	}
	c := &cobra.Command{
		Use: form, Short: short, Long: long, DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			want, err := fault.Parse(string(v) + " " + strings.Join(args, " "))
			if err != nil {
				return &usageError{"ctl: " + err.Error()}
			}
			port, err := f.port(c.Context(), p)
			if err != nil {
				return err
			}
			told := func() {}
			if v == fault.Drain && !want.Cancel {
				told = tell(c.Context(), func(ctx context.Context) { tellDrain(ctx, p, port, want.To) })
			}
			done, err := port.Inject(c.Context(), want)
			told()
			switch {
			case errors.As(err, new(admin.InvalidError)):
				return &usageError{"ctl: " + err.Error()}
			case err != nil:
				return err
			case done.Outcome != "":
				fmt.Fprintln(p.stdout, done.Outcome)
			default:
				printFaults(p.stdout, done.Faults)
			}
			return nil
		},
	}
	c.Flags().SetInterspersed(false) // "clock 2 -500ms" has no flags
	return c
}

// showMigrations has migrate print the open migrations if it has no arguments.
func showMigrations(p process, f *ctlFlags, c *cobra.Command) {
	c.Long += `

Before the end no data and no leader moves: what clients read and write is that of one leader all the time. CLUSTER
NODES marks the slots, FROM answers ASK for keys that it "no longer has", a share that grows with time, and for those
that do not exist, and TRYAGAIN for several keys on both sides; TO serves what follows ASKING. At the end TO leads the
slots, until heal, and FROM answers MOVED. If FROM loses the lead before, the migration is called off.

FROM must lead all SLOTS, as 100 or 100-199; regions are split where SLOTS begin and end. Without "for TIME" it
takes ` + fault.DefaultMigration.String() + `.
"ok" calls off what migrates of SLOTS. Without arguments the verb prints the migrations that are open.`
	do := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return do(c, args)
		}
		port, err := f.port(c.Context(), p)
		if err != nil {
			return err
		}
		status, err := port.Status(c.Context())
		if err != nil {
			return err
		}
		if len(status.Migrations) == 0 {
			fmt.Fprintln(p.stdout, "no migrations")
		}
		printMigrations(p.stdout, status.Migrations)
		return nil
	}
}

func printMigrations(w io.Writer, all []neokv.MigrationStatus) {
	for _, m := range all {
		fmt.Fprintf(w, "slots %s migrate from store %d to store %d: %.0f%% of the keys have gone, %s left\n", m.Slots, m.From,
			m.To, 100*float64(m.Share), m.Left.Round(100*time.Millisecond))
	}
}

func ctlStatus(p process, f *ctlFlags) *cobra.Command {
	format, asJSON := "table", false
	c := f.verb(p, "status", "Print stores, regions, leaders, how far replicas are behind, and faults",
		func(ctx context.Context, p process, port *admin.Announcement) error {
			status, err := port.Status(ctx)
			if err != nil {
				return err
			}
			if asJSON || format == "json" {
				return results.PrintJSON(p.stdout, status)
			}
			printStatus(p.stdout, status, 0)
			return nil
		})
	c.PreRunE = func(*cobra.Command, []string) error {
		if format != "table" && format != "json" {
			return &usageError{fmt.Sprintf("ctl status: --format %q: want table or json", format)}
		}
		return nil
	}
	c.Flags().StringVar(&format, "format", format, "`format`: table or json")
	c.Flags().BoolVar(&asJSON, "json", false, "the same as --format json")
	return c
}

func ctlPlan(p process, f *ctlFlags) *cobra.Command {
	asJSON := false
	c := f.verb(p, "plan", "Print which replicas and homes the cluster would move now, and why",
		func(ctx context.Context, p process, port *admin.Announcement) error {
			plan, err := port.Plan(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return results.PrintJSON(p.stdout, plan)
			}
			printPlan(p.stdout, plan)
			return nil
		})
	c.Long = `Print which replicas and homes the cluster would move now, and why, the most urgent first. Nothing is changed.

An order reads as ctl takes it, such as "move-replica 3 2 4". "move-home 3 2 4" would make store 4 the home of region 3,
the store that leads it, in the place of store 2; it is no verb of ctl.`
	c.Flags().BoolVar(&asJSON, "json", false, "print the plan as JSON")
	return c
}

// printPlan prints a plan, one line for each order.
func printPlan(w io.Writer, plan neokv.Plan) {
	for _, o := range plan.Given {
		fmt.Fprintf(w, "under way: %s: %s\n", o.Order, o.Reason)
	}
	for _, o := range plan.Next {
		by := ""
		if !plan.Balance && o.Why != "gone" && o.Why != "draining" {
			by = " (not by itself: balance.replicas is false)"
		}
		fmt.Fprintf(w, "%s: %s%s\n", o.Order, o.Reason, by)
	}
	for _, text := range plan.Notes {
		fmt.Fprintf(w, "note: %s\n", text)
	}
	if len(plan.Given)+len(plan.Next)+len(plan.Notes) == 0 {
		fmt.Fprintln(w, "nothing to do")
	}
}

func ctlBackup(p process, f *ctlFlags) *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "backup DIR", Short: "Copy the cluster, as of one instant, to a new folder",
		Long: `Copy the cluster, as of one instant, to a new folder, or an empty one. Clients go on writing.

"neokv serve --dir DIR" starts from the copy, "neokv inspect DIR" checks it. On the disk of the data folder the copy
shares the tables with it, and takes space for them only once the cluster has dropped them. A cluster in memory is
written to the disk. Ctrl-C gives the backup up, and removes what there is of it.`,
		Args: wantArgs(1, 1, "DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			port, err := f.port(c.Context(), p)
			if err != nil {
				return err
			}
			told := tell(c.Context(), func(ctx context.Context) { tellBackup(ctx, p, port) })
			made, err := port.Backup(c.Context(), dir)
			told()
			switch {
			case errors.As(err, new(admin.InvalidError)):
				return &usageError{"ctl: " + err.Error()}
			case err != nil:
				return err
			case asJSON:
				return results.PrintJSON(p.stdout, made)
			}
			if made.Swept != "" {
				fmt.Fprintf(p.stdout, "%s was left by a backup that did not end; it is removed\n", made.Swept)
			}
			for _, id := range made.Down {
				fmt.Fprintf(p.stdout, "store %d did not run: the backup has what its disk had\n", id)
			}
			fmt.Fprintf(p.stdout,
				"%s: the cluster as of %s: %d files, %s, %s of them copied, in %s; writes waited %s\n",
				made.Dir, made.Time.Format("15:04:05.000"), made.Files, settings.Bytes(made.Bytes).About(),
				settings.Bytes(made.Copied).About(), made.Took.Round(time.Millisecond), made.Pause.Round(10*time.Microsecond))
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}

// tell runs what tells of something under way. The caller calls end when that is over.
func tell(ctx context.Context, run func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		run(ctx)
	}()
	return func() {
		cancel()
		<-told
	}
}

// tellDrain tells how far the draining of a store is, whenever that has changed.
func tellDrain(ctx context.Context, p process, port *admin.Announcement, store int) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		status, err := port.Status(ctx)
		if err != nil {
			continue
		}
		text := ""
		for _, s := range status.Stores {
			if s.Store == store {
				text = fmt.Sprintf("store %d leads %d regions, and has %d replicas", store, s.Leads, s.Replicas)
			}
		}
		for _, x := range status.Impaired {
			if strings.HasPrefix(x, fmt.Sprintf("store %d drains", store)) {
				text += "; " + x
			}
		}
		if text != last {
			fmt.Fprintln(p.stderr, text)
			last = text
		}
	}
}

// tellBackup tells once a second how far a backup is.
func tellBackup(ctx context.Context, p process, port *admin.Announcement) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if status, err := port.Status(ctx); err == nil && status.Backup != "" {
			fmt.Fprintln(p.stderr, status.Backup)
		}
	}
}

func printFaults(w io.Writer, faults []fault.Fault) {
	if len(faults) == 0 {
		fmt.Fprintln(w, "no faults")
	}
	for _, f := range faults {
		fmt.Fprintln(w, f)
	}
}

// shownRegions is how many regions the table of a status has before it leaves out those that are well.
const shownRegions = 32

// printStatus prints a status in at most height lines; 0 is as many as it takes. Where lines are few, regions are left
// out, those that are well first.
func printStatus(w io.Writer, s neokv.ClusterStatus, height int) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STORE\tADDRESS\tSTATE\tLEADS\tREPLICAS\tLAG\tCOMMANDS/S")
	// The stores, the migrations, the faults, headings, empty lines, the note on regions.
	used := len(s.Stores) + len(s.Migrations) + len(s.Wipes) + max(1, len(s.Faults)) + 5
	for _, x := range s.Stores {
		addr := x.Addr
		if x.ReplicaAddr != "" {
			addr += ", replica " + portOf(x.ReplicaAddr)
		}
		state := x.State
		if x.Member != "" {
			state += ", " + x.Member
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%d\t%d\t%.0f\n", x.Store, addr, state, x.Leads, x.Replicas, x.Lag, x.Rate)
	}
	t.Flush()
	for _, x := range s.Stores {
		if x.Reason != "" {
			used++
			fmt.Fprintf(w, "store %d: %s\n", x.Store, strings.Join(strings.Fields(x.Reason), " "))
		}
	}
	for _, x := range s.Wipes {
		switch {
		case !x.Begun:
			fmt.Fprintf(w, "store %d is wiped, and has not begun with an empty folder yet\n", x.Store)
		case x.Missing > 0:
			fmt.Fprintf(w, "store %d was wiped: %d of its replicas are not back yet\n", x.Store, x.Missing)
		default:
			fmt.Fprintf(w, "store %d was wiped: its replica of the cluster map is not back yet\n", x.Store)
		}
	}
	for _, text := range s.Impaired {
		fmt.Fprintln(w, text)
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "REGION\tSLOTS\tVERSION\tLEADER\tTERM\tREPLICAS")
	var rows, ailing, changes []string
	for _, r := range s.Regions {
		leader, ill := fmt.Sprint(r.Leader), r.Leader == 0
		if r.Leader == 0 {
			leader = "none"
		}
		if r.Pinned {
			leader += " pinned"
		}
		var replicas []string
		for _, x := range r.Replicas {
			switch {
			case !x.Running:
				replicas = append(replicas, fmt.Sprintf("%d down", x.Store))
				ill = true
			case x.Lag > 0:
				replicas = append(replicas, fmt.Sprintf("%d -%d", x.Store, x.Lag))
			default:
				replicas = append(replicas, fmt.Sprint(x.Store))
			}
		}
		if r.Change != "" {
			changes = append(changes, fmt.Sprintf("region %d %s", r.Region, r.Change))
		}
		row := fmt.Sprintf("%d\t%s\t%d\t%s\t%d\t%s\n", r.Region, r.Slots, r.Version, leader, r.Term,
			strings.Join(replicas, ", "))
		if rows = append(rows, row); ill || r.Pinned || r.Change != "" {
			ailing = append(ailing, row)
		}
	}
	room := shownRegions
	if height > 0 {
		room = min(room, height-used-len(changes))
	}
	shown := rows
	if len(rows) > room {
		shown = ailing
	}
	if height > 0 {
		shown = shown[:max(0, min(len(shown), room))]
	}
	io.WriteString(t, strings.Join(shown, ""))
	t.Flush()
	if left := len(rows) - len(shown); left > 0 {
		ill := ""
		if n := len(ailing) - len(shown); n > 0 {
			ill = fmt.Sprintf(", %d of them not well", n)
		}
		fmt.Fprintf(w, "%d more regions%s\n", left, ill)
	}
	for _, text := range changes {
		fmt.Fprintln(w, text)
	}
	printMigrations(w, s.Migrations)
	fmt.Fprintln(w)
	printFaults(w, s.Faults)
}

// watchInterval is the time between two looks of watch.
const watchInterval = time.Second

// watchStatus shows the status once a second. On a terminal each look takes the place of the one before, and is cut to
// what the terminal has room for.
func watchStatus(ctx context.Context, p process, port *admin.Announcement) error {
	var terminal *os.File
	if s, ok := p.stderr.(*screen); ok && s.draws(p) {
		terminal = s.File
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		status, err := port.Status(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if terminal == nil {
			printStatus(p.stdout, status, 0)
			fmt.Fprintln(p.stdout)
		} else if width, height, err := term.GetSize(terminal.Fd()); err == nil {
			var text strings.Builder
			printStatus(&text, status, height)
			lines := strings.Split(text.String(), "\n")
			for i, line := range lines[:min(len(lines), height-1)] {
				lines[i] = ansi.Truncate(escape(line, ""), width, "…")
			}
			fmt.Fprint(terminal, "\x1b[2J\x1b[H"+strings.Join(lines[:min(len(lines), height-1)], "\n"))
		} else {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// faultsByControl returns what carries faults out by the control port of the cluster that a load goes to, nil if its
// schedule has none.
func faultsByControl(ctx context.Context, p process, o bench.Options) (
	inject func(context.Context, fault.Fault) (outcome string, err error), err error) {
	if !slices.ContainsFunc(o.Events, bench.ScheduledEvent.Hurts) {
		return nil, nil
	}
	all, err := admin.Find(ctx, admin.Folder(p.variable))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(a admin.Announcement) bool {
		return slices.ContainsFunc(o.Targets, func(addr string) bool { return slices.Contains(a.Stores, addr) })
	})
	if i < 0 {
		return nil, fmt.Errorf("the schedule has faults, and no neokv serve of this user is at %s",
			strings.Join(o.Targets, ","))
	}
	return func(ctx context.Context, f fault.Fault) (string, error) {
		done, err := all[i].Inject(ctx, f)
		return done.Outcome, err
	}, nil
}
