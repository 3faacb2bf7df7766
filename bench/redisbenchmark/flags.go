package redisbenchmark

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"neokv.dev/workloads"
)

// SentLoad is what redis-benchmark sends.
type SentLoad struct {
	Flags      []string `json:"flags,omitempty"`   // as given, apart from -t
	Tests      []string `json:"tests,omitempty"`   // of its own list, by the names of -t
	Command    []string `json:"command,omitempty"` // a command of the user's, in place of tests
	Requests   int64    `json:"requests"`          // of each test
	Clients    int      `json:"clients"`
	Pipeline   int      `json:"pipeline"`
	Threads    int      `json:"threads,omitempty"` // 0 without --threads, which is one thread
	ValueBytes int      `json:"value_bytes"`
	// Keys is how many different keys there are, by -r. 0 is one key for each test.
	Keys int64 `json:"keys,omitempty"`
}

// ownTest is a test of redis-benchmark's own list.
type ownTest struct {
	name, title string // by -t; as printed
	op          string // of the workload redis-benchmark
	fills       bool   // a row before it is about the LPUSH that fills the list
}

// ownTests are in the order of redis-benchmark.
var ownTests = []ownTest{
	{"ping_inline", "PING_INLINE", "ping", false},
	{"ping_mbulk", "PING_MBULK", "ping", false},
	{"set", "SET", "set", false},
	{"get", "GET", "get", false},
	{"incr", "INCR", "incr", false},
	{"lpush", "LPUSH", "lpush", false},
	{"rpush", "RPUSH", "rpush", false},
	{"lpop", "LPOP", "lpop", false},
	{"rpop", "RPOP", "rpop", false},
	{"sadd", "SADD", "sadd", false},
	{"hset", "HSET", "hset", false},
	{"spop", "SPOP", "spop", false},
	{"zadd", "ZADD", "zadd", false},
	{"zpopmin", "ZPOPMIN", "zpopmin", false},
	{"lrange_100", "LRANGE_100 (first 100 elements)", "lrange_100", true},
	{"lrange_300", "LRANGE_300 (first 300 elements)", "lrange_300", true},
	{"lrange_500", "LRANGE_500 (first 500 elements)", "lrange_500", true},
	{"lrange_600", "LRANGE_600 (first 600 elements)", "lrange_600", true},
	{"mset", "MSET (10 keys)", "mset", false},
}

// allOf are the words of -t that stand for several tests.
var allOf = map[string][]string{
	"ping":   {"ping_inline", "ping_mbulk"},
	"lrange": {"lrange_100", "lrange_300", "lrange_500", "lrange_600"},
}

func findTest(name string) ownTest {
	return ownTests[slices.IndexFunc(ownTests, func(t ownTest) bool { return t.name == name })]
}

// refused are the flags that a caller may not give, and why. A value follows those of withValue.
var (
	refused   = map[string]string{}
	withValue = map[string]bool{}
	allowed   = []string{"-c", "-n", "-d", "-k", "-r", "-P", "-t", "--threads", "--precision", "-3",
		"--enable-tracking", "-e"}
)

func init() {
	for _, f := range strings.Fields("-h -p -s -a --user -u --cluster --csv -q") {
		refused[f] = "since this command sets it"
	}
	for _, f := range strings.Fields("--tls --sni --cacert --cacertdir --insecure --cert --key --tls-ciphers " +
		"--tls-ciphersuites") {
		refused[f] = "since the servers have no TLS"
	}
	refused["-l"] = "since the tests would never end"
	refused["-I"] = "since it measures nothing"
	refused["-x"] = "so give the last argument itself"
	refused["--dbnum"] = "since a cluster has one database"
	refused["--help"] = "so run redis-benchmark itself"
	refused["--version"] = refused["--help"]
	for _, f := range strings.Fields("-h -p -s -a --user -u --dbnum --sni --cacert --cacertdir --cert --key " +
		"--tls-ciphers --tls-ciphersuites -c -n -d -k -r -P -t --threads --precision") {
		withValue[f] = true
	}
}

