package transport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

const testLease = 100 * time.Millisecond

// Messages of replica 2, which the filter under test belongs to. Replica 1 leads, replica 3 is another voter.
func confirm(term uint64) pb.Message {
	return pb.Message{Type: pb.HeartbeatResp, From: 2, To: 1, Term: term, Hint: 77}
}
func heartbeatResp(term uint64) pb.Message {
	return pb.Message{Type: pb.HeartbeatResp, From: 2, To: 1, Term: term}
}
func vote(to, term uint64) pb.Message {
	return pb.Message{Type: pb.RequestVoteResp, From: 2, To: to, Term: term}
}
func rejected(m pb.Message) pb.Message { m.Reject = true; return m }
func preVote(to, term uint64) pb.Message {
	return pb.Message{Type: pb.RequestPreVoteResp, From: 2, To: to, Term: term}
}
func ask(from, term uint64) pb.Message {
	return pb.Message{Type: pb.RequestVote, From: from, Term: term}
}
func askMarked(from, term, hint uint64) pb.Message {
	return pb.Message{Type: pb.RequestVote, From: from, Term: term, Hint: hint}
}
func askPre(from, term uint64) pb.Message {
	return pb.Message{Type: pb.RequestPreVote, From: from, Term: term}
}
func timeoutNow(from, to, term uint64) pb.Message {
	return pb.Message{Type: pb.TimeoutNow, From: from, To: to, Term: term}
}

// step is a message that leaves (out) or arrives (in) some ms after the store's start.
type step struct {
	ms     int
	in     bool
	m      pb.Message
	want   verdict
	revoke string // terms revoked by it
}

