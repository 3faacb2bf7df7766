package lua

import (
	"container/list"
	"strings"
	"sync"
)

// MaxText is the longest text of a script, in bytes.
const MaxText = 1 << 20

// Bounds of Scripts.
const (
	maxScripts     = 10_000
	maxScriptBytes = 32 << 20
)

// Scripts is a bounded set of compiled scripts by their SHA1. Where there is no more room, the script goes that was not
// used for the longest time; those that were added to stay go only when no others are left. The zero value is empty. All
// methods may run concurrently.
type Scripts struct {
	mu          sync.Mutex
	bySHA       map[string]*list.Element // of *Script, in one of the lists
	stay, leave list.List                // the one that was used last at the front
	bytes       int
}

// Get returns a script, nil if there is none. sha is in any case, as SHA1 writes it otherwise.
func (s *Scripts) Get(sha string) *Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(sha)
	if e == nil {
		return nil
	}
	s.stay.MoveToFront(e) // one of the two has the element, and the other leaves it alone
	s.leave.MoveToFront(e)
	return e.Value.(*Script)
}

func (s *Scripts) find(sha string) *list.Element {
	if e := s.bySHA[sha]; e != nil {
		return e
	}
	return s.bySHA[strings.ToLower(sha)]
}

// Has reports whether there is a script. To ask is no use of it.
func (s *Scripts) Has(sha string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(sha) != nil
}

// Add adds a script, to stay or not. One that stays goes on to do so when it is added again.
func (s *Scripts) Add(x *Script, stay bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySHA == nil {
		s.bySHA = map[string]*list.Element{}
	}
	if old := s.bySHA[x.SHA]; old != nil {
		if !stay {
			return
		}
		s.leave.Remove(old) // as above
		s.stay.Remove(old)
	} else {
		s.bytes += x.Bytes()
	}
	to := &s.leave
	if stay {
		to = &s.stay
	}
	s.bySHA[x.SHA] = to.PushFront(x)
	for len(s.bySHA) > maxScripts || s.bytes > maxScriptBytes {
		oldest := s.leave.Back()
		if oldest == nil {
			oldest = s.stay.Back()
		}
		s.leave.Remove(oldest)
		s.stay.Remove(oldest)
		gone := oldest.Value.(*Script)
		delete(s.bySHA, gone.SHA)
		s.bytes -= gone.Bytes()
	}
}

// Flush removes all scripts.
func (s *Scripts) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bySHA, s.bytes = nil, 0
	s.stay.Init()
	s.leave.Init()
}

// Size returns how many scripts there are, and what they take of memory.
func (s *Scripts) Size() (scripts, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bySHA), s.bytes
}
