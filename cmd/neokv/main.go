// Neokv boots a Redis Cluster with full Multi-Raft in one process, loads it and measures it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/neokv/settings"
	"neokv.dev/neokv/torture"
	"neokv.dev/profiles"
	"neokv.dev/workloads"
)

func main() {
	torture.Child()
	ctx := stopSignals(context.Background())
	stderr := &screen{File: os.Stderr}
	tuneProcess(os.Getenv, stderr)
	os.Exit(run(ctx, process{environment(), os.Stdin, os.Stdout, stderr}, os.Args[1:]))
}

// sameSignal is how long after the first signal another one counts as the same: timeout(1) sends two at once.
const sameSignal = 300 * time.Millisecond

// stopSignals returns a context that ends with the first SIGINT, SIGTERM or SIGHUP. One that comes later than
// sameSignal ends the process at once. A second SIGHUP does nothing, since a terminal that closes may send two; under
// nohup no SIGHUP counts.
func stopSignals(parent context.Context) context.Context {
	stopping := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stopping = append(stopping, syscall.SIGHUP)
		// Nobody listens here, but a second SIGHUP does not end the process.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(parent, stopping...)
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })
	return ctx
}

// process has all that a verb may use of its process, so that a test can run a verb inside its own.
type process struct {
	env    []string
	stdin  io.Reader
	stdout io.Writer // results, and nothing else
	stderr io.Writer
}

// variable returns the value of a variable of the environment, "" if there is none. The last one counts.
func (p process) variable(name string) (value string) {
	for _, e := range p.env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

// Exit status of every verb.
const (
	statusDone    = 0
	statusFailed  = 1 // could not do it
	statusInvalid = 2 // usage, or invalid input; a Go program that panics outside of run ends with 2, too
	statusBroken  = 3 // done, and what was measured does not hold: a regression of check, an SLO of bench, a change
)

// run runs the verb that args name and returns the exit status.
func run(ctx context.Context, p process, args []string) (status int) {
	p.stdout = printable{p.stdout}
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(p.stderr, "neokv: panic: %v\n%s", r, debug.Stack())
			status = statusFailed
		}
	}()
	root := &cobra.Command{
		Use:   "neokv",
		Short: "A Redis Cluster with full Multi-Raft in one process, loaded and measured",
		Example: `  neokv serve                     a cluster of three stores on ports 7001 to 7003
  neokv bench                     boot one, load it with YCSB-A for half a minute, print latencies
  neokv results FILE              print a result again, or convert it for other programs
  neokv workloads show chat       what a workload sends
  neokv profiles show default     every setting, its value and where it comes from`,
		Args:              verbsOnly,
		PersistentPreRunE: noEmptyFlags,
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	version := root.Flags().Bool("version", false, "print the version and the commit")
	root.RunE = func(c *cobra.Command, args []string) error {
		if *version {
			return printVersion(p.stdout)
		}
		return wantVerb(c, args)
	}
	root.AddCommand(serveCommand(p), benchCommand(p), abCommand(p), compareCommand(p), checkCommand(p),
		resultsCommand(p), tuneCommand(p), tortureCommand(p), reportCommand(p), historyCommand(p),
		redisBenchmarkCommand(p), profilesCommand(p), workloadsCommand(p), ctlCommand(p), inspectCommand(p), waitCommand(p),
		versionCommand(p))
	completeFlags(root)
	root.SetFlagErrorFunc(flagError)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	return exitStatus(p.stderr, root.ExecuteContext(ctx))
}

// completeFlags lets shells complete the values of flags that name something, in all verbs of a command.
func completeFlags(c *cobra.Command) {
	for name, values := range map[string]func() []string{
		"workload": workloads.Names,
		"profile":  profiles.Names,
		"set": func() (names []string) {
			for _, f := range (&profiles.Profile{}).Fields() {
				names = append(names, f.Name+"=")
			}
			return names
		},
	} {
		if c.Flags().Lookup(name) == nil {
			continue
		}
		complete := func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			all := slices.DeleteFunc(values(), func(v string) bool { return !strings.HasPrefix(v, begun) })
			if name == "set" {
				return all, cobra.ShellCompDirectiveNoSpace // the value follows
			}
			return all, cobra.ShellCompDirectiveDefault // without any, files
		}
		err := c.RegisterFlagCompletionFunc(name, complete)
		if err != nil {
			panic(err) // the flag is there, and registered once
		}
	}
	for _, verb := range c.Commands() {
		completeFlags(verb)
	}
}

