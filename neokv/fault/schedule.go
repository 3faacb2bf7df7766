package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// FaultEvent is a fault at a point of a schedule. A fault that lasts may end after some time.
type FaultEvent struct {
	At    time.Duration // since the schedule began
	For   time.Duration // how long it lasts; 0 for until it is ended
	Fault Fault
}

// String returns the text of the event, which ParseEvent reads: "at 1.2s for 300ms: pause 2".
func (e FaultEvent) String() string {
	if e.For > 0 {
		return fmt.Sprintf("at %s for %s: %s", e.At, e.For, e.Fault)
	}
	return fmt.Sprintf("at %s: %s", e.At, e.Fault)
}

// MarshalText writes the event as String does.
func (e FaultEvent) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the event as ParseEvent does.
func (e *FaultEvent) UnmarshalText(text []byte) (err error) {
	*e, err = ParseEvent(string(text))
	return err
}

// ParseEvent reads the text of an event.
func ParseEvent(text string) (e FaultEvent, err error) {
	when, what, found := strings.Cut(text, ":")
	words := strings.Fields(when)
	switch {
	case !found || len(words) != 2 && len(words) != 4 || words[0] != "at" || len(words) == 4 && words[2] != "for":
		err = fmt.Errorf(`want "at TIME: FAULT" or "at TIME for TIME: FAULT"`)
	default:
		var problems []error
		e.At, err = moment(words[1])
		problems = append(problems, err)
		if len(words) == 4 {
			if e.For, err = moment(words[3]); err == nil && e.For == 0 {
				err = errors.New("0s is no time to last")
			}
			problems = append(problems, err)
		}
		e.Fault, err = Parse(what)
		problems = append(problems, err)
		if err == nil && e.For > 0 && !e.Fault.Lasts() {
			problems = append(problems, fmt.Errorf("%s does not last", e.Fault.Verb))
		}
		if err = errors.Join(problems...); err != nil {
			err = errors.New(oneLine(err))
		}
	}
	if err != nil {
		return FaultEvent{}, fmt.Errorf("event %.100q: %w", text, err)
	}
	return e, nil
}

func moment(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxTime {
		return 0, fmt.Errorf("%q is no time from 0s to %s", text, maxTime)
	}
	return d, nil
}

// ParseSchedule reads events, one in a line. It leaves out empty lines and lines that begin with "#". The error lists
// every line that is wrong.
func ParseSchedule(text string) (all Schedule, err error) {
	var problems []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		e, err := ParseEvent(line)
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", n, err))
			continue
		}
		all = append(all, e)
	}
	return all, errors.Join(problems...)
}

// Schedule is events in the order in which they begin.
type Schedule []FaultEvent

// String returns the text of the schedule, an event in a line.
func (s Schedule) String() string {
	var out strings.Builder
	for _, e := range s {
		fmt.Fprintln(&out, e)
	}
	return out.String()
}
