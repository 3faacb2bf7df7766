//go:build chromium

package report

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

var pictures = flag.String("pictures", "", "a folder for pictures of the pages that the tests open")

// browser starts a headless Chromium, which ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome", "headless_shell"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Fatal("no Chromium found; .ci/chromium installs it")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.NoSandbox)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx) // Cancel below ends it
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
	})
	return ctx
}

// opened is a page in a tab of its own. It collects what the browser complains about and what the page asks for.
type opened struct {
	ctx  context.Context
	mu   sync.Mutex
	seen []string // complaints, and requests other than for the page itself
}

// open opens a file the way a reader does who has the given width and colour scheme.
func open(t *testing.T, browser context.Context, path string, width, height int64, scheme string) *opened {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	o := &opened{ctx: ctx}
	address := (&url.URL{Scheme: "file", Path: path}).String()
	note := func(format string, args ...any) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.seen = append(o.seen, fmt.Sprintf(format, args...))
	}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			note("console.%s", e.Type)
		case *runtime.EventExceptionThrown:
			text := e.ExceptionDetails.Text
			if x := e.ExceptionDetails.Exception; x != nil {
				text += ": " + x.Description
			}
			note("exception: %s", text)
		case *log.EventEntryAdded:
			note("log: %s %s", e.Entry.Text, e.Entry.URL)
		case *network.EventRequestWillBeSent:
			if e.Request.URL != address {
				note("request of %s", e.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	media := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}
	err = chromedp.Do(ctx,
		send(network.Enable, network.EnableParams{}), send(log.Enable, cdp.Empty{}), send(runtime.Enable, cdp.Empty{}),
		chromedp.EmulateViewport(width, height), send(emulation.SetEmulatedMedia, media),
		chromedp.Navigate(address),
		chromedp.WaitReady(chromedp.CSS("html[data-drawn], html:not(:has(#data))")), // or there is nothing to draw
	)
	if err != nil {
		t.Fatalf("open: %v; seen: %q", err, o.complaints())
	}
	return o
}

// send makes an action of a command whose answer says nothing.
func send[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, command, params)
		return err
	})
}

func (o *opened) complaints() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

