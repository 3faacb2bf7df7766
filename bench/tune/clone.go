package tune

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// cloneTree copies a folder with data of a stopped cluster. Tables become hard links: Pebble writes a table once, and
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
		case filepath.Ext(name) == ".sst":
			return os.Link(path, target)
		}
		return copyFile(path, target)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
