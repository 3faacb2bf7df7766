package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/seam"
)

// TestStopTwice stops a store while another caller stops it already, and then the next store of the place. The race
// detector sees whether the second caller reads what the next stop writes.
func TestStopTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Stores: 1, InMemory: true, NoSockets: true})
		n := c.places.all()[0]
		goOn, first := make(chan struct{}), make(chan error)
		n.FS().Hook(disk.BeforeSync, func(int64) { <-goOn })
		go func() { first <- n.stop() }()
		synctest.Wait() // it waits for a sync
		go n.stop()
		synctest.Wait() // it waits for the first
		select {
		case <-first:
			t.Fatal("the store has ended without a sync")
		default:
		}
		close(goOn)
		if err := <-first; err != nil {
			t.Error(err)
		}
		// A whole start would hide the race: the detector forgets while so many goroutines begin.
		n.mu.Lock()
		n.stopped = nil
		n.mu.Unlock()
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestStartAfterFailure starts a store again while fail still tells of its failure. What fail has begun ends the store
// that has failed, and not the next.
func TestStartAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n *Place
		c := start(t, Config{Stores: 1, InMemory: true, NoSockets: true, OnEvent: func(_, text string) {
			if !strings.Contains(text, "has failed") {
				return
			}
			n.stop()
			if err := n.restart(); err != nil {
				t.Error(err)
			}
		}})
		n = c.places.all()[0]
		n.fail(n.FS(), errors.New("broken"))
		synctest.Wait()
		if got, _ := n.State(); got != stateOK || n.store.Load() == nil {
			t.Errorf("the store is %s after its start", got)
		}
	})
}

// TestFailureAfterInstall has a store fail as soon as install has put it into its place. It is closed.
func TestFailureAfterInstall(t *testing.T) {
	c := start(t, Config{Stores: 1, InMemory: true, NoSockets: true})
	n := c.places.all()[0]
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	s, err := n.open(false)
	if err != nil {
		t.Fatal(err)
	}
	standIn := n.install(s)
	n.FS().Fence(errors.New("broken"))
	n.stop() // it waits for the stop that the failure has begun
	if err := s.Transfer(1, 1); !errors.Is(err, region.ErrStopped) {
		t.Errorf("the store has failed and stopped; a transfer returns %v, want %v", err, region.ErrStopped)
	}
	if standIn != nil {
		standIn.Close()
	}
}

// TestFailureBeforeInstall has a store fail at the boot of its cluster, when it is open and not in its place yet. The
// failure is told once, and the store is closed.
func TestFailureBeforeInstall(t *testing.T) {
	var told []string
	c, err := open(Config{Stores: 1, InMemory: true, NoSockets: true, Settings: small(), OnEvent: func(_, text string) {
		if strings.Contains(text, "failed") {
			told = append(told, text)
		}
	}}, new(seam.Hooks))
	if err != nil {
		t.Fatal(err)
	}
	c.boots.survey(c.places.all())
	if _, err := c.servers.listenAll(); err != nil {
		t.Fatal(err)
	}
	n := c.places.all()[0]
	s, err := n.open(true)
	if err != nil {
		t.Fatal(err)
	}
	n.FS().Fence(errors.New("broken"))
	n.serve(s)
	if want := []string{"store 1 has failed: store 1: broken"}; !slices.Equal(told, want) {
		t.Errorf("told %q; want %q", told, want)
	}
	if state, reason := n.State(); state != stateFailed || reason != "store 1: broken" {
		t.Errorf("the store is %s, %q; want failed, store 1: broken", state, reason)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Transfer(1, 1); !errors.Is(err, region.ErrStopped) {
		t.Errorf("the cluster is closed; a transfer returns %v, want %v", err, region.ErrStopped)
	}
}