// eval returns the value of an expression.
func eval[T any](t *testing.T, o *opened, expression string) T {
	t.Helper()
	v, err := chromedp.Run(o.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// drawnChart is what the pixels of a chart hold.
type drawnChart struct {
	Title  string
	Width  float64
	Ground string // the colour of the corner
	Strong int    // pixels whose colour is far from a grey
}

// check wants a chart that is drawn with data, on a ground of the given colour, and fits the width.
func (c *drawnChart) check(t *testing.T, ground string, width int64) {
	t.Helper()
	if c.Strong < 200 {
		t.Errorf("%s: %d pixels with the colour of a line, want at least 200", c.Title, c.Strong)
	}
	if c.Ground != ground {
		t.Errorf("%s: ground %s, want %s", c.Title, c.Ground, ground)
	}
	if c.Width < 270 || c.Width > float64(width) {
		t.Errorf("%s: %.0f pixels wide, want 270 to %d", c.Title, c.Width, width)
	}
}

// readCharts reads the pixels of all charts back. A colour counts as strong if its channels lie apart: text, axes and
// grounds of the page are almost grey, lines and heat are not.
const readCharts = `[...document.querySelectorAll('figure:not(.quiet)')].map((f) => {
	const c = f.querySelector('canvas');
	const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
	let strong = 0;
	for (let i = 0; i < p.length; i += 4) {
		if (Math.max(p[i], p[i+1], p[i+2]) - Math.min(p[i], p[i+1], p[i+2]) > 60) strong++;
	}
	return {Title: f.querySelector('b').textContent, Width: c.getBoundingClientRect().width,
		Ground: [...p.slice(0, 4)].join(), Strong: strong};
})`

// view is how a reader opens a page.
type view struct {
	name, scheme, ground string
	width                int64
}

var (
	onPhone = view{"phone", "light", "255,255,255,255", phone}
	views   = []view{
		{"light", "light", "255,255,255,255", 1280},
		{"dark", "dark", "18,22,28,255", 1280},
		onPhone,
	}
)

// phone is the width of a small phone in pixels, and phoneHeight what it shows at once.
const (
	phone       = 360
	phoneHeight = 640
)

// checkPhone wants what was found in sight: the conclusion without scrolling, and of each table with verdicts all of
// them without scrolling sideways.
func (o *opened) checkPhone(t *testing.T) {
	t.Helper()
	for what, expression := range map[string]string{
		"the end of the conclusion": `document.querySelector('.conclusion').getBoundingClientRect().bottom - ` +
			fmt.Sprint(phoneHeight),
		"a verdict": `Math.max(0, ...[...document.querySelectorAll('td.better, td.worse, td.even, td.spread')].map(
			(c) => c.getBoundingClientRect().right)) - ` + fmt.Sprint(phone),
	} {
		if beyond := eval[float64](t, o, expression); beyond > 0 {
			t.Errorf("%s is %.0f pixels out of sight", what, beyond)
		}
	}
}

// checkTicks wants figures of one unit on each axis.
func (o *opened) checkTicks(t *testing.T) {
	t.Helper()
	mixed := eval[[]string](t, o, `[...document.querySelectorAll('figure:not(.quiet) .chart')].flatMap((c) => {
		const model = echarts.getInstanceByDom(c).getModel();
		return ['xAxis', 'yAxis'].map((name) => model.getComponent(name).axis.getViewLabels().
			map((l) => l.formattedLabel).filter((text) => /^[-+\d]/.test(text) && !/[KMG]iB$/.test(text))).
			filter((texts) => new Set(texts.map((text) => text.replace(/[-+:,.\d]/g, '').trim())).size > 1).
			map((texts) => c.getAttribute('aria-label').split('.')[0] + ': ' + texts.join(', '));
	})`)
	for _, axis := range mixed {
		t.Errorf("an axis has ticks of several units: %s", axis)
	}
}

// look opens a page in a view, and wants these charts drawn, and nothing that the browser complains about.
func look(t *testing.T, in context.Context, path, name string, v view, want []string) {
	t.Helper()
	p := open(t, in, path, v.width, 900, v.scheme)
	charts := eval[[]drawnChart](t, p, readCharts)
	var titles []string
	for _, c := range charts {
		titles = append(titles, c.Title)
		c.check(t, v.ground, v.width)
	}
	for _, title := range want {
		if !slices.Contains(titles, title) {
			t.Errorf("no chart %q in %q", title, titles)
		}
	}
	if wide := eval[int64](t, p, `document.documentElement.scrollWidth`); wide > v.width {
		t.Errorf("the page is %d pixels wide in a window of %d", wide, v.width)
	}
	p.checkTitle(t)
	p.checkTicks(t)
	if v.name == "phone" {
		p.checkPhone(t)
	}
	p.picture(t, name+"-"+v.name)
	if seen := p.complaints(); len(seen) > 0 {
		t.Errorf("the browser saw %q", seen)
	}
}

// lookOnPaper prints a page from a dark screen, wants so many charts drawn for paper, and returns the PDF.
func lookOnPaper(t *testing.T, in context.Context, path, name string, least int) []byte {
	t.Helper()
	p := open(t, in, path, 1280, 900, "dark")
	// The charts are read when the page has made them ready for paper.
	eval[bool](t, p, `addEventListener('beforeprint', () => { window.onPaper = `+readCharts+`; }) === undefined`)
	pdf, err := chromedp.Run(p.ctx, chromedp.PrintToPDF(chromedp.PDFPreferCSSPageSize(), chromedp.PDFPrintBackground()))
	if err != nil {
		t.Fatal(err)
	}
	charts := eval[[]drawnChart](t, p, `window.onPaper`)
	if len(charts) < least {
		t.Errorf("%d charts on paper, want at least %d", len(charts), least)
	}
	for _, c := range charts {
		c.check(t, "255,255,255,255", 720)
	}
	if !bytes.HasPrefix(pdf, []byte("%PDF-")) {
		t.Errorf("%d bytes that are no PDF", len(pdf))
	}
	if *pictures != "" {
		if err := os.WriteFile(filepath.Join(*pictures, name+".pdf"), pdf, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if seen := p.complaints(); len(seen) > 0 {
		t.Errorf("the browser saw %q", seen)
	}
	return pdf
}

// writePageFile writes a page to a file of the test.
func writePageFile(t *testing.T, write func(io.Writer) error) (path string) {
	t.Helper()
	var html bytes.Buffer
	if err := write(&html); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, html.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestComparisonInBrowser: the ratios are drawn, and a reader without a mouse hears them.
func TestComparisonInBrowser(t *testing.T) {
	in := browser(t)
	path := writePageFile(t, func(w io.Writer) error { return ComparisonHTML(w, "compare", syntheticComparison()) })
	for _, v := range views {
		t.Run(v.name, func(t *testing.T) { look(t, in, path, "comparison", v, []string{"B / A"}) })
	}
	t.Run("print", func(t *testing.T) { lookOnPaper(t, in, path, "comparison", 1) })
	t.Run("keys", func(t *testing.T) {
		p := open(t, in, path, 1280, 900, "light")
		keys := chromedp.SendKeys(chromedp.CSS("#ratios .chart"), kb.ArrowDown+kb.ArrowDown+kb.ArrowUp)
		if err := chromedp.Do(p.ctx, keys); err != nil {
			t.Fatal(err)
		}
		spoken := eval[string](t, p, `document.getElementById('spoken').textContent`)
		if !regexp.MustCompile(`^throughput: -\S+ % \(-\S+ % to -\S+ %\), worse, A \S+ ops/s, B`).MatchString(spoken) {
			t.Errorf("the page says %q, want the ratio of throughput", spoken)
		}
		tip := eval[string](t, p,
			`[...document.querySelectorAll('#ratios .chart div')].map((d) => d.textContent).join()`)
		if !strings.Contains(tip, "rounds: -") {
			t.Errorf("the tip says %q, want the rounds", tip)
		}
		if seen := p.complaints(); len(seen) > 0 {
			t.Errorf("the browser saw %q", seen)
		}
	})
}

// TestCheckInBrowser: the page of a gate has no charts, and what its figures say is in sight.
func TestCheckInBrowser(t *testing.T) {
	path := writePageFile(t, func(w io.Writer) error {
		return CheckHTML(w, CheckPage{Verdict: "regression", Headline: "regression: of 3 figures that gate, 2 worse",
			Conditions: []results.NamedValue{{Name: "baseline", Value: "bench/gate/baseline.json, commit 0123456789"}},
			Power:      []string{"CPU: 12 rounds of 3 blocks; nine of ten such runs find a change of 3.6 %"},
			Cases: []CheckedCase{
				{Name: "set P=16 stores=3", Rows: []CheckedFigure{
					{"Raft entry bytes", "123,456 B", "234,567 B", "+90.00 %", "0.20 %", compare.Worse, true},
					{"compaction bytes", "123,456 B", "234,567 B", "+90.00 %", "-", "not compared", false}}},
				{Name: "beside the baseline's build", Rows: []CheckedFigure{
					{"CPU", "135 us", "151 us", "+11.9 %", "+4.3 % to +22.7 %", compare.Contaminated, true},
					{"no answer for", "48.5 ms", "4,857 ms", "x100", "x0.743 to x201", compare.Same, false}}},
			}})
	})
	look(t, browser(t), path, "check", onPhone, nil)
}

// TestHistoryInBrowser: the figures of a history are drawn with their change points, and a tip names the commit.
func TestHistoryInBrowser(t *testing.T) {
	in := browser(t)
	trends := syntheticHistory()
	path := writePageFile(t, func(w io.Writer) error { return HistoryHTML(w, "history.jsonl", trends) })
	charts := []string{"throughput", "p99", "odd " + hostile}
	for _, v := range views {
		t.Run(v.name, func(t *testing.T) { look(t, in, path, "history", v, charts) })
	}
	t.Run("print", func(t *testing.T) { lookOnPaper(t, in, path, "history", 2*len(charts)) })
	t.Run("keys", func(t *testing.T) {
		p := open(t, in, path, 1280, 900, "light")
		keys := chromedp.SendKeys(chromedp.CSS("#charts-0 .chart"), kb.ArrowRight+kb.ArrowRight)
		if err := chromedp.Do(p.ctx, keys); err != nil {
			t.Fatal(err)
		}
		spoken := eval[string](t, p, `document.getElementById('spoken').textContent`)
		// The commit is cut to twelve bytes, and the next part is the name of the file.
		if spoken != "2026-05-05 03:02 UTC, commit 0001 </scrip, run-1.jsonl: run 12,062 ops/s, median 12,048 ops/s" {
			t.Errorf("the page says %q", spoken)
		}
		tip := eval[string](t, p, `document.querySelector('#charts-0 .chart').textContent`)
		if !strings.Contains(tip, "commit 0001 </scrip, run-1.jsonl") {
			t.Errorf("the tip says %q, want the commit", tip)
		}
		if seen := p.complaints(); len(seen) > 0 {
			t.Errorf("the browser saw %q", seen)
		}
	})
}

func TestPageInBrowser(t *testing.T) {
	in := browser(t)
	two := twoSubjects()
	for _, file := range []struct {
		name     string
		subjects []results.ResultFile
		views    []string // and on paper
		charts   []string // some of their titles
	}{
		{"one", two[:1], []string{"light", "dark", "phone"}, []string{
			"main: Latency by percentile", "main: Response time of all operations", "main: Throughput",
			"main: Errors", "main: In flight", "Bytes written", "Flushes and compactions",
			"Write stalls", "Leaders and stalls", "Batches", "Entries and syncs", "Caches and filters", "CPU",
			"Lateness of the generator", "Memory", "main: Latency against rate, SLO p99<5ms"}},
		{"two", two, []string{"light"}, []string{"main: Latency by percentile of all operations",
			"main: Response time of all operations, all results", "A main: Response time of all operations",
			"B main: Response time of all operations", "main: Throughput", "Caches and filters", "CPU",
			"main: Latency against rate, SLO p99<5ms"}},
	} {
		path := writePageFile(t, func(w io.Writer) error { return HTML(w, file.subjects) })
		for _, v := range views {
			if slices.Contains(file.views, v.name) {
				t.Run(file.name+"/"+v.name, func(t *testing.T) { look(t, in, path, file.name, v, file.charts) })
			}
		}
		t.Run(file.name+"/print", func(t *testing.T) {
			pdf := lookOnPaper(t, in, path, file.name, len(file.charts))
			if !bytes.Contains(pdf, []byte("/Subtype /Image")) {
				t.Errorf("a PDF of %d bytes without a picture", len(pdf))
			}
		})
	}
}

// checkTitle fails the test if text of the result has run as a script.
func (o *opened) checkTitle(t *testing.T) {
	t.Helper()
	if title := eval[string](t, o, `document.title`); !strings.HasSuffix(title, "NeoKV benchmark") {
		t.Errorf("the title became %q", title)
	}
}

// TestPageByKeyboard: a reader without a mouse chooses an operation, hides a line and hears the points of a chart.
func TestPageByKeyboard(t *testing.T) {
	path := writePageFile(t, func(w io.Writer) error { return HTML(w, twoSubjects()[:1]) })
	p := open(t, browser(t), path, 1280, 900, "light")
	err := chromedp.Do(p.ctx,
		chromedp.SendKeys(chromedp.CSS("#time select[name=op]"), "update"),
		chromedp.SendKeys(chromedp.CSS("#latency-charts .chart"), kb.ArrowRight+kb.ArrowRight),
		chromedp.SendKeys(chromedp.CSS("#latency-charts .legend button"), kb.Enter))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ expression, want string }{
		{`document.querySelector('#latency-charts figcaption b').textContent`, "main: Response time of update"},
		{`document.querySelector('#latency-charts .legend button').getAttribute('aria-pressed')`, "false"},
		{`document.activeElement.textContent`, "p50"},
	} {
		if got := eval[string](t, p, c.expression); got != c.want {
			t.Errorf("%s = %q, want %q", c.expression, got, c.want)
		}
	}
	spoken := eval[string](t, p, `document.getElementById('spoken').textContent`)
	if !regexp.MustCompile(`^[-0-9.]+ s: p50 \S+ .s, p99 `).MatchString(spoken) {
		t.Errorf("the page says %q, want a time and percentiles", spoken)
	}
	if seen := p.complaints(); len(seen) > 0 {
		t.Errorf("the browser saw %q", seen)
	}
}

// picture saves the whole page, if asked.
func (o *opened) picture(t *testing.T, name string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	b, err := chromedp.Run(o.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestTuningInBrowser: the curve of each knob and the front are drawn, and a reader without a mouse hears their values.
func TestTuningInBrowser(t *testing.T) {
	in := browser(t)
	path := writePageFile(t, func(w io.Writer) error { return TuningHTML(w, syntheticTuning()) })
	charts := []string{"engine.memtable_size", "engine.bloom_prefix", "p99 against throughput"}
	for _, v := range views {
		t.Run(v.name, func(t *testing.T) { look(t, in, path, "tuning", v, charts) })
	}
	t.Run("print", func(t *testing.T) { lookOnPaper(t, in, path, "tuning", len(charts)) })
	t.Run("keys", func(t *testing.T) {
		p := open(t, in, path, 1280, 900, "light")
		keys := chromedp.SendKeys(chromedp.CSS("#knobs .chart"), kb.ArrowRight+kb.ArrowRight)
		if err := chromedp.Do(p.ctx, keys); err != nil {
			t.Fatal(err)
		}
		spoken := eval[string](t, p, `document.getElementById('spoken').textContent`)
		if !strings.HasPrefix(spoken, "engine.memtable_size value 8MiB, throughput ") {
			t.Errorf("the page says %q, want the second value of the memtable", spoken)
		}
		if seen := p.complaints(); len(seen) > 0 {
			t.Errorf("the browser saw %q", seen)
		}
	})
}
