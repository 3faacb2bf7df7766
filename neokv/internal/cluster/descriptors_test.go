package cluster

import (
	"fmt"
	"strings"
	"testing"

	"neokv.dev/neokv/settings"
)

// TestDivide divides limits of file descriptors at the default settings.
func TestDivide(t *testing.T) {
	for _, c := range []struct {
		limit           int
		onDisk, sockets bool
		transport       string
		want            string // limit, tables, clients; or part of the error
	}{
		{0, true, true, "memory", "{0 1024 40000}"},
		{1 << 20, true, true, "memory", "{1048576 1024 40000}"},
		{20_000, true, true, "memory", "{20000 1024 18815}"},
		{4096, true, true, "memory", "{4096 1024 2911}"},
		{1024, true, true, "memory", "{1024 615 247}"},
		{562, true, true, "memory", "{562 384 16}"},
		{561, true, true, "memory", "which need 562;"},
		{64, true, true, "memory", "best to 41185,"},
		{577, true, true, "tcp", "which need 649;"},
		{577, true, false, "memory", "{577 423 0}"},
		{64, false, true, "memory", "{64 1024 22}"},
		{64, false, false, "memory", "{64 1024 0}"},
	} {
		s := settings.Default()
		s.Raft.Transport = c.transport
		d, err := divide(c.limit, 10, s, c.onDisk, c.sockets)
		got := fmt.Sprint(d)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
