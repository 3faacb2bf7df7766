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

func serveCommand(p process) *cobra.Command {
	var f clusterFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Boot a cluster and serve it until SIGTERM or Ctrl-C",
		Long: `Boot a cluster of stores in this process and serve it until SIGTERM or Ctrl-C.

Each store listens on a port of its own and speaks the Redis Cluster protocol; the proxy port takes any key. When every
slot is served, standard output has one line that begins with NEOKV_READY. Standard error has a line for each fault and
each failure, one for each command that clients call and NeoKV lacks, and what scripts log.`,
		Example: `  neokv serve
  neokv serve --dir ./data --stores 5 --regions 32
  neokv serve --mem --profile small --port 0
  neokv serve --set engine.memtable_size=256MiB --set raft.rtt=5ms`,
		Args: noArgs,
	}
	f.register(c, 7001, 7100)
	var control int
	c.Flags().IntVar(&control, "control-port", 0,
		"`port` on loopback by which neokv ctl reaches the cluster; 0 picks a free one")
	c.RunE = func(c *cobra.Command, _ []string) error { return serve(c, p, &f, control) }
	return c
}

func serve(c *cobra.Command, p process, f *clusterFlags, controlPort int) (err error) {
	ctx := c.Context()
	r, err := f.resolve(c, p.env)
	if err != nil {
		return err
	}
	config, err := f.config(c, r, func(step string) { fmt.Fprintln(p.stderr, "neokv:", step) })
	if err != nil {
		return err
	}
	if controlPort < 0 || controlPort > 65535 {
		return &usageError{fmt.Sprintf("--control-port %d: want 1 to 65535, or 0 for a free one", controlPort)}
	}
	events := make(chan string, 100) // more at once than people read
	config.OnEvent = func(e neokv.ClusterEvent) {
		switch e.Kind {
		case neokv.EventFault, neokv.EventClient, neokv.EventImpaired, neokv.EventScript:
			select {
			case events <- e.Text:
			default:
			}
		}
	}
	defer limitHeap(os.Getenv, config)()
	cluster, err := boot(ctx, config)
	if err != nil {
		if ctx.Err() != nil {
			return nil // a signal stopped the boot
		}
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	control, err := openControl(p, cluster, controlPort)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, control.close()) }()
	if where := whereData(cluster.Dir()); where != "" {
		fmt.Fprintln(p.stderr, "neokv:", where)
	}
	if _, err := fmt.Fprintln(p.stdout, readyLine(cluster), "control="+control.port()); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "neokv: try redis-cli -c -p %s, or redis-cli -p %s for all keys at one port; neokv ctl "+
		"shows and hurts the cluster\n", portOf(cluster.Addrs()[0]), portOf(cluster.ProxyAddr()))
	for {
		select {
		case <-ctx.Done():
			return nil
		case text := <-events:
			fmt.Fprintln(p.stderr, "neokv:", text)
		case err := <-cluster.Failed():
			fmt.Fprintln(p.stderr, "neokv:", err)
			failed := func(s neokv.StoreStatus) bool { return s.State == neokv.StateFailed }
			if stores := cluster.Status().Stores; !slices.ContainsFunc(stores,
				func(s neokv.StoreStatus) bool { return !failed(s) }) {
				return errors.New("no store is left")
			}
		}
	}
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
	var ports []string
	for _, addr := range c.Addrs() {
		ports = append(ports, portOf(addr))
	}
	status := c.Status()
	return fmt.Sprintf("NEOKV_READY port=%s ports=%s proxy=%s stores=%d regions=%d in=%.2fs",
		ports[0], strings.Join(ports, ","), portOf(c.ProxyAddr()), len(status.Stores), len(status.Regions),
		c.BootTime().Seconds())
}

func portOf(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err)
	}
	return port
}
