package workloads

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Recording reads what MONITOR of a redis-server printed, line by line:
//
//	1700000000.123456 [0 127.0.0.1:50000] "SET" "key" "a \"value\"\x00"
//
// It leaves out what cannot be sent again, or means nothing on another connection, and counts that by command. It keeps
// one line in memory.
type Recording struct {
	path    string // for messages
	in      *bufio.Reader
	line    int
	first   int64 // the instant of the first command, in microseconds
	last    time.Duration
	skipped map[string]int64
	clients map[string]int
}

// Recorded is one command of a recording.
type Recorded struct {
	At     time.Duration // since the first command, never before the one that was read last
	Client int           // clients are numbered in the order in which they appear
	Name   string        // in small letters
	Args   [][]byte
	Key    []byte // the first key, nil if there is none

	scripted bool // a script made the call, which the replay sends
}

// RecordingFacts says what a recording has to send.
type RecordingFacts struct {
	Commands int64
	Clients  int
	Skipped  map[string]int64
}

// ReadFacts reads a recording to its end. The error names the first lines that are wrong.
func ReadFacts(path string, in io.Reader) (f RecordingFacts, err error) {
	r := NewRecording(path, in)
	var wrong []error
	for len(wrong) < maxWrongLines {
		x, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			if wrong = append(wrong, err); errors.As(err, new(lineError)) {
				continue
			}
			break // the file cannot be read further
		}
		f.Commands++
		f.Clients = max(f.Clients, x.Client+1)
	}
	f.Skipped = r.Skipped()
	if wrong == nil && f.Commands == 0 {
		wrong = append(wrong, fmt.Errorf("%s: no command to send", path))
	}
	return f, errors.Join(wrong...)
}

// maxWrongLines is how many wrong lines an error names.
const maxWrongLines = 10

// lineError is the error of a line behind which the next one can be read.
type lineError struct{ error }

func (e lineError) Unwrap() error { return e.error }

// Replay returns the workload of a recording. Its operations are the commands that there are, in the order of
// ReplayOp.
func Replay(path string) *Workload {
	w := &Workload{Name: path, Doc: "a recording"}
	for _, name := range replayed {
		w.Ops = append(w.Ops, Op{Name: name, Reads: knownCommands[name].reads, kind: -1})
	}
	return w
}

// replayed lists the commands.
var replayed = slices.Sorted(maps.Keys(knownCommands))

// ReplayOp returns the index of a command among the operations of a replay.
func ReplayOp(name string) int {
	i, _ := slices.BinarySearch(replayed, name)
	return i
}

// maxRecordedLine bounds a line of a recording.
const maxRecordedLine = 64 << 20

// NewRecording reads the file of a path, which is in.
func NewRecording(path string, in io.Reader) *Recording {
	return &Recording{path: path, in: bufio.NewReaderSize(in, 64<<10), first: -1, skipped: map[string]int64{},
		clients: map[string]int{}}
}

// left are the commands that a replay leaves out: those of apart, and those that wait. The commands within a
// transaction are sent one by one.
var left = slices.Concat(apart, strings.Fields(`blpop brpop brpoplpush blmove blmpop bzpopmin bzpopmax bzmpop wait
	waitaof`))

// apart are the commands about the connection, those that end or change the server, and those that make a transaction.
var apart = strings.Fields(`auth hello quit reset select client monitor subscribe unsubscribe psubscribe punsubscribe
	ssubscribe sunsubscribe sync psync replconf replicaof slaveof failover shutdown debug cluster readonly readwrite
	asking migrate acl module save bgsave bgrewriteaof config multi exec discard watch unwatch`)

// Next returns the next command to send again, io.EOF behind the last.
func (r *Recording) Next() (Recorded, error) {
	for {
		line, err := r.readLine()
		if err != nil {
			return Recorded{}, err
		}
		if text := strings.TrimPrefix(string(line), "+"); text == "" || text == "OK" {
			continue // what MONITOR itself answers
		}
		x, err := r.parse(line)
		if err != nil {
			return Recorded{}, lineError{r.at(r.line, err)}
		}
		if x.scripted {
			r.skip("by scripts")
			continue
		}
		blocks := (x.Name == "xread" || x.Name == "xreadgroup") && slices.ContainsFunc(x.Args, func(a []byte) bool {
			return bytes.EqualFold(a, []byte("block"))
		})
		if _, known := knownCommands[x.Name]; !known || blocks || slices.Contains(left, x.Name) {
			r.skip(x.Name)
			continue
		}
		return x, nil
	}
}