func TestFilter(t *testing.T) {
	const ms = 500 // well after the start
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"other messages pass", []step{
			{ms: 0, m: pb.Message{Type: pb.Replicate, Term: 3}},
			{ms: 0, m: pb.Message{Type: pb.ReplicateResp, Term: 3}},
			{ms: 0, m: pb.Message{Type: pb.Heartbeat, Term: 3, Hint: 9}},
			{ms: 0, m: pb.Message{Type: pb.ReadIndex, From: 2, Hint: 9}},
			{ms: 0, m: pb.Message{Type: pb.LeaderTransfer, From: 2, Hint: 3}},
			{ms: 0, m: rejected(vote(3, 4))},
			{ms: 0, m: rejected(preVote(3, 4))},
		}},
		{"proposals stay", []step{{ms: ms, m: pb.Message{Type: pb.Propose}, want: returned}}},
		{"a vote revokes the voter's own leases below its term", []step{
			{ms: ms, m: vote(3, 8), revoke: "7"},
			{ms: ms, m: preVote(3, 9)},
		}},
		{"a transfer revokes the leader's lease", []step{{ms: ms, m: timeoutNow(2, 3, 5), revoke: "5"}}},
		{"a promise holds votes back for one lease", []step{
			{ms: ms, m: confirm(5)},
			{ms: ms + 99, m: vote(3, 6), want: withheld},
			{ms: ms + 99, m: preVote(3, 6), want: withheld},
			{ms: ms + 100, m: preVote(3, 6)},
			{ms: ms + 100, m: vote(3, 6), revoke: "5"},
		}},
		{"a promise is extended", []step{
			{ms: ms, m: confirm(5)},
			{ms: ms + 60, m: confirm(5)},
			{ms: ms + 120, m: vote(3, 6), want: withheld},
			{ms: ms + 160, m: vote(3, 6), revoke: "5"},
		}},
		{"a heartbeat without a read promises nothing", []step{
			{ms: ms, m: heartbeatResp(5)},
			{ms: ms + 1, m: vote(3, 6), revoke: "5"},
			{ms: ms + 1, m: heartbeatResp(5)},
		}},
		{"no late confirmation after a vote", []step{
			{ms: ms, m: vote(3, 6), revoke: "5"},
			{ms: ms + 1, m: confirm(5), want: withheld},
			{ms: ms + 1, m: vote(1, 7), revoke: "6"}, // nothing was promised
			{ms: ms + 2, m: confirm(6), want: withheld},
			{ms: ms + 2, m: confirm(7)},
		}},
		{"a granted pre-vote does not hinder the present leader", []step{
			{ms: ms, m: preVote(3, 6)},
			{ms: ms + 1, m: confirm(5)},
		}},
		{"a candidate has voted for itself", []step{
			{ms: ms, m: confirm(5)},
			{ms: ms + 50, m: askPre(2, 6), want: withheld},
			{ms: ms + 50, m: ask(2, 6), want: withheld},
			{ms: ms + 60, m: confirm(5)}, // none of it has left
			{ms: ms + 160, m: ask(2, 6), revoke: "5"},
			{ms: ms + 160, m: confirm(5), want: withheld},
		}},
		{"votes for a transfer's candidate pass", []step{
			{ms: ms, m: confirm(5)},
			{ms: ms + 1, in: true, m: askMarked(3, 6, 3)},
			{ms: ms + 2, m: vote(1, 6), want: withheld}, // not the candidate
			{ms: ms + 2, m: vote(3, 7), want: withheld}, // not the term
			{ms: ms + 2, m: preVote(3, 6), want: withheld},
			{ms: ms + 2, m: vote(3, 6), revoke: "5"},
		}},
		{"only the latest transfer counts", []step{
			{ms: ms, m: confirm(5)},
			{ms: ms + 1, in: true, m: askMarked(3, 7, 3)},
			{ms: ms + 1, in: true, m: askMarked(1, 6, 1)},
			{ms: ms + 2, m: vote(1, 6), want: withheld},
			{ms: ms + 2, m: vote(3, 7), revoke: "6"},
		}},
		{"an ordinary candidate is no transfer", []step{
			{ms: ms, m: confirm(5)},
			{ms: ms + 1, in: true, m: ask(3, 6)},
			{ms: ms + 2, m: vote(3, 6), want: withheld},
		}},
		{"a target of a transfer asks in spite of its promise", []step{
			{ms: ms, m: confirm(5)},
			{ms: ms + 1, in: true, m: timeoutNow(1, 2, 5)},
			{ms: ms + 2, m: askMarked(2, 6, 2), revoke: "5"},
		}},
		{"an order of another term is none", []step{
			{ms: ms, m: confirm(5)},
			{ms: ms + 1, in: true, m: timeoutNow(1, 2, 4)},
			{ms: ms + 2, m: askMarked(2, 6, 2), want: withheld},
		}},
		{"a store that starts withholds for one lease", []step{
			{ms: 0, m: vote(3, 6), want: withheld},
			{ms: 99, m: preVote(3, 6), want: withheld},
			{ms: 99, m: ask(2, 6), want: withheld},
			{ms: 99, in: true, m: askMarked(3, 7, 3)},
			{ms: 99, m: vote(3, 7), revoke: "6"},
			{ms: 100, m: vote(1, 8), revoke: "7"},
		}},
		{"a booting campaign does not wait for what came before", []step{
			{ms: 1, m: askMarked(2, 6, 2), revoke: "5"},
			{ms: 2, in: true, m: askMarked(3, 7, bootHint)},
			{ms: 3, m: vote(3, 7), revoke: "6"},
		}},
		{"a booting campaign respects a promise", []step{
			{ms: 1, m: confirm(5)},
			{ms: 2, m: askMarked(2, 6, 2), want: withheld},
			{ms: 2, in: true, m: askMarked(3, 7, bootHint)},
			{ms: 3, m: vote(3, 7), want: withheld},
			{ms: 101, m: vote(3, 7), revoke: "6"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			var revoked []string
			f := newFilter(testLease, start, true, false, func(r topology.RegionID, term uint64) {
				revoked = append(revoked, fmt.Sprint(term))
				if r != 9 {
					t.Errorf("revoked in region %d, want 9", r)
				}
			})
			for i, s := range c.steps {
				revoked = nil
				s.m.ShardID = 9
				if s.in {
					f.in(&s.m, start)
					continue
				}
				got := f.out(&s.m, start.Add(time.Duration(s.ms)*time.Millisecond))
				if terms := strings.Join(revoked, " "); got != s.want || terms != s.revoke {
					t.Errorf("step %d, %v at %d ms = %d, revoked %q; want %d, %q", i, s.m.Type, s.ms, got, terms,
						s.want, s.revoke)
				}
			}
		})
	}
}

