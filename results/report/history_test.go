package report

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/history"
)

// syntheticHistory has two setups. The runs of the first one are slower by a tenth from run 20 to run 29, and their
// commits have hostile names. The second one has two runs.
func syntheticHistory() []*history.Trend {
	c := &history.Contents{}
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for i := range 42 {
		value := 12_000 + float64(i*7919%97)
		e := history.Entry{Result: fmt.Sprintf("run-%d.jsonl", i), Header: results.Header{
			Started: at.Add(time.Duration(i) * 24 * time.Hour), Settings: map[string]string{"engine.row_cache": "64MiB"},
			Groups: []results.ClientGroup{{Name: "get", Workload: "get " + hostile, Clients: 4, Pipeline: 1}},
			Build:  results.Build{Commit: fmt.Sprintf("%04d %s", i, hostile)},
		}}
		switch {
		case i >= 40:
			e.Header.Groups[0].Clients = 50
		case i >= 20 && i < 30:
			value *= 0.9
			e.Header.Settings["engine.row_cache"] = hostile
		}
		e.Figures = []results.Figure{{Name: "throughput", Unit: "ops/s", Better: results.Higher, Value: value},
			{Name: "p99", Unit: "us", Better: results.Lower, Value: 5e7 / value},
			{Name: "odd " + hostile, Unit: "B/op", Value: 100 + float64(i%3)}}
		c.Entries = append(c.Entries, e)
	}
	return c.Trends(history.Options{})
}

func TestHistoryPage(t *testing.T) {
	trends := syntheticHistory()
	var page bytes.Buffer
	if err := HistoryHTML(&page, "folder/history.jsonl", trends); err != nil {
		t.Fatal(err)
	}
	text := body(t, page.Bytes())
	golden(t, "history.html", text)
	if bytes.Count(page.Bytes(), []byte("</script>")) != 3 || bytes.Contains(text, []byte("<img")) {
		t.Error("text of a run is part of the page's code")
	}
	drawn := data[[]drawnTrend](t, page.Bytes())
	if len(drawn) != 2 || len(drawn[0].Series) != 3 || len(drawn[0].Runs) != 40 || len(drawn[1].Runs) != 2 {
		t.Fatalf("drawn %+v", drawn)
	}
	l := drawn[0].Series[0].Levels
	if len(l) != 3 || l[1].From != 20 || l[1].Verdict != "worse" || l[2].From != 30 || l[2].Verdict != "better" {
		t.Errorf("levels of throughput %+v", l)
	}
}

// TestManyFigures: a page has a bounded number of charts, and says what it has left out.
func TestManyFigures(t *testing.T) {
	e := history.Entry{Header: results.Header{Started: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)}}
	for i := range maxCharts + 3 {
		e.Figures = append(e.Figures, results.Figure{Name: fmt.Sprint("figure ", i), Value: 1})
	}
	c := history.Contents{Entries: []history.Entry{e}}
	var page bytes.Buffer
	if err := HistoryHTML(&page, "h.jsonl", c.Trends(history.Options{})); err != nil {
		t.Fatal(err)
	}
	if n := len(data[[]drawnTrend](t, page.Bytes())[0].Series); n != maxCharts {
		t.Errorf("%d charts, want %d", n, maxCharts)
	}
	if !bytes.Contains(page.Bytes(), []byte("3 figures have no chart here")) ||
		!bytes.Contains(page.Bytes(), []byte("figure 202")) {
		t.Error("the page does not tell of the figures without a chart")
	}
}
