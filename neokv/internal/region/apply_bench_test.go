package region

import (
	"fmt"
	"testing"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/settings"
)

// BenchmarkApply applies entries of 16 writes, one entry per update.
func BenchmarkApply(b *testing.B) {
	for _, name := range []string{"set %s v", "incr %s", "zadd %s 1 m"} {
		b.Run(name[:4], func(b *testing.B) {
			r := openStill(b, disk.Mem())
			defer r.close(b)
			var calls [][][]byte
			for i := range 16 {
				calls = append(calls, words(fmt.Sprintf(name, fmt.Sprintf("{foo}%c%d", name[0], i))))
			}
			entry := entryOf(1, calls...)
			entries := make([]multiraft.Entry, 1)
			b.ReportAllocs()
			for i := uint64(1); b.Loop(); i++ {
				entries[0] = entry
				entries[0].Index = i
				if _, err := r.machine.Update(entries); err != nil || r.fs.Failed() != nil {
					b.Fatal(err, r.fs.Failed())
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/call")
		})
	}
}

// BenchmarkForm forms proposals of 16 runs of one SET each.
func BenchmarkForm(b *testing.B) {
	r := queued(settings.RaftKnobs{BatchMaxOps: 1000, BatchMaxBytes: 1 << 20})
	r.servingTerm.Store(1)
	var runs []*Pending
	for range 16 {
		p := &Pending{Run: &redis.Run{Calls: []redis.Call{call("set", "k", "v")}}, Deadline: time.Now().Add(time.Hour),
			done: make(chan struct{}, 1)}
		p.Run.Calls[0].Command = redis.Lookup([]byte("set"))
		runs = append(runs, p)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range runs {
			p.next = 0
		}
		r.proposer.queue = append(r.proposer.queue[:0], runs...)
		f := r.proposer.form()
		r.proposer.finish(f, nil)
		<-f.finished
		for _, p := range runs {
			<-p.done
		}
		r.proposer.recycle(f)
	}
}
