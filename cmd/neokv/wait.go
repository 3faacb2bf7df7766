package main

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"neokv.dev/bench"
	"neokv.dev/profiles"
)

// waitFlags are the flags of wait.
type waitFlags struct {
	targetFlags
	timeout time.Duration
	set     []string
}

func waitCommand(p process) *cobra.Command {
	var f waitFlags
	c := &cobra.Command{
		Use:   "wait [TARGET...]",
		Short: "Wait until servers or clusters answer and serve",
		Long: `Wait until servers or clusters answer and serve: any Redis, a node of a Redis Cluster that knows all slots to be
served, or a port of neokv serve. Without a TARGET it waits for 127.0.0.1:7001.

` + targetHelp + `

The exit status is 0 when all serve, and 1 when the time is over; then standard error says what is missing. With
--timeout 0s it asks once, as a health check does.`,
		Example: `  neokv wait
  neokv wait 127.0.0.1:7001 127.0.0.1:7100 --timeout 30s
  neokv wait rediss://app@redis.example:6380 --cacert ca.pem --set-from password.txt
  neokv wait --timeout 0s 127.0.0.1:7001 && echo healthy`,
		RunE: func(c *cobra.Command, args []string) error { return f.wait(c, p, args) },
	}
	f.register(c.Flags(), "")
	setFlags(c.Flags(), &f.set, "change a setting; load.password alone counts here")
	c.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait; 0s asks once")
	return c
}

func (f *waitFlags) wait(c *cobra.Command, p process, args []string) error {
	if len(args) == 0 {
		args = []string{"127.0.0.1:7001"}
	}
	r, wrong := profiles.Resolve(profiles.ValueSources{Env: p.env, Set: f.set})
	if f.timeout < 0 {
		wrong = errors.Join(wrong, &usageError{fmt.Sprintf("--timeout %s: want 0s or more", f.timeout)})
	}
	password := ""
	if r != nil {
		password = cmp.Or(r.Load.Password, r.Redis.RequirePass) // of a health check beside serve, by its environment
	}
	addrs, logins, err := f.read(args, password)
	if wrong = errors.Join(wrong, err); wrong != nil {
		return wrong
	}
	late := time.Now().Add(f.timeout)
	missing := make([]error, len(addrs))
	var all sync.WaitGroup
	for i, addr := range addrs {
		all.Go(func() {
			if missing[i] = bench.AwaitServing(c.Context(), addr, logins[i], late); missing[i] != nil {
				missing[i] = fmt.Errorf("wait: %w", missing[i])
			}
		})
	}
	all.Wait()
	return errors.Join(missing...)
}
