// Package tuning is about searches for settings: the file that such a search leaves, what each knob does to the
// objective, which configurations no other one beats in everything, and whether the winner was confirmed.
package tuning

import (
	"errors"
	"io"
	"time"

	"neokv.dev/results"
)

// FileFormat is the version of the files. Since version 2 percentiles are those of all operations that were due. Since
// version 3 chance deals the places of the default, too.
const FileFormat = 3

// StudyPlan says what a search is about: the first line of its file, and all that it takes to go on with it.
type StudyPlan struct {
	Format  int             `json:"tuning_format"`
	Started time.Time       `json:"started"`
	Command []string        `json:"command,omitempty"`
	Build   results.Build   `json:"build"`
	Machine results.Machine `json:"machine"`

	Profile   string    `json:"profile"`
	Set       []string  `json:"set,omitempty"` // settings of all trials, name=value
	Load      Load      `json:"load"`
	Knobs     []Knob    `json:"knobs"`
	Objective Objective `json:"objective"`
	Subjects  []Subject `json:"subjects,omitempty"`

	Budget time.Duration `json:"budget_ns"`
	Block  time.Duration `json:"block_ns"` // the measured part of a trial
	Warmup time.Duration `json:"warmup_ns"`
	Cold   bool          `json:"cold,omitempty"`   // each trial begins with its data files out of the page cache
	Around bool          `json:"around,omitempty"` // try the winner on loads near this one
	Seed   uint64        `json:"seed"`
}

// Load is what every trial sends.
type Load struct {
	Workload  string `json:"workload"`
	Clients   int    `json:"clients"`
	Pipeline  int    `json:"pipeline"`
	Rate      string `json:"rate,omitempty"` // empty for a closed loop
	Records   uint64 `json:"records"`
	Elements  int    `json:"elements"`
	ValueSize int    `json:"value_size"`
}

// Knob is a setting with the values to try.
type Knob struct {
	Setting string   `json:"setting"`
	Values  []string `json:"values"` // the default is one of them
	Default string   `json:"default"`
	Ordered bool     `json:"ordered,omitempty"` // the values are numbers, and grow
	// Shapes says that data keeps the form that the setting gave it, so a trial with another value needs data of its
	// own.
	Shapes bool `json:"shapes,omitempty"`
}

// Objective is the figure to make better.
type Objective struct {
	Figure string            `json:"figure"`
	Better results.Direction `json:"better"`
}

func (o Objective) String() string {
	if o.Better == results.Higher {
		return "max " + o.Figure
	}
	return "min " + o.Figure
}

// Gain returns how much better a ratio is than 1, by its logarithm: more than 0 if it is better.
func (o Objective) Gain(log float64) float64 {
	if o.Better == results.Lower {
		return -log
	}
	return log
}

// Subject is what a configuration must hold, as the median of its trials.
type Subject struct {
	Text   string  `json:"text"` // as typed
	Figure string  `json:"figure"`
	Below  bool    `json:"below"` // the figure must be below the limit, else above
	Limit  float64 `json:"limit"`
}

// Holds reports whether a value meets the subject.
func (c Subject) Holds(value float64) bool {
	if c.Below {
		return value < c.Limit
	}
	return value > c.Limit
}

// Phase says what a trial is for.
type Phase string

const (
	Curves  Phase = "curves"  // one knob at a time, every value
	Search  Phase = "search"  // several knobs together
	Race    Phase = "race"    // the best so far, again
	Confirm Phase = "confirm" // the winner and the default, with seeds that nothing has used before
	Gain    Phase = "gain"    // the same again, once the winner is confirmed: what the gain is
	Hold    Phase = "hold"    // the winner and the default under other circumstances
	Around  Phase = "around"  // the winner and the default on loads near that of the plan
)

// StudyTrial is one run of one configuration: a line of the file.
type StudyTrial struct {
	Phase Phase  `json:"phase"`
	Round int    `json:"round"`
	Load  string `json:"load,omitempty"` // what differs from the load of the plan
	// Set are the settings that differ from the default, name=value, in the order of the knobs.
	Set   []string `json:"set,omitempty"`
	Again bool     `json:"again,omitempty"` // a second trial of the default in a round
	Seed  uint64   `json:"seed"`

	Started time.Time        `json:"started"`
	Took    time.Duration    `json:"took_ns"` // with all that had to be prepared
	Figures []results.Figure `json:"figures,omitempty"`
	// RowCache is the share of look-ups of records that the row cache answered. MissedBlocks counts blocks that the
	// block cache did not have, and DiskBytes what the system fetched from disks; the rest came from the page cache.
	RowCache     float64 `json:"row_cache,omitempty"`
	MissedBlocks int64   `json:"missed_blocks,omitempty"`
	DiskBytes    int64   `json:"disk_bytes,omitempty"`
	// Failure says why the trial has no figures, such as settings that cannot boot.
	Failure string `json:"failure,omitempty"`
}

// Figure returns a figure of the trial.
func (t *StudyTrial) Figure(name string) (value float64, ok bool) {
	for _, f := range t.Figures {
		if f.Name == name {
			return f.Value, true
		}
	}
	return 0, false
}

// Default reports whether the trial was one of the default.
func (t *StudyTrial) Default() bool { return len(t.Set) == 0 }

// Study is a plan with the trials so far: a file with a line of results.WriteLine for each.
type Study struct {
	Plan   StudyPlan
	Trials []StudyTrial
	// Curved says that the curves have had all their rounds, and Done that the study has ended. A file does not have
	// them, since they follow from the plan and the trials.
	Curved, Done bool
}

// Read reads a study. It also returns how many bytes of the file it took: a last line that is cut off is left out.
func Read(r io.Reader) (s *Study, size int64, err error) {
	s = &Study{}
	s.Plan, s.Trials, size, err = results.ReadLines[StudyPlan, StudyTrial](r, "tuning", FileFormat,
		func(p *StudyPlan) int { return p.Format })
	if errors.Is(err, results.ErrOtherFile) {
		err = errors.New("not a file of neokv tune")
	}
	return s, size, err
}
