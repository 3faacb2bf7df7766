package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Journal makes the write-ahead logs of several stores durable with one sync. All bytes written to a log are also
// written to the journal, and a sync of a log syncs the journal instead. The journal has two files, the segments
// journal-0 and journal-1, which it uses in turn.
//
// Why what was acknowledged is there after a crash:
//   - A group is written when the one before it is synced. So of a segment's groups all but the last are whole, and if
//     the last is torn nobody was told of it. Groups of a segment have the segment's epoch and are numbered from 0:
//     what an earlier use of the segment has left behind them is not taken for one of them, since each use takes a
//     larger epoch than any before.
//   - A group is not taken for the last one while another of its segment stands behind it: a disk that loses what it
//     has synced is reported, not passed over.
//   - A segment is used again only when every log with bytes in it has been synced itself or is gone. Then its first
//     group is overwritten by an empty one of a new epoch, which fits into a sector; so what is in neither segment is
//     in the logs.
//   - Who opens the journal writes what both segments hold to the logs, in the order of epochs, syncs the logs, and
//     then empties the segments, all before a store opens. To do so again, after a crash in between, changes nothing.
//   - A log that is removed was needed no more. A number that a log with bytes in the journal has had is not used
//     again: Pebble has synced the folder with the name in it before, and its manifest before it removes the log. In a
//     log itself every byte is written once, so that it does no harm if what was synced long ago is written again.
//
// If a segment or a log cannot be written or synced, the journal is broken: each store syncs its own log, and what was
// acknowledged through the journal stays in the segments. If it was a log, its store is fenced, and no other. From time
// to time the journal tries to mend itself: it syncs all logs with bytes in a segment, and empties the segments. Then
// it takes bytes again, of each log from that log's next own sync on, so that no log has bytes in the journal behind
// others that are neither there nor synced. A log of which a sync has failed is never synced again, since the system
// reports an error only once: only the segments have its bytes then, and the journal stays broken until that store
// starts again and has its logs written anew.
//
// The segment that is not in use is made free only when the one in use is three quarters full. By then most logs with
// bytes in it have been removed and need no sync, if a segment is larger than what the stores write before they remove
// a log. The remaining logs are synced in parts, so that no group has to wait until the disk has written all of them.
//
// The segments' files grow with the writes. When there are hardly any, the journal changes segments until both are
// small again.
type Journal struct {
	bytes    int64 // length of a segment
	boot     uint64
	group    int64         // bytes of a pending group, about, from which on writers wait for it
	planted  bool          // it makes mistakes, so a sync may leave bytes that are not durable
	patience time.Duration // mendFirst, but for tests

	mu       sync.Mutex
	changed  sync.Cond      // signals that one of the following has changed
	stores   map[uint16]*FS // the stores that share the journal
	segments [2]segment
	current  int        // the segment in use
	pending  []byte     // the next group, with room for its header
	spare    []byte     // its predecessor's memory
	last     *walFile   // the log of the last record in pending, which its next bytes may join; nil for none
	lastAt   int        // where that record begins
	touched  []*walFile // the logs with bytes in pending
	handed   uint64     // how many writes were handed over
	durable  uint64     // the value of handed that the last synced group covers
	total    int64      // bytes of groups written
	waiting  int        // callers whose bytes are pending
	leading  bool       // a caller writes and syncs a group
	err      error      // why the journal is broken, nil while it is not
	quiet    bool       // there are hardly any writes
	cancel   func()
	settler  sync.WaitGroup
	onChange func(error)
}

// restTime is how often the journal checks whether hardly anything was written: no more bytes since the last check than
// a segment grows by at once.
const restTime = 10 * time.Second

// A broken journal first waits for mendFirst until it tries to mend itself, and each time twice as long as before,
// mendLast at most. If it breaks again within mendLast, it goes on with the wait that it had.
const (
	mendFirst = time.Second
	mendLast  = time.Minute
)

// groupBytes is the length of a pending group at which writers begin to wait.
const groupBytes = 8 << 20

