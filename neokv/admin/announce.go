package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Announcement is what a process says of the control port that it serves. Its file is in a folder that only the user
// can enter, and only the user can read it. Whoever has it can ask the port.
type Announcement struct {
	Addr    string    `json:"addr"`
	Token   string    `json:"token"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Stores  []string  `json:"stores"` // their addresses
	Dir     string    `json:"dir"`    // of the data, empty in memory
}

const (
	announced = "control-" // a file's name begins so, then come the port and .json
	suffix    = ".json"
)

// Folder returns the folder of the announcements of this user: in XDG_RUNTIME_DIR, or else in the folder for temporary
// files. env looks up a variable of the environment.
func Folder(env func(string) string) string {
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "neokv")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("neokv-%d", os.Getuid()))
}

// Announce writes the announcement of a port that listens into a folder, and returns a function that removes it, and
// the folder with the last one.
func (p *Port) Announce(folder string, stores []string, dir string) (remove func() error, err error) {
	text, err := json.MarshalIndent(Announcement{Addr: p.Addr(), Token: p.token, PID: os.Getpid(),
		Started: time.Now().Truncate(time.Second), Stores: stores, Dir: dir}, "", "  ")
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(p.Addr(), ":")
	name := filepath.Join(folder, announced+port+suffix)
	for range 100 { // another process may remove the empty folder at any moment
		if err = os.MkdirAll(folder, 0o700); err == nil {
			if err = private(folder); err == nil {
				err = writePrivate(name, append(text, '\n'))
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("announce the control port: %w", err)
	}
	return func() error {
		err := os.Remove(name)
		os.Remove(folder) // fails while there are others
		return err
	}, nil
}

// writePrivate writes a file that only this user can read, whole or not at all.
func writePrivate(name string, text []byte) error {
	fresh := fmt.Sprintf("%s.%d", name, os.Getpid())
	err := os.WriteFile(fresh, text, 0o600)
	if err == nil {
		err = os.Rename(fresh, name)
	}
	if err != nil {
		os.Remove(fresh)
	}
	return err
}

// private returns an error unless only this user can enter a folder. Another user could have made it, in a folder that
// all users share.
func private(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	if !info.IsDir() || !ownedAlone(info) {
		return fmt.Errorf("%s: want a folder that belongs to this user, who alone can enter it (mode 0700)", folder)
	}
	return nil
}

// askWait is how long a control port has to show that it lives.
const askWait = 2 * time.Second

// Find returns the announcements whose control ports answer, by address. It removes those of processes that have ended
// without doing so.
func Find(ctx context.Context, folder string) (all []Announcement, err error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = private(folder)
	}
	if err != nil {
		return nil, fmt.Errorf("look for control ports: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), announced) || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		name := filepath.Join(folder, e.Name())
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its process has just ended
		}
		var a Announcement
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err != nil {
			return nil, fmt.Errorf("look for control ports: %s: %w", name, err)
		}
		asking, cancel := context.WithTimeout(ctx, askWait)
		_, err = a.Status(asking)
		cancel()
		switch {
		case err == nil:
			all = append(all, a)
		case errors.Is(err, syscall.ECONNREFUSED) && hasEnded(a.PID):
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("look for control ports: %w", err)
			}
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
	}
	slices.SortFunc(all, func(a, b Announcement) int { return strings.Compare(a.Addr, b.Addr) })
	return all, nil
}
