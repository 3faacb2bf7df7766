package cluster

import (
	"io"
	"os"
	"testing"

	"neokv.dev/neokv/internal/multiraft"
)

func TestMain(m *testing.M) {
	multiraft.LogTo(io.Discard)
	os.Exit(m.Run())
}