// JournalOptions says where a journal is and which stores share it.
type JournalOptions struct {
	FS    vfs.FS            // the file system of Dir and of the stores' folders; nil: the machine's
	Dir   string            // the journal's folder
	Logs  map[uint16]string // the folder of each store's logs
	Disks map[uint16]vfs.FS // the file system of each store's logs, if it is another one
	Bytes int64             // length of a segment, 0 for 64 MiB
	// OnChange is called when the journal breaks, with the reason, and with nil when it is mended. It may be nil.
	OnChange func(error)
	// Boot is the number of this start of the cluster. Needed is that of the start whose journal must be there, 0 if none
	// need be: then both segments were made by that start or a later one.
	Boot, Needed uint64
	// Lost is called for each store that is not in Logs and of which the journal has bytes, which go. nil: that is an
	// error.
	Lost func(store uint16)
	// Emptied is called by DropJournal when the logs have all bytes, before it removes the segments. It may be nil.
	Emptied  func() error
	Mistakes Mistakes
}

// Mistakes are errors in the logic of a journal that a test plants, to see that a checker finds them. None by default.
type Mistakes struct {
	NoSync   bool // writes groups without syncing them
	NoReplay bool // the next start throws away what the journal holds
}

func (o *JournalOptions) defaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Bytes == 0 {
		o.Bytes = 64 << 20
	}
	if o.OnChange == nil {
		o.OnChange = func(error) {}
	}
}

func (o *JournalOptions) segment(i int) string {
	return o.FS.PathJoin(o.Dir, fmt.Sprintf("journal-%d", i))
}

// OpenJournal completes the stores' logs with the bytes that only the journal in the folder has. Then it opens the
// journal, empty, or makes one if there is none. No store may be open.
func OpenJournal(o JournalOptions) (*Journal, error) {
	o.defaults()
	j, err := recoverJournal(o)
	if err != nil {
		return nil, fmt.Errorf("journal in %s: %w", o.Dir, err)
	}
	var ctx context.Context
	ctx, j.cancel = context.WithCancel(context.Background())
	j.settler.Go(func() { j.settle(ctx) })
	j.settler.Go(func() {
		tick := time.NewTicker(restTime)
		defer tick.Stop()
		for seen := int64(0); ; {
			select {
			case <-tick.C:
				seen = j.rest(seen)
			case <-ctx.Done():
				return
			}
		}
	})
	return j, nil
}

