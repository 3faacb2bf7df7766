package multiraft

import (
	"errors"

	"github.com/lni/dragonboat/v4"
)

// What can become of a request. Errors of this package are one of these by errors.Is, with the library's text, or an
// error that no caller tells apart.
var (
	// ErrClosed: the host closes, or has no such replica. A proposal that was made has an unknown outcome.
	ErrClosed = errors.New("the replica is closed")
	// ErrBusy: a queue of the replica is full.
	ErrBusy = errors.New(dragonboat.ErrSystemBusy.Error())
	// ErrDropped: there is no leader, or not this replica, or it hands the leadership over. Nothing came into the log.
	ErrDropped = errors.New("the request was dropped")
	// ErrAborted: the region has no quorum at the moment, of a read index round.
	ErrAborted = errors.New("the request was aborted")
	// ErrTimeout: no answer in time. A proposal has an unknown outcome.
	ErrTimeout = errors.New("no answer in time")
)

// failure is an error of the library as one of ours.
type failure struct {
	kind  error
	cause error
}

func (f *failure) Error() string        { return f.cause.Error() }
func (f *failure) Is(target error) bool { return target == f.kind }

var failures = func() map[error]error {
	all := make(map[error]error)
	for kind, causes := range map[error][]error{
		ErrClosed:   {dragonboat.ErrClosed, dragonboat.ErrShardClosed, dragonboat.ErrShardNotFound},
		ErrBusy:     {dragonboat.ErrSystemBusy},
		ErrDropped:  {dragonboat.ErrShardNotReady, dragonboat.ErrShardNotInitialized},
		ErrAborted:  {dragonboat.ErrAborted},
		ErrTimeout:  {dragonboat.ErrTimeout, dragonboat.ErrTimeoutTooSmall, dragonboat.ErrCanceled},
		ErrRejected: {dragonboat.ErrRejected},
	} {
		for _, cause := range causes {
			all[cause] = &failure{kind, cause}
		}
	}
	return all
}()

// mapped returns an error of the library as one of ours. It allocates nothing.
func mapped(err error) error {
	if err == nil {
		return nil
	}
	if f, ok := failures[err]; ok {
		return f
	}
	return err
}

// Outcome returns nil if the request is done: the entry has been applied here, or a read may begin. Else it returns one
// of the errors above.
func Outcome(a Answer) error {
	switch {
	case a.Completed():
		return nil
	case a.Dropped():
		return ErrDropped
	case a.Terminated():
		return ErrClosed
	case a.Aborted():
		return ErrAborted
	default:
		return ErrTimeout
	}
}
