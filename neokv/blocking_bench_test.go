//go:build unix

package neokv

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// BenchmarkBlocking measures what blocking pops cost, by clients on sockets and three stores on disk with default
// settings:
//
//   - served: one client waits in BLPOP, another pushes. commit-p50-us is the time from the push's commit, when the
//     leader begins to apply its entry, until the waiter has its reply; push-p50-us the time from then until the client
//     that pushes has its own; and sent-p50-us the time from the send of the push until the waiter has its reply.
//
//   - push: LPUSH and RPOP by 50 clients, 16 at once, in rounds of 20,000 without waiters and with 1,000 for other keys,
//     in turn: cpu-us/op, cpu-1000-us/op and their ratio are medians of the rounds.
//
//     go test -c -o path.test ./neokv
//     ./path.test -test.run '^$' -test.bench BenchmarkBlocking/served -test.benchtime 20000x
//     ./path.test -test.run '^$' -test.bench BenchmarkBlocking/push -test.benchtime 1000000x
func BenchmarkBlocking(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0)))) // as in the program
	hooks := new(seam.Hooks)
	var committed atomic.Int64 // when the leader began to apply the last entry with the mark
	var leader atomic.Uint32
	begin := time.Now()
	hooks.Region = region.Hooks{BeforeApply: func(id topology.StoreID, _ topology.RegionID, _, _ uint64, cmd []byte, _ error) {
		if uint32(id) == leader.Load() && bytes.Contains(cmd, []byte("a marked element")) {
			committed.Store(int64(time.Since(begin)))
		}
	}}
	c, err := Start(seam.With(b.Context(), hooks), Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	table := c.in.Table()
	dial := func(key string) net.Conn {
		r, _ := table.Region(topology.SlotOf([]byte(key)))
		nc, err := net.Dial("tcp", c.Addrs()[r.Leader-1])
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { nc.Close() })
		return nc
	}
	var ask []func(...string) (redistest.ReplyValue, error)
	for _, addr := range c.Addrs() {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { nc.Close() })
		ask = append(ask, commands(nc))
	}
	await := func(count int) { // until so many clients wait
		for n := -1; n != count; {
			n = 0
			for _, ask := range ask {
				info, err := ask("INFO", "clients")
				if err != nil {
					b.Fatal(err)
				}
				_, blocked, _ := strings.Cut(string(info.Text), "blocked_clients:")
				blocked, _, _ = strings.Cut(blocked, "\r\n")
				waiting, err := strconv.Atoi(blocked)
				if err != nil {
					b.Fatal(err)
				}
				n += waiting
			}
		}
	}
	b.Run("served", func(b *testing.B) {
		r, _ := table.Region(topology.SlotOf([]byte("served")))
		leader.Store(uint32(r.Leader))
		pop, push := dial("served"), dial("served")
		var afterCommit, pushed, sent []time.Duration
		popped := "*2\r\n$6\r\nserved\r\n$16\r\na marked element\r\n"
		for range b.N {
			io.WriteString(pop, request("BLPOP", "served", "0"))
			await(1)
			done := make(chan error)
			var got time.Duration
			go func() {
				room := make([]byte, len(popped))
				_, err := io.ReadFull(pop, room)
				got = time.Since(begin)
				if err == nil && string(room) != popped {
					err = fmt.Errorf("%q", room)
				}
				done <- err
			}()
			from := time.Since(begin)
			io.WriteString(push, request("LPUSH", "served", "a marked element"))
			if _, err := io.ReadFull(push, make([]byte, len(":1\r\n"))); err != nil {
				b.Fatal(err)
			}
			answered := time.Since(begin)
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			commit := time.Duration(committed.Load())
			afterCommit, pushed, sent = append(afterCommit, got-commit), append(pushed, answered-commit), append(sent, got-from)
		}
		for unit, all := range map[string][]time.Duration{
			"commit-p50-us": afterCommit, "push-p50-us": pushed, "sent-p50-us": sent,
		} {
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1000, unit)
		}
	})
	leader.Store(0)
	b.Run("push", func(b *testing.B) {
		const clients, pipeline, round, many = 50, 16, 20_000, 1000
		calls := make([]func() error, clients)
		for i := range calls {
			key := fmt.Sprint("push", i)
			calls[i] = stepper(dial(key), []string{
				strings.Repeat(request("LPUSH", key, pathText)+request("RPOP", key), pipeline/2),
				strings.Repeat(":1\r\n$64\r\n"+pathText+"\r\n", pipeline/2),
			})
		}
		push := func(waiters int) (cpu float64) {
			var all []net.Conn
			for i := range waiters {
				key := fmt.Sprint("other", i)
				all = append(all, dial(key))
				io.WriteString(all[i], request("BLPOP", key, "0"))
			}
			await(waiters)
			runtime.GC()
			b.StartTimer()
			before := pathCounts(b, c, nil)["cpu-us/op"]
			sideBySide(b, round, pipeline, calls)
			cpu = float64(pathCounts(b, c, nil)["cpu-us/op"]-before) / round
			b.StopTimer()
			for _, nc := range all {
				nc.Close()
			}
			await(0)
			return cpu
		}
		b.StopTimer()
		push(0) // behind which the stores have settled
		var without, with, ratios []float64
		for n := 0; n < b.N; n += 2 * round {
			order := []int{0, many}
			if n/round%4 == 2 {
				slices.Reverse(order)
			}
			cpu := map[int]float64{}
			for _, waiters := range order {
				cpu[waiters] = push(waiters)
			}
			without, with, ratios = append(without, cpu[0]), append(with, cpu[many]), append(ratios, cpu[many]/cpu[0])
		}
		for unit, all := range map[string][]float64{"cpu-us/op": without, "cpu-1000-us/op": with, "cpu-ratio": ratios} {
			slices.Sort(all)
			b.ReportMetric(all[len(all)/2], unit)
		}
	})
}
