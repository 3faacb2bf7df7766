//go:build unix

package neokv

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"neokv.dev/neokv/internal/topology"
)

// BenchmarkTransaction measures transactions and scripts beside what they are compared with, by 50 clients on sockets
// and three stores on disk with default settings. There are 100,000 keys, ten of a hash tag, in all slots; each call
// has a tag of its own:
//
//   - exec: MULTI, 10 SETs and EXEC in one pipeline, against mset: one MSET of as many keys; 1 or 16 of them at once;
//   - watch: WATCH, MULTI, GET, SET and EXEC, each sent when the one before is answered, against two-sets: two SETs.
//     What round trips alone cost stands beside both, as five-pings and two-pings;
//   - eval: EVAL that sets one key, against plain: SET; 16 at once.
//
// A fair comparison runs them in turn:
//
//	go test -c -o path.test ./neokv
//	for i in $(seq 12); do ./path.test -test.run '^$' -test.bench BenchmarkTransaction -test.benchtime 20000x; done
func BenchmarkTransaction(b *testing.B) {
	const tags, clients = pathKeys / 10, 50
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0)))) // as in the program
	c, err := Start(b.Context(), Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	table := c.in.Table()
	led := make([][]string, len(c.in.Places())) // tags, by the store that leads their slot
	for i := range tags {
		tag := fmt.Sprintf("{%d}", i)
		r, _ := table.Region(topology.SlotOf([]byte(tag)))
		led[r.Leader-1] = append(led[r.Leader-1], tag)
	}
	ten := func(each ...string) (words []string) {
		for i := range 10 {
			for _, word := range each {
				words = append(words, strings.Replace(word, "?", fmt.Sprint(i), 1))
			}
		}
		return words
	}
	pings := func(n int) func(string) []string {
		return func(string) []string { return slices.Repeat([]string{request("PING"), "+PONG\r\n"}, n) }
	}
	set := func(tag string, i int) string { return request("SET", fmt.Sprint(tag, i), pathText) }
	mset := func(tag string) []string {
		return []string{request(append([]string{"MSET"}, ten(tag+"?", pathText)...)...), "+OK\r\n"}
	}
	var loads sync.WaitGroup
	for i, tags := range led {
		loads.Go(func() {
			nc, err := net.Dial("tcp", c.Addrs()[i])
			if err != nil {
				b.Error(err)
				return
			}
			defer nc.Close()
			for part := range slices.Chunk(tags, 50) {
				if err := stepper(nc, together(part, mset))(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	loads.Wait()
	for _, x := range []struct {
		name   string
		atOnce int
		steps  func(tag string) []string // what to send and the reply, in turn
	}{
		{"exec", 1, tenSets(set)}, {"mset", 1, mset}, {"exec", 16, tenSets(set)}, {"mset", 16, mset},
		{"watch", 1, func(tag string) []string {
			return []string{request("WATCH", tag+"0"), "+OK\r\n", request("MULTI"), "+OK\r\n",
				request("GET", tag+"0"), "+QUEUED\r\n", set(tag, 0), "+QUEUED\r\n",
				request("EXEC"), "*2\r\n$64\r\n" + pathText + "\r\n+OK\r\n"}
		}},
		{"two-sets", 1, func(tag string) []string { return []string{set(tag, 0), "+OK\r\n", set(tag, 1), "+OK\r\n"} }},
		{"five-pings", 1, pings(5)}, {"two-pings", 1, pings(2)},
		{"eval", 16, func(tag string) []string {
			const script = "return redis.call('SET', KEYS[1], ARGV[1])"
			return []string{request("EVAL", script, "1", tag+"0", pathText), "+OK\r\n"}
		}},
		{"set", 16, func(tag string) []string { return []string{set(tag, 0), "+OK\r\n"} }},
	} {
		b.Run(fmt.Sprintf("%s/at-once=%d", x.name, x.atOnce), func(b *testing.B) {
			all := make([]func() error, clients)
			for i := range all {
				at := i % len(led)
				nc, err := net.Dial("tcp", c.Addrs()[at])
				if err != nil {
					b.Fatal(err)
				}
				defer nc.Close()
				random := rand.New(rand.NewPCG(1, uint64(i)))
				var calls []func() error // to choose from
				for range 32 {
					some := make([]string, x.atOnce)
					for k := range some { // no two clients have a tag in common, so nobody has a rival
						n := random.IntN(len(led[at])/clients)*clients + i
						some[k] = led[at][n%len(led[at])]
					}
					calls = append(calls, stepper(nc, together(some, x.steps)))
				}
				n := -1
				all[i] = func() error {
					n++
					return calls[n%len(calls)]()
				}
				if err := all[i](); err != nil {
					b.Fatal(err)
				}
			}
			before := pathCounts(b, c, nil)
			b.ResetTimer()
			sideBySide(b, b.N, x.atOnce, all)
			b.StopTimer()
			for unit, n := range pathCounts(b, c, nil) {
				b.ReportMetric(float64(n-before[unit])/float64(b.N), unit)
			}
		})
	}
}

// tenSets returns MULTI, ten SETs and EXEC, sent together, and their replies.
func tenSets(set func(tag string, i int) string) func(tag string) []string {
	return func(tag string) []string {
		send := request("MULTI")
		for i := range 10 {
			send += set(tag, i)
		}
		return []string{send + request("EXEC"),
			"+OK\r\n" + strings.Repeat("+QUEUED\r\n", 10) + "*10\r\n" + strings.Repeat("+OK\r\n", 10)}
	}
}

// request encodes a call.
func request(words ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return text
}

// together returns the steps of several tags, each step of all of them in one pipeline.
func together(tags []string, steps func(tag string) []string) (out []string) {
	for i, tag := range tags {
		for k, text := range steps(tag) {
			if i == 0 {
				out = append(out, "")
			}
			out[k] += text
		}
	}
	return out
}

// sideBySide has clients call side by side until they have made so many operations. A call counts for atOnce.
func sideBySide(b *testing.B, operations, atOnce int, clients []func() error) {
	var left atomic.Int64
	left.Store(int64(operations))
	var wg sync.WaitGroup
	for _, call := range clients {
		wg.Go(func() {
			for left.Add(-int64(atOnce)) > -int64(atOnce) {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// stepper returns a function that sends each text when the reply before has come.
func stepper(nc net.Conn, steps []string) func() error {
	room := make([]byte, 64<<10)
	send := make([][]byte, len(steps))
	for i, s := range steps {
		send[i] = []byte(s)
	}
	return func() error {
		for i := 0; i < len(steps); i += 2 {
			if _, err := nc.Write(send[i]); err != nil {
				return err
			}
			got := room[:len(steps[i+1])]
			if _, err := io.ReadFull(nc, got); err != nil || string(got) != steps[i+1] {
				return fmt.Errorf("reply %.200q, want %.200q; %v", got, steps[i+1], err)
			}
		}
		return nil
	}
}
