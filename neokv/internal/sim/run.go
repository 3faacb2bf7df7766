package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/chat"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// sim is one run: a cluster, mostly of three stores, with its clients, under faults.
type sim struct {
	seed   uint64
	config neokv.Config
	h      *history
	keep   bool   // record keeps the file of the history even if it finds no problem
	dir    string // of that file; "" for the system's folder of temporary files
	real   bool   // in real time, on files and sockets
	branch branch
	begin  time.Time // of the run, in its own time

	c         *neokv.Cluster
	inside    seam.Inside
	openImage func(vfs.FS, string) (any, error) // of hooks
	nodes     []seam.StorePlace

	beats  atomic.Int64             // see beat
	over   chan struct{}            // closed when the schedule ends
	epoch  string                   // in the names of the keys in use; see nextEpoch
	epochs []string                 // all so far
	lives  [maxStores]atomic.Uint64 // counts starts and kills, so that it is odd while the store is dead

	gate *writeGate // for the faults that hold writes
	slow atomic.Pointer[slowApply]

	unsynced atomic.Pointer[lostStep]    // see hangUnsynced
	behind   atomic.Pointer[behindSplit] // see sawBehind

	mu      sync.Mutex
	starts  *rand.Rand // how stores start
	journal bool       // the stores share one
	problem error      // the first one
	copies  []*history // of clusters that were started from backups
	kinds   []evidence // of all problems, each once
	classes []string   // of all problems, each once, the first one's first
	entries map[topology.RegionID]map[uint64]appliedEntry
	bounds  boundsSeen
	holds   heldTimes
	stats   simStats
}

// simStats counts what happened in a run.
type simStats struct {
	Acknowledged, Unknown int // operations
	Kills                 int // of stores
	Ends                  int // kills of the whole process, its journal included
	Installing            int // of these, in the middle of a snapshot's installation
	Cuts, Transfers       int // of links, of leadership
	Moved                 int // replicas, to other stores
	SentOn, PutOff        int // replies ASK that clients followed, and TRYAGAIN
	Compared              int // comparisons of two replicas or more while the plan ran
	Snapshots             int // of regions, installed
	Reclaimed             int // elements of deleted collections
	Cached                int // looks at what clients have cached
	Backups               int // from which a cluster was started

	Served time.Duration // the longest time until all regions took writes after faults had ended
	States map[state]int // how often the run got into each
}

// record runs a plan for a while and checks its history. It writes the history to a file, which stays if there is a
// problem. inside runs its argument in virtual time, or just so.
func (s *sim) record(p plan, planted bool, d time.Duration, inside func(run func())) error {
	name := fmt.Sprintf("neokv-%s-%d-%d.history", cmp.Or(p.name, "scenario"), s.seed, os.Getpid())
	out, err := os.Create(filepath.Join(cmp.Or(s.dir, os.TempDir()), name))
	if err != nil {
		return err
	}
	defer out.Close()
	defer s.watchdog(d, out.Name())()
	p.scenario = p.draw(s.seed, d)
	if s.branch.number > 0 {
		p.scenario.schedule = s.branch.schedule(p.scenario, s.seed, d)
	}
	s.entries = make(map[topology.RegionID]map[uint64]appliedEntry)
	s.bounds, s.holds = newBoundsSeen(), newHeldTimes()
	inside(func() {
		s.over, s.begin = make(chan struct{}), time.Now()
		s.h = newHistory(out)
		ended := make(chan struct{})
		go s.beat(ended)
		s.run(p, planted, d)
		close(ended)
	})
	picture := s.checkHistory(strings.TrimSuffix(out.Name(), ".history")+".html", func() bool {
		return planted && slices.ContainsFunc(s.kinds, p.isShown)
	})
	for _, h := range s.copies {
		s.fail(h.checkBackup())
	}
	s.fail(s.checkEntries())
	s.stats.Acknowledged, s.stats.Unknown = s.h.count()
	s.reachCounted()
	if s.problem != nil {
		err := fmt.Errorf("%w\nhistory: %s", s.problem, out.Name())
		if picture != "" {
			err = fmt.Errorf("%w\npicture: %s", err, picture)
		}
		return err
	}
	if s.keep {
		return nil
	}
	return os.Remove(out.Name())
}

