// Package direct gives a chat a cluster in the same process, without a connection: by Do, write batches and prefix
// scans.
package direct

import (
	"context"
	"errors"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/chat"
)

// ChatCalls is a chat.Database on a cluster.
type ChatCalls struct{ *neokv.Cluster }

func (x ChatCalls) Get(ctx context.Context, key string) (value string, found bool, err error) {
	reply, err := x.Do(ctx, "GET", key)
	value, found = reply.(string)
	return value, found, err
}

func (x ChatCalls) Scan(ctx context.Context, tag, prefix string, limit int) ([]chat.Stored, error) {
	found, err := x.ScanPrefix(ctx, tag, prefix, limit)
	all := make([]chat.Stored, len(found))
	for i, kv := range found {
		all[i] = chat.Stored{Key: kv.Key, Value: string(kv.Value)}
	}
	return all, err
}

func (x ChatCalls) Commit(ctx context.Context, writes []chat.Write) error {
	b := x.NewWriteBatch()
	for _, w := range writes {
		if w.Delete {
			b.Delete(w.Key)
		} else {
			b.Put(w.Key, []byte(w.Value), w.TTL)
		}
	}
	return b.Commit(ctx)
}

// Unknown is chat.Options.Unknown for errors of a cluster.
func Unknown(err error) bool { return errors.Is(err, neokv.ErrUnknownOutcome) }
