package neokv

import (
	"io"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	LogRaft(io.Discard)
	os.Exit(m.Run())
}
