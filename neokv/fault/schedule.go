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

// ParseEvent reads the text of an event.
func ParseEvent(text string) (e FaultEvent, err error) {
	when, what, found := strings.Cut(text, ":")
	words := strings.Fields(when)
	var problems []error
	if !found || len(words) != 2 && len(words) != 4 || words[0] != "at" || len(words) == 4 && words[2] != "for" {
		problems = append(problems, errors.New(`want "at TIME: FAULT" or "at TIME for TIME: FAULT"`))
	} else {
		var wrong [4]error
		e.At, wrong[0] = moment(words[1])
		if len(words) == 4 {
			if e.For, wrong[1] = moment(words[3]); wrong[1] == nil && e.For == 0 {
				wrong[1] = errors.New("0s is no time to last")
			}
		}
		if e.Fault, wrong[2] = Parse(what); wrong[2] == nil && e.For > 0 && !e.Fault.Lasts() {
			wrong[3] = fmt.Errorf("%s does not last", e.Fault.Verb)
		}
		problems = wrong[:]
	}
	if err := errors.Join(problems...); err != nil {
		return FaultEvent{}, fmt.Errorf("event %.100q: %s", text, oneLine(err))
	}
	return e, nil
}

func moment(text string) (time.Duration, error) {
	d, err := span(text)
	if err != nil {
		err = fmt.Errorf("%q is no time from 0s to %s", text, maxTime)
	}
	return d, err
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
