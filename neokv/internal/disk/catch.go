package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CatchFolder is a store's folder of which Catch notes what it holds.
type CatchFolder struct {
	FS *FS
	At Places
	// Links is an empty folder on the file system of At.Store, LogLinks one on that of At.Logs; unused in memory.
	Links, LogLinks string
}

// Caught is a file as it was at the instant of a Catch.
type Caught struct {
	FS    vfs.FS
	Path  string // by which FS opens it: the bytes stay there, whatever the store does
	Name  string // its path in the store's folder; a log's as if it were beside the data
	Bytes int64  // how long it was; FS may have more
	// Fixed says that nobody writes to the file any more and all of it is synced. So a link is as good as a copy.
	Fixed bool
}

// patience is how long Catch waits for the disks to take what is being written.
const patience = time.Second

// Catch notes what several stores have in their folders, all as of one instant: what the end of the process would
// leave. It needs no space but for names, since it links files. The stores go on; pause is how long they could not
// write. Who has read a file may remove its link. No store may be killed or started until the files that are not Fixed
// are read.
func Catch(ctx context.Context, folders []CatchFolder) (files [][]Caught, pause time.Duration, err error) {
	files = make([][]Caught, len(folders))
	stores := make([]*FS, len(folders))
	for i := range folders {
		stores[i] = folders[i].FS
	}
	if len(folders) > 0 && folders[0].FS.mem != nil {
		begin := time.Now()
		copies := Freeze(stores)
		pause = time.Since(begin)
		for i := range folders {
			if files[i], err = folders[i].walk(copies[i].base, nil); err != nil {
				return nil, 0, err
			}
		}
		return files, pause, nil
	}
	all := func(look func(i int) error) error {
		errs := make([]error, len(folders))
		var wg sync.WaitGroup
		for i := range folders {
			wg.Go(func() { errs[i] = look(i) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	// First a link to each table that there is, so that few are left to link while all stores wait.
	linked := make([]map[string]bool, len(folders))
	err = all(func(i int) error {
		var tables []Caught
		tables, err := folders[i].walk(vfs.Default, func(name string) bool { return strings.HasSuffix(name, ".sst") })
		linked[i] = make(map[string]bool, len(tables))
		for k := 0; k < len(tables) && err == nil; k++ {
			f := &tables[k]
			if err = vfs.Default.Link(f.Path, folders[i].link(f.Name)); errors.Is(err, os.ErrNotExist) {
				err = nil // removed meanwhile
				continue
			}
			linked[i][f.Name] = true
		}
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("link: %w", err)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, 0, err
	}
	begin := time.Now()
	goOn, err := hold(stores)
	if err != nil {
		return nil, 0, err
	}
	err = all(func(i int) (err error) {
		growing := stores[i].unsynced.sizes()
		files[i], err = folders[i].walk(vfs.Default, nil)
		for k := 0; k < len(files[i]) && err == nil; k++ {
			f := &files[i][k]
			size, grows := growing[filepath.Clean(f.Path)]
			f.Bytes, f.Fixed = -1, !grows && strings.HasSuffix(f.Name, ".sst")
			if grows {
				f.Bytes = size
			}
			link := folders[i].link(f.Name)
			if !linked[i][f.Name] {
				err = vfs.Default.Link(f.Path, link)
			}
			f.Path = link
		}
		return err
	})
	goOn()
	pause = time.Since(begin)
	for i := range files {
		for k := 0; k < len(files[i]) && err == nil; k++ {
			if f := &files[i][k]; f.Bytes < 0 {
				var info vfs.FileInfo
				if info, err = vfs.Default.Stat(f.Path); err == nil {
					f.Bytes = info.Size()
				}
			}
		}
	}
	if err != nil {
		return nil, pause, fmt.Errorf("link: %w", err)
	}
	return files, pause, nil
}

// hold stops all changes of the stores' files, until the caller calls goOn.
func hold(stores []*FS) (goOn func(), err error) {
	held := make(chan *FS, len(stores))
	for _, f := range stores {
		go func() {
			f.still.Lock()
			held <- f
		}()
	}
	var mine []*FS
	goOn = func() {
		for _, f := range mine {
			f.still.Unlock()
		}
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for range stores {
		select {
		case f := <-held:
			mine = append(mine, f)
		case <-timeout.C:
			late := len(stores) - len(mine)
			go func() {
				for range late {
					(<-held).still.Unlock()
				}
			}()
			goOn()
			return nil, fmt.Errorf("a disk has not taken a write for %s", patience)
		}
	}
	return goOn, nil
}

// link is the path of the link to a file. All are in one folder, so that none has to be made while the stores wait.
func (c *CatchFolder) link(name string) string {
	links := c.Links
	if c.At.Logs != c.At.Engine && strings.HasSuffix(name, ".log") {
		links = c.LogLinks
	}
	return filepath.Join(links, strings.ReplaceAll(filepath.ToSlash(name), "/", "+"))
}

// walk returns the files of the folder with a name that want takes; nil takes all but locks, which hold nothing.
func (c *CatchFolder) walk(fs vfs.FS, want func(name string) bool) (files []Caught, err error) {
	engine, err := filepath.Rel(c.At.Store, c.At.Engine)
	if err != nil {
		return nil, err
	}
	var into func(dir, name string) error
	into = func(dir, name string) error {
		names, err := fs.List(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil // a store that has lost its folder
		}
		for _, base := range names {
			path, name := fs.PathJoin(dir, base), filepath.Join(name, base)
			if strings.HasSuffix(base, ".sst") || strings.HasSuffix(base, ".log") { // most files are
				if want == nil || want(base) {
					files = append(files, Caught{FS: fs, Path: path, Name: name})
				}
				continue
			}
			info, err := fs.Stat(path)
			switch {
			case errors.Is(err, os.ErrNotExist) && want != nil:
			case err != nil:
				return err
			case info.IsDir():
				if err := into(path, name); err != nil {
					return err
				}
			case base != "LOCK" && (want == nil || want(base)):
				files = append(files, Caught{FS: fs, Path: path, Name: name})
			}
		}
		return err
	}
	if err = into(c.At.Store, ""); err == nil && c.At.Logs != c.At.Engine {
		err = into(c.At.Logs, engine)
	}
	if err != nil || want != nil {
		return files, err
	}
	if _, memory := fs.(*memoryFS); memory {
		for i := range files {
			info, err := fs.Stat(files[i].Path)
			if err != nil {
				return nil, err
			}
			files[i].Bytes = info.Size()
		}
	}
	return files, nil
}

// sizes returns how long the files are that somebody may write, or that are not synced.
func (u *unsynced) sizes() map[string]int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[string]int64, len(u.files))
	for path, e := range u.files {
		all[filepath.Clean(path)] = e.written
	}
	return all
}
