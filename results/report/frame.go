package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// A page is a template with the style, the chart library and its script in it, and the figures as JSON. Only the
// template and the JSON hold text of results, and both escape it.
var (
	//go:embed frame.html
	frameHTML string
	//go:embed page.css
	pageCSS string
	//go:embed charts.js
	chartsJS string
	//go:embed echarts/echarts.min.js
	echartsJS string
)

// frame is what all pages have.
type frame struct {
	Title   string
	Maker   string // the verb of neokv that made the page
	Policy  string // the Content-Security-Policy
	Style   template.CSS
	Library template.JS
	Script  template.JS
	Data    template.JS
}

// newFrame returns the frame of a page with a script of its own, which draws data.
func newFrame(title, maker, script string, data any) (frame, error) {
	text, err := json.Marshal(data) // escapes <, > and &, so nothing in it ends the script element
	script = chartsJS + script
	return frame{Title: title, Maker: maker, Policy: policy(echartsJS, script), Style: template.CSS(pageCSS),
		Library: template.JS(echartsJS), Script: template.JS(script), Data: template.JS(text)}, err
}

// newPlainFrame returns the frame of a page without charts, which runs no script.
func newPlainFrame(title, maker string) frame {
	return frame{Title: title, Maker: maker, Policy: policy(), Style: template.CSS(pageCSS)}
}

// newTemplate returns the template of a page.
func newTemplate(html string) *template.Template {
	t := template.Must(template.New("frame").Funcs(template.FuncMap{
		"letter": letter,
		"joined": func(text string) string { return strings.ReplaceAll(text, " %", "\u00a0%") }, // on one line
	}).Parse(frameHTML))
	return template.Must(t.New("page").Parse(html))
}

// writePage writes a page. One that fails half-way is not written at all.
func writePage(w io.Writer, t *template.Template, p any) error {
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err := out.WriteTo(w)
	return err
}

// policy lets the page run the given scripts and nothing else, and keeps it from loading anything.
func policy(scripts ...string) string {
	p := "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; script-src"
	if len(scripts) == 0 {
		return p + " 'none'"
	}
	for _, s := range scripts {
		sum := sha256.Sum256([]byte(s))
		p += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return p
}
