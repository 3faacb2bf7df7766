package cluster

import (
	"context"
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/settings"
)

// small are settings for clusters in tests.
func small() *settings.Settings {
	s := settings.Default()
	s.Engine.MemtableSize, s.Engine.BlockCache = 12<<20, 12<<20
	return &s
}

// start boots a cluster, and closes it at the end of the test.
func start(t *testing.T, config Config) *Cluster {
	t.Helper()
	if config.Settings == nil {
		config.Settings = small()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := Start(ctx, config, new(seam.Hooks))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
