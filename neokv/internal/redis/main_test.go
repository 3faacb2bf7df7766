package redis

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a tenth less CPU; what a test holds is small
	os.Exit(m.Run())
}
