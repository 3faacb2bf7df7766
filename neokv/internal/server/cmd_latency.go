package server

import (
	"slices"
	"strings"

	"neokv.dev/neokv/internal/redis"
)

// histogramUnits is about what it takes to write a histogram.
const histogramUnits = 50

// runLatencyHistogram answers about the commands that args name, with the subcommands of containers, or about all.
func runLatencyHistogram(c *conn, args [][]byte) {
	var found []*callCount
	if len(args) == 2 {
		found = slices.Clone(c.s.calls.all)
	}
	for _, name := range args[2:] {
		if !c.exec.work.Spend(1) {
			return
		}
		if row := commands.Named(name); row != nil {
			for _, x := range append([]*redis.Command{row}, row.Sub...) {
				found = append(found, c.s.calls.of[x])
			}
		}
	}
	found = slices.DeleteFunc(found, func(x *callCount) bool { return x.times.Load() == nil })
	c.out.Map(len(found))
	for _, x := range found {
		if !c.exec.work.Spend(histogramUnits) {
			return
		}
		c.out.BulkString(x.row.FullName())
		if h := x.times.Load(); h != nil {
			h.load().write(&c.out.Reply)
		} else { // CONFIG RESETSTAT has run meanwhile
			new(histogramNow).write(&c.out.Reply)
		}
	}
}

// write appends the reply of LATENCY HISTOGRAM: how many calls took at most 1, 2, 4 and so on microseconds, of 1024
// nanoseconds each. As in Redis, a count comes only if it is larger than the one before it. The times are printed as
// the ends of the buckets of Redis's histogram, each of which is a 128th wide.
func (h *histogramNow) write(out *redis.Reply) {
	var pairs []int64
	seen, told, i := uint64(0), uint64(0), 0
	for limit := uint64(1024); told < h.total; limit *= 2 {
		for ; i < buckets && bucketEnd(i) < limit; i++ {
			seen += h.counts[i]
		}
		if seen > told {
			pairs = append(pairs, int64(limit+limit/128-1)/1000, int64(seen))
			told = seen
		}
	}
	out.MapOf("calls", int64(h.total), "histogram_usec", func() {
		out.Map(len(pairs) / 2)
		for _, n := range pairs {
			out.Int(n)
		}
	})
}

// The rest of LATENCY is about events that took longer than latency-monitor-threshold. The threshold is 0 here, which
// means that no event is noted.

func runEmptyArray(c *conn, args [][]byte)   { c.out.Array(0) }
func runLatencyReset(c *conn, args [][]byte) { c.out.Int(0) }

func runLatencyGraph(c *conn, args [][]byte) {
	c.out.Error("ERR No samples available for event '" + strings.TrimRight(oneLine(args[2]), "\x00") + "'")
}

func runLatencyDoctor(c *conn, args [][]byte) {
	c.out.Verbatim("txt", "Events are not watched. INFO latencystats, LATENCY HISTOGRAM and SLOWLOG GET tell "+
		"how long commands take.\n")
}
