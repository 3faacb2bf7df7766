package children

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// NeoKV is a cluster of NeoKV: neokv serve on free ports.
type NeoKV struct {
	Program string   // the neokv to start; empty for the program of this process
	Profile string   // empty for the default
	Set     []string // settings, name=value
	// Data is a folder with data to serve; the data stays when the target has ended. If it is empty, the target begins
	// without data.
	Data     string
	InMemory bool     // keep the data in memory; Data is empty then
	Env      []string // variables beside the environment of this process
	// Secrets are settings, name=value, that others must not see: they are neither arguments of the process nor in its
	// environment, but come through a pipe.
	Secrets  []string
	Password string // redis.requirepass, if the settings have one
}

func (n NeoKV) String() string {
	words := []string{"neokv"}
	if n.Program != "" {
		words[0] = n.Program
	}
	if n.Profile != "" {
		words = append(words, n.Profile)
	}
	return strings.Join(append(words, n.Set...), " ")
}

const readyWord = "NEOKV_READY"

func (n NeoKV) start(ctx context.Context, r *Running) error {
	program, err := locate(n.Program)
	if err != nil {
		return err
	}
	args := []string{"serve", "--port", "0"}
	if n.Profile != "" {
		profile := n.Profile
		if strings.ContainsRune(profile, filepath.Separator) || filepath.Ext(profile) != "" { // a file
			if profile, err = filepath.Abs(profile); err != nil {
				return err
			}
		}
		args = append(args, "--profile", profile)
	}
	if n.InMemory {
		args = append(args, "--mem")
	} else {
		data := filepath.Join(r.folder, "data")
		if n.Data != "" {
			if data, err = filepath.Abs(n.Data); err != nil {
				return err
			}
		}
		args = append(args, "--dir", data)
	}
	for _, set := range n.Set {
		args = append(args, "--set", set)
	}
	c := &child{program: program, args: args, env: n.Env}
	if len(n.Secrets) > 0 {
		c.args = append(c.args, "--set-from", pipePath)
		c.piped = strings.Join(n.Secrets, "\n") + "\n"
	}
	if err := r.spawn(ctx, c); err != nil {
		return err
	}
	r.password = n.Password
	var line string
	err = r.await(ctx, "boot", func() (err error) {
		line, err = c.line(readyWord)
		return err
	})
	if err != nil {
		return err
	}
	return r.readyAt(line)
}

// locate returns how to start a program from any folder. An empty name is this program.
func locate(program string) (string, error) {
	switch {
	case program == "":
		return os.Executable()
	case strings.ContainsRune(program, filepath.Separator):
		return filepath.Abs(program)
	}
	return program, nil // on the search path
}

// readyAt reads the addresses of the line that neokv serve prints when it serves every slot.
func (r *Running) readyAt(line string) error {
	local := func(port string) string { return net.JoinHostPort("127.0.0.1", port) }
	for _, field := range strings.Fields(line) {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "ports":
			for _, port := range strings.Split(value, ",") {
				r.addrs = append(r.addrs, local(port))
			}
		case "proxy":
			r.proxy = local(value)
		case "control":
			r.control = value
		}
	}
	if len(r.addrs) == 0 || r.proxy == "" {
		return fmt.Errorf("neokv serve printed %q, want ports= and proxy=", line)
	}
	return nil
}
