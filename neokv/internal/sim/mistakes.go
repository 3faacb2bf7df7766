package sim

import (
	"fmt"
	"slices"
	"strings"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/settings"
)

// mistake is one that a test plants in a cluster, to see that a plan finds it.
type mistake struct {
	name  string
	what  string // is wrong
	plant func(*seam.Mistakes)
}

// mistakeOf returns the mistake of a name.
func mistakeOf(name string) (mistake, error) {
	if at := slices.IndexFunc(mistakes, func(m mistake) bool { return m.name == name }); at >= 0 {
		return mistakes[at], nil
	}
	var names []string
	for _, m := range mistakes {
		names = append(names, m.name)
	}
	return mistake{}, fmt.Errorf("unknown mistake %q%s; want one of %s", name, settings.DidYouMean(name, names),
		strings.Join(names, ", "))
}

// mistakes are all that plans.txt may name.
var mistakes = []mistake{
	{"log-unsynced", "the log is not synced",
		func(m *seam.Mistakes) { m.Store.Log.NoSync = true }},
	{"log-late", "every other round of the log is synced with the next",
		func(m *seam.Mistakes) { m.Store.Log.LateSync = true }},
	{"journal-unsynced", "the journal's groups are not synced",
		func(m *seam.Mistakes) { m.Journal.NoSync = true }},
	{"journal-not-replayed", "a process that starts throws the content of the journal away",
		func(m *seam.Mistakes) { m.Journal.NoReplay = true }},
	{"apply-index-apart", "the apply index is committed in a batch of its own",
		func(m *seam.Mistakes) { m.Store.Region.SplitApply = true }},
	{"snapshot-dropped", "a received snapshot's file is dropped before its content is in the engine",
		func(m *seam.Mistakes) { m.Store.Region.LazyInstall = true }},

	{"early-reply", "a SET is answered when it is proposed",
		func(m *seam.Mistakes) { m.Store.Region.EarlyReply = true }},
	{"term-tag", "the term tag is ignored",
		func(m *seam.Mistakes) { m.Store.Region.NoTermTag = true }},
	{"unknown-retried", "the server tries a write of unknown outcome again",
		func(m *seam.Mistakes) { m.Server.RetryUnknown = true }},
	{"retried-backward", "the server tries held commands again in the reverse order",
		func(m *seam.Mistakes) { m.Server.RetryBackward = true }},
	{"read-set-stale", "a read set is taken whatever has been applied since it was made",
		func(m *seam.Mistakes) { m.Store.Region.AnyBase = true }},
	{"map-order", "the member that SPOP takes follows from the order of a Go map",
		func(m *seam.Mistakes) { m.Store.Region.MapOrder = true }},

	{"transaction-cut", "the commands of a transaction travel in two entries",
		func(m *seam.Mistakes) { m.Store.Region.SplitGroups = true }},
	{"watch-any-base", "a transaction that watches keys is applied whatever has been applied since it was made",
		func(m *seam.Mistakes) { m.Store.Region.AnyExact = true }},
	{"watch-kept", "what a client watches is taken for unchanged in the leader's next term",
		func(m *seam.Mistakes) { m.Store.Region.KeptWatches = true }},

	{"told-late", "clients that cache are told of a change when its author has the answer",
		func(m *seam.Mistakes) { m.Store.Region.LateTelling = true }},
	{"told-early", "what a client that caches is told of a value comes before the reply that has the value",
		func(m *seam.Mistakes) { m.Server.EarlyTelling = true }},
	{"tracked-late", "keys are tracked for a client when it has read them",
		func(m *seam.Mistakes) { m.Server.LateInterest = true }},
	{"tracking-kept", "clients that cache are not told that a leader tells nothing more",
		func(m *seam.Mistakes) { m.Store.Region.KeptTracking = true }},
	{"waiter-inexact", "an entry with clients that wait is applied whatever has been applied since it was made",
		func(m *seam.Mistakes) { m.Store.Region.AnyExact = true }},
	{"waiter-late", "a client begins to wait whatever was proposed since its keys were seen to be empty",
		func(m *seam.Mistakes) { m.Store.Region.LateParking = true }},
	{"waiter-kept", "a client waits on at a region that has lost its slot",
		func(m *seam.Mistakes) { m.Store.Region.KeptWaiters = true }},

	{"script-kept", "what a script wrote stays when a limit ends it",
		func(m *seam.Mistakes) { m.Store.Region.Scripts.KeptWrites = true }},
	{"script-random", "each replica draws a script's random numbers for itself",
		func(m *seam.Mistakes) { m.Store.Region.Scripts.Chance = true }},
	{"script-capacity", "the length of a replica's batch counts toward a script's limit",
		func(m *seam.Mistakes) { m.Store.Region.Scripts.Capacity = true }},
	{"script-order", "a script sees its arguments in the order of a Go map",
		func(m *seam.Mistakes) { m.Store.Region.Scripts.MapOrder = true }},
	{"script-discard", "replies to a script's calls have the room of a reply that nobody reads",
		func(m *seam.Mistakes) { m.Store.Region.Scripts.Discard = true }},

	{"batch-repeated", "messages are sent again to a store that has not confirmed them",
		func(m *seam.Mistakes) { m.Store.RepeatBatch = true }},

	{"lease-unchecked", "a lease is never checked",
		func(m *seam.Mistakes) { m.Store.Region.TrustLease = true }},
	{"lease-promise", "voters do not hold their promise",
		func(m *seam.Mistakes) { m.Store.Transport.NoPromise = true }},
	{"follower-read", "a follower reads without an index",
		func(m *seam.Mistakes) { m.Store.Region.NoReadIndex = true }},
	{"rows-kept", "the row cache takes rows of an earlier term for the present records",
		func(m *seam.Mistakes) { m.Store.Region.KeptRows = true }},

	{"backup-apart", "a backup has each store as of an instant of its own",
		func(m *seam.Mistakes) { m.BackupApart = true }},

	{"expiry-clock", "the local clock alone decides what has expired",
		func(m *seam.Mistakes) { m.Store.Region.LocalClock = true }},
	{"version-repeated", "after a change of leader a new collection gets a version that has been in use",
		func(m *seam.Mistakes) { m.Store.Region.SameVersions = true }},
	{"live-reclaimed", "the reclaimer deletes elements that a key still holds",
		func(m *seam.Mistakes) { m.Store.Janitor.AnyVersion = true }},

	{"old-bounds", "an entry is applied behind a split under the old bounds",
		func(m *seam.Mistakes) { m.Store.Region.AnyBounds = true }},
	{"lease-split", "a leader keeps its lease while it splits its region",
		func(m *seam.Mistakes) { m.Store.Region.KeptLease = true }},
	{"child-empty", "a child begins without data where it is not to lead",
		func(m *seam.Mistakes) { m.Store.Region.EmptyChild = true }},
	{"child-early", "a store gives a child a replica although its parent's replica still has the slots",
		func(m *seam.Mistakes) { m.Store.AnyJoin = true }},
	{"merge-early", "a merge does not wait until all replicas of the right region are frozen",
		func(m *seam.Mistakes) { m.Store.EarlyMerge = true }},
	{"freeze-unsynced", "a merge does not wait until the freeze is synced everywhere",
		func(m *seam.Mistakes) { m.Store.UnsyncedFreeze = true }},
	{"end-early", "a merge ends when all stores have applied it, durably or not",
		func(m *seam.Mistakes) { m.Store.EarlyEnd = true }},
	{"merge-stubborn", "a merge holds clients again and again, however long it has held them in vain",
		func(m *seam.Mistakes) { m.Store.StubbornMerge = true }},
	{"log-cut", "the log of a region that splits is cut before its child has a quorum",
		func(m *seam.Mistakes) { m.Store.Region.AnyCut = true }},
	{"sweep-straddles", "a sweep that began before a merge counts for what the merge brought",
		func(m *seam.Mistakes) { m.Store.Region.AnySweep = true }},
	{"commit-taken-out", "messages with a change of members lose their commit index as others do",
		func(m *seam.Mistakes) { m.Store.Transport.AnyCommit = true }},
	{"commit-unsaved", "the commit index is not saved with a change of members",
		func(m *seam.Mistakes) { m.Store.Log.NoCommit = true }},
	{"non-voter-counted", "a move takes a non-voter for a voter",
		func(m *seam.Mistakes) { m.Store.CountNonVoters = true }},
	{"move-ends-early", "a move ends before its last change of the members",
		func(m *seam.Mistakes) { m.Store.EarlyMoveEnd = true }},
	{"flush-neighbours", "FLUSHDB deletes the data of all regions of a data space",
		func(m *seam.Mistakes) { m.Store.Region.FlushSpace = true }},
}