// DropJournal completes the stores' logs with the bytes that only the journal in the folder has, and removes the
// journal. If there is none, it does nothing.
func DropJournal(o JournalOptions) error {
	o.defaults()
	found := false
	for i := range 2 {
		if _, err := o.FS.Stat(o.segment(i)); err == nil {
			found = true
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if !found && o.Needed == 0 {
		return nil
	}
	j, err := recoverJournal(o)
	if err != nil {
		return fmt.Errorf("journal in %s: %w", o.Dir, err)
	}
	err = j.closeSegments()
	if err == nil && o.Emptied != nil {
		err = o.Emptied()
	}
	if err != nil {
		return err
	}
	for i := range j.segments {
		err = errors.Join(err, o.FS.Remove(o.segment(i)))
	}
	return errors.Join(err, SyncDir(o.FS, o.Dir))
}

// ReplayJournal completes the stores' logs as OpenJournal does, and leaves the journal as it is. Without segments it does
// nothing.
func ReplayJournal(o JournalOptions) (err error) {
	o.defaults()
	j := new(Journal)
	for i := range j.segments {
		file, openErr := o.FS.Open(o.segment(i))
		if errors.Is(openErr, os.ErrNotExist) && o.Needed == 0 {
			continue
		}
		if openErr != nil {
			return fmt.Errorf("journal in %s: it may have the last writes of all stores: %w", o.Dir, openErr)
		}
		defer file.Close()
		s := &j.segments[i]
		s.file = file
		if err := s.measure(); err != nil {
			return fmt.Errorf("%s: %w", o.segment(i), err)
		}
		if s.boot < o.Needed {
			return fmt.Errorf("%s is of boot %d of the cluster, and the last one was %d", o.segment(i), s.boot, o.Needed)
		}
	}
	if err := replay(j.each, &o); err != nil {
		return fmt.Errorf("journal in %s: %w", o.Dir, err)
	}
	return nil
}

// recoverJournal opens the segments, writes what they hold to the logs and empties them.
func recoverJournal(o JournalOptions) (*Journal, error) {
	j := &Journal{bytes: o.Bytes, boot: o.Boot, group: min(o.Bytes/8, groupBytes), stores: make(map[uint16]*FS),
		pending: make([]byte, groupHeader), planted: o.Mistakes != Mistakes{}, onChange: o.OnChange,
		patience: mendFirst}
	j.changed.L = &j.mu
	err := j.openSegments(o)
	if err == nil && !o.Mistakes.NoReplay {
		err = replay(j.each, &o)
	}
	if err == nil {
		j.mu.Lock()
		err = j.empty()
		j.mu.Unlock()
	}
	if err != nil {
		return nil, errors.Join(err, j.closeSegments())
	}
	return j, nil
}

func (j *Journal) openSegments(o JournalOptions) (err error) {
	for i := range j.segments {
		s := &j.segments[i]
		s.noSync = o.Mistakes.NoSync
		if o.Needed > 0 {
			if _, err := o.FS.Stat(o.segment(i)); err != nil {
				return fmt.Errorf("it may have the last writes of all stores: %w", err)
			}
		}
		if s.file, err = o.FS.OpenReadWrite(o.segment(i), "journal"); err != nil {
			return err
		}
		if err := s.file.Sync(); err != nil {
			return err
		}
		if err := s.measure(); err != nil {
			return fmt.Errorf("%s: %w", o.segment(i), err)
		}
		if s.boot < o.Needed {
			return fmt.Errorf("%s is of boot %d of the cluster, and the last one was %d", o.segment(i), s.boot, o.Needed)
		}
	}
	return SyncDir(o.FS, o.Dir)
}

func (j *Journal) closeSegments() (err error) {
	for i := range j.segments {
		if file := j.segments[i].file; file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}

// each calls fn with every record of both segments, those of the older one first.
func (j *Journal) each(fn func(journalRecord) error) error {
	older := j.older()
	if err := j.segments[older].each(fn); err != nil {
		return err
	}
	return j.segments[1-older].each(fn)
}

func (j *Journal) older() int {
	if j.segments[1].epoch < j.segments[0].epoch {
		return 1
	}
	return 0
}

// Broken returns why each store syncs its own log at present, nil if the journal does it for all.
func (j *Journal) Broken() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Close syncs the stores' logs and then empties the journal. The stores that share it must be closed. After an error
// the journal keeps its bytes, and the next OpenJournal completes the logs.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.cancel()
	j.changed.Broadcast()
	j.mu.Unlock()
	j.settler.Wait()

	j.mu.Lock()
	defer j.mu.Unlock()
	logs := j.logs()
	err := j.syncLogs(logs)
	if err == nil {
		err = j.empty()
	}
	for _, w := range logs {
		w.refs = 0
		if base := w.unused(); base != nil {
			_ = base.Close() // its bytes are synced, or will be written again
		}
	}
	return errors.Join(err, j.closeSegments())
}

// empty begins both segments anew, small. The logs must have all their bytes, synced. The older one goes first, so that
// the largest epoch can be read at any time.
func (j *Journal) empty() error {
	j.quiet = true
	defer func() { j.quiet = false }()
	older := j.older()
	first, second := &j.segments[older], &j.segments[1-older]
	if err := j.clear(first, second.epoch+1); err != nil {
		return err
	}
	j.current, first.free, second.free = older, false, true
	return j.clear(second, first.epoch+1)
}

// clear frees a segment that nobody needs any more: it overwrites the first group with an empty one of a new epoch, and
// makes the file small if there are hardly any writes. It releases the mutex meanwhile.
func (j *Journal) clear(s *segment, epoch uint64) error {
	logs := s.logs
	s.logs, s.end, s.epoch, s.sequence = nil, 0, epoch, 0
	var unused []vfs.File
	for _, w := range logs {
		w.refs--
		if base := w.unused(); base != nil {
			unused = append(unused, base)
		}
	}
	first := appendRecord(make([]byte, groupHeader, pageBytes), recordBoot, 0, "", int64(j.boot), nil)
	group, shrink := s.seal(first), j.quiet
	j.mu.Unlock()
	for _, base := range unused {
		_ = base.Close() // it is synced or removed
	}
	start := time.Now()
	err := s.write(group)
	if shrink && err == nil {
		s.shrink()
	}
	if len(logs) > 0 && err == nil {
		logs[0].fs.count(time.Since(start)) // the sync counts at one store, whichever
	}
	j.mu.Lock()
	s.end, s.sequence = pageBytes, 1
	return err
}

// append adds a record to the pending group.
func (j *Journal) append(kind byte, store uint16, name string, off int64, p []byte) {
	if j.err != nil {
		return
	}
	j.last, j.lastAt = nil, len(j.pending)
	j.handed++
	j.pending = appendRecord(j.pending, kind, store, name, off, p)
}

// endsAt is the offset in its log where the last record ends.
func (j *Journal) endsAt() int64 {
	r := j.pending[j.lastAt:]
	return int64(binary.BigEndian.Uint64(r[8:])) + int64(binary.BigEndian.Uint32(r[4:]))
}

// errMissed says that the journal lacks bytes of a log.
var errMissed = errors.New("journal: it was broken when the log was written")

// sync returns when everything that was handed over before is durable. The first caller leads: it writes and syncs a
// group with all bytes that were handed over. Callers that come meanwhile wait, and one of them leads the next group.
// led says that this caller has led, and took how long the disk took. An error says that the journal is broken or lacks
// bytes of the log w, if that is not nil, and the caller must sync the log itself.
func (j *Journal) sync(w *walFile) (took time.Duration, led bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	want := j.handed
	if j.durable < want {
		j.waiting++
	}
	for {
		switch {
		case j.err != nil:
			return took, led, j.err
		case w != nil && w.missed > 0: // also if the journal has been mended while this caller waited
			return took, led, errMissed
		case j.durable >= want:
			return took, led, nil
		case j.leading:
			j.changed.Wait()
		default:
			took, led = j.lead()
		}
	}
}

// lead writes and syncs the pending group, and reports how long that took, if it could. It releases the mutex
// meanwhile.
func (j *Journal) lead() (took time.Duration, ok bool) {
	j.leading = true
	j.gather()
	s, err := j.room()
	if err != nil {
		j.leading = false
		j.fail(err)
		return 0, false
	}
	group, handed := j.pending, j.handed
	j.pending, j.last, j.waiting = append(j.spare[:0], zeros[:groupHeader]...), nil, 0
	for _, w := range j.touched {
		w.pending = false
		if w.epoch == s.epoch {
			w.refs--
			continue
		}
		w.epoch = s.epoch // the reference goes over to the segment
		s.logs = append(s.logs, w)
	}
	clear(j.touched)
	j.touched = j.touched[:0]
	j.mu.Unlock()

	start := time.Now()
	group = s.seal(group)
	err = s.write(group)
	took = time.Since(start)

	j.mu.Lock()
	j.spare = group
	j.leading = false
	if err != nil {
		j.fail(err)
		return 0, false
	}
	s.end += int64(len(group))
	s.sequence++
	j.total += int64(len(group))
	j.durable = handed
	j.changed.Broadcast()
	return took, true
}

// gather lets other callers that are about to sync share the group. It yields to them as long as more come and not all
// stores are there. It uses no timer, so a lone caller only pays for some calls of the scheduler.
func (j *Journal) gather() {
	for before := 0; before < j.waiting && j.waiting < len(j.stores); {
		before = j.waiting
		j.mu.Unlock()
		for range 8 {
			runtime.Gosched()
		}
		j.mu.Lock()
	}
}

// room returns a segment with room for the pending group: the current one or else the other one, as soon as that is
// free.
func (j *Journal) room() (*segment, error) {
	for j.err == nil {
		size := pages(len(j.pending))
		s := &j.segments[j.current]
		if s.end+size <= j.bytes {
			return s, nil
		}
		if pageBytes+size > j.bytes {
			return nil, fmt.Errorf("group of %d bytes, segments have %d", size, j.bytes)
		}
		if !j.turn() {
			j.changed.Broadcast() // the other segment is due, even if the current one was not nearly full before
			j.changed.Wait()
		}
	}
	return nil, j.err
}

// turn makes the other segment the current one, if it is free.
func (j *Journal) turn() bool {
	other := &j.segments[1-j.current]
	if !other.free {
		return false
	}
	other.free = false
	j.current = 1 - j.current
	j.changed.Broadcast()
	return true
}

// rest makes the segments give back unused space, if hardly any bytes were written since total was seen. It returns the
// present total.
func (j *Journal) rest(seen int64) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.quiet = j.total-seen <= extendBytes; j.quiet {
		j.changed.Broadcast()
	}
	idle := j.err == nil && !j.leading && j.segments[1-j.current].free // no caller uses a segment
	if j.quiet && idle && max(j.segments[0].size, j.segments[1].size) > min(2*extendBytes, j.bytes/8) {
		j.turn()
	}
	return j.total
}

// fail breaks the journal. Callers that wait, and all later ones, sync their own logs.
func (j *Journal) fail(err error) {
	if j.err == nil {
		j.err = fmt.Errorf("journal: %w", err)
	}
	j.changed.Broadcast()
}

// mend makes a broken journal whole again, as soon as it can, or returns when ctx ends. It waits before each try, and
// returns how long it would wait before another one. It releases the mutex.
func (j *Journal) mend(ctx context.Context, wait time.Duration) time.Duration {
	cause := j.err
	j.mu.Unlock()
	defer j.mu.Lock()
	j.onChange(cause)
	for {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return wait
		}
		wait = min(2*wait, mendLast)
		j.mu.Lock()
		err := j.renew()
		j.mu.Unlock()
		if err == nil {
			j.onChange(nil)
			return wait
		}
	}
}

