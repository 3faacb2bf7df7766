package neokv

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400)       // less CPU; what a small cluster holds is mostly small
	debug.SetMemoryLimit(3 << 30) // else 400 % of a large call would be as much as some machines have
	os.Exit(m.Run())
}
