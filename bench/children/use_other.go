//go:build !linux

package children

import (
	"errors"
	"runtime"
)

func processUse(int) (Usage, error) {
	return Usage{}, errors.New("known on Linux only, not on " + runtime.GOOS)
}
