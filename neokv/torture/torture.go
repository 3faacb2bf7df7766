// Package torture runs clusters in virtual time under random faults, and checks what their clients saw. It is the door
// to neokv/internal/sim, which the tests of this module use, too.
package torture

import (
	"context"

	"neokv.dev/neokv/internal/sim"
)

// Options say what Run runs.
type Options = sim.TortureOptions

// Sitting is what a sweep came to, as a log keeps it.
type Sitting = sim.TortureSitting

// Failure is a seed that failed, made as small as the time allowed.
type Failure = sim.TortureFailure

// The verdicts of a sitting.
const (
	NothingFound = sim.NothingFound
	ProblemFound = sim.ProblemFound // or, if a mistake is planted, what it should show
	OnlyKnown    = sim.OnlyKnown    // open findings were seen again
)

// Finding is a class of problems that sittings have seen.
type Finding = sim.TortureFinding

// FindingState is what the latest sitting says of a finding.
type FindingState = sim.FindingState

// The states of findings.
const (
	FindingNew      = sim.FindingNew
	FindingOngoing  = sim.FindingOngoing
	FindingReturned = sim.FindingReturned
	FindingResolved = sim.FindingResolved
)

// UsualTries is how often an open finding is tried.
const UsualTries = sim.UsualTries

// Child returns at once, unless Run has started this process as its child. Then it does the child's work and ends the
// process. A program that calls Run calls Child before anything else.
func Child() { sim.Child() }

// Run runs seeds until one fails or, with a planted mistake, until one shows it. The error says what kept it from its
// work.
func Run(ctx context.Context, o Options) (Sitting, *Failure, error) { return sim.Torture(ctx, o) }

// Kinds returns the kinds of faults that seeds draw.
func Kinds() []string { return sim.Kinds() }

// Bound returns within how many seeds of all faults a planted mistake is found, 0 if that is not known.
func Bound(mistake string) (seeds int) { return sim.Bound(mistake) }

// CauseOptions say what FindCause runs.
type CauseOptions = sim.CauseOptions

// CauseMoment is a moment of a run at which branches have left it.
type CauseMoment = sim.CauseMoment

// Cause is where a failing run was lost.
type Cause = sim.Cause

// RepeatOptions say what CompareTraces runs.
type RepeatOptions = sim.RepeatOptions

// Repeat says how much runs of one seed resemble each other.
type Repeat = sim.Repeat

// CompareTraces runs a seed several times in virtual time, and says how often the runs have the same trace.
func CompareTraces(ctx context.Context, o RepeatOptions) (*Repeat, error) {
	return sim.TortureRepeat(ctx, o)
}

// ErrNoFailure is the error of FindCause if the run hardly fails when it is repeated.
var ErrNoFailure = sim.ErrNoFailure

// FindCause branches a failing run at many moments, and finds the one from which on nearly all branches fail. With
// ErrNoFailure the cause has the share of repetitions that failed.
func FindCause(ctx context.Context, o CauseOptions) (*Cause, error) { return sim.TortureCause(ctx, o) }