// Skipped says how many commands were left out, by name.
func (r *Recording) Skipped() map[string]int64 { return r.skipped }

// skip counts a command that is left out.
func (r *Recording) skip(name string) {
	if _, known := r.skipped[name]; known || len(r.skipped) < 1000 {
		r.skipped[name]++
	}
}

// at names the line of an error.
func (r *Recording) at(line int, err error) error { return fmt.Errorf("%s:%d: %w", r.path, line, err) }

func (r *Recording) readLine() ([]byte, error) {
	var long []byte
	for {
		part, err := r.in.ReadSlice('\n')
		switch {
		case err == bufio.ErrBufferFull:
			if long = append(long, part...); len(long) > maxRecordedLine {
				return nil, r.at(r.line+1, fmt.Errorf("more than %d bytes", maxRecordedLine))
			}
			continue
		case err == io.EOF && len(part)+len(long) > 0:
		case err != nil:
			return nil, err
		}
		if long != nil {
			part = append(long, part...)
		}
		r.line++
		return bytes.TrimRight(part, "\r\n"), nil
	}
}

// maxRecordedClients bounds how many clients are told apart; those beyond share the numbers of the first.
const maxRecordedClients = 1 << 16

func (r *Recording) parse(line []byte) (x Recorded, err error) {
	line = bytes.TrimPrefix(line, []byte("+"))
	stamp, rest, ok1 := bytes.Cut(line, []byte(" ["))
	origin, rest, ok2 := bytes.Cut(rest, []byte("] "))
	if !ok1 || !ok2 {
		return x, fmt.Errorf("%.60q is no line of MONITOR: want a time, [database client], and a command in quotes", line)
	}
	seconds, micros, ok := strings.Cut(string(stamp), ".")
	s, err1 := strconv.ParseInt(seconds, 10, 40)
	us, err2 := strconv.ParseInt(micros, 10, 32)
	if !ok || err1 != nil || err2 != nil || len(micros) != 6 || s < 0 {
		return x, fmt.Errorf("time %.40q, want seconds with six decimals", stamp)
	}
	at := s*1_000_000 + us
	if r.first < 0 {
		r.first = at
	}
	r.last = max(r.last, time.Duration(at-r.first)*time.Microsecond) // clocks step back
	x.At = r.last
	_, client, _ := strings.Cut(string(origin), " ")
	x.scripted = client == "lua"
	n, known := r.clients[client]
	if !known && !x.scripted {
		n = len(r.clients)
		if n < maxRecordedClients {
			r.clients[client] = n
		} else {
			n %= maxRecordedClients
		}
	}
	x.Client = n
	if x.Args, err = unquote(rest); err != nil {
		return x, err
	}
	x.Name = strings.ToLower(string(x.Args[0]))
	x.Key = FirstKey(x.Name, x.Args)
	return x, nil
}

// unquote splits words in double quotes, written as Redis's sdscatrepr does: \\ \" \n \r \t \a \b and \xHH, which Go
// writes in the same way.
func unquote(text []byte) (words [][]byte, err error) {
	for rest, more := string(text), true; more; {
		quoted, _ := strconv.QuotedPrefix(rest)
		word, err := strconv.Unquote(quoted)
		if err != nil || quoted[0] != '"' {
			return nil, errors.New("want words in double quotes, separated by one space")
		}
		words = append(words, []byte(word))
		if rest, more = strings.CutPrefix(rest[len(quoted):], " "); rest != "" && !more {
			return nil, errors.New("want one space between words in double quotes")
		}
	}
	if len(words[0]) == 0 {
		return nil, errors.New("no command")
	}
	return words, nil
}
