//go:build !linux

package tune

import "errors"

func dropPages(string) error {
	return errors.New("only Linux can drop the pages of files from the page cache")
}
