//go:build !linux

package disk

import "errors"

// extend is known on Linux only.
func extend(fd uintptr, offset, length int64) error { return errors.ErrUnsupported }
