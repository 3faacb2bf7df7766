package sim

import (
	"errors"
	"fmt"
)

// evidence is what kind of problem a run has found. A planted mistake counts as found by the kinds that it should show alone: a child that
// dies, a boot that fails or a watchdog says nothing of it.
type evidence string

const (
	// Of a key's history; see explain.
	lostWrite   evidence = "lost write"   // the key went back to a past state, for good or for a write to see it
	staleRead   evidence = "stale read"   // reads saw a past state, and later ones did not
	doubled     evidence = "effect twice" // a write took effect more than once
	outOfOrder  evidence = "out of order" // commands of one pipeline took effect in another order than they were sent in
	wrongEffect evidence = "wrong effect" // none of these explains what a command answered

	// Of the stores.
	replicasDiffer evidence = "replicas differ" // in what they hold at the same apply index
	logsDiffer     evidence = "logs differ"     // in what they took from the log at the same index, or in what of it they let take effect
	unreadable     evidence = "unreadable"      // a replica holds what no command can reach
	lags           evidence = "lags"            // a replica does not catch up after everything was healed
	noAnswer       evidence = "no answer"       // the cluster does not serve again after everything was healed
	oddReply       evidence = "odd reply"       // an error that no client should see
	storeFailed    evidence = "store failed"    // it stopped by itself
)

// evidences are all of them.
var evidences = []evidence{
	lostWrite, staleRead, doubled, outOfOrder, wrongEffect,
	replicasDiffer, logsDiffer, unreadable, lags, noAnswer, oddReply, storeFailed,
}

// finding is a problem of a known kind.
type finding struct {
	kind evidence
	error
}

func (f *finding) Unwrap() error { return f.error }

func (f *finding) evidence() evidence { return f.kind }

func found(kind evidence, format string, args ...any) error {
	return &finding{kind, fmt.Errorf(format, args...)}
}

// evidenceOf returns a problem's kind, "" where it has none.
func evidenceOf(err error) evidence {
	var known interface{ evidence() evidence }
	if errors.As(err, &known) {
		return known.evidence()
	}
	return ""
}
