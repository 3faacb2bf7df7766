package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"neokv.dev/neokv"
)

func serveCommand(p process) *cobra.Command {
	var f clusterFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Boot a cluster and serve it until SIGTERM or Ctrl-C",
		Long: `Boot a cluster of stores in this process and serve it until SIGTERM or Ctrl-C.

Each store listens on a port of its own and speaks the Redis Cluster protocol; the proxy port takes any key. When every
slot is served, standard output has one line that begins with NEOKV_READY.`,
		Example: `  neokv serve
  neokv serve --dir ./data --stores 5 --regions 32
  neokv serve --mem --profile small --port 0
  neokv serve --set engine.memtable_size=256MiB --set raft.rtt=5ms`,
		Args: noArgs,
	}
	f.register(c, 7001, 7100)
	c.RunE = func(c *cobra.Command, _ []string) error { return serve(c, p, &f) }
	return c
}

func serve(c *cobra.Command, p process, f *clusterFlags) (err error) {
	ctx := c.Context()
	r, err := f.resolve(c, p.env)
	if err != nil {
		return err
	}
	config, err := f.config(c, r, func(step string) { fmt.Fprintln(p.stderr, "neokv:", step) })
	if err != nil {
		return err
	}
	defer limitHeap(os.Getenv, config)()
	cluster, err := neokv.Start(ctx, config)
	if err != nil {
		if ctx.Err() != nil {
			return nil // a signal stopped the boot
		}
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	if where := whereData(cluster.Dir()); where != "" {
		fmt.Fprintln(p.stderr, "neokv:", where)
	}
	if _, err := fmt.Fprintln(p.stdout, readyLine(cluster)); err != nil {
		return err
	}
	for alive := cluster.Shape().Stores; alive > 0; alive-- {
		select {
		case <-ctx.Done():
			return nil
		case err := <-cluster.Failed():
			fmt.Fprintln(p.stderr, "neokv:", err)
		}
	}
	return errors.New("no store is left")
}

// readyLine tells scripts that the cluster serves, and where.
func readyLine(c *neokv.Cluster) string {
	var ports []string
	for _, addr := range c.Addrs() {
		ports = append(ports, portOf(addr))
	}
	shape := c.Shape()
	return fmt.Sprintf("NEOKV_READY port=%s ports=%s proxy=%s stores=%d regions=%d in=%.2fs",
		ports[0], strings.Join(ports, ","), portOf(c.ProxyAddr()), shape.Stores, shape.Regions, c.BootTime().Seconds())
}

func portOf(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err)
	}
	return port
}
