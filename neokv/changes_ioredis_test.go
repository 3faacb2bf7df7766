package neokv

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestIORedisThroughSplitsAndMerges splits and merges regions 50 times under ioredis with its own defaults, which sees
// no error and no wrong reply:
//
//	npm install --prefix DIR ioredis
//	go test ./neokv -run IORedis -clients.node DIR -v
func TestIORedisThroughSplitsAndMerges(t *testing.T) {
	if *clientsNode == "" {
		t.Skip("no -clients.node")
	}
	c := start(t, Config{InMemory: true, Regions: 4})
	client := exec.CommandContext(t.Context(), "node", append([]string{"testdata/ioredis.js"}, c.Addrs()...)...)
	client.Env = append(os.Environ(), "NODE_PATH="+*clientsNode+"/node_modules")
	client.Stderr = os.Stderr
	in, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := client.StdoutPipe()
	if err == nil {
		err = client.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var rounds atomic.Int64 // in hundreds
	ended := make(chan string, 1)
	go func() {
		last := ""
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if last = lines.Text(); strings.HasPrefix(last, "rounds ") {
				rounds.Add(1)
			} else if !strings.HasPrefix(last, "end: ") {
				t.Error(last)
			}
		}
		ended <- last
	}()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	changeRegions(t, c, 50, rand.New(rand.NewPCG(seed, 0)), false, func(string) {
		want := rounds.Load() + 1
		waitFor(t, time.Minute, "rounds of ioredis", func() bool { return rounds.Load() >= want })
	})
	in.Close()
	last := <-ended
	if err := client.Wait(); err != nil || !strings.HasSuffix(last, " 0 errors") {
		t.Errorf("%v, %s", err, last)
	}
	t.Log(last)
}
