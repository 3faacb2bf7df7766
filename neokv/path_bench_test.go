//go:build unix

package neokv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"neokv.dev/neokv/internal/topology"
)

const (
	pathKeys  = 100_000
	pathValue = 64
)

// BenchmarkSet measures the whole path of a SET: clients on sockets and three stores on disk with default settings,
// all in this process.
//
//	go test ./neokv -run '^$' -bench 'Benchmark(Set|Get|Incr|Zadd)$' -benchtime 3s
//
// Time, CPU, allocations and bytes are of the whole process; clients allocate nothing. Reads and writes are system
// calls of the servers on sockets and files: those that Linux counts for the process, less those that the clients
// have made. Syncs are from INFO. Other system calls are not counted.
func BenchmarkSet(b *testing.B) { benchmarkPath(b, pathSet, pathSet) }

// BenchmarkGet measures the path of a GET of a key that exists.
func BenchmarkGet(b *testing.B) { benchmarkPath(b, pathSet, pathGet) }

// BenchmarkIncr measures the path of an INCR of a counter that exists.
func BenchmarkIncr(b *testing.B) { benchmarkPath(b, pathCounter, pathIncr) }

// BenchmarkZadd measures the path of a ZADD that moves the one member of a sorted set.
func BenchmarkZadd(b *testing.B) { benchmarkPath(b, pathMember, pathZadd) }

// pathCall is a call of one key: the words before and behind the key, and the reply, in which a 0 is any digit. A
// "?" behind the key is a digit, drawn anew for each call.
type pathCall struct{ before, behind, reply string }

var (
	pathText    = strings.Repeat("x", pathValue)
	pathSet     = pathCall{"*3\r\n$3\r\nSET\r\n", "$64\r\n" + pathText + "\r\n", "+OK\r\n"}
	pathGet     = pathCall{"*2\r\n$3\r\nGET\r\n", "", "$64\r\n" + pathText + "\r\n"}
	pathCounter = pathCall{"*3\r\n$3\r\nSET\r\n", "$10\r\n1000000000\r\n", "+OK\r\n"}
	pathIncr    = pathCall{"*2\r\n$4\r\nINCR\r\n", "", ":1000000000\r\n"}
	pathMember  = pathCall{"*4\r\n$4\r\nZADD\r\n", "$1\r\n0\r\n$6\r\nmember\r\n", ":0\r\n"}
	pathZadd    = pathCall{"*4\r\n$4\r\nZADD\r\n", "$1\r\n?\r\n$6\r\nmember\r\n", ":0\r\n"}
)

