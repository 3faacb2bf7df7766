package redis

import (
	"bytes"
	"unicode"
)

// The error lines of redis-server 7.0.15, without the leading '-'. Only this file spells them.
const (
	ErrSyntax        = "ERR syntax error"
	ErrNotInteger    = "ERR value is not an integer or out of range"
	ErrNotFloat      = "ERR value is not a valid float"
	ErrOutOfRange    = "ERR value is out of range"
	ErrOutOfRangePos = "ERR value is out of range, must be positive"
	ErrOverflow      = "ERR increment or decrement would overflow"
	ErrDecrOverflow  = "ERR decrement would overflow"
	ErrWrongType     = "WRONGTYPE Operation against a key holding the wrong kind of value"
	ErrTooLong       = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	ErrInvalidCursor = "ERR invalid cursor"
	ErrNoSuchKey     = "ERR no such key"
	ErrCrossSlot     = "CROSSSLOT Keys in request don't hash to the same slot"
	ErrClusterDown   = "CLUSTERDOWN Hash slot not served"
	ErrNoSpace       = "MISCONF Errors writing to the AOF file: No space left on device"
	ErrDBIndex       = "ERR DB index is out of range"
	errCopyElsewhere = "ERR Copying to another database is not allowed in cluster mode"
	ErrNoProto       = "NOPROTO unsupported protocol version"
	ErrProtoVersion  = "ERR Protocol version is not an integer or out of range"
	ErrNoAuth        = "NOAUTH Authentication required."

	errOffset         = "ERR offset is out of range"
	errNotFinite      = "ERR increment would produce NaN or Infinity"
	errInfinite       = "ERR value is NaN or Infinity"
	errHashNotInteger = "ERR hash value is not an integer"
	errHashNotFloat   = "ERR hash value is not a float"
	errSampleRange    = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
	errNumKeys        = "ERR numkeys should be greater than 0"
	errNumKeysArgs    = "ERR Number of keys can't be greater than number of args"
	errNegativeLimit  = "ERR LIMIT can't be negative"
	errSameObject     = "ERR source and destination objects are the same"
	errNotInt32       = "ERR value is out of range, value must between -2147483648 and 2147483647"
	errIndexRange     = "ERR index out of range"
	errRankZero       = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... " +
		"or use negative to start from the end of the list"
	errCountNegative  = "ERR COUNT can't be negative"
	errMaxLenNegative = "ERR MAXLEN can't be negative"
	errCountPositive  = "ERR count should be greater than 0"
	errLCSType        = "ERR The specified keys must contain string values"
	errLCSBoth        = "ERR If you want both the length and indexes, please just use IDX."
	errLCSMemory      = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
	errNoLFU          = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. " +
		"Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
	errExpireNX    = "ERR NX and XX, GT or LT options at the same time are not compatible"
	errExpireGTLT  = "ERR GT and LT options at the same time are not compatible"
	errNaNScore    = "ERR resulting score is not a number (NaN)"
	errZAddNXXX    = "ERR XX and NX options at the same time are not compatible"
	errZAddGTLT    = "ERR GT, LT, and/or NX options at the same time are not compatible"
	errZAddIncr    = "ERR INCR option supports a single increment-element pair"
	errScoreRange  = "ERR min or max is not a float"
	errLexRange    = "ERR min or max not valid string range item"
	errRangeLimit  = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
	errRangeScores = "ERR syntax error, WITHSCORES not supported in combination with BYLEX"
	errWeight      = "ERR weight value is not a float"
	errSortBy      = "ERR BY option of SORT denied in Cluster mode."
	errSortGet     = "ERR GET option of SORT denied in Cluster mode."
	errSortNumber  = "ERR One or more scores can't be converted into double"
	errWriteLimit  = Refusal("ERR too much for one write: it would go through more than 16777216 elements, of which each " +
		"256 bytes count as another one")
	// ErrUnitReads answers a read, ErrUnitWrites a transaction of which nothing stays.
	ErrUnitReads         = "ERR too much for one transaction: the reads before this one" + errUnitLimit
	ErrUnitWrites        = "ERR too much for one transaction: its writes" + errUnitLimit
	errUnitLimit         = " went through more than 16777216 elements, of which each 256 bytes count as another one"
	errSortMemory        = "ERR SORT would take more than 128 MiB of memory for elements and other keys' values"
	errScanCount         = "ERR count must be between 1 and 1000"
	errScanLengths       = "ERR keys with this prefix have more than 1000 different lengths"
	errScanMemory        = "ERR keys with this prefix, one of each length, take more than 16 MiB of memory"
	errScanSlot          = "ERR keys of this slot have too many different lengths"
	errGetKeysCommand    = "ERR Invalid command specified"
	errGetKeysNone       = "ERR The command has no key arguments"
	errGetKeysCount      = "ERR Invalid number of arguments specified for command"
	errGetKeysArgs       = "ERR Invalid arguments specified for command"
	maxQuotedBytes       = 128       // of a name or of all arguments in an error
	maxStringBytes       = 512 << 20 // proto-max-bulk-len
	unknownCommandPrefix = "ERR unknown command '"
)