// renew makes a broken journal whole again: once the logs have all that its segments hold, it begins anew, empty.
func (j *Journal) renew() error {
	for j.leading { // it has a segment in use
		j.changed.Wait()
	}
	if err := j.syncLogs(j.logs()); err != nil {
		return err
	}
	for _, w := range j.touched {
		w.pending = false
		w.refs--
	}
	clear(j.touched)
	j.pending, j.last, j.touched, j.waiting = append(j.pending[:0], zeros[:groupHeader]...), nil, j.touched[:0], 0
	if err := j.empty(); err != nil {
		return err
	}
	j.durable, j.err = j.handed, nil
	j.changed.Broadcast()
	return nil
}

// due reports whether the segment that is not in use should be made free: because the current one will soon be full, or
// because there are hardly any writes and it should become small.
func (j *Journal) due() bool {
	s := &j.segments[j.current]
	return j.err == nil && !j.segments[1-j.current].free && (j.quiet || s.end+pages(len(j.pending)) >= j.bytes/4*3)
}

// settle frees the segment that is not in use each time that it is due, until Close.
func (j *Journal) settle(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var mended time.Time // when the journal was mended last
	var wait time.Duration
	for {
		for ctx.Err() == nil && !j.due() && j.err == nil {
			j.changed.Wait()
		}
		if ctx.Err() != nil {
			return
		}
		if j.err != nil {
			if time.Since(mended) > mendLast {
				wait = j.patience
			}
			wait = j.mend(ctx, wait)
			mended = time.Now()
			continue
		}
		s := &j.segments[1-j.current]
		err := j.syncLogs(s.logs)
		if err == nil {
			err = j.clear(s, j.segments[j.current].epoch+1)
		}
		if err != nil {
			j.fail(err)
			continue
		}
		s.free = true
		j.changed.Broadcast()
	}
}
