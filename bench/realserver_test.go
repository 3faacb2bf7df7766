//go:build redisserver

package bench_test

import (
	"testing"

	"neokv.dev/bench"
	"neokv.dev/bench/children"
)

func init() {
	bench.StartServer = func(t *testing.T, cluster bool, args ...string) (addrs []string) {
		t.Helper()
		r, err := children.Start(t.Context(), t.TempDir(),
			children.Redis{Cluster: cluster, Durability: children.None, Args: args})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Kill(); err != nil {
				t.Error(err)
			}
		})
		addrs = r.Addrs()
		if cluster {
			addrs = addrs[:children.Masters]
		}
		return addrs
	}
}
