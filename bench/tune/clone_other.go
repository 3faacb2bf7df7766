//go:build !linux

package tune

import (
	"errors"
	"os"
)

func reflink(_, _ *os.File) error { return errors.ErrUnsupported }

func dropPages(string) error {
	return errors.New("only Linux can drop the pages of files from the page cache")
}
