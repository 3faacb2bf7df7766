package multiraft

import (
	"context"
	"errors"
	"testing"

	"github.com/lni/dragonboat/v4"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// TestMapped maps each error of the library of which a caller makes a decision. The text stays, since users see it.
func TestMapped(t *testing.T) {
	kinds := []error{ErrClosed, ErrBusy, ErrDropped, ErrAborted, ErrTimeout}
	for _, c := range []struct{ theirs, ours error }{
		{dragonboat.ErrClosed, ErrClosed}, {dragonboat.ErrShardClosed, ErrClosed}, {dragonboat.ErrShardNotFound, ErrClosed},
		{dragonboat.ErrSystemBusy, ErrBusy},
		{dragonboat.ErrShardNotReady, ErrDropped}, {dragonboat.ErrShardNotInitialized, ErrDropped},
		{dragonboat.ErrAborted, ErrAborted},
		{dragonboat.ErrTimeout, ErrTimeout}, {dragonboat.ErrTimeoutTooSmall, ErrTimeout},
		{dragonboat.ErrInvalidTarget, nil}, {context.Canceled, nil}, {nil, nil},
	} {
		got := mapped(c.theirs)
		for _, kind := range kinds {
			if is := errors.Is(got, kind); is != (kind == c.ours) {
				t.Errorf("mapped(%v) is %v: %v", c.theirs, kind, is)
			}
		}
		if (got == nil) != (c.theirs == nil) || got != nil && got.Error() != c.theirs.Error() {
			t.Errorf("mapped(%v) = %v; want the same text", c.theirs, got)
		}
		if n := testing.AllocsPerRun(100, func() { _ = mapped(c.theirs) }); n > 0 {
			t.Errorf("mapped(%v) allocates %v times", c.theirs, n)
		}
	}
	if got := Outcome(Answer{}); got != ErrTimeout {
		t.Errorf("Outcome of no answer = %v; want %v", got, ErrTimeout)
	}
}

// TestPayload takes apart what the library makes of a proposal.
func TestPayload(t *testing.T) {
	for _, c := range []struct {
		name string
		e    LogEntry
		want string
		ok   bool
	}{
		{"application", LogEntry{Cmd: []byte("abc")}, "abc", true},
		{"encoded", LogEntry{Type: pb.EncodedEntry, Cmd: []byte("\x00abc")}, "abc", true},
		{"empty", LogEntry{}, "", false},
		{"change of members", LogEntry{Type: pb.ConfigChangeEntry, Cmd: []byte("abc")}, "", false},
	} {
		if got, ok := Payload(&c.e); string(got) != c.want || ok != c.ok {
			t.Errorf("Payload of %s = %q, %v; want %q, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}
