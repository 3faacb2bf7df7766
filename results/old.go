package results

import (
	"encoding/json"
	"strconv"
	"time"
)

// Formats 1 and 2 had one group of clients, without a ledger and without a name. This file reads them as a file of the
// present format with one group, whose name is that of its workload.

type oldLine struct {
	Header   *oldHeader   `json:"header"`
	Interval *oldInterval `json:"interval"`
	Summary  *oldSummary  `json:"summary"`
}

type oldHeader struct {
	Header
	Load struct {
		ClientGroup
		Rate       float64       `json:"rate"`
		ValueBytes int           `json:"value_bytes"`
		Duration   time.Duration `json:"duration_ns"`
		Warmup     time.Duration `json:"warmup_ns"`
		Seed       uint64        `json:"seed"`
		Verify     bool          `json:"verify"`
	} `json:"load"`
}

type oldInterval struct {
	Interval
	oldStats
}

type oldSummary struct {
	Summary
	oldStats
	Unsent   int64 `json:"unsent"`
	Inserted *struct {
		Inserted
		Kinds map[string]int64 `json:"errors"`
	} `json:"inserted"`
	Verified *Verified `json:"verified"`
}

// oldStats are the figures of an interval or of a summary.
type oldStats struct {
	Incidents
	Kinds  map[string]int64 `json:"errors"`
	Behind int64            `json:"behind"`
	Ops    []OpStats        `json:"ops"`
	Total  OpStats          `json:"total"`
}

// unknownOutcome is the kind of errors that the server gives for a write of unknown outcome.
const unknownOutcome = "unknown outcome"

// oldFormat reports whether a header is of a format before 3.
func oldFormat(header []byte) bool {
	var l struct {
		Header struct {
			Format int `json:"format"`
		} `json:"header"`
	}
	return json.Unmarshal(header, &l) == nil && l.Header.Format < 3
}

func (res *Result) addOld(b []byte, n int) error {
	var old oldLine
	if err := json.Unmarshal(b, &old); err != nil {
		return err
	}
	var l line
	switch {
	case old.Header != nil:
		h := old.Header.Header
		g := old.Header.Load.ClientGroup
		g.Name = g.Workload
		if r := old.Header.Load.Rate; r > 0 {
			g.Rate = strconv.FormatFloat(r, 'f', -1, 64)
		}
		if n := old.Header.Load.ValueBytes; n > 0 {
			g.ValueBytes = strconv.Itoa(n)
		}
		h.Duration, h.Warmup = old.Header.Load.Duration, old.Header.Load.Warmup
		h.Seed, h.Verify = old.Header.Load.Seed, old.Header.Load.Verify
		h.Groups = []ClientGroup{g}
		l.Header = &h
	case old.Interval != nil:
		iv := old.Interval.Interval
		iv.Groups = []GroupStats{old.Interval.group(res, 0)}
		l.Interval = &iv
	case old.Summary != nil:
		s := old.Summary.Summary
		g := GroupSummary{GroupStats: old.Summary.group(res, old.Summary.Unsent), Verified: old.Summary.Verified}
		if in := old.Summary.Inserted; in != nil {
			g.Inserted = &in.Inserted
			g.Inserted.Kinds = in.Kinds
		}
		s.Groups = []GroupSummary{g}
		l.Summary = &s
	}
	return res.take(l, n)
}

// group makes the figures of the one group. What an old file does not tell of its ledger is left out.
func (o *oldStats) group(res *Result, dropped int64) GroupStats {
	g := GroupStats{Incidents: o.Incidents, Ops: o.Ops, Total: o.Total}
	g.Kinds = o.Kinds
	if len(res.Header.Groups) > 0 {
		g.Name = res.Header.Groups[0].Name
	}
	unknown := o.Kinds[unknownOutcome]
	g.Ledger = Ledger{OK: o.Total.Count, Errors: o.Total.Errors - unknown, Unknown: unknown, Dropped: dropped,
		Behind: o.Behind}
	g.Ledger.Offered = g.Ledger.OK + g.Ledger.Errors + g.Ledger.Unknown + g.Ledger.Dropped
	return g
}