// exitStatus prints an error, each line with the program's name in front, and returns its exit status.
func exitStatus(w io.Writer, err error) int {
	if err == nil {
		return statusDone
	}
	if text := strings.TrimSpace(err.Error()); text != "" {
		for line := range strings.Lines(text + "\n") {
			fmt.Fprint(w, "neokv: ", line)
		}
	}
	if own := (*statusError)(nil); errors.As(err, &own) {
		return own.status
	}
	if errors.As(err, new(*usageError)) || errors.As(err, new(settings.Invalid)) {
		return statusInvalid
	}
	return statusFailed
}

// usageError is the error of a wrong command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// mistakes are all that is wrong with a command line and what it names.
type mistakes []error

// add adds an error, unless it is nil.
func (m *mistakes) add(err error) {
	if err != nil {
		*m = append(*m, err)
	}
}

// check adds a usageError, unless all is well.
func (m *mistakes) check(ok bool, format string, args ...any) {
	if !ok {
		*m = append(*m, &usageError{fmt.Sprintf(format, args...)})
	}
}

// usageErrors returns a usageError for each line of err. about says what is wrong, if the lines do not.
func usageErrors(about string, err error) error {
	if about != "" {
		about += ": "
	}
	var wrong []error
	for line := range strings.Lines(err.Error()) {
		wrong = append(wrong, &usageError{about + strings.TrimSpace(line)})
	}
	return errors.Join(wrong...)
}

// wantArgs refuses fewer or more arguments. what says which they are.
func wantArgs(fewest, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if n := len(args); n < fewest || n > most {
			return &usageError{fmt.Sprintf("%s%d arguments, want %s", verb(c), n, what)}
		}
		return nil
	}
}

// noArgs refuses arguments that are not flags.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Sprintf("%sunexpected argument %q", verb(c), args[0])}
	}
	return nil
}

// mayBeEmpty marks flags whose empty text says something.
const mayBeEmpty = "may be empty"

// noEmptyFlags refuses a flag with an empty text, as --dir "$UNSET" has. Silently, it would mean the default.
func noEmptyFlags(c *cobra.Command, _ []string) error {
	var wrong mistakes
	c.Flags().Visit(func(f *pflag.Flag) {
		_, spared := f.Annotations[mayBeEmpty]
		wrong.check(f.Value.String() != "" || spared, "%s--%s is empty: leave it out for the default", verb(c), f.Name)
	})
	return errors.Join(wrong...)
}

// flagError is the error of a command line whose flags are wrong. An unknown flag gets the nearest name.
func flagError(c *cobra.Command, err error) error {
	text := err.Error()
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		text += settings.DidYouMean(unknown.GetSpecifiedName(), names)
	}
	return &usageError{text}
}

// verb returns the verbs of a command, with which messages about it begin. It is empty for neokv itself, since
// exitStatus prints that name.
func verb(c *cobra.Command) string {
	if !c.HasParent() {
		return ""
	}
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ") + ": "
}

// verbsOnly refuses arguments that are not one of the command's verbs.
func verbsOnly(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var verbs []string
	for _, v := range c.Commands() {
		verbs = append(verbs, v.Name())
	}
	return &usageError{fmt.Sprintf("%sunknown verb %q%s", verb(c), args[0], settings.DidYouMean(args[0], verbs))}
}

// wantVerb runs a command that needs a verb and got none: it prints the help and returns the error.
func wantVerb(c *cobra.Command, _ []string) error {
	c.SetOut(c.ErrOrStderr())
	if err := c.Help(); err != nil {
		return err
	}
	return &usageError{verb(c) + "want a verb"}
}
