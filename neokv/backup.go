package neokv

import (
	"context"
	"time"

	"neokv.dev/neokv/internal/cluster"
)

// Backup says what Cluster.Backup has made.
type Backup struct {
	Dir   string        `json:"dir"`
	Time  time.Time     `json:"time"`     // the instant as of which it is
	Pause time.Duration `json:"pause_ns"` // how long the stores could not write to their disks
	Took  time.Duration `json:"took_ns"`  // all of it
	Files int           `json:"files"`    // of all stores
	Bytes int64         `json:"bytes"`    // their size
	// Copied has the bytes of those that are copies. The others are links to the cluster's tables.
	Copied int64 `json:"copied"`
	// Down lists the stores that did not run. The backup has what they left on their disks.
	Down []int `json:"down"`
	// Swept is the folder of an earlier backup that did not end, and is removed; empty for none.
	Swept string `json:"swept,omitempty"`
}

// ErrBackup is in the error of a backup that cannot begin because another one of the cluster goes on.
var ErrBackup error = cluster.ErrBackup

// Backup copies the cluster, as of one instant, into a new folder, from which Start and OpenImage start a cluster. It
// has each write that was acknowledged before Backup was called, and with a write all that were acknowledged before
// that one was sent. Clients go on writing. The folder must not exist yet, or be empty. Where it is on the file system
// of the data folder it shares the tables, which take no space until the cluster drops them. A cluster in memory is
// written to the disk.
//
// If Backup fails, or ctx ends, it removes what it has made.
func (c *Cluster) Backup(ctx context.Context, dir string) (Backup, error) {
	if ctx == nil {
		return Backup{}, ErrNilContext
	}
	b, err := c.in.Backup(ctx, dir)
	return Backup(b), err
}