// benchmarkPath measures calls of keys that loads have made.
func benchmarkPath(b *testing.B, loads, calls pathCall) {
	// As in the program: a sync must not stall the other stores.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0))))
	c, err := Start(b.Context(), Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	keys := make([][]int, len(c.in.Places())) // by the store that leads them
	table := c.in.Table()
	for k := range pathKeys {
		r, _ := table.Region(topology.SlotOf(appendPathKey(nil, k)[5:21]))
		keys[r.Leader-1] = append(keys[r.Leader-1], k)
	}
	loadPath(b, c, keys, loads)
	for _, x := range []struct{ clients, pipeline int }{{1, 1}, {50, 1}, {50, 16}} {
		b.Run(fmt.Sprintf("clients=%d/pipeline=%d", x.clients, x.pipeline), func(b *testing.B) {
			clients := make([]*pathClient, x.clients)
			for i := range clients {
				at := i % len(c.in.Places())
				clients[i] = newPathClient(b, c.Addrs()[at], keys[at], uint64(i), x.pipeline, calls)
				defer clients[i].nc.Close()
			}
			for _, client := range clients {
				client.batch(b) // makes leases and buffers
			}
			before := pathCounts(b, c, clients)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, client := range clients {
				wg.Go(func() {
					for left.Add(-int64(x.pipeline)) > -int64(x.pipeline) && client.batch(b) {
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			for unit, n := range pathCounts(b, c, clients) {
				b.ReportMetric(float64(n-before[unit])/float64(b.N), unit)
			}
		})
	}
}

// loadPath calls each key once, 500 in a pipeline.
func loadPath(b *testing.B, c *Cluster, keys [][]int, calls pathCall) {
	var wg sync.WaitGroup
	for i, keys := range keys {
		for keys := range slices.Chunk(keys, (len(keys)+2)/3) {
			wg.Go(func() {
				for keys := range slices.Chunk(keys, 500) {
					client := newPathClient(b, c.Addrs()[i], keys, 0, len(keys), calls)
					client.inOrder = true
					client.batch(b)
					client.nc.Close()
				}
			})
		}
	}
	wg.Wait()
}

// appendPathKey appends a key of 16 bytes, with its length before it.
func appendPathKey(out []byte, k int) []byte {
	out = append(out, "$16\r\nkey:000000"...)
	for unit := pathKeys; unit > 0; unit /= 10 {
		out = append(out, byte('0'+k/unit%10))
	}
	return append(out, "\r\n"...)
}

// pathClient sends pipelines to one store and counts the system calls that it makes.
type pathClient struct {
	nc       net.Conn
	raw      syscall.RawConn
	keys     []int
	random   *rand.Rand
	call     pathCall
	pipeline int
	inOrder  bool   // it calls the keys in order, else any
	want     []byte // the replies

	out, in       []byte // the bytes still to send, and room for the replies
	reply         []byte
	err           error
	send, receive func(fd uintptr) bool
	reads, writes int64
}

func newPathClient(b *testing.B, addr string, keys []int, seed uint64, pipeline int, call pathCall) *pathClient {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	c := &pathClient{nc: nc, keys: keys, random: rand.New(rand.NewPCG(1, seed)), call: call, pipeline: pipeline}
	if c.raw, err = nc.(*net.TCPConn).SyscallConn(); err != nil {
		b.Fatal(err)
	}
	c.want = bytes.Repeat([]byte(call.reply), pipeline)
	c.reply = make([]byte, len(c.want))
	c.send = func(fd uintptr) bool {
		c.writes++
		n, err := syscall.Write(int(fd), c.out)
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		c.out, c.err = c.out[max(0, n):], err
		return true
	}
	c.receive = func(fd uintptr) bool {
		c.reads++
		n, err := syscall.Read(int(fd), c.in)
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		if n == 0 && err == nil {
			err = io.ErrUnexpectedEOF
		}
		c.in, c.err = c.in[max(0, n):], err
		return true
	}
	return c
}

// batch sends one pipeline and reads the replies.
func (c *pathClient) batch(b *testing.B) bool {
	out := c.out[:0]
	for i := range c.pipeline {
		k := i
		if !c.inOrder {
			k = c.random.IntN(len(c.keys))
		}
		out = append(appendPathKey(append(out, c.call.before...), c.keys[k]), c.call.behind...)
		if at := bytes.IndexByte(out[len(out)-len(c.call.behind):], '?'); at >= 0 {
			out[len(out)-len(c.call.behind)+at] = byte('0' + c.random.IntN(10))
		}
	}
	all := out
	for c.out = out; len(c.out) > 0 && c.err == nil; {
		if err := c.raw.Write(c.send); err != nil {
			c.err = err
		}
	}
	for c.in = c.reply; len(c.in) > 0 && c.err == nil; {
		if err := c.raw.Read(c.receive); err != nil {
			c.err = err
		}
	}
	c.out = all
	for i, x := range c.reply {
		if c.want[i] == '0' && '0' <= x && x <= '9' {
			c.reply[i] = '0'
		}
	}
	if c.err != nil || !bytes.Equal(c.reply, c.want) {
		b.Errorf("reply %.100q, want %.100q; %v", c.reply, c.want, c.err)
		return false
	}
	return true
}

// pathCounts are the counters that the benchmarks report, by unit.
func pathCounts(b *testing.B, c *Cluster, clients []*pathClient) map[string]int64 {
	nc, err := c.Dial(b.Context(), c.ProxyAddr())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	info, err := commands(nc)("INFO", "neokv")
	if err != nil {
		b.Fatal(err)
	}
	counts := map[string]int64{}
	take := func(text, name, unit string) {
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(line, name+":"); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				if err != nil {
					b.Fatal(err)
				}
				counts[unit] = n
			}
		}
	}
	take(string(info.Text), "process_cpu_us", "cpu-us/op")
	take(string(info.Text), "sync_calls", "syncs/op")
	take(string(info.Text), "raft_entries", "entries/op")
	if io, err := os.ReadFile("/proc/self/io"); err == nil {
		take(string(io), "syscr", "reads/op")
		take(string(io), "syscw", "writes/op")
		for _, client := range clients {
			counts["reads/op"] -= client.reads
			counts["writes/op"] -= client.writes
		}
	}
	return counts
}
