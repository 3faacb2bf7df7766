package neokv

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/settings"
)

// TestPartlyApplied sends commands for all regions through the proxy port while two of five stores are down, so that
// some regions have no quorum. A write is done where it can be, and the reply says that it was done in part; a read
// is an error as a whole. Each reply comes within one deadline, however many regions wait.
func TestPartlyApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		k := settings.Default()
		k.Cluster = settings.ClusterKnobs{Stores: 5, Replicas: 3, Regions: 5}
		k.Engine.MemtableSize, k.Engine.BlockCache = 5<<20, 1<<20
		c, err := Start(ctx, Config{InMemory: true, NoSockets: true, Settings: &k})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		nc, err := c.Dial(ctx, c.ProxyAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		in := bufio.NewReader(nc)
		ask := func(request string) (reply string, took time.Duration) {
			begin := time.Now()
			nc.SetDeadline(begin.Add(time.Minute))
			fmt.Fprintf(nc, "%s\r\n", request)
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("%.20s: %v", request, err)
			}
			return strings.TrimSpace(line), time.Since(begin)
		}
		var pairs, names string
		for i := range 40 { // some of each region
			pairs += fmt.Sprintf(" k%d %d", i, i)
			names += fmt.Sprintf(" k%d", i)
		}
		if got, _ := ask("MSET" + pairs); got != "+OK" {
			t.Fatalf("before: MSET: %s", got)
		}
		do(t, c, "stop 1,2")
		time.Sleep(10 * time.Second) // the regions with a quorum have leaders again
		const unserved = "CLUSTERDOWN Hash slot not served"
		for _, x := range []struct{ request, want string }{
			{"MSET" + strings.ReplaceAll(pairs, " k", " new:k"), "-ERR partly applied: " + unserved},
			{"MGET" + names, "-" + unserved},
			{"DEL" + names, "-ERR partly applied: " + unserved},
			{"EXISTS" + names, "-" + unserved},
		} {
			got, took := ask(x.request)
			if got != x.want || took > k.Redis.LeaderlessWait+time.Second {
				t.Errorf("%.20s...: %q after %v; want %q within %v", x.request, got, took, x.want,
					k.Redis.LeaderlessWait)
			}
		}
		written, deleted := 0, 0
		for i := range 40 {
			old, _ := ask(fmt.Sprintf("EXISTS k%d", i))
			set, _ := ask(fmt.Sprintf("EXISTS new:k%d", i))
			if old == ":0" {
				deleted++
			}
			if set == ":1" {
				written++
			}
		}
		if written == 0 || written == 40 || deleted == 0 || deleted == 40 {
			t.Errorf("%d of 40 keys were written and %d deleted, want a part of each", written, deleted)
		}
	})
}

// TestPipelinesOfCutWrites sends pipelines of writes through the proxy port, many of them for several regions, and
// compares the replies and the keys with a map: the writes of a pipeline take effect in order, though the proxy cuts
// them up by region.
func TestPipelinesOfCutWrites(t *testing.T) {
	c := start(t, Config{InMemory: true})
	nc, err := c.Dial(context.Background(), c.ProxyAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	model := map[string]int{}
	for value := 0; value < 3000; {
		var requests strings.Builder
		var want []string
		for range 1 + random.IntN(30) {
			keys := make([]string, 1+random.IntN(12))
			for i := range keys {
				keys[i] = fmt.Sprint("k", random.IntN(40))
			}
			value++
			switch random.IntN(5) {
			case 0:
				fmt.Fprintf(&requests, "SET %s %d\r\n", keys[0], value)
				model[keys[0]] = value
				want = append(want, "+OK")
			case 1:
				fmt.Fprintf(&requests, "%s %s\r\n", []string{"DEL", "UNLINK"}[value%2], strings.Join(keys, " "))
				before := len(model)
				for _, key := range keys {
					delete(model, key)
				}
				want = append(want, fmt.Sprintf(":%d", before-len(model)))
			case 2:
				fmt.Fprintf(&requests, "MSET %s 1 %s\r\n", keys[0], keys[0])
				want = append(want, "-ERR wrong number of arguments for 'mset' command")
			default:
				fmt.Fprintf(&requests, "MSET")
				for _, key := range keys {
					value++
					fmt.Fprintf(&requests, " %s %d", key, value)
					model[key] = value
				}
				fmt.Fprintf(&requests, "\r\n")
				want = append(want, "+OK")
			}
		}
		nc.SetDeadline(time.Now().Add(time.Minute))
		if _, err := nc.Write([]byte(requests.String())); err != nil {
			t.Fatal(err)
		}
		for i, want := range want {
			line, err := in.ReadString('\n')
			if err != nil || strings.TrimSpace(line) != want {
				t.Fatalf("seed %d: reply %d is %q, %v; want %q, to\n%s", seed, i, line, err, want, requests.String())
			}
		}
		for i := range 40 {
			key, want := fmt.Sprint("k", i), "$-1"
			fmt.Fprintf(nc, "GET %s\r\n", key)
			got, err := in.ReadString('\n')
			if err == nil && !strings.HasPrefix(got, "$-1") {
				got, err = in.ReadString('\n')
			}
			if v, ok := model[key]; ok {
				want = fmt.Sprint(v)
			}
			if err != nil || strings.TrimSpace(got) != want {
				t.Fatalf("seed %d: %s is %q, %v; want %s", seed, key, got, err, want)
			}
		}
	}
}