// checkHistory looks for up to eight keys whose histories are wrong, until the run has shown enough: porcupine may take
// some seconds for such a key. It makes a picture of the first one, and returns its path.
func (s *sim) checkHistory(path string, enough func() bool) (picture string) {
	if enough() {
		return ""
	}
	keys := 0
	for err := range s.h.problems {
		if s.fail(err); enough() {
			return picture
		}
		if wrong := new(wrongKey); picture == "" && errors.As(err, &wrong) {
			picture = path
			if err := s.h.picture(wrong.key, picture); err != nil {
				picture = err.Error()
			}
		}
		if keys++; keys == 8 {
			break
		}
	}
	return picture
}

// beat counts on while time passes for the run.
func (s *sim) beat(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(10 * time.Millisecond):
			s.beats.Add(1)
		}
	}
}

// watchdog ends the process if the run takes too much real time, or if virtual time stands still: a goroutine waits in
// a way that the bubble does not know, such as in a system call, or goroutines go on for ever without a pause. It says
// where all goroutines are, in a file beside the history. The caller calls stop when the run has ended.
func (s *sim) watchdog(d time.Duration, history string) (stop func()) {
	const still = 3 * time.Minute // in a race build on a busy machine an instant takes seconds
	begin, ended := time.Now(), make(chan struct{})
	go func() {
		last, since := int64(0), begin
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Second):
			}
			beats := s.beats.Load()
			if beats != last {
				last, since = beats, time.Now()
			}
			why := ""
			switch {
			case time.Since(since) > still:
				why = fmt.Sprintf("time has stood still for %s of real time, about %s after the run began", still,
					time.Duration(beats)*10*time.Millisecond)
			case time.Since(begin) > d+10*time.Minute:
				why = fmt.Sprintf("still running after %s of real time", d+10*time.Minute)
			default:
				continue
			}
			dump := new(bytes.Buffer)
			pprof.Lookup("goroutine").WriteTo(dump, 2)
			path := strings.TrimSuffix(history, ".history") + ".goroutines"
			fmt.Fprintf(os.Stderr, "seed %d: %s\nhistory: %s\ngoroutines: %s, %v\n%s", s.seed, why, history, path,
				os.WriteFile(path, dump.Bytes(), 0o666), dump)
			os.Exit(3)
		}
	}()
	return func() { close(ended) }
}

// maxClasses bounds the classes of problems that a run tells.
const maxClasses = 16

