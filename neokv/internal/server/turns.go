package server

import (
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// This file has the turns of reads with large replies: see ClientMemory.

// turns are the turns of one store.
type turns struct {
	taken chan struct{} // holds one for each executor that has a turn
	ended atomic.Uint64 // how many turns have ended so far
}

// moreOfReads is the More function of replies to reads. Without a turn it returns 0: the batch then waits for a turn
// and runs again.
func (e *executor) moreOfReads(n int) int {
	if e.turn == nil {
		select {
		case e.wanted.taken <- struct{}{}:
			e.turn = e.wanted
		default:
			e.wantsTurn = true
			return 0
		}
	}
	return e.out.More(n)
}

// awaitTurn waits for a turn. It returns false when the caller or the server ends first. It also returns false when
// no turn has ended for as long as the server's patience, since then the store's disk hangs.
func (e *executor) awaitTurn() bool {
	e.wantsTurn = false
	patience := e.patience()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		ended := e.wanted.ended.Load()
		select {
		case e.wanted.taken <- struct{}{}:
			e.turn = e.wanted
			return true
		case <-timer.C:
			if e.wanted.ended.Load() == ended {
				return false
			}
			timer.Reset(patience)
		case <-e.gone:
			return false
		case <-e.closing:
			return false
		}
	}
}

// endTurn gives the executor's turn back, if it has one.
func (e *executor) endTurn() {
	if e.turn != nil {
		e.turn.ended.Add(1)
		<-e.turn.taken
		e.turn = nil
	}
}

// collected is a Reply that collects keys before the caller knows how many there are.
func (e *executor) collected() redis.Reply { return redis.Reply{More: e.out.More} }

// append adds what was collected to the replies.
func (e *executor) append(r *redis.Reply) {
	e.out.Buf, e.out.Full = append(e.out.Buf, r.Buf...), e.out.Full || r.Full
}
