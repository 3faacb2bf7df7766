//go:build !linux

package disk

import "errors"

// allocate is known on Linux only.
func allocate(fd uintptr, from, to int64) error { return errors.ErrUnsupported }
