// Programs runs real clients and libraries, unmodified, against a NeoKV: examples of their own documentation, on the
// ports that docs/cluster.md names for them. It prints a line for each of them, and ends with 1 if one has failed.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// A program is a row of the table. Those that work go on for as long as they are told, also under faults.
type program struct {
	name  string
	of    string // what its version is that of: a Go module, a package of npm, a package of Debian
	ports string // which servers of servers.go it runs against
	run   func(ctx context.Context, addrs []string) error
	file  string // in place of run: what is run with the addresses in ADDRS
	work  func(ctx context.Context, s site) (did string, err error)
	works string // in place of work: what is run with FOR and HURT, too, whose last line says what it did
}

// A site is where a program works, and for how long.
type site struct {
	addrs []string
	time  time.Duration
	hurt  bool // stores are killed meanwhile, regions split and merge
}

var programs = []program{
	{name: "go-redis", of: "github.com/redis/go-redis/v9", ports: "stores one", run: goRedis},
	{name: "rueidis", of: "github.com/redis/rueidis", ports: "stores proxy one", run: rueidisCalls},
	{name: "rueidis with its cache", of: "github.com/redis/rueidis", ports: "stores proxy one", work: rueidisCache},
	{name: "go-redis PubSub", of: "github.com/redis/go-redis/v9", ports: "stores proxy one", work: goRedisPubSub},
	{name: "rueidis Receive", of: "github.com/redis/rueidis", ports: "stores proxy one", work: rueidisReceive},
	{name: "asynq", of: "github.com/hibiken/asynq", ports: "stores proxy one", work: asynqTasks},
	{name: "redigo", of: "github.com/gomodule/redigo", ports: "one", run: redigo},
	{name: "redislock", of: "github.com/bsm/redislock", ports: "stores proxy one", run: locker},
	{name: "redsync", of: "github.com/go-redsync/redsync/v4", ports: "stores proxy one", run: redSync},
	{name: "redis_rate", of: "github.com/go-redis/redis_rate/v10", ports: "stores proxy one", run: redisRate},
	{name: "limiter", of: "github.com/ulule/limiter/v3", ports: "stores proxy one", run: ululeLimiter},
	{name: "scs", of: "github.com/alexedwards/scs/v2", ports: "proxy one", run: sessions},
	{name: "ioredis", of: "ioredis", ports: "stores proxy one", file: "ioredis.mjs"},
	{name: "node-redis", of: "redis", ports: "stores proxy one", file: "node-redis.mjs"},
	{name: "its cache", of: "redis", ports: "proxy one", works: "node-redis-cache.mjs"},
	{name: "redlock", of: "redlock", ports: "one", file: "redlock.mjs"},
	{name: "rate-limiter-flexible", of: "rate-limiter-flexible", ports: "proxy one", file: "rate-limiter-flexible.mjs"},
	{name: "connect-redis", of: "connect-redis", ports: "proxy one", file: "connect-redis.mjs"},
	{name: "socket.io adapter", of: "@socket.io/redis-adapter", ports: "stores proxy one", works: "socket.io.mjs"},
	{name: "Bull", of: "bull", ports: "stores proxy one", works: "bull.mjs"},
	{name: "bee-queue", of: "bee-queue", ports: "proxy one", works: "bee-queue.mjs"},
	{name: "redis of Python", of: "python3-redis", ports: "one", file: "python-redis.py"},
	{name: "its cluster client", of: "python3-redis", ports: "stores", file: "python-redis-cluster.py"},
	{name: "go-redis at replicas", of: "github.com/redis/go-redis/v9", ports: "replicas", run: goRedisReplicas},
	{name: "rueidis at replicas", of: "github.com/redis/rueidis", ports: "replicas", run: rueidisReplicas},
	{name: "ioredis at replicas", of: "ioredis", ports: "replicas", file: "ioredis-replicas.mjs"},
	{name: "node-redis at replicas", of: "redis", ports: "replicas", file: "node-redis-replicas.mjs"},
	{name: "redis-py at replicas", of: "python3-redis", ports: "replicas", file: "python-redis-replicas.py"},
	{name: "rq", of: "python3-rq", ports: "one", file: "python-rq.py"},
	{name: "a reader of rq's queues", of: "python3-rq", ports: "one", works: "python-rq-reader.py"},
	{name: "Celery", of: "python3-celery", ports: "proxy one", works: "python-celery.py"},
	{name: "django-redis", of: "python3-django-redis", ports: "one", file: "python-django-redis.py"},
}

