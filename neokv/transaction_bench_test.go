//go:build unix

package neokv

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"neokv.dev/neokv/internal/topology"
)

// BenchmarkTransaction measures transactions and scripts beside what they are compared with, by clients on sockets, each with keys
// of one slot, and three stores on disk with default settings:
//
//   - exec: MULTI, 10 SETs and EXEC in one pipeline, against mset: one MSET of as many keys;
//   - eval: 16 EVALs in one pipeline that set one key each, against set16: 16 SETs;
//   - watch: WATCH, MULTI, GET, SET and EXEC, each sent when the one before is answered, against set: two SETs.
//
// A fair comparison runs them in turn:
//
//	for i in 1 2 3 4 5; do go test ./neokv -run '^$' -bench BenchmarkTransaction -benchtime 2s; done
func BenchmarkTransaction(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0)))) // as in the program
	c, err := Start(b.Context(), Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	table := c.proxyTable()
	for _, clients := range []int{1, 16} {
		for _, x := range []struct {
			name  string
			steps func(tag string) []string // what to send and the reply, in turn
		}{
			{"exec", func(tag string) []string {
				return []string{"MULTI\r\n" + tenTimes("SET "+tag+"? "+pathText+"\r\n") + "EXEC\r\n",
					"+OK\r\n" + strings.Repeat("+QUEUED\r\n", 10) + "*10\r\n" + strings.Repeat("+OK\r\n", 10)}
			}},
			{"mset", func(tag string) []string {
				return []string{"MSET" + tenTimes(" "+tag+"? "+pathText) + "\r\n", "+OK\r\n"}
			}},
			{"eval", func(tag string) []string {
				return []string{strings.Repeat("EVAL \"return redis.call('SET', KEYS[1], ARGV[1])\" 1 "+tag+"0 "+pathText+"\r\n",
					16), strings.Repeat("+OK\r\n", 16)}
			}},
			{"set16", func(tag string) []string {
				return []string{strings.Repeat("SET "+tag+"0 "+pathText+"\r\n", 16), strings.Repeat("+OK\r\n", 16)}
			}},
			{"watch", func(tag string) []string {
				return []string{"WATCH " + tag + "0\r\n", "+OK\r\n", "MULTI\r\n", "+OK\r\n",
					"GET " + tag + "0\r\n", "+QUEUED\r\n", "SET " + tag + "0 " + pathText + "\r\n", "+QUEUED\r\n",
					"EXEC\r\n", "*2\r\n$64\r\n" + pathText + "\r\n+OK\r\n"}
			}},
			{"set", func(tag string) []string {
				set := "SET " + tag + "0 " + pathText + "\r\n"
				return []string{set, "+OK\r\n", set, "+OK\r\n"}
			}},
		} {
			b.Run(fmt.Sprintf("%s/clients=%d", x.name, clients), func(b *testing.B) {
				all := make([]func() error, clients)
				for i := range all {
					tag := fmt.Sprintf("{%d}", i)
					r, _ := table.Region(topology.SlotOf([]byte(tag)))
					nc, err := net.Dial("tcp", c.Addrs()[r.Leader-1])
					if err != nil {
						b.Fatal(err)
					}
					defer nc.Close()
					all[i] = stepper(nc, x.steps(tag))
					if x.name == "watch" {
						fmt.Fprintf(nc, "SET %s0 %s\r\n", tag, pathText)
						io.ReadFull(nc, make([]byte, len("+OK\r\n")))
					}
					if err := all[i](); err != nil {
						b.Fatal(err)
					}
				}
				before := pathCounts(b, c, nil)
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var wg sync.WaitGroup
				for _, step := range all {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if err := step(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				for unit, n := range pathCounts(b, c, nil) {
					b.ReportMetric(float64(n-before[unit])/float64(b.N), unit)
				}
			})
		}
	}
}

// tenTimes returns a text ten times, with a digit for "?".
func tenTimes(text string) (all string) {
	for i := range 10 {
		all += strings.Replace(text, "?", fmt.Sprint(i), 1)
	}
	return all
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
