package neokv

import (
	"io"
	"os"
	"testing"
)

// TestMain silences the Raft library, and lets the test binary be the other processes that tests need.
func TestMain(m *testing.M) {
	LogRaft(io.Discard)
	os.Exit(m.Run())
}
