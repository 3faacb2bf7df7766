// Package forms makes random calls of commands, of any size, from forms of what a call may look like. Tests send them
// to clusters in the same process and to child processes.
//
// A form says what arguments a call of a command may have: s h e l z are keys that mostly hold a string, a hash, a set,
// a list, a sorted set, and k is any of them; v is a value, m a field or member, i an index, o an offset, n a count, c
// a score, b a bound of scores, x a bound of names, p a pattern, t the name of a command, j a slot, a any of v m i n c
// k p t. Commas join what belongs together, [] is there or not, + comes again and again, # counts what follows it.
package forms

import (
	"bufio"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Data are the forms of commands about data that have options, or whose arguments chance would seldom get right. The
// forms of the other commands follow from the command table, see Row.Form.
var Data = []string{
	"APPEND s v", "DECRBY s n", "GETEX s [EX,n]", "GETRANGE s i i", "GETSET s v", "INCRBY s n", "INCRBYFLOAT s c",
	"LCS s s [LEN] [IDX,MINMATCHLEN,n,WITHMATCHLEN]", "MSET s,v+", "MSETNX s,v+", "PSETEX s n v",
	"SET s v [EX,1000] [GET]", "SETEX s n v", "SETNX s v", "SETRANGE s o v", "SUBSTR s i i", "HDEL h m+",
	"HEXISTS h m", "HGET h m", "HINCRBY h m n", "HINCRBYFLOAT h m c", "HMGET h m+", "HMSET h m,v+",
	"HRANDFIELD h n [WITHVALUES]", "HSCAN h 0 [MATCH,p] [COUNT,n]", "HSET h m,v+", "HSETNX h m v",
	"HSTRLEN h m", "SADD e m+",
	"SINTERCARD #e+ [LIMIT,n]", "SISMEMBER e m", "SMISMEMBER e m+", "SMOVE e e m", "SPOP e [n]", "SRANDMEMBER e n",
	"SREM e m+", "SSCAN e 0 [MATCH,p] [COUNT,n]", "LINDEX l i", "LINSERT l BEFORE m v", "LMOVE l l LEFT RIGHT",
	"LMPOP #l+ RIGHT [COUNT,n]", "LPOP l n", "LPOS l m [COUNT,n]", "LPUSH l v+", "LPUSH l m+", "LPUSHX l v+",
	"BLMOVE l l LEFT RIGHT 0.01", "BLMPOP 0.01 #l+ RIGHT [COUNT,n]", "BLPOP l+ 0.01", "BRPOP l+ 0.01",
	"BRPOPLPUSH l l 0.01", "BZMPOP 0.01 #z+ MIN [COUNT,n]", "BZPOPMAX z+ 0.01", "BZPOPMIN z+ 0.01",
	"LRANGE l i i", "LREM l n m", "LSET l i v", "LTRIM l i i", "RPOP l n", "RPUSH l v+", "RPUSH l m+", "RPUSHX l v+",
	"ZADD z c,m+", "ZCOUNT z b b", "ZDIFF #z+ [WITHSCORES]", "ZDIFFSTORE z #z+", "ZINCRBY z c m", "ZINTER #z+",
	"ZINTERCARD #z+", "ZINTERSTORE z #z+", "ZLEXCOUNT z x x", "ZMPOP #z+ MIN [COUNT,n]", "ZMSCORE z m+",
	"ZPOPMAX z n", "ZPOPMIN z n", "ZRANDMEMBER z n [WITHSCORES]", "ZRANGE z i i [WITHSCORES]", "ZRANGEBYLEX z x x",
	"ZRANGEBYSCORE z b b [LIMIT,i,n]", "ZRANGESTORE z z i i", "ZRANK z m", "ZREM z m+", "ZREMRANGEBYLEX z x x",
	"ZREMRANGEBYRANK z i i", "ZREMRANGEBYSCORE z b b", "ZREVRANGE z i i", "ZREVRANGEBYLEX z x x",
	"ZREVRANGEBYSCORE z b b", "ZREVRANK z m", "ZSCAN z 0 [MATCH,p] [COUNT,n]", "ZSCORE z m", "ZUNION #z+",
	"ZUNIONSTORE z #z+",
	"COPY k k [REPLACE]", "EXPIRE k 1000", "EXPIREAT k n", "KEYS p", "OBJECT ENCODING k", "PEXPIRE k n",
	"PEXPIREAT k n", "SCAN 0 [MATCH,p] [COUNT,n]", "SORT k [BY,nosort] [ALPHA] [LIMIT,i,n] [STORE,l]", "SORT_RO k [ALPHA]",
	"MEMORY USAGE k [SAMPLES,0]", "FLUSHALL", "FLUSHDB", "LOLWUT",
	"NEOKV BATCH SET,k,v+ DEL,k+ [PSETEX,k,n,v]", "NEOKV BATCH PEXPIRE,k,1000+ PERSIST,k+ SET,m,v",
	"NEOKV SCANPREFIX k k 1000",
	"EVAL return(redis.call(unpack(ARGV))) 1 k SET s v", "EVAL return(redis.call(unpack(ARGV))) 1 k RPUSH l v+",
	"EVAL_RO return(redis.call(unpack(ARGV))) 1 k LRANGE l i i",
	"EVALSHA 6bf9a4feefa7031de345af88539bfd36c8cfb1f7 1 k SET s v", // of the text above
	"EVALSHA_RO 6bf9a4feefa7031de345af88539bfd36c8cfb1f7 1 k SMEMBERS e",
}

// Server are such forms of commands about the connection, the server or the cluster. None ends other connections.
var Server = []string{
	"AUTH v", "HELLO 3 SETNAME,m+", "PING v", "ECHO v", "SELECT 0", "CLIENT SETNAME m", "CLIENT LIST [ID,n+]",
	"CLIENT KILL ADDR,nobody:1+", "CLIENT PAUSE n", "CLIENT REPLY ON", "CLIENT SETINFO LIB-NAME m", "CLIENT NO-EVICT ON",
	"CLIENT NO-TOUCH ON", "CLIENT TRACKING OFF NOLOOP+", "COMMAND INFO t+", "COMMAND DOCS t+", "COMMAND GETKEYS MSET s,v+",
	"COMMAND GETKEYSANDFLAGS MSET s,v+", "COMMAND LIST [FILTERBY,PATTERN,p]", "CONFIG GET p+", "CONFIG SET timeout 0",
	"SLOWLOG GET n", "LATENCY HISTOGRAM t+", "LATENCY RESET m+", "WAIT n n", "DEBUG SLEEP n", "NEOKV CHECKSUM",
	"NEOKV SETTLE",
	"INFO m+", "CLUSTER KEYSLOT k", "CLUSTER COUNTKEYSINSLOT j", "CLUSTER GETKEYSINSLOT j n",
}

// Row is what COMMAND says about a command.
type Row struct {
	Name              string // also of a subcommand: "config get"
	Arity             int
	First, Last, Step int // its keys
	Flags, Categories []string
	Container         bool
}

// Rows are the rows of a reply of COMMAND, as a client returns it.
func Rows(reply any) (rows []Row, err error) {
	list, _ := reply.([]any)
	for _, x := range list {
		entry, _ := x.([]any)
		if len(entry) < 10 {
			return nil, fmt.Errorf("COMMAND replies %v", x)
		}
		number := func(i int) int {
			n, _ := entry[i].(int64)
			return int(n)
		}
		subs, err := Rows(entry[9])
		if err != nil {
			return nil, err
		}
		row := Row{Name: strings.ReplaceAll(fmt.Sprint(entry[0]), "|", " "), Arity: number(1), First: number(3),
			Last: number(4), Step: number(5), Flags: words(entry[2]), Categories: words(entry[6]), Container: len(subs) > 0}
		rows = append(append(rows, row), subs...)
	}
	// A seed names the same calls every time.
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
	return rows, nil
}

func words(x any) (all []string) {
	list, _ := x.([]any)
	for _, word := range list {
		all = append(all, fmt.Sprint(word))
	}
	return all
}

// Writes reports whether the command may write data. The flags of EVAL and EVALSHA do not say what their scripts do.
func (r *Row) Writes() bool {
	script := slices.Contains(r.Categories, "@scripting") && slices.Contains(r.Flags, "movablekeys")
	return slices.Contains(r.Flags, "write") || script && !slices.Contains(r.Flags, "readonly")
}

// IsData reports whether the command reads or writes data.
func (r *Row) IsData() bool { return r.Writes() || slices.Contains(r.Flags, "readonly") }

// types are the letters of keys by the ACL category of the commands about their type.
var types = map[string]string{
	"@string": "s", "@bitmap": "s", "@hyperloglog": "s", "@hash": "h", "@set": "e", "@list": "l", "@sortedset": "z",
	"@geo": "z",
}

// Form makes a form of what COMMAND says: the keys where they are, any arguments in the other places.
func (r *Row) Form() string {
	key := ""
	for _, category := range r.Categories {
		if letter := types[category]; letter != "" {
			if key != "" && key != letter { // of several types
				letter = "k"
			}
			key = letter
		}
	}
	form, least := strings.ToUpper(r.Name), max(r.Arity, -r.Arity)
	for i := len(strings.Fields(r.Name)); i < least; i++ {
		argument := "a"
		if r.First > 0 && i >= r.First && (r.Last < 0 || i <= r.Last) && (i-r.First)%r.Step == 0 {
			argument = cmp.Or(key, "k")
		}
		if i == least-1 && r.Arity < 0 {
			argument += "+"
		}
		form += " " + argument
	}
	return form
}

// Of returns the forms of a command: those of Data and Server, else the one that follows from its row.
func (r *Row) Of() (all []string) {
	for _, form := range slices.Concat(Data, Server) {
		if name := strings.ToUpper(r.Name); form == name || strings.HasPrefix(form, name+" ") {
			all = append(all, form)
		}
	}
	if all == nil {
		all = append(all, r.Form())
	}
	return all
}

// Argument is text and so many bytes of filling behind it.
type Argument struct {
	Text string
	Fill int
}

func (a Argument) Size() int { return len(a.Text) + a.Fill }

// Call is the arguments of a call, its name included.
type Call []Argument

// Parse makes a call of words: text~n is text and n bytes of filling.
func Parse(line string) (c Call) {
	for _, word := range strings.Fields(line) {
		text, size, filled := strings.Cut(word, "~")
		n, _ := strconv.Atoi(size)
		if filled && n == 0 {
			panic(line)
		}
		c = append(c, Argument{text, n})
	}
	return c
}

// String is the call as Parse reads it, cut where it is long.
func (c Call) String() string {
	var words []string
	bytes := 0
	for i, a := range c {
		if bytes += a.Size(); i >= 8 {
			continue
		}
		word := a.Text
		if len(word) > 40 {
			word = fmt.Sprintf("%s...(%d bytes)", word[:40], len(word))
		}
		if a.Fill > 0 {
			word = fmt.Sprintf("%s~%d", word, a.Fill)
		}
		words = append(words, word)
	}
	if len(c) > 8 {
		words = append(words, fmt.Sprintf("... %d arguments of %d bytes", len(c), bytes))
	}
	return strings.Join(words, " ")
}

// filling does not compress.
var filling = func() []byte {
	b := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	random.Read(b)
	return b
}()

// Write writes the call as clients send it.
func (c Call) Write(w *bufio.Writer) error {
	fmt.Fprintf(w, "*%d\r\n", len(c))
	for _, a := range c {
		w.WriteByte('$')
		w.WriteString(strconv.Itoa(a.Size()))
		w.WriteString("\r\n")
		w.WriteString(a.Text)
		for n := a.Fill; n > 0; n -= len(filling) {
			w.Write(filling[:min(n, len(filling))])
		}
		if _, err := w.WriteString("\r\n"); err != nil {
			return err
		}
	}
	return nil
}

// ReadReply reads a reply, of either version of the protocol, and returns its first line.
func ReadReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("an empty line for a reply")
	}
	switch kind := line[0]; kind {
	case '$', '=', '*', '~', '%', '>':
		n, err := strconv.Atoi(line[1:])
		switch {
		case err != nil:
			return "", err
		case n < 0:
			return line, nil
		case kind == '$' || kind == '=':
			_, err = r.Discard(n + len("\r\n"))
			return line, err
		case kind == '%':
			n *= 2
		}
		for range n {
			if _, err := ReadReply(r); err != nil {
				return "", err
			}
		}
	case '+', '-', ':', '_', ',', '#':
	default:
		return "", fmt.Errorf("reply %q", line)
	}
	return line, nil
}