// fail takes note of a problem, if err is one: the first one, and the kinds and classes of all.
func (s *sim) fail(err error) {
	if err == nil {
		return
	}
	s.h.note("PROBLEM: %v", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepLocked(err)
}

// keepLocked is fail for a caller that holds mu.
func (s *sim) keepLocked(err error) {
	if s.problem == nil {
		s.problem = err
	}
	if kind := evidenceOf(err); kind != "" && !slices.Contains(s.kinds, kind) {
		s.kinds = append(s.kinds, kind)
	}
	if class := classOf(err); len(s.classes) < maxClasses && !slices.Contains(s.classes, class) {
		s.classes = append(s.classes, class)
	}
}

// random returns a random source for one purpose, so that what one draws does not shift the choices of another.
func (s *sim) random(purpose uint64) *rand.Rand {
	source := rand.NewPCG(s.seed, purpose)
	if s.branch.number == 0 {
		return rand.New(source)
	}
	return rand.New(&branching{s, source, rand.NewPCG(s.branch.seed(s.seed), purpose)})
}

// run is the whole run, from boot to Close, with the faults and clients of the plan in between for a time d.
func (s *sim) run(p plan, planted bool, d time.Duration) {
	s.h.note("scenario:\n%s", p.scenario)
	hooks := new(seam.Hooks)
	s.hook(hooks)
	if planted {
		p.mistake.plant(&hooks.Mistakes)
	}
	s.h.skew = clocksOf(p.schedule)
	for _, f := range p.faults {
		if f.hook != nil {
			f.hook(s, &hooks.Region)
		}
	}
	hooks.Region.BeforeApply, hooks.Region.BoundsChanged = s.observe, s.observeBounds
	s.nextEpoch(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.config.Seed, s.config.Settings = s.seed, simSettings()
	if p.tcp {
		s.config.Settings.Raft.Transport = "tcp"
	}
	s.starts = s.random(8)
	if err := p.set(s.config.Settings); err != nil {
		s.fail(err)
		return
	}
	c, err := neokv.Start(seam.With(ctx, hooks), s.config)
	if err != nil {
		s.fail(fmt.Errorf("boot: %w", err))
		return
	}
	s.attach(c, hooks)
	s.h.note("up after %s", c.BootTime())
	var clients, lanes sync.WaitGroup
	end := time.AfterFunc(d, func() { close(s.over) })
	defer end.Stop()
	every := p.every
	if every == 0 {
		every = time.Duration(5+s.random(1).IntN(46)) * time.Millisecond // 20 to 200 operations a second
	}
	for i := range p.clients {
		clients.Go(func() { s.client(i, p.scenario, time.Duration(p.clients)*every) })
	}
	var talk *chat.Chat
	if p.chats > 0 {
		talk = s.newChat(p.chats)
		clients.Go(func() { s.runChat(talk) })
	}
	var published *messages
	if p.messages {
		published = s.newMessages()
	}
	if p.caches > 0 {
		clients.Go(func() { s.runCaching(p.caches) })
	}
	var jobs *jobQueues
	var pushers, workers *sync.WaitGroup
	if p.queues > 0 {
		jobs, pushers, workers = s.runQueues(p.queues)
	}
	lanes.Go(func() {
		for i := 1; s.sleep(5 * time.Second); i++ {
			s.nextEpoch(i)
		}
	})
	lanes.Go(func() { s.comparing(s.random(10)) })
	lanes.Go(s.watchBounds)
	lanes.Go(s.watchHeld)
	for i, f := range p.faults {
		lanes.Go(func() { f.run(s, s.random(uint64(100+i))) })
	}
	lanes.Go(func() { s.follow(p.schedule) })
	lanes.Wait()
	s.heal()
	s.fail(s.serves())
	clients.Wait()
	if jobs != nil {
		pushers.Wait()
		jobs.finish(p.queues, workers)
	}
	err = s.atRest()
	if err == nil {
		err = s.membersWrong()
	}
	s.fail(err)
	s.h.note("the end: all keys are read")
	s.finalReads()
	if talk != nil {
		s.checkChat(talk)
	}
	if published != nil {
		published.end()
	}
	s.compareReplicas()
	s.tally()
	s.fail(c.Close())
}

// attach gives the run its cluster, and what hooks hold of its inside.
func (s *sim) attach(c *neokv.Cluster, hooks *seam.Hooks) {
	s.inside, s.nodes, s.openImage = hooks.Cluster, hooks.Cluster.Nodes(), hooks.OpenImage
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c = c
}

// sleep waits and reports true, or returns false at once when the schedule is over.
func (s *sim) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.over:
		return false
	}
}

// isOver reports whether the schedule is over.
func (s *sim) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// tally takes from INFO what the stores have counted in all of their lives.
func (s *sim) tally() {
	info, err := s.c.Do(context.Background(), "INFO", "neokv")
	s.fail(err)
	for line := range strings.Lines(fmt.Sprint(info)) {
		fmt.Sscanf(line, "snapshots_received:%d", &s.stats.Snapshots)
		fmt.Sscanf(line, "reclaimed_elements:%d", &s.stats.Reclaimed)
	}
}
