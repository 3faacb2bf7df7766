package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/settings"
	"neokv.dev/results"
	"neokv.dev/workloads"
)

// ScheduledEvent is something that a run does at an instant of its measured part: it changes a rate, sends a command,
// or brings about a fault.
type ScheduledEvent struct {
	At time.Duration
	Do string // as typed

	group   string   // whose rate changes, empty for the first
	rate    Pace     // what it becomes, from At on
	command []string // nil if it is something else
	fault   bool     // Do is the text of a fault
}

// EventForms says what an event can do.
const EventForms = "rate PLAN, rate of GROUP PLAN, a Redis command such as FLUSHALL or CONFIG SET name value, or a " +
	"fault as neokv ctl takes it, such as kill 2"

// ParseEvent reads `TIME WHAT`, such as `10s FLUSHALL` or `10s rate 20000`.
func ParseEvent(text string) (ScheduledEvent, error) {
	at, what, _ := strings.Cut(strings.TrimSpace(text), " ")
	e, wrong := newEvent(at, what)
	for i, err := range wrong {
		if err == errPassword {
			text = at // of the rest nobody knows which word it is
		}
		wrong[i] = fmt.Errorf("at %q: %w", text, err)
	}
	return e, errors.Join(wrong...)
}

func newEvent(at, what string) (e ScheduledEvent, wrong problems) {
	e.Do = strings.TrimSpace(what)
	var err error
	if e.At, err = time.ParseDuration(at); err != nil || e.At < 0 {
		wrong.add(fmt.Errorf("time %q, want a duration such as 10s", at))
	}
	words, err := splitWords(e.Do)
	wrong.add(err)
	switch {
	case err != nil:
	case len(words) == 0:
		wrong.add(errors.New("nothing to do, want " + EventForms))
	case words[0] == "rate":
		words = words[1:]
		if len(words) >= 2 && words[0] == "of" {
			e.group, words = words[1], words[2:]
		}
		e.rate, err = ParsePace(strings.Join(words, " "))
		wrong.add(err)
		wrong.check(err != nil || e.rate.Open(), "rate 0: a group does not become a closed loop")
	case slices.Contains(fault.Verbs(), fault.Verb(words[0])): // none of these is a Redis command
		e.fault = true
	case hasPassword(words):
		wrong.add(errPassword)
	default:
		e.command = words
	}
	return e, wrong
}

var errPassword = errors.New("the command has a password, which results would show")

// hasPassword reports whether a command is one of those with a password.
func hasPassword(words []string) bool {
	has := func(names ...string) bool {
		return slices.ContainsFunc(words[1:], func(word string) bool {
			return slices.Contains(names, strings.ToLower(word))
		})
	}
	switch strings.ToLower(words[0]) {
	case "auth":
		return true
	case "hello", "migrate":
		return has("auth", "auth2")
	case "acl":
		return has("setuser")
	case "config":
		return has("requirepass", "masterauth", "masteruser", "tls-key-file-pass", "tls-client-key-file-pass")
	}
	return false
}

// Hurts reports whether the event is a fault.
func (e ScheduledEvent) Hurts() bool { return e.fault }

// splitWords splits a command at spaces. A word in double quotes may have any bytes, written as in Go.
func splitWords(text string) (words []string, err error) {
	for {
		text = strings.TrimLeft(text, " \t")
		if text == "" {
			return words, nil
		}
		end := strings.IndexAny(text+" ", " \t")
		word := text[:end]
		if text[0] == '"' {
			quoted, err := strconv.QuotedPrefix(text)
			if err != nil {
				return nil, fmt.Errorf("%s: a quote has no end", text)
			}
			end = len(quoted)
			if word, err = strconv.Unquote(quoted); err != nil {
				return nil, fmt.Errorf("%s: %w", quoted, err)
			}
		}
		words, text = append(words, word), text[end:]
	}
}