func TestFilterKeepsRegionsApart(t *testing.T) {
	start := time.Unix(1000, 0)
	f := newFilter(testLease, start, true, false, nil)
	now := start.Add(time.Second)
	m, v := confirm(5), vote(3, 6)
	f.out(&m, now)
	v.ShardID = 1
	if got := f.out(&v, now); got != pass {
		t.Errorf("vote in another region = %d, want it to pass", got)
	}
}

func TestFilterFresh(t *testing.T) {
	start := time.Unix(1000, 0)
	f := newFilter(testLease, start, true, false, nil)
	f.fresh(0)
	v := vote(3, 6)
	if got := f.out(&v, start); got != pass {
		t.Errorf("first vote of a fresh region = %d, want it to pass", got)
	}
	// It forgives what came before the start, not a promise made since, even at the same instant.
	f = newFilter(testLease, start, true, false, nil)
	m := confirm(5)
	f.out(&m, start)
	f.fresh(0)
	if got := f.out(&v, start); got != withheld {
		t.Errorf("vote after a promise in a fresh region = %d, want it withheld", got)
	}
}

// TestFilterForget: a promise, and what was supported, outlive the replica that gave it. Once the promise is over
// nothing of it is left, unless the region has come back.
func TestFilterForget(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(time.Minute)
	f := newFilter(testLease, start, false, false, nil)
	judge := func(region topology.RegionID, m pb.Message, at time.Duration, want verdict) {
		t.Helper()
		m.ShardID = uint64(region)
		if got := f.out(&m, now.Add(at)); got != want {
			t.Errorf("region %d: %v at %v = %d, want %d", region, m.Type, at, got, want)
		}
	}
	for r := topology.RegionID(1); r <= 3; r++ {
		judge(r, vote(3, 4), 0, pass)
		judge(r, confirm(5), 0, pass)
		f.forget(r, now)
	}
	judge(1, confirm(3), testLease-1, withheld) // of a term before the one that it supports
	judge(1, vote(3, 6), testLease-1, withheld)
	judge(2, confirm(6), testLease-1, pass) // by the region's next replica
	f.forget(9, now.Add(testLease-1))
	if len(f.regions) != 3 {
		t.Errorf("%d regions are known within the lease; want 3", len(f.regions))
	}
	f.forget(9, now.Add(testLease))
	if len(f.regions) != 1 || f.regions[2] == nil {
		t.Errorf("%d regions are known after the lease; want the one that is back", len(f.regions))
	}
	judge(2, vote(3, 7), 2*testLease-2, withheld)
	judge(2, vote(3, 7), 2*testLease, pass)
}

func TestFilterPlantedMistake(t *testing.T) {
	start := time.Unix(1000, 0)
	f := newFilter(testLease, start, true, true, nil)
	m, v := confirm(5), vote(3, 6)
	if got := []verdict{f.out(&v, start), f.out(&m, start), f.out(&v, start)}; got[0] != pass || got[1] != pass ||
		got[2] != pass {
		t.Errorf("without promises: %v, want all to pass", got)
	}
}

func TestFilterMarksBootingCampaign(t *testing.T) {
	start := time.Unix(1000, 0)
	f := newFilter(testLease, start, true, false, nil)
	m := askMarked(2, 6, 2)
	if f.out(&m, start); m.Hint != bootHint {
		t.Errorf("hint of a campaign nobody ordered = %d, want %d", m.Hint, uint64(bootHint))
	}
	in := timeoutNow(1, 2, 6)
	f.in(&in, start)
	m = askMarked(2, 7, 2)
	if f.out(&m, start); m.Hint != 2 {
		t.Errorf("hint of an ordered campaign = %d, want the candidate, 2", m.Hint)
	}
}

