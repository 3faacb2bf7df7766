package disk

import (
	"errors"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A name is durable only when its folder has been synced. The functions in this file do that for folders and for small
// files, on any file system.

// MakeDir makes a folder and its parents, durably. It syncs each folder's name before it makes the next folder inside.
// So if the process is killed, only the last folder that it made may not be durable, and the next call syncs that one,
// too.
func MakeDir(fs vfs.FS, dir string) error {
	parent := fs.PathDir(dir)
	if parent == dir {
		return nil
	}
	_, err := fs.Stat(dir)
	made := errors.Is(err, os.ErrNotExist)
	if made {
		if err := MakeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err = SyncDir(fs, parent)
	if !made && errors.Is(err, os.ErrPermission) {
		return nil // an existing folder in a parent that we may not sync: its owner made it
	}
	return err
}

// SyncDir makes the names in a folder durable.
func SyncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// WriteFile writes a file durably, with all of its content. If it fails, the file that had the name before is still
// there.
func WriteFile(fs vfs.FS, dir, name string, content []byte) error {
	name = fs.PathJoin(dir, name)
	fresh := name + ".new"
	file, err := fs.Create(fresh, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = fs.Rename(fresh, name)
	}
	if err != nil {
		return errors.Join(err, fs.Remove(fresh))
	}
	return SyncDir(fs, dir)
}

// ReadFile returns a file's content.
func ReadFile(fs vfs.FS, name string) ([]byte, error) {
	file, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(file)
	return content, errors.Join(err, file.Close())
}
