package neokv

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/fault"
)

// oldFolder is a data folder of format 6, in which each region has a data space of its own. The program of commit
// eba1d66 has written it, and was killed:
//
//	go test ./neokv -run TestOldFolder -old.program=PATH -old.make
var (
	oldFolder  = filepath.Join("testdata", "folder-6.tar.gz")
	oldProgram = flag.String("old.program", "", "neokv program of the time of testdata/folder-6.tar.gz")
	oldMake    = flag.Bool("old.make", false, "have -old.program make the folder anew")
)

// oldCommands are the commands that have made what oldFolder holds.
func oldCommands() (all [][]any) {
	add := func(words ...any) { all = append(all, words) }
	for i := range 150 {
		add("SET", fmt.Sprint("s", i), fmt.Sprint("v", i))
	}
	for i := range 20 {
		add("HSET", fmt.Sprint("h", i), "a", i, "b", "text", fmt.Sprint("f", i), "")
		add("SADD", fmt.Sprint("set", i), "x", "y", i)
		add("RPUSH", fmt.Sprint("l", i), "first", i, "last")
		add("ZADD", fmt.Sprint("z", i), "-0", "zero", 1.5, "half", "+inf", "top", -i, "low")
		add("SET", fmt.Sprint("e", i), i, "PXAT", 4102444800000+i) // in the year 2100
		add("INCRBY", fmt.Sprint("n", i%7), i)
	}
	long := strings.Repeat("a long string lies in pieces; ", 3000)
	add("SET", "long", long)
	add("APPEND", "long", "and its end")
	for i := range 400 {
		if i%100 == 0 {
			for _, c := range []string{"RPUSH biglist", "SADD bigset", "ZADD bigz", "SADD gone"} {
				add(strings.Fields(c)[0], strings.Fields(c)[1])
			}
		}
		for j, words := range [][]any{{i}, {i}, {i % 37, i}, {i}} {
			at := len(all) - 4 + j
			all[at] = append(all[at], words...)
		}
	}
	add("DEL", "gone") // its elements are reclaimed in the background
	add("ZREM", "bigz", 200)
	add("LSET", "biglist", 200, "here")
	add("PEXPIREAT", "h3", 4102444800000)
	add("RENAME", "s149", "{s149}renamed")
	for i := range 50 {
		add("DEL", fmt.Sprint("s", 2*i))
	}
	add("SET", "expired", 1, "PX", 1)
	return all
}

