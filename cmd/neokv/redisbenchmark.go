package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"neokv.dev/bench/children"
	"neokv.dev/bench/redisbenchmark"
	"neokv.dev/profiles"
)

// redisBenchmarkFlags are the flags of redis-benchmark.
type redisBenchmarkFlags struct {
	rounds     int
	cluster    bool
	durability string
	spread     time.Duration
	profile    string
	set        []string
	dir        string
	format     string
}

func redisBenchmarkCommand(p process) *cobra.Command {
	var f redisBenchmarkFlags
	c := &cobra.Command{
		Use:                   "redis-benchmark [flags] [-- FLAGS]",
		Short:                 "Run redis-benchmark against a NeoKV and a redis-server, and compare",
		DisableFlagsInUseLine: true,
		Long: `Run the installed redis-benchmark against NeoKV and against redis-server, in turn, and compare their rates.

This command starts both sides itself, afresh in each round, and stops them. What follows -- goes to redis-benchmark:
its flags, and a command in place of its tests. With --cluster NeoKV is compared with a Redis Cluster of 3 masters and 3
replicas, too; then the key of a command must have {tag} in it, which redis-benchmark replaces. Beside each figure
stands what the same load does over keys of all slots, sent by NeoKV's own generator. The output says what
redis-benchmark does not. Standard output has the result alone; progress goes to standard error. Ctrl-C ends the run and
prints the rounds that are complete.`,
		Example: `  neokv redis-benchmark -- -t set,get -n 200000 -r 100000 -P 16
  neokv redis-benchmark --cluster --durability always --rounds 10 -- -t set -c 200 --threads 3
  neokv redis-benchmark --format md -- -n 50000 -r 1000 hset hash:__rand_int__ field value
  neokv redis-benchmark --cluster -- -n 1000000 -r 1000 hset hash:{tag}:__rand_int__ field value`,
		Args: func(c *cobra.Command, args []string) error {
			if n := c.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
				return &usageError{fmt.Sprintf("%sunexpected argument %q; flags of redis-benchmark follow --", verb(c), args[0])}
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.IntVar(&f.rounds, "rounds", 6, "`n`: how often to go through both sides; fewer than 6 give no interval")
	flags.BoolVar(&f.cluster, "cluster", false, "compare with a Redis Cluster, too")
	flags.StringVar(&f.durability, "durability", string(children.Always),
		"when both sides make a write durable, as redis-server means it: `none|everysec|always`")
	flags.DurationVar(&f.spread, "spread", time.Second,
		"how long NeoKV's own generator sends each test over all slots; 0 leaves that out")
	flags.StringVar(&f.profile, "profile", "default", "`profile` of NeoKV, by name or the path of a YAML file")
	setFlags(flags, &f.set, "change a setting of NeoKV")
	flags.StringVar(&f.dir, "dir", "", "`folder` for data, on the disk to measure (default the system's temporary one)")
	flags.StringVar(&f.format, "format", "table", "`format` of the output: "+strings.Join(redisbenchmark.Formats, ", "))
	c.RunE = func(c *cobra.Command, args []string) error { return f.run(c, p, args) }
	return c
}

func (f *redisBenchmarkFlags) run(c *cobra.Command, p process, args []string) error {
	o, err := f.parse(args, p.env)
	if err != nil {
		return err
	}
	o.Progress = func(line string) { fmt.Fprintln(p.stderr, line) }
	found, err := redisbenchmark.Run(c.Context(), o)
	if c.Context().Err() != nil {
		err = errors.New("interrupted")
	}
	if found != nil && found.Rounds > 0 {
		err = errors.Join(found.Print(p.stdout, f.format), err)
	}
	return err
}

// parse turns flags into options. Its error names everything that is wrong.
func (f *redisBenchmarkFlags) parse(args, env []string) (o redisbenchmark.Options, err error) {
	var wrong mistakes
	o = redisbenchmark.Options{
		Rounds: f.rounds, Cluster: f.cluster, Durability: children.Durability(f.durability), Spread: f.spread, Dir: f.dir,
		NeoKV: children.NeoKV{Profile: f.profile},
	}
	o.NeoKV.Set, _ = profiles.Split(f.set) // neither side has a password
	wrong.check(f.rounds >= 1 && f.rounds <= 1000, "--rounds %d: want 1 to 1000", f.rounds)
	wrong.check(slices.Contains(children.Durabilities, o.Durability), "--durability %s: want none, everysec or always",
		f.durability)
	wrong.check(f.spread == 0 || f.spread >= 100*time.Millisecond && f.spread <= time.Hour,
		"--spread %v: want 100ms to 1h, or 0 to leave it out", f.spread)
	wrong.add(checkForm(f.format, redisbenchmark.Formats))
	r, err := profiles.Resolve(profiles.ValueSources{Profile: f.profile, Env: env, Set: f.set})
	if err != nil {
		wrong.add(err)
	} else {
		wrong.check(r.Redis.RequirePass == "",
			"redis.requirepass: redis-server has no password here, so NeoKV must have none")
		wrong.check(r.Engine.WALDir == "",
			"engine.wal_dir: each round has a folder of its own, so its logs cannot be elsewhere")
		wrong.check(!r.Engine.Durable || o.Durability != children.None,
			"engine.durable: want --durability always or everysec")
		for _, set := range f.set {
			name, _, _ := strings.Cut(set, "=")
			wrong.check(strings.TrimSpace(name) != "engine.wal_sync", "--set %s: --durability says that", set)
		}
	}
	o.Load, err = redisbenchmark.ParseFlags(args)
	wrong.check(err == nil, "%v", err)
	if f.cluster {
		err = o.Load.CheckCluster()
		wrong.check(err == nil, "%v", err)
	}
	return o, errors.Join(wrong...)
}
