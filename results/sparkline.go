package results

import "strings"

// Sparkline draws the last values, one a column, from 0 to the greatest of them.
func Sparkline(values []float64, width int) string {
	const levels = "▁▂▃▄▅▆▇█"
	values = values[max(0, len(values)-width):]
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	for _, v := range values {
		level := 0
		if top > 0 {
			level = int(v/top*7 + 0.5)
		}
		b.WriteString(levels[3*level : 3*level+3]) // three bytes each
	}
	return b.String()
}