// oldContents reads all keys: each with its value, and when it expires.
func oldContents(t *testing.T, r *redis.Client) map[string]string {
	t.Helper()
	ctx := t.Context()
	got := make(map[string]string)
	for it := r.Scan(ctx, 0, "*", 100).Iterator(); it.Next(ctx); {
		key := it.Val()
		kind, err := r.Type(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		read := map[string][]any{
			"string": {"GET", key}, "hash": {"HGETALL", key}, "set": {"SMEMBERS", key}, "list": {"LRANGE", key, 0, -1},
			"zset": {"ZRANGE", key, 0, -1, "WITHSCORES"}, "none": {"EXISTS", key},
		}[kind]
		value, err := r.Do(ctx, read...).Result()
		if err != nil {
			t.Fatal(err)
		}
		if members, ok := value.([]any); ok && kind == "set" {
			slices.SortFunc(members, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		if kind != "none" {
			got[key] = fmt.Sprint(kind, " ", value, " ", r.PExpireTime(ctx, key).Val())
		}
	}
	return got
}

// TestOldFolder opens a folder of format 6. It has all that was written to it. Its regions split, and merge with what
// they have split off, but not with regions of other data spaces. The program that has written it refuses it then.
func TestOldFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	if *oldMake {
		makeOldFolder(t)
	}
	dir := t.TempDir()
	unpack(t, oldFolder, dir)
	if r := recordOf(t, dir); r.Format != 6 {
		t.Fatalf("the folder has format %d; want 6", r.Format)
	}
	fresh := start(t, Config{InMemory: true, Regions: 2})
	model := proxyClient(t, fresh)
	for _, c := range oldCommands() {
		if err := model.Do(t.Context(), c...).Err(); err != nil {
			t.Fatalf("%v: %v", c[:2], err)
		}
	}
	var c *Cluster
	var r *redis.Client
	open := func() {
		c = start(t, Config{Dir: dir})
		r = proxyClient(t, c)
	}
	check := func(when string) {
		t.Helper()
		want, got := oldContents(t, model), oldContents(t, r)
		delete(want, "expired") // it may go at this moment
		delete(got, "expired")
		for key, value := range want {
			if got[key] != value {
				t.Fatalf("%s: %s is %.100q; want %.100q", when, key, got[key], value)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%s: %d keys; want %d", when, len(got), len(want))
		}
	}
	do := func(text, problem string) {
		t.Helper()
		f, err := fault.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		switch _, err := c.Inject(t.Context(), f); {
		case problem == "" && err != nil:
			t.Fatal(err)
		case problem != "" && (err == nil || err.Error() != text+": "+problem):
			t.Fatalf("%v; want %s: %s", err, text, problem)
		}
	}
	spaces := func(left, right int) string {
		return fmt.Sprintf("regions %[1]d and %[2]d have different data spaces (%[1]d and %[2]d): their folder is of an "+
			"older format, in which each region has its own", left, right)
	}
	both := func(words ...any) {
		t.Helper()
		a, err := model.Do(t.Context(), words...).Result()
		b, err2 := r.Do(t.Context(), words...).Result()
		if err := errors.Join(err, err2); err != nil || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("%v: %v and %v, %v", words, a, b, err)
		}
	}

	open()
	check("opened")
	if got := recordOf(t, dir); got.Format != 7 || !got.OwnSpaces || got.Regions != 4 {
		t.Errorf("the record is %+v; want format 7 and own spaces", got)
	}
	do("merge 1", spaces(1, 2))
	do("merge 4", "region 4 has the last slot: there is no region to its right")
	do("split 1 1000", "")
	do("split 2", "")
	check("split")
	do("merge 1", "")
	do("merge 1", spaces(1, 2))
	for i := range 150 {
		both("APPEND", fmt.Sprint("s", i), "+")
	}
	both("DEL", "bigset", "z1", "z2", "z3")
	check("merged and written to")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}

	open()
	check("opened again")
	do("merge 2", "")
	do("merge 2", spaces(2, 3))
	do("split 3", "")
	check("merged again")
	do("kill all", "")
	do("heal", "")
	awaitHealth(t, c)
	check("after a power cut")
	status := c.Status()
	if n := len(status.Regions); n != 5 {
		t.Errorf("%d regions; want 5", n)
	}
	for _, s := range r.Do(t.Context(), "NEOKV", "CHECKSUM").Val().([]any) {
		if text := fmt.Sprint(s); !strings.Contains(text, "replicas equal") && !strings.Contains(text, "replicas:equal") {
			t.Errorf("checksum: %s", text)
		}
	}
	both("FLUSHALL")
	check("flushed")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if *oldProgram == "" {
		return
	}
	out, err := exec.CommandContext(t.Context(), *oldProgram, "serve", "--dir", dir, "--port", "0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "format 7") {
		t.Errorf("the old program: %v, %s; want that it refuses format 7", err, out)
	}
	t.Logf("%s", out)
}

// awaitHealth waits for Cluster.WaitHealthy.
func awaitHealth(t *testing.T, c *Cluster) {
	t.Helper()
	waitFor(t, 30*time.Second, "a healthy cluster", func() bool { return c.ailing() == "" })
	if err := c.WaitHealthy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// proxyClient returns a client of the proxy port, which lives as long as the test.
func proxyClient(t *testing.T, c *Cluster) *redis.Client {
	r := redis.NewClient(&redis.Options{Addr: c.ProxyAddr(), Protocol: 2, ReadTimeout: time.Minute})
	t.Cleanup(func() { r.Close() })
	return r
}

func recordOf(t *testing.T, dir string) (r folderRecord) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// makeOldFolder has the old program make a folder: snapshot records cut the logs, a store gets a snapshot, and the
// process is killed.
func makeOldFolder(t *testing.T) {
	dir := t.TempDir()
	p := exec.CommandContext(t.Context(), *oldProgram, "serve", "--dir", dir, "--port", "0", "--regions", "4",
		"--set", "raft.snapshot_entries=20", "--set", "engine.memtable_size=1MiB")
	runtime := "XDG_RUNTIME_DIR=" + t.TempDir()
	p.Env = append(os.Environ(), runtime)
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var proxy string
	for lines := bufio.NewScanner(out); proxy == "" && lines.Scan(); {
		for _, word := range strings.Fields(lines.Text()) {
			if port, ok := strings.CutPrefix(word, "proxy="); ok {
				proxy = port
			}
		}
	}
	go io.Copy(io.Discard, out)
	r := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + proxy})
	defer r.Close()
	ctl := func(words ...string) {
		c := exec.CommandContext(t.Context(), *oldProgram, append([]string{"ctl"}, words...)...)
		c.Env = append(os.Environ(), runtime)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("ctl %v: %v, %s", words, err, out)
		}
	}
	for i, c := range oldCommands() {
		switch i {
		case 100:
			ctl("kill", "3")
		case 200:
			ctl("restart", "3")
		}
		if err := r.Do(t.Context(), c...).Err(); err != nil {
			t.Fatalf("%v: %v", c[:2], err)
		}
	}
	p.Process.Kill()
	p.Wait()
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	w := tar.NewWriter(z)
	err = errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), z.Close(), os.MkdirAll(filepath.Dir(oldFolder), 0o777),
		os.WriteFile(oldFolder, packed.Bytes(), 0o666))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d bytes", oldFolder, packed.Len())
}

// unpack unpacks an archive into a folder.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		path := filepath.Join(dir, h.Name)
		switch {
		case err != nil:
		case h.FileInfo().IsDir():
			err = os.MkdirAll(path, 0o777)
		default:
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				err = os.MkdirAll(filepath.Dir(path), 0o777)
			}
			if err == nil {
				err = os.WriteFile(path, text, fs.FileMode(0o666))
			}
		}
		if err != nil {
			t.Fatalf("unpack %s: %v", archive, err)
		}
	}
}
