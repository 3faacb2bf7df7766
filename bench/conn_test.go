package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// script is a connection that reads from a reader and swallows what is written.
type script struct {
	io.Reader
	written bytes.Buffer
}

func (s *script) Write(p []byte) (int, error)      { return s.written.Write(p) }
func (s *script) Close() error                     { return nil }
func (s *script) LocalAddr() net.Addr              { return nil }
func (s *script) RemoteAddr() net.Addr             { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

func reading(r io.Reader) *loadConn {
	c := &loadConn{epoch: time.Now(), timeout: time.Minute}
	c.attach(&script{Reader: r})
	return c
}

func TestReplies(t *testing.T) {
	big := strings.Repeat("x", 5*readBuffer)
	const in = "+OK\r\n-MOVED 7 host:1\r\n:42\r\n$-1\r\n$0\r\n\r\n$4\r\na\r\nb\r\n" +
		"*2\r\n$1\r\nx\r\n*1\r\n:1\r\n*-1\r\n*0\r\n"
	want := []struct {
		kind byte
		null bool
		text string
	}{{'+', false, "OK"}, {'-', false, "MOVED 7 host:1"}, {':', false, "42"}, {'$', true, ""}, {'$', false, ""},
		{'$', false, ""}, {'*', false, ""}, {'*', true, ""}, {'*', true, ""}}
	values := []any{"OK", serverError("MOVED 7 host:1"), int64(42), nil, "", "a\r\nb", []any{"x", []any{int64(1)}}, nil,
		[]any(nil)}
	all := in + "$81920\r\n" + big + "\r\n+end\r\n"
	for name, split := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		"halves": iotest.HalfReader,
	} {
		c := reading(split(strings.NewReader(all)))
		for i, w := range want {
			rep, err := c.read(maxDepth, keepNone)
			if err != nil || rep.kind != w.kind || rep.null != w.null || string(rep.text) != w.text {
				t.Fatalf("%s: reply %d: %c %v %q, %v", name, i, rep.kind, rep.null, rep.text, err)
			}
		}
		if rep, err := c.read(maxDepth, keepNone); err != nil || rep.kind != '$' {
			t.Fatalf("%s: big reply: %v, %v", name, rep, err)
		}
		if rep, err := c.read(maxDepth, keepNone); err != nil || string(rep.text) != "end" {
			t.Fatalf("%s: after the big reply: %q, %v", name, rep.text, err)
		}
		if _, err := c.read(maxDepth, keepNone); err != io.EOF {
			t.Fatalf("%s: at the end: %v", name, err)
		}
		c = reading(split(strings.NewReader(all)))
		for i, w := range append(values, big, "end") {
			v, err := c.value(maxDepth)
			if e, ok := w.(serverError); ok {
				w, v = nil, nil
				if err != e {
					t.Fatalf("%s: value %d: error %v, want %v", name, i, err, e)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(v, w) {
				t.Fatalf("%s: value %d: %#v, want %#v", name, i, v, w)
			}
		}
	}
}

func TestBadReplies(t *testing.T) {
	for _, in := range []string{
		"\r\n", "\n", "+OK\n", "OK\r\n", "%1\r\n", "$x\r\n", "$\r\n", "$-2\r\n", "$99999999999999999999\r\n", "*x\r\n",
		strings.Repeat("*1\r\n", maxDepth+2), "+" + strings.Repeat("x", readBuffer+1) + "\r\n",
	} {
		for _, read := range []func(*loadConn) error{
			func(c *loadConn) error { _, err := c.read(maxDepth, keepNone); return err },
			func(c *loadConn) error { _, err := c.value(maxDepth); return err },
		} {
			if err := read(reading(strings.NewReader(in))); !errors.Is(err, errProtocol) {
				t.Errorf("%.40q: %v, want a protocol error", in, err)
			}
		}
	}
	if _, err := reading(strings.NewReader("$5\r\nab")).read(maxDepth, keepNone); err == nil {
		t.Error("a reply that is cut off is accepted")
	}
}

func FuzzReplies(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\nx\r\n:1\r\n-ERR\r\n"))
	f.Add([]byte("$3\r\nabc\r\n$-1\r\n"))
	// Both readers take the same bytes for the same number of replies.
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := reading(bytes.NewReader(in)), reading(iotest.OneByteReader(bytes.NewReader(in)))
		for {
			_, errA := a.read(maxDepth, keepNone)
			_, errB := b.read(maxDepth, keepAll)
			if (errA == nil) != (errB == nil) {
				t.Fatalf("whole: %v, byte by byte: %v", errA, errB)
			}
			if errA != nil {
				return
			}
		}
	})
}

