package neokv

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What tests know of the inside: the names in a data folder, and limits.
const (
	recordName     = "cluster.json"
	unsyncedName   = "UNSYNCED"
	unfinishedName = "UNFINISHED"
	unfinished     = ".unfinished"
	linksName      = "backup-links"
	backupsName    = "backups"
	noSocket       = "255.255.255.255"
	shownUnknown   = 100
	transferAgain  = 100 * time.Millisecond // how long a leader has for one attempt to hand over
)

// backupTo is Backup onto another file system.
func backupTo(ctx context.Context, c *Cluster, to vfs.FS, dir string) (time.Time, error) {
	return c.in.Inside().Backup(ctx, to, dir)
}
