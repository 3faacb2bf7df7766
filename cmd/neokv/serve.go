package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"neokv.dev/neokv"
	"neokv.dev/neokv/admin"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	clusterFlags
	control int
	exec    bool
}

func serveCommand(p process) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve [flags] [--exec -- CMD ARGS...]",
		Short: "Boot a cluster and serve it until SIGTERM or Ctrl-C, or while a command runs",
		Long: `Boot a cluster of stores in this process and serve it until SIGTERM or Ctrl-C.

Each store listens on a port of its own and speaks the Redis Cluster protocol; the proxy port takes any key. When every
slot is served, standard output has one line that begins with NEOKV_READY. Standard error has a line for each fault and
each failure, one for each command that clients call and NeoKV lacks, one for each parameter of CONFIG that they set and
that has no effect, and what scripts log.

With --exec the cluster serves while CMD runs, on free ports unless some are asked for, and the exit status is that of
CMD: 128 and the signal's number if a signal ended it, 127 if there is no such program, 126 if it cannot run. CMD has
the standard input, output and error of neokv, and finds the cluster in its environment: ` + execNames() + `.
Signals go on to CMD. What happened to the cluster is printed only if something fails: the boot, CMD or a store.`,
		Example: `  neokv serve
  neokv serve --dir ./data --stores 5 --regions 32
  neokv serve --mem --profile small --port 0
  neokv serve --set engine.memtable_size=256MiB --set raft.rtt=5ms
  neokv serve --mem --exec -- npm test`,
		Args: func(c *cobra.Command, args []string) error {
			if f.exec && c.ArgsLenAtDash() == 0 && len(args) > 0 {
				return nil
			}
			if f.exec {
				return &usageError{"serve --exec: want a command behind --, as in neokv serve --exec -- npm test"}
			}
			return noArgs(c, args)
		},
	}
	f.register(c, 7001, 7100)
	c.Flags().IntVar(&f.control, "control-port", 0,
		"`port` on loopback by which neokv ctl reaches the cluster; 0 picks a free one")
	c.Flags().IntVar(&f.rebuild, "rebuild", 0,
		"`store` to wipe if its folder lacks a part or all: it comes back empty, and gets its replicas anew from the others")
	c.Flags().BoolVar(&f.exec, "exec", false, "serve while the command behind -- runs, and end with its exit status")
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.exec {
			return f.execute(c, p, args)
		}
		return f.serve(c, p)
	}
	return c
}

// serve serves until the context ends or no store is left.
func (f *serveFlags) serve(c *cobra.Command, p process) (err error) {
	ctx := c.Context()
	events := make(chan string, 100) // more at once than people read
	onEvent := func(e neokv.ClusterEvent) {
		switch e.Kind {
		case neokv.EventFault, neokv.EventClient, neokv.EventImpaired, neokv.EventScript:
			select {
			case events <- e.Text:
			default:
			}
		}
	}
	cluster, control, stop, err := f.start(c, p, onEvent)
	if err != nil {
		if ctx.Err() != nil {
			return nil // a signal stopped the boot
		}
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if where := whereData(cluster.Dir()); where != "" {
		fmt.Fprintln(p.stderr, "neokv:", where)
	}
	if _, err := fmt.Fprintln(p.stdout, readyLine(cluster), "control="+control.port()); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "neokv: try redis-cli -c %s, or redis-cli %s for all keys at one port; neokv ctl "+
		"shows and hurts the cluster\n", cliFlags(cluster.Addrs()[0]), cliFlags(cluster.ProxyAddr()))
	for {
		select {
		case <-ctx.Done():
			return nil
		case text := <-events:
			fmt.Fprintln(p.stderr, "neokv:", text)
		case err := <-cluster.Failed():
			fmt.Fprintln(p.stderr, "neokv:", err)
			if err := anyLeft(cluster); err != nil {
				return err
			}
		}
	}
}

// anyLeft returns an error if all stores have failed.
func anyLeft(cluster *neokv.Cluster) error {
	works := func(s neokv.StoreStatus) bool { return s.State != neokv.StateFailed }
	if slices.ContainsFunc(cluster.Status().Stores, works) {
		return nil
	}
	return errors.New("no store is left")
}

// start boots the cluster of the flags and opens its control port. stop ends both.
func (f *serveFlags) start(c *cobra.Command, p process, onEvent func(neokv.ClusterEvent)) (cluster *neokv.Cluster,
	ctl control, stop func() error, err error) {
	r, err := f.resolve(c, p.env)
	if err != nil {
		return nil, ctl, nil, err
	}
	config, err := f.config(c, r, func(step string) { fmt.Fprintln(p.stderr, "neokv:", step) })
	if err != nil {
		return nil, ctl, nil, err
	}
	if f.control < 0 || f.control > 65535 {
		return nil, ctl, nil, &usageError{fmt.Sprintf("--control-port %d: want 1 to 65535, or 0 for a free one", f.control)}
	}
	config.OnEvent = onEvent
	unlimit := limitHeap(os.Getenv, config)
	if cluster, err = boot(c.Context(), config); err != nil {
		unlimit()
		return nil, ctl, nil, err
	}
	stop = func() error {
		defer unlimit()
		return errors.Join(ctl.close(), cluster.Close())
	}
	if ctl, err = openControl(p, cluster, f.control); err != nil {
		return nil, ctl, nil, errors.Join(err, stop())
	}
	return cluster, ctl, stop, nil
}

// control is the control port of a cluster, and its announcement.
type control struct {
	*admin.Port
	withdraw func() error
}

// openControl serves the control port of a cluster and announces it. Where it cannot be announced, nobody could use it,
// so there is none: a cluster serves its clients without one, too.
func openControl(p process, c *neokv.Cluster, port int) (control, error) {
	served, err := admin.Listen(c, port)
	if err != nil {
		return control{}, err
	}
	dir, _ := c.Dir()
	withdraw, err := served.Announce(admin.Folder(p.variable), c.Addrs(), dir)
	if err != nil {
		fmt.Fprintln(p.stderr, "neokv: no control port:", err)
		return control{}, served.Close()
	}
	return control{served, withdraw}, nil
}

// port is the port, "none" if there is none.
func (c control) port() string {
	if c.Port == nil {
		return "none"
	}
	return portOf(c.Addr())
}

func (c control) close() error {
	if c.Port == nil {
		return nil
	}
	return errors.Join(c.withdraw(), c.Port.Close())
}

// readyLine tells scripts that the cluster serves, and where.
func readyLine(c *neokv.Cluster) string {
	status := c.Status()
	replicas := portsOf(c.ReplicaAddrs())
	if replicas != "" {
		replicas = " replicas=" + replicas
	}
	return fmt.Sprintf("NEOKV_READY port=%s ports=%s%s proxy=%s stores=%d regions=%d in=%.2fs",
		portOf(c.Addrs()[0]), portsOf(c.Addrs()), replicas, portOf(c.ProxyAddr()), len(status.Stores), len(status.Regions),
		c.BootTime().Seconds())
}

// portsOf returns the ports of addresses with commas.
func portsOf(addrs []string) string {
	var ports []string
	for _, addr := range addrs {
		ports = append(ports, portOf(addr))
	}
	return strings.Join(ports, ",")
}

// cliFlags are the flags by which redis-cli connects to an address of this machine.
func cliFlags(addr string) string {
	host, port, _ := net.SplitHostPort(local(addr))
	if host == "127.0.0.1" {
		return "-p " + port
	}
	return "-h " + host + " -p " + port
}

func portOf(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err)
	}
	return port
}
