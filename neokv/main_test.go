package neokv

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // less CPU; what a small cluster holds is small
	os.Exit(m.Run())
}
