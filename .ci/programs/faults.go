package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"time"
)

// faults are what happens to a cluster while a program works: stores are killed and start again, regions split, merge
// and change their leaders. neokv ctl does all of it.
type faults struct {
	neokv   string
	control string // the port of ctl; none if the servers are real ones, to which nothing happens
	whole   bool   // the cluster has one region, which stays whole
	random  *rand.Rand
	applied map[int]uint64 // the entries of each region when it was last looked at
	done    map[string]int // how often each fault took place
}

// status is what ctl status says.
type status struct {
	Stores []struct {
		Store int
		State string
	}
	Regions []struct {
		Region   int
		Slots    string
		Leader   int
		Replicas []struct {
			Store   int
			Applied uint64
		}
	}
}

// run goes on until the context ends, and heals the cluster then.
func (f *faults) run(ctx context.Context) error {
	if f.control == "" {
		return nil
	}
	f.applied, f.done = map[int]uint64{}, map[string]int{}
	var failed error
	for failed == nil {
		select {
		case <-time.After(300*time.Millisecond + time.Duration(f.random.Int64N(int64(1200*time.Millisecond)))):
			failed = f.next()
			continue
		case <-ctx.Done():
		}
		break
	}
	_, err := f.ctl("heal")
	return errors.Join(failed, err)
}

// next starts a store that is down, or does something to the cluster.
func (f *faults) next() error {
	text, err := f.ctl("status", "--json")
	if err != nil {
		return err
	}
	var s status
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("ctl status: %w", err)
	}
	for _, store := range s.Stores {
		switch store.State {
		case "ok":
		case "killed":
			_, err := f.ctl("restart", fmt.Sprint(store.Store))
			return err
		default:
			return fmt.Errorf("store %d is %s", store.Store, store.State)
		}
	}

	// Half of all is done to the region in which most has happened.
	region, most := s.Regions[f.random.IntN(len(s.Regions))], uint64(0)
	busy := region
	for _, r := range s.Regions {
		applied := uint64(0)
		for _, replica := range r.Replicas {
			applied = max(applied, replica.Applied)
		}
		if grown := applied - min(applied, f.applied[r.Region]); grown > most {
			busy, most = r, grown
		}
		f.applied[r.Region] = applied
	}
	if f.random.IntN(2) == 0 {
		region = busy
	}
	id, store := fmt.Sprint(region.Region), fmt.Sprint(s.Stores[f.random.IntN(len(s.Stores))].Store)
	switch n := f.random.IntN(10); {
	case n < 4 && region.Leader > 0:
		return f.change("kill", fmt.Sprint(region.Leader))
	case n < 6 || f.whole:
		return f.change("transfer", id, store)
	case n < 8 && len(s.Regions) < 12:
		var first, last int
		if n, _ := fmt.Sscanf(region.Slots, "%d-%d", &first, &last); n < 2 {
			return nil
		}
		return f.change("split", id, fmt.Sprint(first+1+f.random.IntN(last-first)))
	case len(s.Regions) > 3:
		return f.change("merge", id)
	}
	return nil
}

// change counts what has taken place. What ctl refuses has not: the merge of the last region, or one that comes too
// soon.
func (f *faults) change(args ...string) error {
	_, err := f.ctl(args...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && args[0] != "kill" {
		return nil
	}
	f.done[args[0]]++
	return err
}

func (f *faults) ctl(args ...string) ([]byte, error) {
	out, err := exec.Command(f.neokv, append([]string{"ctl", "--control", f.control}, args...)...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("ctl %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

func (f *faults) String() string {
	var all []string
	for _, verb := range []string{"kill", "split", "merge", "transfer"} {
		if n := f.done[verb]; n > 0 {
			all = append(all, fmt.Sprintf("%d %ss", n, verb))
		}
	}
	return strings.Join(all, ", ")
}
