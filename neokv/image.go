package neokv

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/cluster"
	"neokv.dev/neokv/settings"
)

// Image is the state of a cluster in memory at one instant: what all its stores have written, to their logs and as
// data. A cluster that Start boots from it begins as the first one would have begun after a power cut at that instant
// that took all stores and nothing that they had written. An image does not change, so any number of clusters may start
// from it, also at the same time. It shares its bytes with them and with the cluster that it was taken of.
type Image struct{ in *cluster.Image }

// OpenImage reads a folder that Cluster.Backup has made, or that a cluster has closed, into memory. The image needs the
// folder no more. Its settings are the default ones, with the shape of the folder.
func OpenImage(dir string) (*Image, error) { return openImage(vfs.Default, dir) }

func openImage(fsys vfs.FS, dir string) (*Image, error) {
	in, err := cluster.OpenImage(fsys, dir)
	if err != nil {
		return nil, err
	}
	return &Image{in}, nil
}

// Settings returns the settings of the cluster of which the image was taken.
func (i *Image) Settings() settings.Settings { return i.in.Settings() }

// Snapshot takes an image of the cluster, which must be one in memory. The stores that run first write their memtables
// to tables, so that clusters start from the image without reading logs; clients may go on writing. A store that does
// not run, is paused or has a bad disk is in the image with what is on its disk.
func (c *Cluster) Snapshot(ctx context.Context) (image *Image, err error) {
	if ctx == nil {
		return nil, ErrNilContext
	}
	in, err := c.in.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &Image{in}, nil
}
