package neokv

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/settings"
)

// TestBatchAndScanPrefix sends both commands of NeoKV's own to every port: they are redirected and refused as others
// are, followers serve the scan, and readers see all of a batch or nothing.
func TestBatchAndScanPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		k := settings.Default()
		k.Cluster = settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 3}
		k.Engine.MemtableSize, k.Engine.BlockCache = 5<<20, 1<<20
		k.Redis.FollowerRead = true
		c, err := Start(ctx, Config{InMemory: true, NoSockets: true, Settings: &k})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		dial := func(addr string) (ask func(request string) string) {
			nc, err := c.Dial(ctx, addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nc.Close() })
			in := bufio.NewReader(nc)
			return func(request string) string {
				fmt.Fprintf(nc, "%s\r\n", request)
				v, err := redistest.Read(in)
				if err != nil {
					t.Fatalf("%.50s: %v", request, err)
				}
				return v.String()
			}
		}
		proxy := dial(c.ProxyAddr())
		const batch = "NEOKV BATCH SET {foo}b 1 set {foo}aa 2 psetex {foo}c 60000 3 pexpire {foo}b 60000 persist {foo}b"
		const scan = "neokv scanprefix foo {foo} 2 after {foo}a"
		const scanned = `["{foo}b" ["{foo}aa" "2" "{foo}b" "1"]]`
		for _, x := range []struct{ request, want string }{
			{batch, "OK"},
			{"neokv batch set a 1 set b 2", "CROSSSLOT Keys in request don't hash to the same slot"},
			{"neokv batch set a 1 set", "ERR syntax error"},
			{"neokv batch", "ERR syntax error"},
			{"exists a b", "0"},
			{scan, scanned},
		} {
			if got := proxy(x.request); got != x.want {
				t.Errorf("%s: %s; want %s", x.request, got, x.want)
			}
		}
		done, moved := 0, 0
		for _, addr := range c.Addrs() {
			ask := dial(addr)
			switch got := ask(batch); {
			case got == "OK":
				done++
			case strings.HasPrefix(got, "MOVED 12182 "):
				moved++
				if got := ask(scan); !strings.HasPrefix(got, "MOVED 12182 ") {
					t.Errorf("a scan where the batch has moved: %s", got)
				}
			default:
				t.Error(got)
			}
			if got := ask("READONLY"); got != "OK" {
				t.Fatal(got)
			}
			if got := ask(scan); got != scanned {
				t.Errorf("a scan at %s: %s; want %s", addr, got, scanned)
			}
			if got := ask("neokv batch set a"); got != "ERR syntax error" {
				t.Errorf("half an operation at %s: %s", addr, got)
			}
		}
		if done != 1 || moved != 2 {
			t.Errorf("%d stores ran the batch, %d redirected; want 1 and 2", done, moved)
		}

		const writes = 200
		var wg sync.WaitGroup
		write, read := dial(c.ProxyAddr()), dial(c.ProxyAddr())
		wg.Go(func() {
			for i := range writes {
				batch := fmt.Sprintf("neokv batch del {k}a set {k}b %d set {k}a %d set {k}cc %d", i, i, i)
				if got := write(batch); got != "OK" {
					t.Error(got)
					return
				}
			}
		})
		wg.Go(func() {
			for last := ""; last != fmt.Sprintf("%q", fmt.Sprint(writes-1)); {
				got := read("neokv scanprefix k {k} 10")
				words := strings.Fields(strings.Trim(strings.TrimPrefix(got, "[(nil) "), "[]"))
				if len(words) == 0 {
					continue
				}
				if last = words[len(words)-1]; !slices.Equal(words,
					[]string{`"{k}a"`, last, `"{k}b"`, last, `"{k}cc"`, last}) {
					t.Errorf("a batch in part: %s", got)
					return
				}
			}
		})
		wg.Wait()
	})
}
