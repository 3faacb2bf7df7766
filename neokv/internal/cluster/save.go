package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/counters"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/settings"
)

// BGSAVE and SAVE make a backup in the folder backups of the data folder, named after the time, in UTC. The two newest
// stay: an older one goes when the new one is whole.

const (
	backupsName = "backups"
	keptBackups = 2
)

// backupName is how the folder of a backup in backups is named.
var backupName = regexp.MustCompile(`^\d{8}-\d{6}\.\d{3}$`)

// backups is the folder of the backups that BGSAVE and SAVE make.
func (f *folder) backups() string { return filepath.Join(f.dir, backupsName) }

// backups makes backups, one at a time, and images of clusters in memory.
type backups struct {
	*core
	boots   *boots
	journal *journal
	places  *placeSet
	power   *power

	mu   sync.Mutex
	now  *saving // nil if none is made
	last server.SaveState
	base int64 // what writes counted at the last one
}

// saving is a backup that is being made.
type saving struct {
	dir           string
	own           bool // BGSAVE or SAVE makes it, into the data folder
	begun         time.Time
	writes        int64        // as counted when it began
	copied, total atomic.Int64 // bytes; total is 0 until it is known
	ended         chan struct{}
	err           error // set before ended is closed
}

// begin begins a backup into a folder. The caller ends it.
func (a *backups) begin(dir string, own bool) (*saving, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.closing:
		return nil, ErrClosed
	default:
	}
	if a.settings.Engine.WALSync != "always" {
		return nil, fmt.Errorf("engine.wal_sync is %s: the files need not have what is acknowledged, so no copy of them "+
			"is whole; with always there are backups", a.settings.Engine.WALSync)
	}
	if a.now != nil {
		return nil, fmt.Errorf("%w, to %s", ErrBackup, a.now.dir)
	}
	a.now = &saving{dir: dir, own: own, begun: time.Now(), writes: a.writes(), ended: make(chan struct{})}
	return a.now, nil
}

func (a *backups) end(x *saving, b Backup, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = nil
	if x.own {
		a.last.Failed, a.last.Took = err != nil, time.Since(x.begun)
	}
	if err == nil {
		a.last.Time, a.base = b.Time, x.writes
		a.last.Count++
	}
	x.err = err
	close(x.ended)
}

// wait returns when no backup is made. The cluster is closing, so none begins any more.
func (a *backups) wait() {
	a.mu.Lock()
	x := a.now
	a.mu.Unlock()
	if x != nil {
		<-x.ended
	}
}

// state is what INFO and LASTSAVE say.
func (a *backups) state() server.SaveState {
	a.mu.Lock()
	defer a.mu.Unlock()
	state := a.last
	state.Changes = max(0, a.writes()-a.base)
	if x := a.now; x != nil {
		state.Since = x.begun
	}
	return state
}

// text says how far the backup under way is, "" if there is none.
func (a *backups) text() string {
	a.mu.Lock()
	x := a.now
	a.mu.Unlock()
	if x == nil {
		return ""
	}
	return fmt.Sprintf("a backup to %s is under way: %s of %s copied in %s", x.dir,
		settings.Bytes(x.copied.Load()).About(), settings.Bytes(x.total.Load()).About(),
		time.Since(x.begun).Round(100*time.Millisecond))
}

// save begins a backup in the data folder, and returns what waits for its end.
func (a *backups) save() (wait func(context.Context) error, err error) {
	const instead = "; neokv ctl backup DIR copies it to another folder"
	switch {
	case a.folder == nil:
		return nil, errors.New("the cluster is in memory" + instead)
	case a.folder.temporary:
		return nil, errors.New("the data folder is temporary" + instead)
	}
	for s := range a.places.all().Running() {
		if why := s.Full(); why != "" {
			return nil, fmt.Errorf("store %d: %s", s.ID(), why)
		}
	}
	x, err := a.begin(filepath.Join(a.folder.backups(), time.Now().UTC().Format("20060102-150405.000")), true)
	if errors.Is(err, ErrBackup) {
		err = server.ErrSaving
	}
	if err != nil {
		return nil, err
	}
	a.wg.Go(func() {
		if _, err := a.make(context.Background(), x, vfs.Default); err == nil {
			if err := a.folder.dropBackups(); err != nil {
				a.event(eventCluster, "older backups: %v", err)
			}
		}
	})
	return func(ctx context.Context) error {
		select {
		case <-x.ended:
			return x.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, nil
}

// dropBackups removes all backups but the newest.
func (f *folder) dropBackups() error {
	names, err := f.fs.List(f.backups())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !backupName.MatchString(name) })
	slices.Sort(names)
	for _, name := range names[:max(0, len(names)-keptBackups)] {
		path := filepath.Join(f.backups(), name)
		if err == nil {
			err = f.fs.Rename(path, path+unfinished) // so that the next start goes on with it
		}
		if err == nil {
			err = f.fs.RemoveAll(path + unfinished)
		}
	}
	return err
}

// writes is how many writing commands the stores have proposed since Start.
func (a *backups) writes() (n int64) {
	for _, p := range a.places.all() {
		p.countMu.Lock()
		if p.past != nil {
			n += p.past[proposedCommands]
		}
		if s := p.store.Load(); s != nil {
			n += s.Commands()
		}
		p.countMu.Unlock()
	}
	return n
}

// proposedCommands is the place of a counter in counters.All.
var proposedCommands = slices.IndexFunc(counters.All, func(l counters.Line) bool { return l.Name == "raft_commands" })
