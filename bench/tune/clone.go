package tune

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// cloneTree copies a folder with data of a stopped cluster. Where the file system can, a file of the copy shares its
// blocks with the original until one of them changes. Else tables become hard links: Pebble writes a table once, and
// then only removes its name. All other files are copied.
func cloneTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case !entry.Type().IsRegular():
			return nil // such as a socket; a store's folder has none
		}
		return cloneFile(path, target)
	})
}

// table is how the names of files with tables end.
const table = ".sst"

func cloneFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	if reflink(in, out) == nil {
		return out.Close()
	}
	if filepath.Ext(from) == table {
		if err := errors.Join(out.Close(), os.Remove(to)); err != nil {
			return err
		}
		return os.Link(from, to)
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
