package neokv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/settings"
)

// Image is the state of a cluster in memory at one instant: what all its stores have written, to their logs and as
// data. A cluster that Start boots from it begins as the first one would have begun after a power cut at that instant
// that took all stores and nothing that they had written. An image does not change, so any number of clusters may start
// from it, also at the same time. It shares its bytes with them and with the cluster that it was taken of.
type Image struct {
	cluster  [16]byte
	settings settings.Settings
	advanced time.Duration
	dirs     []string // the folder of each store on its disk
	disks    []*disk.FS
}

// Settings returns the settings of the cluster of which the image was taken.
func (i *Image) Settings() settings.Settings { return i.settings }

// Snapshot takes an image of the cluster, which must be one in memory. The stores that run first write their memtables
// to tables, so that clusters start from the image without reading logs; clients may go on writing. A store that does
// not run, is paused or has a bad disk is in the image with what is on its disk.
func (c *Cluster) Snapshot(ctx context.Context) (image *Image, err error) {
	switch {
	case ctx == nil:
		return nil, ErrNilContext
	case c.folder != nil:
		return nil, errors.New("snapshot: the cluster is not in memory; copy its folder while it is closed")
	case c.hooks.JournalBytes != nil:
		return nil, errors.New("snapshot: the stores share a journal")
	}
	err = c.change(ctx, func() error {
		errs := make([]error, len(c.nodes))
		var wg sync.WaitGroup
		for i, n := range c.nodes {
			if s := n.store.Load(); s != nil && n.diskIsGood() {
				wg.Go(func() { errs[i] = s.Flush(ctx) })
			}
		}
		wg.Wait()
		image = &Image{cluster: c.identity, settings: c.settings, advanced: time.Duration(c.advanced.Load())}
		disks := make([]*disk.FS, len(c.nodes))
		for i, n := range c.nodes {
			disks[i], image.dirs = n.FS(), append(image.dirs, n.dir)
		}
		image.disks = disk.Freeze(disks)
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return image, nil
}

// diskIsGood reports whether a store runs here whose disk does what it is asked: a flush may neither hang nor fail.
func (n *storePlace) diskIsGood() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.down && n.failure == nil && n.faults.process == "" && n.faults.drive == (fault.Drive{})
}

// checkFrom returns the settings for a cluster that starts from an image, or an error if it cannot start so.
func (config *Config) checkFrom(hooks *seam.Hooks) (settings.Settings, error) {
	from := config.From
	s := from.settings
	if config.Settings != nil {
		s = *config.Settings
		s.Cluster = from.settings.Cluster
	}
	asked, have := shape(settings.ClusterKnobs{
		Stores: config.Stores, Replicas: config.Replicas, Regions: config.Regions,
	}, from.settings.Cluster), from.settings.Cluster
	switch {
	case config.Dir != "":
		return s, fmt.Errorf("folder %s: a cluster that starts from an image is in memory", config.Dir)
	case hooks.JournalBytes != nil:
		return s, errors.New("a cluster that starts from an image has no journal")
	case asked != have:
		return s, fmt.Errorf("%d stores, %d replicas, %d regions: the image has %d, %d and %d",
			asked.Stores, asked.Replicas, asked.Regions, have.Stores, have.Replicas, have.Regions)
	}
	return s, nil
}