func TestSlotOf(t *testing.T) {
	// From the Redis Cluster specification and redis-cli.
	for key, want := range map[string]uint16{
		"123456789": 0x31c3, "foo": 12182, "{foo}bar": 12182, "foo{}{bar}": 8363, "foo{{bar}}zap": 4015,
		"foo{bar}{zap}": 5061, "": 0,
	} {
		if got := slotOf([]byte(key)); got != want {
			t.Errorf("slot of %q: %d, want %d", key, got, want)
		}
	}
}

// null is a connection that answers whatever is sent with one reply, again and again.
type null struct {
	net.Conn
	reply string
	at    int
}

func (n *null) SetDeadline(time.Time) error { return nil }
func (n *null) Write(p []byte) (int, error) { return len(p), nil }
func (n *null) Close() error                { return nil }
func (n *null) Read(p []byte) (read int, _ error) {
	for read < len(p) {
		k := copy(p[read:], n.reply[n.at:])
		n.at = (n.at + k) % len(n.reply)
		read += k
	}
	return read, nil
}

// nullWorker is a worker connected to nothing.
func nullWorker(workload string, pipeline int, slots PipelineSlots) *worker {
	r := &run{
		o: Options{Timeout: time.Minute}, epoch: time.Now(), target: &target{addrs: []string{"null:0"}},
		conns: map[net.Conn]struct{}{},
	}
	r.ctx = context.Background()
	o := GroupOptions{Workload: workload, Clients: 1, Pipeline: pipeline, Slots: slots, Records: 100_000, Elements: 10,
		ValueSize: 100}
	if wrong := o.prepare(false, 1); wrong != nil {
		panic(errors.Join(wrong...))
	}
	r.addGroup(o)
	r.resume()
	w := r.groups[0].workers[0]
	w.ops, w.segment = w.group.workload.Ops, &phaseSegment{name: results.PhaseRun}
	w.rec.begin().segment = w.segment
	w.rec.end()
	c := &loadConn{epoch: r.epoch, timeout: time.Minute, silence: new(silence)}
	reply := "+OK\r\n"
	if workload == "incr" {
		reply = ":1234567\r\n"
	}
	c.attach(&null{reply: reply})
	w.conns = []*loadConn{c}
	return w
}

func (w *worker) once() {
	w.reset()
	for range w.group.o.Pipeline {
		w.gen.Next(&w.req)
		w.append(-1)
	}
	w.exchange()
	w.count()
}

func TestNoAllocationPerOperation(t *testing.T) {
	names := workloads.Names()
	if testing.Short() {
		names = names[:3]
	}
	for _, name := range names {
		if name == "transaction" {
			continue // EXEC wants an array, which null does not send
		}
		for _, pipeline := range []int{1, 16} {
			w := nullWorker(name, pipeline, SpreadSlots)
			for range 100 {
				w.once() // buffers reach their size
			}
			if n := testing.AllocsPerRun(1000, w.once); n != 0 {
				t.Errorf("%s, pipeline %d: %g allocations per batch", name, pipeline, n)
			}
		}
	}
}

func BenchmarkGenerator(b *testing.B) {
	for _, c := range []struct {
		name, workload string
		pipeline       int
	}{{"get/pipeline=1", "get", 1}, {"get/pipeline=16", "get", 16}, {"ycsb-a/pipeline=1", "ycsb-a", 1},
		{"ycsb-a/pipeline=16", "ycsb-a", 16}, {"set/pipeline=16", "set", 16}} {
		b.Run(c.name, func(b *testing.B) {
			w := nullWorker(c.workload, c.pipeline, SpreadSlots)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				w.once()
				n += c.pipeline
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/request")
		})
	}
}
