package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/neokv"
	"neokv.dev/neokv/settings"
	"neokv.dev/profiles"
)

// clusterFlags are the flags of every verb that boots a cluster.
type clusterFlags struct {
	profile         string
	set             []string
	bind            string
	port, proxyPort int
	dir             string
	mem, discard    bool
	rebuild         int // of serve
}

func (f *clusterFlags) register(c *cobra.Command, port, proxyPort int) {
	flags := c.Flags()
	flags.StringVar(&f.profile, "profile", "default", "`profile`: an embedded one by name, or the path of a YAML file")
	setFlags(flags, &f.set, "change a setting")
	settingFlag(flags, "stores", "cluster.stores")
	settingFlag(flags, "replicas", "cluster.replicas")
	settingFlag(flags, "regions", "cluster.regions")
	flags.StringVar(&f.bind, "bind", "127.0.0.1",
		"IP `address` to listen on; one beyond loopback needs redis.requirepass")
	flags.IntVar(&f.port, "port", port, "`port` of store 1, the others follow upwards, and replicas behind (redis.follower_read); 0 picks free ones")
	flags.IntVar(&f.proxyPort, "proxy-port", proxyPort, "`port` that takes any key; 0 picks a free one")
	flags.StringVar(&f.dir, "dir", "", "`folder` that keeps the data; without, a temporary one is removed at exit")
	flags.BoolVar(&f.mem, "mem", false, "keep the data in memory")
	flags.BoolVar(&f.discard, "discard", false, "empty a folder that was not closed cleanly under engine.wal_sync none")
}

// resolve works out the settings from the profile, the environment and the flags.
func (f *clusterFlags) resolve(c *cobra.Command, env []string) (*profiles.Resolved, error) {
	return profiles.Resolve(profiles.ValueSources{Profile: f.profile, Env: env, Set: f.set,
		Flags: givenSettings(c.Flags())})
}

// config turns flags and settings into what to boot. It passes a shape on only if the user asked for one, since a data
// folder records its own.
func (f *clusterFlags) config(c *cobra.Command, r *profiles.Resolved, progress func(string)) (neokv.Config, error) {
	if f.port == 0 && !c.Flags().Changed("proxy-port") {
		f.proxyPort = 0
	}
	if err := f.check(r.Settings); err != nil {
		return neokv.Config{}, err
	}
	if target := c.Flags().Lookup("target"); f.dir == "" && (target == nil || !target.Changed) {
		if err := neokv.CheckNoDir(r.Engine); err != nil {
			return neokv.Config{}, &usageError{err.Error() + ": want --dir"}
		}
	}
	asked := func(name string, value int) int {
		if r.Asked(name) {
			return value
		}
		return 0
	}
	return neokv.Config{
		Stores:    asked("cluster.stores", r.Cluster.Stores),
		Replicas:  asked("cluster.replicas", r.Cluster.Replicas),
		Regions:   asked("cluster.regions", r.Cluster.Regions),
		Dir:       f.dir,
		InMemory:  f.mem,
		Discard:   f.discard,
		Rebuild:   f.rebuild,
		Bind:      f.bind,
		Port:      f.port,
		ProxyPort: f.proxyPort,
		Settings:  &r.Settings,
		Seed:      r.Load.Seed,
		Progress:  progress,
	}, nil
}

// check refuses flags that are wrong whatever the state of the machine.
func (f *clusterFlags) check(s settings.Settings) error {
	if f.mem && f.dir != "" {
		return &usageError{"--dir and --mem exclude each other"}
	}
	if err := neokv.CheckBind(f.bind, s.Redis); err != nil {
		return &usageError{fmt.Sprintf("--bind %s: %v", f.bind, err)}
	}
	if err := neokv.CheckPorts(f.port, f.proxyPort, s); err != nil {
		return &usageError{err.Error()}
	}
	return nil
}

// boot boots a cluster. Where its ports are taken, the error says by whom and what helps.
func boot(ctx context.Context, config neokv.Config) (*neokv.Cluster, error) {
	c, err := neokv.Start(ctx, config)
	if taken := (*neokv.PortsTakenError)(nil); errors.As(err, &taken) {
		var ports []uint64
		for _, addr := range taken.Addrs {
			port, _ := strconv.ParseUint(portOf(addr), 10, 16)
			ports = append(ports, port)
		}
		for _, who := range holders(ports) {
			err = fmt.Errorf("%w; %s", err, who)
		}
		err = fmt.Errorf("%w; --port 0 picks free ones", err)
	}
	return c, err
}

// whereData returns a line that says where the data is, if it will not outlive the cluster, else "".
func whereData(dir string, temporary bool) string {
	switch {
	case dir == "":
		return "data in memory, gone at exit"
	case temporary:
		return "data in " + dir + ", removed at exit; --dir keeps it"
	}
	return ""
}

// settingFlag adds a flag for a setting. It takes help, range and default from the setting.
func settingFlag(flags *pflag.FlagSet, name, setting string) {
	r, err := profiles.Resolve(profiles.ValueSources{})
	if err != nil {
		panic(err) // the embedded profile is tested
	}
	f, err := settings.Find(r.Fields(), setting)
	if err != nil {
		panic(err)
	}
	kind := placeholders[f.Kind]
	switch setting {
	case "load.rate":
		kind = "plan"
	case "load.warmup":
		kind = placeholders[settings.KindDuration]
	}
	flags.Var(&settingValue{setting: setting, kind: kind, text: f.Get()}, name,
		fmt.Sprintf("%s (%s)", f.Help, f.Range))
}

// settingValue holds the text of a setting until the settings are resolved, when it is checked.
type settingValue struct{ setting, kind, text string }

// placeholders stand for a setting's value in help.
var placeholders = map[settings.ValueKind]string{
	settings.KindInt: "n", settings.KindText: "name", settings.KindBool: "bool", settings.KindBytes: "size",
	settings.KindDuration: "duration",
}

func (v *settingValue) String() string     { return v.text }
func (v *settingValue) Set(s string) error { v.text = s; return nil }
func (v *settingValue) Type() string       { return v.kind }

// givenSettings lists the setting flags that the command line has.
func givenSettings(flags *pflag.FlagSet) (out []profiles.Flag) {
	flags.Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*settingValue); ok {
			out = append(out, profiles.Flag{Flag: "--" + f.Name, Setting: v.setting, Value: v.text})
		}
	})
	return out
}