// A booting campaign that arrives when the store has been restarted since is bound by what it may have promised
// meanwhile.
func TestFilterBootingCampaignArrivesLate(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		booting bool
		want    verdict
	}{{true, pass}, {false, withheld}} {
		f := newFilter(testLease, start, c.booting, false, nil)
		asked, granted := askMarked(3, 7, bootHint), vote(3, 7)
		f.in(&asked, start)
		if got := f.out(&granted, start); got != c.want {
			t.Errorf("vote of an endpoint that boots with the cluster %v: %d, want %d", c.booting, got, c.want)
		}
		own := askMarked(2, 8, 2) // nobody has ordered it
		if got := f.out(&own, start); got != c.want {
			t.Errorf("campaign of an endpoint that boots with the cluster %v: %d, want %d", c.booting, got, c.want)
		}
	}
}

func BenchmarkFilterConfirm(b *testing.B) {
	f := newFilter(testLease, time.Unix(1000, 0), true, false, nil)
	now, m := time.Unix(2000, 0), confirm(5)
	b.ReportAllocs()
	for b.Loop() {
		f.out(&m, now)
	}
}

// TestBootPatience has replicas time out while a cluster boots. Only the one that is to lead may ask for pre-votes.
func TestBootPatience(t *testing.T) {
	start := time.Unix(100, 0)
	f := newFilter(testLease, start, true, false, nil)
	call := timeoutNow(2, 2, 0)
	call.ShardID = 2
	f.in(&call, start.Add(testLease))
	for _, c := range []struct {
		region uint64
		after  time.Duration
		want   verdict
	}{
		{1, testLease, withheld}, {1, bootPatience - 1, withheld}, {1, bootPatience, pass}, {2, testLease, pass},
	} {
		m := askPre(2, 1)
		m.ShardID = c.region
		if got := f.out(&m, start.Add(c.after)); got != c.want {
			t.Errorf("region %d asks for pre-votes after %v: %v; want %v", c.region, c.after, got, c.want)
		}
	}
}

// FuzzVouched fails when what another store vouches for makes the filter panic, changes a record that it does not name,
// or is answered with more than this store's replicas know.
func FuzzVouched(f *testing.F) {
	f.Add([]byte{1, 5, 2, 5}, false)                   // one region that the sender leads, one that it follows
	f.Add([]byte{1, 4, 1, 5, 1, 6, 3, 5, 0x80}, false) // other terms, a region that is not here, half a number
	f.Add([]byte{1, 5, 2, 4, 2, 5, 2, 6}, true)
	f.Fuzz(func(t *testing.T, b []byte, leads bool) {
		now := time.Unix(100, 0)
		x := newFilter(testLease, now, false, false, nil)
		x.quiet, x.stale = time.Second, time.Second
		x.in(&pb.Message{Type: pb.Heartbeat, ShardID: 1, From: 1, To: 2, Term: 5}, now)
		x.in(&pb.Message{Type: pb.HeartbeatResp, ShardID: 2, From: 1, To: 2, Term: 5}, now)
		later := now.Add(2 * time.Second)
		known := x.vouched(b, leads, later)
		want := map[bool]string{false: "\x01\x05", true: "\x02\x05"}[leads]
		if n := len(known) / 2; string(known) != strings.Repeat(want, n) {
			t.Errorf("vouched(%x, %v) = %x; want only %x", b, leads, known, want)
		}
		if got := string(x.vouches(nil, later)); got != "" && (got != "\x02\x05" || len(known) == 0 || !leads) {
			t.Errorf("after vouched(%x, %v) the store vouches for %x", b, leads, got)
		}
		if len(x.regions) != 2 {
			t.Errorf("vouched(%x) made %d records", b, len(x.regions)-2)
		}
	})
}