// ReadSchedule reads a list of events in YAML, each with `at` and `do`. Its error has a line for each problem, with the
// name of the file and the line.
func ReadSchedule(name string, text []byte) (events []ScheduledEvent, err error) {
	var wrong problems
	complain := func(line int, err error) { wrong.add(fmt.Errorf("%s:%d: %w", name, max(1, line), err)) }
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.SequenceNode {
		complain(doc.Line, errors.New("want a list of events, each with `at` and `do`"))
		return nil, errors.Join(wrong...)
	}
	for _, item := range doc.Content[0].Content {
		fields := map[string]string{}
		if item.Kind != yaml.MappingNode {
			complain(item.Line, errors.New("want an event with `at` and `do`"))
			continue
		}
		for i := 0; i+1 < len(item.Content); i += 2 {
			key, value := item.Content[i], item.Content[i+1]
			switch _, twice := fields[key.Value]; {
			case key.Value != "at" && key.Value != "do":
				complain(key.Line, fmt.Errorf("%s: unknown, want at, do", key.Value))
			case twice:
				complain(key.Line, fmt.Errorf("%s is there twice", key.Value))
			case value.Kind != yaml.ScalarNode:
				complain(value.Line, fmt.Errorf("%s: want text", key.Value))
			}
			fields[key.Value] = value.Value
		}
		e, wrong := newEvent(fields["at"], fields["do"])
		for _, err := range wrong {
			complain(item.Line, err)
		}
		events = append(events, e)
	}
	return events, errors.Join(wrong...)
}

// checkEvents says what is wrong with the schedule.
func (o *Options) checkEvents() (wrong problems) {
	wrong.check(len(o.Events) <= maxEvents, "events: %d, want at most %d", len(o.Events), maxEvents)
	wrong.check(len(o.Events) == 0 || o.Search == nil, "events: a search has no schedule")
	for _, e := range o.Events {
		wrong.check(e.At < o.Duration, "at %s %s: the measured part ends after %s", e.At, e.Do, o.Duration)
		if e.fault {
			f, err := fault.Parse(e.Do)
			if err == nil && o.Stores > 0 {
				err = f.Check(o.Stores)
			}
			if o.Inject == nil {
				wrong.check(false, "at %s %s: the target takes no faults", e.At, e.Do)
			} else if err != nil {
				wrong.check(false, "at %s %v", e.At, err)
			}
			continue
		}
		if e.command != nil {
			wrong.check(!o.Verify || !workloads.MayWrite(e.command[0]),
				"at %s %s: it may write, and --verify reads back what the clients alone have written", e.At, e.Do)
			continue
		}
		i := slices.IndexFunc(o.Groups, func(g GroupOptions) bool { return e.group == "" || g.Name == e.group })
		switch {
		case i < 0:
			wrong.check(len(o.Groups) == 0, "at %s %s: there is no group %s", e.At, e.Do, e.group)
		case !o.Groups[i].Rate.Open():
			wrong.check(false, "at %s %s: group %s is a closed loop, which has no rate", e.At, e.Do, o.Groups[i].Name)
		default:
			wrong.check(e.rate.spread == even || e.rate.spread == o.Groups[i].Rate.spread,
				"at %s %s: the starts of group %s are %s and stay so; give it a rate with %s", e.At, e.Do,
				o.Groups[i].Name,
				map[spread]string{even: "even", jitter: "with jitter", poisson: "random"}[o.Groups[i].Rate.spread],
				e.rate.spread)
		}
	}
	return wrong
}

const maxEvents = 10_000

// schedule describes the events for the header.
func (o *Options) schedule() *results.Schedule {
	var lines []string
	faults := 0
	for _, e := range o.Events {
		lines = append(lines, e.At.String()+" "+e.Do)
		if e.fault {
			faults++
		}
	}
	return results.NewSchedule(lines, faults)
}

// withEvents returns the plan of a group with the changes of its rate.
func (r *run) withEvents(g *loadGroup) Pace {
	p := g.o.Rate
	for _, e := range r.o.Events {
		if e.rate.Open() && (e.group == g.o.Name || e.group == "" && g.number == 0) {
			p = p.then(e.At, e.rate)
		}
	}
	return p
}

