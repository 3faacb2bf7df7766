package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// servers are what programs run against:
//
//	stores    the ports of the stores of a cluster, for cluster clients
//	proxy     the proxy port of the same cluster
//	one       the proxy port of a cluster of one region that is never split, for programs that know nothing of clusters
//	replicas  the ports of the stores of a cluster with redis.follower_read, for clients that read at replicas
//
// Without neokv, stores is a real Redis Cluster, and proxy and one are redis-servers.
type servers struct {
	neokv     string
	addrs     map[string][]string
	controls  map[string]string // where neokv ctl reaches the cluster
	followed  int               // reads that followers of "replicas" had served when its keys were last deleted
	processes []*exec.Cmd
	folder    string
}

func start(neokv string) (*servers, error) {
	s := &servers{neokv: neokv, addrs: make(map[string][]string), controls: make(map[string]string)}
	if neokv == "" {
		return s, s.redis()
	}
	const one, replicas = "--regions 1 --set region.max_bytes=0", "--set redis.follower_read=true"
	for _, args := range []string{"", one, replicas} {
		all := append(strings.Fields("serve --mem --port 0 --proxy-port 0 --control-port 0"), strings.Fields(args)...)
		ready, err := s.start("NEOKV_READY", neokv, all...)
		if err != nil {
			return s, err
		}
		proxy := regexp.MustCompile(` proxy=(\d+)`).FindStringSubmatch(ready)
		control := regexp.MustCompile(` control=(\d+)`).FindStringSubmatch(ready)
		stores := regexp.MustCompile(` ports=(\S+)`).FindStringSubmatch(ready)
		cluster := "stores"
		switch args {
		case one:
			s.addrs["one"], s.controls["one"] = []string{"127.0.0.1:" + proxy[1]}, control[1]
			continue
		case replicas:
			cluster = "replicas"
		default:
			s.addrs["proxy"], s.controls["proxy"] = []string{"127.0.0.1:" + proxy[1]}, control[1]
		}
		s.controls[cluster] = control[1]
		for port := range strings.SplitSeq(stores[1], ",") {
			s.addrs[cluster] = append(s.addrs[cluster], "127.0.0.1:"+port)
		}
	}
	return s, nil
}

// start starts a process, and returns the line of its output that has a word in it.
func (s *servers) start(word, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir = s.folder
	if s.folder == "" {
		c.Stderr = os.Stderr
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := c.Start(); err != nil {
		return "", err
	}
	s.processes = append(s.processes, c)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), word) {
			return lines.Text(), nil
		}
	}
	return "", fmt.Errorf("%s %s ends without %q", name, strings.Join(args, " "), word)
}

func (s *servers) redis() error {
	var err error
	if s.folder, err = os.MkdirTemp("", "programs"); err != nil {
		return err
	}
	var all []string
	for i := range 5 {
		port, err := free()
		if err != nil {
			return err
		}
		args := []string{"--port", port, "--save", ""}
		if i < 3 {
			args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", port+".conf")
		}
		if _, err := s.start("Ready to accept connections", "redis-server", args...); err != nil {
			return err
		}
		all = append(all, "127.0.0.1:"+port)
	}
	s.addrs["stores"], s.addrs["proxy"], s.addrs["one"] = all[:3], all[3:4], all[4:]
	create := append([]string{"--cluster-yes", "--cluster", "create"}, all[:3]...)
	if out, err := exec.Command("redis-cli", create...).CombinedOutput(); err != nil {
		return fmt.Errorf("redis-cli --cluster create: %w\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, addr := range all[:3] {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		for !strings.Contains(client.ClusterInfo(ctx).Val(), "cluster_state:ok") {
			if ctx.Err() != nil {
				return errors.New("the Redis Cluster is not ready after a minute")
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// readAtFollowers returns an error unless followers of "replicas" have served reads since its keys were deleted.
func (s *servers) readAtFollowers() error {
	n, err := s.followerReads()
	if err == nil && n-s.followed < 20 {
		err = fmt.Errorf("followers have served %d reads", n-s.followed)
	}
	return err
}

func (s *servers) followerReads() (sum int, err error) {
	for _, addr := range s.addrs["replicas"] {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		info, err := client.Info(context.Background(), "neokv").Result()
		if err != nil {
			return 0, err
		}
		line := regexp.MustCompile(`(?m)^follower_reads:(\d+)`).FindStringSubmatch(info)
		if line == nil {
			return 0, errors.New("INFO neokv lacks follower_reads")
		}
		n, _ := strconv.Atoi(line[1])
		sum += n
	}
	return sum, nil
}

// empty deletes all keys.
func (s *servers) empty(port string) (err error) {
	if port == "replicas" {
		if s.followed, err = s.followerReads(); err != nil {
			return err
		}
	}
	for _, addr := range s.addrs[port] {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			return err
		}
	}
	return nil
}

// free returns a port whose cluster bus port is one, too.
func free() (string, error) {
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		defer l.Close()
		if port := l.Addr().(*net.TCPAddr).Port; port < 50000 {
			return fmt.Sprint(port), nil
		}
	}
}

func (s *servers) stop() {
	for _, c := range s.processes {
		c.Process.Signal(os.Interrupt)
		c.Wait()
	}
	if s.folder != "" {
		os.RemoveAll(s.folder)
	}
}
