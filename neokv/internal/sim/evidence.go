package sim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// evidence is the kind of a problem. A planted mistake counts as found only by the kinds that it should show: a boot
// that fails or a child process that dies proves nothing.
type evidence string

const (
	// In the history of a key; see explain.
	lostWrite   evidence = "lost write"   // the key went back to a past state, for good or so that a write saw it
	staleRead   evidence = "stale read"   // reads saw a past state, and later reads did not
	doubled     evidence = "effect twice" // a write took effect more than once
	outOfOrder  evidence = "out of order" // commands of a pipeline took effect in another order than the client's
	wrongEffect evidence = "wrong effect" // a reply that none of these explains

	// In the records of a chat; see chat.go.
	wrongChat evidence = "wrong chat" // a write is lost, or a commit is not there as a whole

	// In what subscribers get; see messages.go.
	wrongMessage evidence = "wrong message" // a message came twice, or behind a later one of its publisher

	// In the caches of clients; see caching.go.
	staleCache evidence = "stale cache" // a value was changed before, and the client had not been told

	// In queues; see queue.go.
	forgotten evidence = "forgotten" // a client waits for an element beside one

	// In the stores.
	replicasDiffer evidence = "replicas differ" // they hold something else at the same apply index
	logsDiffer     evidence = "logs differ"     // replicas made different things of the same entry, or ignored a term
	unreadable     evidence = "unreadable"      // a replica holds elements that no command can reach
	lags           evidence = "lags"            // a replica does not catch up after all faults were healed
	noAnswer       evidence = "no answer"       // the cluster does not serve again after all faults were healed
	oddReply       evidence = "odd reply"       // an error that no client should see
	storeFailed    evidence = "store failed"    // a store stopped by itself
	boundsWrong    evidence = "wrong bounds"    // a slot has two owners, or none, or a change of bounds does not end
	heldLong       evidence = "held too long"   // a merge that does not happen holds clients for more than a second
	membersDiffer  evidence = "members differ"  // at rest, from the peers of the region
	raftBroken     evidence = "raft broken"     // the Raft library ends the process: two entries at one index
)

// evidences are all kinds.
var evidences = []evidence{
	lostWrite, staleRead, doubled, outOfOrder, wrongEffect, wrongChat, wrongMessage, staleCache, forgotten,
	replicasDiffer, logsDiffer, unreadable, lags, noAnswer, oddReply, storeFailed, boundsWrong, heldLong, membersDiffer,
	raftBroken,
}

// finding is a problem of a known kind.
type finding struct {
	kind evidence
	form string // the text's first line without what is filled in
	error
}

func (f *finding) Unwrap() error { return f.error }

func (f *finding) evidence() evidence { return f.kind }

// found returns a problem of a kind.
func found(kind evidence, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if inner := errors.Unwrap(err); inner != nil {
		format = strings.Replace(format, "%w", formOf(inner.Error()), 1)
	}
	return &finding{kind, formOf(format), err}
}

// evidenceOf returns the kind of a problem, "" if it has none.
func evidenceOf(err error) evidence {
	var known interface{ evidence() evidence }
	if errors.As(err, &known) {
		return known.evidence()
	}
	return ""
}

// varying are the words of a text that differ from run to run: what is quoted, what has a digit, and verbs of fmt.
var varying = regexp.MustCompile(`"[^"]*"|[^\s:;,()]*[\d%][^\s:;,()]*`)

// maxForm bounds a form, in bytes.
const maxForm = 200

// formOf returns the first line of a text with # for each word that differs from run to run.
func formOf(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	form := varying.ReplaceAllString(line, "#")
	return strings.ToValidUTF8(form[:min(len(form), maxForm)], "")
}

// classOf returns what is the same of a problem in all runs that show it: its kind, if it has one, and its form.
func classOf(err error) string {
	form := formOf(err.Error())
	if known := new(finding); errors.As(err, &known) {
		form = known.form
	}
	if kind := evidenceOf(err); kind != "" {
		return string(kind) + ": " + form
	}
	return form
}

// panics are the lines with which the Go runtime begins to say why a process ends.
var panics = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: |seed \d+: ).*`)

// classOfEnd is the class of a run that has ended its process, which printed out.
func classOfEnd(err error, out []byte) string {
	return "process ended: " + formOf(cmp.Or(string(panics.Find(out)), err.Error()))
}

// brokenLogs are what the Raft library says when it ends the process because two leaders have written to one log.
var brokenLogs = []string{
	"multiple uncommitted config change entries", "conflicts with committed entry", "committed entries being changed",
}

// evidenceOfEnd returns what the output of a process says that has ended.
func evidenceOfEnd(out []byte) (all []evidence) {
	for _, text := range brokenLogs {
		if bytes.Contains(out, []byte(text)) {
			return []evidence{raftBroken}
		}
	}
	return nil
}
