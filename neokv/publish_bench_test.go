//go:build unix && redisserver

package neokv

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"neokv.dev/neokv/internal/redis/redistest"
)

// BenchmarkPublish measures PUBLISH of 64 bytes to 100 subscribers by four clients, on sockets: the subscribers spread
// over the ports of three stores, or all at one redis-server, if one is installed. at-once is how many PUBLISH a client
// sends together. An operation is one PUBLISH, and it has taken place when all have received it; what is lost it
// counts.
//
// The clients, and the stores, are goroutines of this process; the redis-server is a process of its own. A fair
// comparison runs them in turn:
//
//	go test -c -o publish.test ./neokv
//	for i in $(seq 12); do ./publish.test -test.run '^$' -test.bench BenchmarkPublish -test.benchtime 20000x; done
func BenchmarkPublish(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0)))) // as in the program
	c, err := Start(b.Context(), Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	sides := map[string][]string{"neokv": c.Addrs(), "redis-server": {redistest.RedisServer(b)}}
	for _, atOnce := range []int{1, 16} {
		for _, side := range []string{"neokv", "redis-server"} {
			b.Run(fmt.Sprintf("%s/at-once=%d", side, atOnce), func(b *testing.B) {
				benchmarkPublish(b, sides[side], atOnce)
			})
		}
	}
}

func benchmarkPublish(b *testing.B, addrs []string, atOnce int) {
	const publishers, subscribers = 4, 100
	send := request("PUBLISH", "news", pathText)
	message := request("message", "news", pathText)
	var got atomic.Int64 // bytes of messages
	var reading sync.WaitGroup
	defer reading.Wait() // behind the Close of each
	for i := range subscribers {
		nc := dialBench(b, addrs[i%len(addrs)])
		confirmation := "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"
		if err := stepper(nc, []string{request("SUBSCRIBE", "news"), confirmation})(); err != nil {
			b.Fatal(err)
		}
		reading.Go(func() {
			room := make([]byte, 16<<10)
			for {
				n, err := nc.Read(room)
				got.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
		defer nc.Close()
	}
	var all []net.Conn
	for i := range publishers {
		nc := dialBench(b, addrs[i%len(addrs)])
		defer nc.Close()
		all = append(all, nc)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	before := cpuOf(b, addrs)
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, nc := range all {
		wg.Go(func() {
			request, reply := []byte(strings.Repeat(send, atOnce)), make([]byte, 16<<10)
			for {
				n := int(min(int64(atOnce), left.Add(-int64(atOnce))+int64(atOnce)))
				if n <= 0 {
					return
				}
				if _, err := nc.Write(request[:n*len(send)]); err != nil {
					b.Error(err)
					return
				}
				for lines := 0; lines < n; {
					m, err := nc.Read(reply)
					if err != nil || bytes.IndexByte(reply[:m], '-') >= 0 {
						b.Errorf("%q, %v", reply[:m], err)
						return
					}
					lines += bytes.Count(reply[:m], []byte("\n"))
				}
			}
		})
	}
	wg.Wait()
	sent := b.Elapsed()
	want := int64(b.N) * subscribers * int64(len(message))
	last, took := got.Load(), b.Elapsed()
	for last < want && b.Elapsed()-took < 5*time.Second {
		time.Sleep(time.Millisecond)
		if n := got.Load(); n > last {
			last, took = n, b.Elapsed()
		}
	}
	b.StopTimer()
	received := last / int64(len(message))
	b.ReportMetric(float64(received)/took.Seconds(), "messages/s")
	b.ReportMetric(float64(int64(b.N)*subscribers-received), "lost")
	b.ReportMetric(sent.Seconds()/took.Seconds(), "sending")
	b.ReportMetric((cpuOf(b, addrs)-before)*1e6/float64(b.N), "cpu-us/op")
}

func dialBench(b *testing.B, addr string) net.Conn {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	return nc
}

// cpuOf returns the seconds of CPU that this process has used, and a server that is another one.
func cpuOf(b *testing.B, addrs []string) (sum float64) {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		b.Fatal(err)
	}
	for _, t := range []unix.Timeval{own.Utime, own.Stime} {
		sum += float64(t.Nano()) / 1e9
	}
	if len(addrs) > 1 {
		return sum
	}
	nc := dialBench(b, addrs[0])
	defer nc.Close()
	info, err := commands(nc)("INFO", "cpu")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(info.Text)) {
		var n float64
		for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
			if _, err := fmt.Sscanf(line, name+":%f", &n); err == nil {
				sum += n
			}
		}
	}
	return sum
}
