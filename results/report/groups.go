package report

import (
	"cmp"
	"slices"

	"neokv.dev/results"
)

// matched is a group of clients that stands in several results. Groups of the same name belong together, and so do the
// groups of results that have only one each, whatever their names.
type matched struct {
	name string
	at   []int // its place in the groups of each result, -1 where it has none
}

func matchGroups(subjects []results.ResultFile) []matched {
	single := true
	for _, s := range subjects {
		single = single && len(s.Result.Header.Groups) <= 1
	}
	var out []matched
	for i, s := range subjects {
		for at, g := range s.Result.Header.Groups {
			k := slices.IndexFunc(out, func(m matched) bool { return (single || m.name == g.Name) && m.at[i] < 0 })
			if k < 0 {
				out = append(out, matched{g.Name, slices.Repeat([]int{-1}, len(subjects))})
				k = len(out) - 1
			}
			out[k].at[i] = at
		}
	}
	if single && len(out) == 1 {
		for _, s := range subjects[1:] {
			if g := s.Result.Header.Groups; len(g) > 0 && g[0].Name != out[0].name {
				out[0].name = ""
			}
		}
	}
	return out
}

// of returns the load and the figures of the group in result i. The figures are nil if the result has none.
func (m matched) of(i int, r *results.Result) (results.ClientGroup, *results.GroupSummary) {
	at := m.at[i]
	if at < 0 {
		return results.ClientGroup{}, nil
	}
	load := r.Header.Groups[at]
	load.Workload = cmp.Or(load.Workload, load.Name)
	s := r.Measured()
	if at >= len(s.Groups) {
		return load, nil
	}
	return load, &s.Groups[at]
}

// events returns what the schedule of a run did: of a run without a summary, what its intervals say.
func events(r *results.Result) []results.Event {
	if r.Summary != nil && len(r.Summary.Events) > 0 {
		return r.Summary.Events
	}
	var out []results.Event
	for _, iv := range r.Intervals {
		out = append(out, iv.Events...)
	}
	return out
}
