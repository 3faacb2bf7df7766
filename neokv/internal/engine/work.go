package engine

// Work counts what calls do, so that a call that does much can be ended: at bounded intervals it looks whether the call
// should go on. Views, batches and their iterators count by themselves; code that computes for long calls Spend.
//
// When Look or Halted says that the work is over, it stays over: iterators stand on nothing, they and other reads
// return the reason, and Spend returns false. What the call has replied or written by then means nothing. The caller of
// the call asks Ended, whatever the call itself returns.
//
// A nil Work counts nothing and never ends. A Work is not safe for concurrent use.
type Work struct {
	// Look returns why the work is over, nil if it goes on. Halted, unless it is nil, is asked first: Look is of who waits
	// for the call, Halted of what the call works on.
	Look, Halted func() error
	// Calls is how many calls have begun. Look sees by it that another one has.
	Calls int

	left  int   // units until the next look
	given int   // units that all looks so far have allowed
	ended error // what Look has returned
}

// A unit is about a tenth of a microsecond. A seek costs more than it takes if all blocks are cached, since it may wait
// for the disk.
const (
	seekUnits = 100
	stepUnits = 1
	unitBytes = 1 << 10 // as many bytes are read in a unit

	// A write is copied into the batch, which grows, and later into a memtable.
	writeUnits   = 2
	writtenBytes = 256 // as many bytes are written in a unit
)

// LookEvery is how many units of work lie between two looks: less than a millisecond, or 50 seeks. It is a variable for
// tests alone.
var LookEvery = 5000

// Spend counts n units, and returns false if the work is over.
func (w *Work) Spend(n int) bool {
	if w == nil {
		return true
	}
	if w.left -= n; w.left > 0 {
		return true
	}
	return w.look()
}

func (w *Work) look() bool {
	if w.ended == nil && w.Halted != nil {
		w.ended = w.Halted()
	}
	if w.ended == nil && w.Look != nil {
		w.ended = w.Look()
	}
	if w.ended != nil {
		w.given, w.left = w.given-w.left, 0
		return false
	}
	w.given, w.left = w.given+LookEvery-w.left, LookEvery
	return true
}

// Spent returns how many units have been counted.
func (w *Work) Spent() int { return w.given - w.left }

// Ended returns why the work is over, nil if it goes on.
func (w *Work) Ended() error {
	if w == nil {
		return nil
	}
	return w.ended
}

// Resume makes work that is over go on, for the next call.
func (w *Work) Resume() { w.ended = nil }

// Begin begins a call.
func (w *Work) Begin() {
	w.Calls++
	w.ended = nil
}
