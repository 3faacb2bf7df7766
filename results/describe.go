package results

// What the table on the screen says in words, for those who show a result in another form.

// Where says on what was measured, and whether the data would have survived a power failure.
func (h *Header) Where() string { return on(*h) }

// Describe says what the clients of a group sent.
func (g ClientGroup) Describe() string { return title(g, "", loop(g)) }

// Rows returns the table of a group, with its heading: a row per operation, and in an open loop another one for its
// service time. The first cell of a row is the operation, and in an open loop the second one is the time; the others
// are figures.
func (g *GroupSummary) Rows(open bool) [][]string { return opRows(*g, open) }

// Notes returns the lines that stand below the table of a group.
func (g *GroupSummary) Notes() []string { return g.notes() }

// Notes returns the lines that stand below all tables, without events, warnings, and how the run ended.
func (s *Summary) Notes(h *Header) []string {
	plain := *s
	plain.Events, plain.Warnings, plain.Interrupted, plain.Failure = nil, nil, false, ""
	return notes(*h, plain)
}