// follow does what is scheduled for a segment, one event after the other, until the segment ends. Rates change by
// themselves, since the plans have the changes.
func (r *run) follow(seg *phaseSegment) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for _, e := range r.o.Events {
		timer.Reset(seg.start + e.At - r.now())
		select {
		case <-timer.C:
		case <-seg.over:
			if seg.start+e.At > r.now() {
				return
			}
		case <-seg.ctx.Done():
		}
		if seg.ctx.Err() != nil {
			return
		}
		happened := results.Event{At: (r.now() - seg.start).Seconds(), Do: e.Do}
		var err error
		switch {
		case e.fault:
			happened.Outcome, err = r.o.Inject(seg.ctx, fault.MustParse(e.Do))
		case e.command != nil:
			err = r.target.tell(seg.ctx, e.command)
		}
		if err != nil {
			happened.Error = err.Error()
		}
		r.mu.Lock()
		r.happened = append(r.happened, happened)
		r.mu.Unlock()
	}
}

// eventGrace is how long the end of the load waits for events that were due before. A fault of NeoKV gives up earlier
// by itself.
const eventGrace = 20 * time.Second

// finishEvents waits, when the load of a segment is over, until the events that were due have been carried out. Where
// the run stops early, or the events take too long, it ends them.
func (r *run) finishEvents(ctx context.Context, seg *phaseSegment, wait bool) {
	close(seg.over)
	if !wait {
		seg.end()
	}
	ctx, cancel := context.WithTimeout(ctx, eventGrace)
	defer cancel()
	defer context.AfterFunc(ctx, seg.end)()
	r.following.Wait()
}

// events returns what has happened from the n-th event on.
func (r *run) events(n int) []results.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.happened[n:])
}

// knows refuses events whose first word is neither a fault nor a command of the target. A target that does not list its
// commands takes all. The error is an OptionsError.
func (t *target) knows(ctx context.Context, events []ScheduledEvent) error {
	var wrong problems
	var known []string
	for _, e := range events {
		if e.command == nil {
			continue
		}
		if known == nil {
			v, err := t.ask(ctx, t.addr(0), "COMMAND")
			if err != nil {
				return nil
			}
			rows, _ := v.([]any)
			if len(rows) == 0 {
				return nil
			}
			for _, row := range rows {
				if fields, _ := row.([]any); len(fields) > 0 {
					known = append(known, fmt.Sprint(fields[0]))
				}
			}
		}
		if name := strings.ToLower(e.command[0]); !slices.Contains(known, name) {
			for _, v := range fault.Verbs() {
				known = append(known, string(v))
			}
			wrong.add(fmt.Errorf("at %s %s: %s is neither a command of the target nor a fault%s", e.At, e.Do, name,
				settings.DidYouMean(name, known)))
		}
	}
	if len(wrong) > 0 {
		return &OptionsError{errors.Join(wrong...)}
	}
	return nil
}

// tell sends a command to whom it concerns: what empties the data to every node that has slots, CONFIG to every node,
// any other command to the node of its first argument, which in most commands is the key.
func (t *target) tell(ctx context.Context, command []string) error {
	table := t.table.Load()
	var to []string
	switch strings.ToUpper(command[0]) {
	case "CONFIG":
		to = t.members()
	case "FLUSHALL", "FLUSHDB":
		if to = t.members(); table != nil {
			to = t.serving(table)
		}
	default:
		addr := t.addr(0)
		if table != nil && len(command) > 1 {
			addr = t.addr(max(0, table[slotOf([]byte(command[1]))]))
		}
		return t.tellOne(ctx, addr, command)
	}
	var failed problems
	for _, addr := range to {
		if err := t.tellOne(ctx, addr, command); err != nil {
			failed.add(fmt.Errorf("%s: %w", addr, err))
		}
	}
	return errors.Join(failed...)
}

// tellOne sends a command to a node, and on to where it is redirected.
func (t *target) tellOne(ctx context.Context, addr string, command []string) error {
	for range maxRedirects {
		_, err := t.ask(ctx, addr, command...)
		var refused serverError
		if !errors.As(err, &refused) {
			return err
		}
		words := strings.Fields(string(refused))
		if len(words) != 3 || words[0] != "MOVED" {
			return refused
		}
		addr = t.addr(t.redirectID(words[2]))
	}
	return errors.New("redirected too often")
}

// serving returns the addresses of the nodes that have slots.
func (t *target) serving(table *slotTable) (addrs []string) {
	known := map[nodeID]bool{noNode: true}
	for _, id := range table {
		if !known[id] {
			known[id] = true
			addrs = append(addrs, t.addr(id))
		}
	}
	return addrs
}
