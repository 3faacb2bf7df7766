// Programs runs real clients and libraries, unmodified, against a NeoKV: examples of their own documentation, on the
// ports that docs/cluster.md names for them. It prints a line for each of them, and ends with 1 if one has failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// A program is a row of the table: a function for Go's, else a file that is run with the addresses in ADDRS.
type program struct {
	name  string
	of    string // what its version is that of: a Go module, a package of npm, a package of Debian
	ports string // which servers of servers.go it runs against
	run   func(ctx context.Context, addrs []string) error
	file  string
}

var programs = []program{
	{name: "go-redis", of: "github.com/redis/go-redis/v9", ports: "stores one", run: goRedis},
	{name: "rueidis", of: "github.com/redis/rueidis", ports: "stores proxy one", run: rueidisCalls},
	{name: "rueidis with its cache", of: "github.com/redis/rueidis", ports: "stores proxy one", run: rueidisCache},
	{name: "go-redis PubSub", of: "github.com/redis/go-redis/v9", ports: "stores proxy one", run: goRedisPubSub},
	{name: "rueidis Receive", of: "github.com/redis/rueidis", ports: "stores proxy one", run: rueidisPubSub},
	{name: "redigo", of: "github.com/gomodule/redigo", ports: "one", run: redigo},
	{name: "redislock", of: "github.com/bsm/redislock", ports: "stores proxy one", run: locker},
	{name: "redsync", of: "github.com/go-redsync/redsync/v4", ports: "stores proxy one", run: redSync},
	{name: "redis_rate", of: "github.com/go-redis/redis_rate/v10", ports: "stores proxy one", run: redisRate},
	{name: "limiter", of: "github.com/ulule/limiter/v3", ports: "stores proxy one", run: ululeLimiter},
	{name: "scs", of: "github.com/alexedwards/scs/v2", ports: "proxy one", run: sessions},
	{name: "ioredis", of: "ioredis", ports: "stores proxy one", file: "ioredis.mjs"},
	{name: "node-redis", of: "redis", ports: "stores proxy one", file: "node-redis.mjs"},
	{name: "its cache", of: "redis", ports: "proxy one", file: "node-redis-cache.mjs"},
	{name: "redlock", of: "redlock", ports: "one", file: "redlock.mjs"},
	{name: "rate-limiter-flexible", of: "rate-limiter-flexible", ports: "proxy one", file: "rate-limiter-flexible.mjs"},
	{name: "connect-redis", of: "connect-redis", ports: "proxy one", file: "connect-redis.mjs"},
	{name: "socket.io adapter", of: "@socket.io/redis-adapter", ports: "stores proxy one", file: "socket.io.mjs"},
	{name: "redis of Python", of: "python3-redis", ports: "one", file: "python-redis.py"},
	{name: "its cluster client", of: "python3-redis", ports: "stores", file: "python-redis-cluster.py"},
	{name: "rq", of: "python3-rq", ports: "one", file: "python-rq.py"},
	{name: "django-redis", of: "python3-django-redis", ports: "one", file: "python-django-redis.py"},
}

func main() {
	neokv := flag.String("neokv", "", "`path` of the program neokv; without, a real redis-server is asked")
	only := flag.String("run", "", "run only the programs whose name matches this `expression`")
	flag.Parse()
	if err := run(*neokv, regexp.MustCompile(*only)); err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		os.Exit(1)
	}
}

func run(neokv string, only *regexp.Regexp) error {
	servers, err := start(neokv)
	defer servers.stop()
	if err != nil {
		return err
	}
	failed := 0
	for _, p := range programs {
		if !only.MatchString(p.name) {
			continue
		}
		began := time.Now()
		outcome := "ok"
		for port := range strings.FieldsSeq(p.ports) {
			err := servers.empty(port)
			if err == nil {
				err = p.call(servers.addrs[port])
			}
			if err != nil {
				outcome = fmt.Sprintf("FAILED at %s: %v", port, err)
				failed++
				break
			}
		}
		fmt.Printf("%-21s %-9s %-16s %.1f s  %s\n", p.name, p.version(), p.ports, time.Since(began).Seconds(), outcome)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(programs))
	}
	return nil
}

func (p program) call(addrs []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if p.run != nil {
		return p.run(ctx, addrs)
	}
	interpreter := "node"
	if filepath.Ext(p.file) == ".py" {
		interpreter = "/usr/bin/python3" // the one that Debian's packages are for
	}
	c := exec.CommandContext(ctx, interpreter, p.file)
	c.Env = append(os.Environ(), "ADDRS="+strings.Join(addrs, ","))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func (p program) version() string {
	if p.run != nil {
		info, _ := debug.ReadBuildInfo()
		for _, m := range info.Deps {
			if m.Path == p.of {
				return m.Version
			}
		}
	}
	version := exec.Command("dpkg-query", "-W", "-f", "${Version}", p.of)
	if filepath.Ext(p.file) == ".mjs" {
		manifest := filepath.Join("node_modules", p.of, "package.json")
		version = exec.Command("node", "-p", "JSON.parse(fs.readFileSync(process.argv[1])).version", manifest)
	}
	out, err := version.Output()
	if err != nil {
		return "version unknown"
	}
	return strings.TrimSpace(string(out))
}