// ParseFlags reads flags of redis-benchmark, and a command of the user's behind them. Its error names everything that
// is wrong.
func ParseFlags(args []string) (SentLoad, error) {
	l := SentLoad{Requests: 100_000, Clients: 50, Pipeline: 1, ValueBytes: 3}
	var wrong []error
	complain := func(format string, values ...any) { wrong = append(wrong, fmt.Errorf(format, values...)) }
	chosen := ""
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		flag := args[0]
		words := args[:1]
		if args = args[1:]; withValue[flag] {
			if len(args) == 0 {
				complain("redis-benchmark %s: want a value", flag)
				break
			}
			words = append(slices.Clone(words), args[0])
			args = args[1:]
		}
		if why, no := refused[flag]; no {
			complain("redis-benchmark %s: not possible here, %s", flag, why)
			continue
		}
		number := func(least, most int64) int64 {
			n, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil || n < least || n > most {
				complain("redis-benchmark %s %s: want %d to %d", flag, words[1], least, most)
			}
			return n
		}
		switch flag {
		case "-t":
			chosen = words[1]
			continue
		case "-n":
			l.Requests = number(1, math.MaxInt32)
		case "-c":
			l.Clients = int(number(1, 10_000))
		case "-P":
			l.Pipeline = int(number(1, 10_000))
		case "-d":
			l.ValueBytes = int(number(1, 64<<20))
		case "-r":
			l.Keys = number(1, math.MaxInt32)
		case "--threads":
			l.Threads = int(number(1, 500))
		case "-k":
			number(0, 1)
		case "--precision":
			number(0, 3)
		default:
			if !slices.Contains(allowed, flag) {
				complain("redis-benchmark %s: unknown, want any of %s", flag, strings.Join(allowed, ", "))
			}
		}
		l.Flags = append(l.Flags, words...)
	}
	l.Command = append(l.Command, args...)
	for _, word := range args {
		if strings.ContainsAny(word, "\"\r\n") {
			complain("redis-benchmark: command word %q: its results cannot have quotes and line ends", word)
		}
	}
	switch {
	case chosen != "" && len(l.Command) > 0:
		complain("redis-benchmark -t %s: not beside the command %s, which would win", chosen, l.Command[0])
	case chosen != "":
		var err error
		l.Tests, err = chooseTests(chosen)
		if err != nil {
			wrong = append(wrong, err)
		}
	case len(l.Command) == 0:
		for _, t := range ownTests {
			l.Tests = append(l.Tests, t.name)
		}
	}
	return l, errors.Join(wrong...)
}

// nodeTag is what redis-benchmark --cluster replaces by a hash tag of the node that it sends a command to. Its own
// tests have it in their keys.
const nodeTag = "{tag}"

// CheckCluster says why redis-benchmark cannot send the load to the nodes of a cluster: the first key of the user's
// command has no nodeTag where a hash tag counts, at the first brace. So the command goes to all nodes in turn, and all
// but one answer MOVED. redis-benchmark 7.0 then ends if the command has no nodeTag at all; if another word has one, it
// counts the errors as answers. Further keys are not looked at.
func (l SentLoad) CheckCluster() error {
	if len(l.Command) == 0 {
		return nil
	}
	var call [][]byte
	for _, word := range l.Command {
		call = append(call, []byte(word))
	}
	found := workloads.FirstKey(strings.ToLower(l.Command[0]), call)
	key := string(found)
	at := strings.Index(key, nodeTag)
	if found == nil || at >= 0 && at == strings.IndexByte(key, '{') {
		return nil
	}
	return fmt.Errorf("--cluster: key %q of the command: want %s in it, before any other brace, as in %q: "+
		"redis-benchmark puts the hash tag of a node there, and else sends the command to nodes that do not have the key",
		key, nodeTag, nodeTag+":"+strings.ReplaceAll(key, nodeTag, ""))
}

// chooseTests reads the value of -t. redis-benchmark itself says nothing about names that it does not know.
func chooseTests(list string) (names []string, err error) {
	wanted := map[string]bool{}
	for _, word := range strings.Split(strings.ToLower(list), ",") {
		several, ok := allOf[word]
		if !ok {
			several = []string{word}
		}
		for _, name := range several {
			wanted[name] = true
		}
	}
	var known []string
	for _, t := range ownTests {
		known = append(known, t.name)
		if wanted[t.name] {
			names = append(names, t.name)
			delete(wanted, t.name)
		}
	}
	for name := range wanted {
		err = errors.Join(err, fmt.Errorf("redis-benchmark -t %q: unknown, want some of ping, lrange, %s", name,
			strings.Join(known, ", ")))
	}
	return names, err
}
