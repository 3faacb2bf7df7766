// Package children starts what is to be measured as child processes of this one: NeoKV, a redis-server, or a Redis
// Cluster. It waits until they serve every slot, says what they use, and ends them. No child outlives this process,
// however that ends.
package children

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"neokv.dev/bench"
)

// Startable is what Start can start: a NeoKV, a Redis, or an Existing target.
type Startable interface {
	fmt.Stringer
	start(ctx context.Context, r *Running) error
}

const (
	startPatience = time.Minute      // until a target serves
	stopPatience  = 30 * time.Second // until a process that was asked to end has ended
)

// Running is a target that serves. Its methods may be called concurrently.
type Running struct {
	what     Startable
	folder   string // of this target alone
	addrs    []string
	proxy    string
	control  string
	password string
	children []*child
	// alive ends with the reason for which a process ended, or with errStopped.
	alive context.Context
	end   context.CancelCauseFunc
}

var errStopped = errors.New("stopped")

// Start starts a target and returns when it serves every slot, after a minute at the latest. Data and output are in a
// new folder below dir, or below the system's one for temporary files if dir is empty. The end of ctx ends the start,
// but not a target that has started. If Start returns an error, it has left no process and no folder behind.
func Start(ctx context.Context, dir string, what Startable) (*Running, error) {
	r := &Running{what: what}
	r.alive, r.end = context.WithCancelCause(context.Background())
	folder, err := os.MkdirTemp(dir, "neokv-child-")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	if r.folder, err = filepath.Abs(folder); err == nil {
		bounded, cancel := context.WithTimeoutCause(ctx, startPatience, errSlow)
		defer cancel()
		err = what.start(bounded, r)
	}
	if err == nil {
		for _, c := range r.children {
			go func() { r.end(c.reason()) }()
		}
		return r, nil
	}
	for _, c := range r.children {
		c.kill() // after that its log has all that it said
		late := errors.Is(err, errSlow) || errors.Is(err, context.DeadlineExceeded)
		if said := c.said(); late && said != "" {
			err = fmt.Errorf("%w\n%s said: %s", err, c, said)
		}
	}
	return nil, fmt.Errorf("start %s: %w", what, errors.Join(err, r.Kill()))
}

var errSlow = fmt.Errorf("not ready after %v", startPatience)

// Addrs returns the addresses of the nodes. The masters of a Redis Cluster come first.
func (r *Running) Addrs() []string { return r.addrs }

// Proxy returns the address that takes any key: a port of its own for NeoKV, the server itself for a redis-server. It
// is empty for a Redis Cluster.
func (r *Running) Proxy() string { return r.proxy }

// Control returns the control port of a NeoKV, as neokv ctl takes it.
func (r *Running) Control() string { return r.control }

// Password returns what a connection must send first, empty for none.
func (r *Running) Password() string { return r.password }

// Dir returns the folder that has data and output of the target. It goes with the target.
func (r *Running) Dir() string { return r.folder }

// Alive returns a context that ends when a process of the target has ended, or a caller begins to stop it.
func (r *Running) Alive() context.Context { return r.alive }

// Err says why a process has ended that nobody stopped, with the end of its output. It is nil while all run, and after
// Stop or Kill of a target that ran.
func (r *Running) Err() error {
	if err := context.Cause(r.alive); err != errStopped {
		return err
	}
	return nil
}

// Usage is what the processes of a target use.
type Usage struct {
	CPU    time.Duration // since they began, with that of their ended children
	Memory int64         // resident, in bytes
	// DiskReads is how many bytes the system has fetched from disks for them; what comes from the page cache is not in
	// it.
	DiskReads int64
}

func (u *Usage) add(of Usage) {
	u.CPU += of.CPU
	u.Memory += of.Memory
	u.DiskReads += of.DiskReads
}

// Use returns what all processes of the target use together.
func (r *Running) Use() (sum Usage, err error) {
	if len(r.children) == 0 {
		return sum, fmt.Errorf("use of %s: this process has not started it", r.what)
	}
	for _, c := range r.children {
		use, err := processUse(c.cmd.Process.Pid)
		if err != nil {
			return Usage{}, fmt.Errorf("use of %s: %w", c, errors.Join(err, r.Err()))
		}
		sum.add(use)
	}
	return sum, nil
}

// Stop asks all processes to end, waits for that, and removes the folder. It returns an error if one had ended before,
// ended with an error, or had to be killed.
func (r *Running) Stop() error {
	r.end(errStopped)
	wrong := []error{r.Err()}
	for _, c := range r.children {
		c.terminate()
	}
	late := time.NewTimer(stopPatience)
	defer late.Stop()
	for _, c := range r.children {
		select {
		case <-c.ended:
			if r.Err() == nil && c.err != nil {
				wrong = append(wrong, c.reason())
			}
		case <-late.C:
			late.Reset(0) // the others have had their time, too
			if !c.hasEnded() {
				wrong = append(wrong, fmt.Errorf("%s did not end within %v of SIGTERM and was killed", c, stopPatience))
				c.kill()
			}
		}
	}
	return errors.Join(append(wrong, os.RemoveAll(r.folder))...)
}

// Kill ends all processes at once, as kill -9 does, and removes the folder.
func (r *Running) Kill() error {
	r.end(errStopped)
	for _, c := range r.children {
		c.kill()
	}
	return os.RemoveAll(r.folder)
}

// spawn starts a process of the target. Its output and its working folder are below the target's folder.
func (r *Running) spawn(ctx context.Context, c *child) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	dir, err := os.MkdirTemp(r.folder, "process-")
	if err != nil {
		return err
	}
	if err := c.start(dir); err != nil {
		return err
	}
	r.children = append(r.children, c)
	return nil
}

// await asks until there is no error, while the target starts. It gives up when ctx ends or a process has ended.
func (r *Running) await(ctx context.Context, what string, ask func() error) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		for _, c := range r.children {
			if c.hasEnded() {
				return c.reason()
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// Existing is a target that runs already. Start only waits until it answers, and Stop leaves it alone.
type Existing struct {
	Addrs    []string
	Password string
}

func (e Existing) String() string { return strings.Join(e.Addrs, ",") }

func (e Existing) start(ctx context.Context, r *Running) error {
	if len(e.Addrs) == 0 {
		return errors.New("no address")
	}
	r.addrs, r.password = e.Addrs, e.Password
	for _, addr := range e.Addrs {
		info, err := bench.Fields(ctx, addr, e.Password, "INFO")
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		if info["cluster_enabled"] != "1" {
			r.proxy = e.Addrs[0]
			continue
		}
		serves := func() error { return bench.Serves(ctx, addr, bench.Login{Password: e.Password}) }
		if err := r.await(ctx, addr, serves); err != nil {
			return err
		}
	}
	return nil
}
