package results

import (
	"fmt"
	"strings"
)

// MarkdownTable returns a table in GitHub's dialect. So many cells at the front of a row are names and so many at its
// end are words; those between are figures.
func MarkdownTable(heading []string, names, words int, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(&b, "| %s ", MarkdownText(c))
		}
		b.WriteString("|\n")
	}
	line(heading)
	for i := range heading {
		if i < names || i >= len(heading)-words {
			b.WriteString("|:--")
		} else {
			b.WriteString("|--:")
		}
	}
	b.WriteString("|\n")
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// MarkdownText returns text that Markdown shows as it is, in one line.
func MarkdownText(text string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(text), " ") {
		if strings.ContainsRune("\\`*_{}[]<>#|~&", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