func main() {
	neokv := flag.String("neokv", "", "`path` of the program neokv; without, a real redis-server is asked")
	only := flag.String("run", "", "run only the programs whose name matches this `expression`")
	at := flag.String("at", ".", "and at the ports whose name matches this `expression`")
	hurt := flag.Duration("for", 0, "run only programs that work, each for this `time` at each port, under faults")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "`number` from which the faults are drawn")
	flag.Parse()
	r := runner{only: regexp.MustCompile(*only), at: regexp.MustCompile(*at), hurt: *hurt,
		random: rand.New(rand.NewPCG(*seed, 0))}
	if r.hurt > 0 {
		fmt.Println("seed", *seed)
	}
	if err := r.run(*neokv); err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		os.Exit(1)
	}
}

// quick is how long a program works where nothing is asked for.
const quick = 2 * time.Second

// A runner runs the programs of the table that its flags choose.
type runner struct {
	only, at *regexp.Regexp
	hurt     time.Duration
	random   *rand.Rand
	servers  *servers
}

func (r runner) run(neokv string) error {
	var err error
	r.servers, err = start(neokv)
	defer r.servers.stop()
	if err != nil {
		return err
	}
	failed := 0
	for _, p := range programs {
		works := p.work != nil || p.works != ""
		if !r.only.MatchString(p.name) || r.hurt > 0 && !works {
			continue
		}
		began := time.Now()
		outcome := "ok"
		var did []string
		for port := range strings.FieldsSeq(p.ports) {
			if !r.at.MatchString(port) {
				continue
			}
			if port == "replicas" && neokv == "" {
				outcome = "skipped: it counts follower_reads, which only NeoKV has"
				break
			}
			does, err := r.call(p, port)
			if err != nil {
				outcome = fmt.Sprintf("FAILED at %s: %v", port, err)
				failed++
				break
			}
			if does != "" {
				did = append(did, fmt.Sprintf("    %-6s  %s", port, does))
			}
		}
		fmt.Printf("%-23s %-9s %-16s %.1f s  %s\n", p.name, p.version(), p.ports, time.Since(began).Seconds(), outcome)
		if r.hurt > 0 {
			fmt.Println(strings.Join(did, "\n"))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(programs))
	}
	return nil
}

// call runs a program at one of its ports, and returns what it did and what was done to the cluster meanwhile.
func (r runner) call(p program, port string) (did string, err error) {
	if err := r.servers.empty(port); err != nil {
		return "", err
	}
	s := site{addrs: r.servers.addrs[port], time: max(quick, r.hurt), hurt: r.hurt > 0}
	// What a fault has interrupted some programs find out after minutes.
	ctx, cancel := context.WithTimeout(context.Background(), s.time+4*time.Minute)
	defer cancel()
	if !s.hurt {
		if did, err = p.call(ctx, s); err == nil && port == "replicas" {
			err = r.servers.readAtFollowers()
		}
		return did, err
	}
	f := faults{neokv: r.servers.neokv, control: r.servers.controls[port], whole: port == "one", random: r.random}
	hurting, end := context.WithTimeout(ctx, s.time)
	healed := make(chan error, 1)
	go func() { healed <- f.run(hurting) }()
	did, err = p.call(ctx, s)
	end()
	if err := errors.Join(err, <-healed); err != nil {
		return "", err
	}
	return did + "; " + f.String(), nil
}

// call runs a program, and returns what it did.
func (p program) call(ctx context.Context, s site) (did string, err error) {
	switch {
	case p.run != nil:
		return "", p.run(ctx, s.addrs)
	case p.work != nil:
		return p.work(ctx, s)
	}
	file, interpreter := cmp.Or(p.file, p.works), "node"
	if filepath.Ext(file) == ".py" {
		interpreter = "/usr/bin/python3" // the one that Debian's packages are for
	}
	c := exec.CommandContext(ctx, interpreter, file)
	c.Env = append(os.Environ(), "ADDRS="+strings.Join(s.addrs, ","), fmt.Sprint("FOR=", s.time.Seconds()))
	if s.hurt {
		c.Env = append(c.Env, "HURT=1")
	}
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, &out)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[len(lines)-1], nil
}

func (p program) version() string {
	if p.run != nil || p.work != nil {
		info, _ := debug.ReadBuildInfo()
		for _, m := range info.Deps {
			if m.Path == p.of {
				return m.Version
			}
		}
	}
	version := exec.Command("dpkg-query", "-W", "-f", "${Version}", p.of)
	if filepath.Ext(cmp.Or(p.file, p.works)) == ".mjs" {
		manifest := filepath.Join("node_modules", p.of, "package.json")
		version = exec.Command("node", "-p", "JSON.parse(fs.readFileSync(process.argv[1])).version", manifest)
	}
	out, err := version.Output()
	if err != nil {
		return "version unknown"
	}
	return strings.TrimSpace(string(out))
}
