package report

import (
	_ "embed"
	"io"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

//go:embed check.html
var checkHTML string

var checkTemplate = newTemplate(checkHTML)

// CheckPage is what a gate found, as text, to be shown as a page.
type CheckPage struct {
	Verdict, Headline     string
	Conditions            []results.NamedValue
	Power, Warnings, Next []string
	Cases                 []CheckedCase
}

// CheckedCase is a table of a CheckPage.
type CheckedCase struct {
	Name string
	Rows []CheckedFigure
}

// CheckedFigure is a row of a CheckPage. Bounds is the threshold, or the interval of the change. Gates says that the
// figure can fail the check.
type CheckedFigure struct {
	Figure, Before, Now, Change, Bounds string
	Verdict                             compare.Verdict
	Gates                               bool
}

// Class returns the class of the verdict in the style. Only figures that gate stand out.
func (r CheckedFigure) Class() string {
	if !r.Gates {
		return "even"
	}
	return comparisonRow{Verdict: r.Verdict}.Class()
}

// CheckHTML writes what a gate found as a page. It has no charts.
func CheckHTML(w io.Writer, c CheckPage) error {
	p := struct {
		frame
		CheckPage
	}{newPlainFrame("Check: "+c.Verdict, "check"), c}
	return writePage(w, checkTemplate, p)
}