// WrongArity appends the error for a call of c with a wrong number of arguments.
func (r *Reply) WrongArity(c *Command) { r.wrongArity([]byte(c.FullName())) }

func (r *Reply) wrongArity(name []byte) {
	r.named("ERR wrong number of arguments for '", name, "' command")
}

// invalidExpire appends the error for an expire time out of range. name is the command's full name.
func (r *Reply) invalidExpire(name []byte) {
	r.named("ERR invalid expire time in '", name, "' command")
}

// named appends an error that names a command, in lower case.
func (r *Reply) named(before string, name []byte, after string) {
	r.Buf = append(r.Buf, '-')
	r.Buf = append(r.Buf, before...)
	for _, c := range name {
		r.Buf = append(r.Buf, byte(unicode.ToLower(rune(c))))
	}
	r.Buf = append(r.Buf, after...)
	r.Buf = append(r.Buf, '\r', '\n')
}

// UnknownCommand appends the error for a name that no table has. It quotes at most 128 bytes of the name, and about as
// many of the arguments.
func (r *Reply) UnknownCommand(args [][]byte) {
	r.Buf = append(r.Buf, '-')
	start := len(r.Buf)
	r.Buf = append(r.Buf, unknownCommandPrefix...)
	r.Buf = append(r.Buf, cString(args[0], maxQuotedBytes)...)
	r.Buf = append(r.Buf, "', with args beginning with: "...)
	quoted := len(r.Buf)
	for _, a := range args[1:] {
		room := maxQuotedBytes - (len(r.Buf) - quoted)
		if room <= 0 {
			break
		}
		r.Buf = append(r.Buf, '\'')
		r.Buf = append(r.Buf, cString(a, room)...)
		r.Buf = append(r.Buf, '\'', ' ')
	}
	r.endError(start)
}

// UnknownSubcommand appends the error for a container args[0] that has no subcommand args[1].
func (r *Reply) UnknownSubcommand(args [][]byte) {
	r.Buf = append(r.Buf, '-')
	start := len(r.Buf)
	r.Buf = append(r.Buf, "ERR unknown subcommand '"...)
	r.Buf = append(r.Buf, cString(args[1], maxQuotedBytes)...)
	r.Buf = append(r.Buf, "'. Try "...)
	for _, c := range args[0] {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		r.Buf = append(r.Buf, c)
	}
	r.Buf = append(r.Buf, " HELP."...)
	r.endError(start)
}

// noInputKeys appends the error of ZUNION, ZINTER and ZDIFF for a number of keys below 1. name is the command's full
// name.
func (r *Reply) noInputKeys(name []byte) {
	r.named("ERR at least 1 input key is needed for '", name, "' command")
}

// unsupportedOption appends EXPIRE's error for an unknown option.
func (r *Reply) unsupportedOption(arg []byte) {
	r.Buf = append(r.Buf, '-')
	start := len(r.Buf)
	r.Buf = append(r.Buf, "ERR Unsupported option "...)
	r.Buf = append(r.Buf, bytes.TrimRight(cString(arg, len(arg)), "\r\n")...)
	r.endError(start)
}

// endError makes one line of the bytes that were appended since start: bytes from a client must not end it early.
func (r *Reply) endError(start int) {
	line := r.Buf[start:]
	for i, c := range line {
		if c == '\r' || c == '\n' {
			line[i] = ' '
		}
	}
	r.Buf = append(r.Buf, '\r', '\n')
}

// cString returns what C's "%.*s" prints of b: up to the first NUL, and at most max bytes.
func cString(b []byte, max int) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b[:min(len(b), max)]
}
