package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/settings"
)

// A scenario is what happens to a cluster: how it is made, what its clients do, and which faults happen. Its text is
// a list of phrases between commas or line ends, and String gives the same list back:
//
//	any shape, raft.max_inflight 8
//	6 clients, an operation every 10ms, one in three through the proxy, 3 chat clients, publishers and subscribers
//	reads 3, writes 2, pipelines 1
//	stall writes, draws kill partition every 1s
//	every 2s for 10ms: kill all
//	at 1.2s for 300ms: link 1 2,3 loss=10%
//
// A line that begins with "at" is an event of the schedule. One with "every" comes again and again, after this time or
// up to half as much more or less. "draws" lets the seed draw faults of these verbs, with such a time between two of
// one verb. "drawn faults all" alone lets the seed draw the scenario.
//
// The number behind an operation is its weight among the operations: clients choose at random. The numbers of clients
// and operations set the rate of the load; without "an operation every" the seed chooses one between 5 and 50 ms.
type scenario struct {
	anyShape bool // the seed chooses the shape of the cluster, and how writes share entries
	tcp      bool // stores send messages on connections, which are in memory in virtual time
	skewed   bool // the clocks of stores disagree by as much as the seed says
	settings []setting

	clients int
	every   time.Duration // the clients together begin one operation in this time; 0 where the seed chooses
	proxy   int           // one in so many clients uses the proxy port; 0 for none
	caches  int           // clients that cache what they read, beside the others; see caching.go
	chats   int           // clients of a chat, beside the others; see chat.go
	queues  int           // queues of jobs, with clients of their own; see queue.go

	messages bool // publishers and subscribers, beside the others; see messages.go

	mix      []weighted
	faults   []happening    // side by side, until the time is over
	draws    []draws        // of the schedule
	repeats  fault.Schedule // of the schedule; At is the mean time between two
	schedule fault.Schedule // beside the faults

	drawn []string // not nil: the seed draws all of the above, with faults of these kinds; see draw
}

// draws are faults that the seed draws.
type draws struct {
	verbs string        // between spaces
	gap   time.Duration // the mean between two events of one verb
}

func (x draws) String() string { return drawsPhrase + x.verbs + " every " + x.gap.String() }

// parseDraws reads what follows drawsPhrase.
func parseDraws(text string) (x draws, err error) {
	verbs, gap, _ := strings.Cut(text, " every ")
	x.verbs = verbs
	if x.gap, err = time.ParseDuration(gap); err == nil && x.gap < time.Millisecond {
		err = errors.New("want a time of 1ms at least")
	}
	if err != nil {
		return x, fmt.Errorf("scenario: %s%s: %w", drawsPhrase, text, err)
	}
	for verb := range strings.SplitSeq(verbs, " ") {
		if !slices.Contains(fault.Drawn(), fault.Verb(verb)) {
			return x, fmt.Errorf("scenario: %s%s: no fault %q is drawn; want some of %v", drawsPhrase, text, verb, fault.Drawn())
		}
	}
	return x, nil
}

// setting is a knob or a constant whose value differs from simSettings.
type setting struct{ name, value string }

// constants are what a scenario may change beside the knobs.
var constants = map[string]func(*settings.Settings) *int{
	"reclaim steps of":     func(k *settings.Settings) *int { return &k.Redis.ReclaimKeys },
	"range deletions from": func(k *settings.Settings) *int { return &k.Redis.ReclaimRange },
}

// apply changes settings as the setting says.
func (x setting) apply(k *settings.Settings) (err error) {
	if constant := constants[x.name]; constant != nil {
		*constant(k), err = strconv.Atoi(x.value)
		return err
	}
	return k.Set(x.name, x.value)
}

// weighted is an operation that clients choose weight times as often as one of weight 1.
type weighted struct {
	operation
	weight int
}

// What phrases without a number say, besides faults.
const (
	anyShapePhrase = "any shape"
	tcpPhrase      = "over TCP"
	skewedPhrase   = "clocks disagree"
	messagesPhrase = "publishers and subscribers"
	everyPhrase    = "an operation every "
	drawnPhrase    = "drawn faults "
	drawsPhrase    = "draws "
)

// proxyPhrases say how many clients use the proxy port.
var proxyPhrases = map[string]int{"one in three through the proxy": 3, "all through the proxy": 1}

// parseScenario reads the text of a scenario.
func parseScenario(text string) (s scenario, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "at ") {
			e, err := fault.ParseEvent(line)
			if err != nil {
				return s, fmt.Errorf("scenario: %w", err)
			}
			s.schedule = append(s.schedule, e)
			continue
		}
		if rest, repeats := strings.CutPrefix(line, "every "); repeats {
			e, err := fault.ParseEvent("at " + rest)
			if err == nil && e.At < time.Millisecond {
				err = errors.New("want a time of 1ms at least")
			}
			if err != nil {
				return s, fmt.Errorf("scenario: %q: %w", line, err)
			}
			s.repeats = append(s.repeats, e)
			continue
		}
		for phrase := range strings.SplitSeq(line, ",") {
			if phrase = strings.TrimSpace(phrase); phrase == "" {
				continue
			}
			if err := s.add(phrase); err != nil {
				return s, err
			}
		}
	}
	rest := s
	if rest.drawn = nil; s.drawn != nil && rest.String() != (scenario{}).String() {
		return s, fmt.Errorf("scenario: %q stands alone", strings.TrimSpace(drawnPhrase))
	}
	return s, nil
}

// add takes one phrase.
func (s *scenario) add(phrase string) (err error) {
	if i := slices.IndexFunc(faults, func(f happening) bool { return f.phrase == phrase }); i >= 0 {
		s.faults = append(s.faults, faults[i])
		return nil
	}
	switch phrase {
	case anyShapePhrase:
		s.anyShape = true
		return nil
	case tcpPhrase:
		s.tcp = true
		return nil
	case skewedPhrase:
		s.skewed = true
		return nil
	case messagesPhrase:
		s.messages = true
		return nil
	}
	if kinds, ok := strings.CutPrefix(phrase, drawnPhrase); ok {
		s.drawn = strings.Fields(kinds)
		return checkDrawn(s.drawn)
	}
	if text, ok := strings.CutPrefix(phrase, drawsPhrase); ok {
		x, err := parseDraws(text)
		s.draws = append(s.draws, x)
		return err
	}
	if n := proxyPhrases[phrase]; n > 0 {
		s.proxy = n
		return nil
	}
	if every, ok := strings.CutPrefix(phrase, everyPhrase); ok {
		s.every, err = time.ParseDuration(every)
		return err
	}
	if n, ok := strings.CutSuffix(phrase, " chat clients"); ok {
		s.chats, err = strconv.Atoi(n)
		return err
	}
	if n, ok := strings.CutSuffix(phrase, " caching clients"); ok {
		s.caches, err = strconv.Atoi(n)
		return err
	}
	if n, ok := strings.CutSuffix(phrase, " queues"); ok {
		s.queues, err = strconv.Atoi(n)
		return err
	}
	if n, ok := strings.CutSuffix(phrase, " clients"); ok {
		s.clients, err = strconv.Atoi(n)
		return err
	}
	i := strings.LastIndexByte(phrase, ' ')
	if i < 0 {
		return fmt.Errorf("scenario: %q is no phrase", phrase)
	}
	name, value := phrase[:i], phrase[i+1:]
	if strings.Contains(name, ".") || constants[name] != nil {
		x := setting{name, value}
		if err := x.apply(simSettings()); err != nil {
			return fmt.Errorf("scenario: %w", err)
		}
		s.settings = append(s.settings, x)
		return nil
	}
	at := slices.IndexFunc(operations, func(o operation) bool { return o.name == name })
	weight, err := strconv.Atoi(value)
	if at < 0 || err != nil || weight < 1 {
		return fmt.Errorf("scenario: %q is neither a fault nor an operation with its weight", phrase)
	}
	s.mix = append(s.mix, weighted{operations[at], weight})
	return nil
}

// String is the scenario's text: a line each for the cluster, the clients, the operations, the faults and each event.
func (s scenario) String() string {
	if s.drawn != nil {
		return drawnPhrase + strings.Join(s.drawn, " ")
	}
	var cluster, clients, mix, faults []string
	for _, x := range []struct {
		said   bool
		phrase string
	}{{s.anyShape, anyShapePhrase}, {s.tcp, tcpPhrase}, {s.skewed, skewedPhrase}} {
		if x.said {
			cluster = append(cluster, x.phrase)
		}
	}
	for _, x := range s.settings {
		cluster = append(cluster, x.name+" "+x.value)
	}
	clients = append(clients, fmt.Sprint(s.clients, " clients"))
	if s.every > 0 {
		clients = append(clients, everyPhrase+s.every.String())
	}
	for phrase, n := range proxyPhrases {
		if n == s.proxy {
			clients = append(clients, phrase)
		}
	}
	if s.chats > 0 {
		clients = append(clients, fmt.Sprint(s.chats, " chat clients"))
	}
	if s.messages {
		clients = append(clients, messagesPhrase)
	}
	if s.caches > 0 {
		clients = append(clients, fmt.Sprint(s.caches, " caching clients"))
	}
	if s.queues > 0 {
		clients = append(clients, fmt.Sprint(s.queues, " queues"))
	}
	for _, o := range s.mix {
		mix = append(mix, fmt.Sprint(o.name, " ", o.weight))
	}
	for _, f := range s.faults {
		faults = append(faults, f.phrase)
	}
	for _, x := range s.draws {
		faults = append(faults, x.String())
	}
	var lines []string
	for _, phrases := range [][]string{cluster, clients, mix, faults} {
		if len(phrases) > 0 {
			lines = append(lines, wrapped(phrases))
		}
	}
	for _, e := range s.repeats {
		lines = append(lines, "every "+strings.TrimPrefix(e.String(), "at "))
	}
	for _, e := range s.schedule {
		lines = append(lines, e.String())
	}
	return strings.Join(lines, "\n")
}

// wrapped joins phrases, with a line end behind a comma where a line would get longer than 110 bytes.
func wrapped(phrases []string) string {
	var out strings.Builder
	width := 0
	for i, phrase := range phrases {
		switch {
		case i == 0:
		case width+2+len(phrase) > 110:
			out.WriteString(",\n")
			width = 0
		default:
			out.WriteString(", ")
			width += 2
		}
		out.WriteString(phrase)
		width += len(phrase)
	}
	return out.String()
}

// set changes settings as the scenario says.
func (s scenario) set(k *settings.Settings) error {
	for _, x := range s.settings {
		if err := x.apply(k); err != nil {
			return err
		}
	}
	return nil
}

// weight is the sum of the weights of the operations.
func (s scenario) weight() (sum int) {
	for _, o := range s.mix {
		sum += o.weight
	}
	return sum
}

// choose returns the operation that a number below the sum of the weights stands for.
func (s scenario) choose(n int) operation {
	for _, o := range s.mix {
		if n -= o.weight; n < 0 {
			return o.operation
		}
	}
	panic(fmt.Sprintf("choose: %d is beyond the weights of %s", n, s))
}
