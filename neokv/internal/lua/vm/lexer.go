package vm

import (
	"fmt"
	"strings"
)

// A token is a byte of the text or one of these.
type token int

const (
	tkAnd token = iota + 257
	tkBreak
	tkDo
	tkElse
	tkElseif
	tkEnd
	tkFalse
	tkFor
	tkFunction
	tkIf
	tkIn
	tkLocal
	tkNil
	tkNot
	tkOr
	tkRepeat
	tkReturn
	tkThen
	tkTrue
	tkUntil
	tkWhile
	tkConcat
	tkDots
	tkEq
	tkGe
	tkLe
	tkNe
	tkNumber
	tkName
	tkString
	tkEOS
)

var tokenNames = [...]string{
	"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or",
	"repeat", "return", "then", "true", "until", "while", "..", "...", "==", ">=", "<=", "~=", "<number>", "<name>",
	"<string>", "<eof>",
}

var reserved = func() map[string]token {
	m := make(map[string]token)
	for t := tkAnd; t <= tkWhile; t++ {
		m[tokenNames[t-tkAnd]] = t
	}
	return m
}()

func (t token) String() string {
	switch {
	case t >= tkAnd:
		return tokenNames[t-tkAnd]
	case t < ' ' || t == 127:
		return fmt.Sprintf("char(%d)", int(t))
	}
	return string([]byte{byte(t)})
}

// SyntaxError is what keeps a text from being compiled.
type SyntaxError struct{ Message string }

func (e *SyntaxError) Error() string { return e.Message }

type lexer struct {
	text   string
	at     int
	chunk  string // the chunk's name as messages have it
	line   int
	last   int // line of the token before
	token  token
	number float64
	str    string // of a name or a string

	ahead       token // tkEOS+1: none
	aheadNumber float64
	aheadStr    string

	buffer []byte // of the token under way
}

const noToken = tkEOS + 1

// peek is the byte at the lexer, or -1 at the end. A text may have bytes that are zero.
func (x *lexer) peek() int {
	if x.at < len(x.text) {
		return int(x.text[x.at])
	}
	return -1
}

func (x *lexer) save() {
	x.buffer = append(x.buffer, x.text[x.at])
	x.at++
}

// fail ends compilation. A token of 0 adds no text to the message.
func (x *lexer) fail(message string, t token) {
	message = fmt.Sprintf("%s:%d: %s", x.chunk, x.line, message)
	if t != 0 {
		near := t.String()
		if t == tkName || t == tkString || t == tkNumber {
			near, _, _ = strings.Cut(string(x.buffer), "\x00")
		}
		message = fmt.Sprintf("%s near '%s'", message, near)
	}
	panic(&SyntaxError{Message: message})
}

func (x *lexer) next() {
	x.last = x.line
	if x.ahead != noToken {
		x.token, x.number, x.str, x.ahead = x.ahead, x.aheadNumber, x.aheadStr, noToken
		return
	}
	x.token = x.lex()
}

// lookAhead reads the token after the present one.
func (x *lexer) lookAhead() token {
	n, s := x.number, x.str
	x.ahead = x.lex()
	x.aheadNumber, x.aheadStr, x.number, x.str = x.number, x.str, n, s
	return x.ahead
}

func (x *lexer) newline() {
	c := x.text[x.at]
	x.at++
	if d := x.peek(); (d == '\n' || d == '\r') && byte(d) != c {
		x.at++
	}
	x.line++
}

func (x *lexer) follows(c byte) bool {
	if x.peek() == int(c) {
		x.at++
		return true
	}
	return false
}

func (x *lexer) lex() token {
	x.buffer = x.buffer[:0]
	for {
		c := x.peek()
		switch c {
		case -1:
			return tkEOS
		case '\n', '\r':
			x.newline()
		case '-':
			x.at++
			if !x.follows('-') {
				return '-'
			}
			if x.peek() == '[' {
				n := x.skipSeparator()
				x.buffer = x.buffer[:0]
				if n >= 0 {
					x.long(n, true)
					x.buffer = x.buffer[:0]
					continue
				}
			}
			for c := x.peek(); c >= 0 && c != '\n' && c != '\r'; c = x.peek() {
				x.at++
			}
			x.buffer = x.buffer[:0]
		case '[':
			n := x.skipSeparator()
			if n >= 0 {
				x.str = x.long(n, false)
				return tkString
			}
			if n == -1 {
				return '['
			}
			x.fail("invalid long string delimiter", tkString)
		case '=', '<', '>', '~':
			x.at++
			if !x.follows('=') {
				return token(c)
			}
			switch c {
			case '=':
				return tkEq
			case '<':
				return tkLe
			case '>':
				return tkGe
			}
			return tkNe
		case '"', '\'':
			x.str = x.quoted()
			return tkString
		case '.':
			x.save()
			if x.follows('.') {
				if x.follows('.') {
					return tkDots
				}
				return tkConcat
			}
			if d := x.peek(); d < 0 || !isDigit(byte(d)) {
				return '.'
			}
			return x.numeral()
		default:
			switch {
			case IsSpace(byte(c)):
				x.at++
			case isDigit(byte(c)):
				return x.numeral()
			case isAlpha(byte(c)) || c == '_':
				from := x.at
				for x.at++; x.at < len(x.text); x.at++ {
					if b := x.text[x.at]; !isAlpha(b) && !isDigit(b) && b != '_' {
						break
					}
				}
				s := x.text[from:x.at]
				if t, ok := reserved[s]; ok {
					return t
				}
				x.buffer = append(x.buffer, s...)
				x.str = s
				return tkName
			default:
				x.at++
				return token(c)
			}
		}
	}
}

func (x *lexer) numeral() token {
	for {
		if c := x.peek(); c >= 0 && (isDigit(byte(c)) || c == '.') {
			x.save()
			continue
		}
		break
	}
	if c := x.peek(); c == 'e' || c == 'E' {
		x.save()
		if c := x.peek(); c == '+' || c == '-' {
			x.save()
		}
	}
	for {
		if c := x.peek(); c >= 0 && (isDigit(byte(c)) || isAlpha(byte(c)) || c == '_') {
			x.save()
			continue
		}
		break
	}
	n, ok := ParseNumber(string(x.buffer))
	if !ok {
		x.fail("malformed number", tkNumber)
	}
	x.number = n
	return tkNumber
}

// skipSeparator reads [==[ or ]==] up to before the last bracket: the number of =, or less than 0 if it is none.
func (x *lexer) skipSeparator() int {
	c := x.peek()
	x.save()
	n := 0
	for x.peek() == '=' {
		x.save()
		n++
	}
	if x.peek() == c {
		return n
	}
	return -n - 1
}

func (x *lexer) long(level int, comment bool) string {
	x.save()
	if c := x.peek(); c == '\n' || c == '\r' {
		x.newline()
	}
	for {
		switch c := x.peek(); c {
		case -1:
			if comment {
				x.fail("unfinished long comment", tkEOS)
			}
			x.fail("unfinished long string", tkEOS)
		case '[':
			if x.skipSeparator() == level {
				x.save()
				if level == 0 {
					x.fail("nesting of [[...]] is deprecated", '[')
				}
			}
		case ']':
			if x.skipSeparator() == level {
				x.save()
				if comment {
					return ""
				}
				return string(x.buffer[2+level : len(x.buffer)-2-level])
			}
		case '\n', '\r':
			x.buffer = append(x.buffer, '\n')
			x.newline()
			if comment {
				x.buffer = x.buffer[:0]
			}
		default:
			if comment {
				x.at++
			} else {
				x.save()
			}
		}
	}
}

func (x *lexer) quoted() string {
	quote := x.peek()
	x.save()
	for x.peek() != quote {
		switch c := x.peek(); c {
		case -1:
			x.fail("unfinished string", tkEOS)
		case '\n', '\r':
			x.fail("unfinished string", tkString)
		case '\\':
			x.at++
			x.escape()
		default:
			x.save()
		}
	}
	x.save()
	return string(x.buffer[1 : len(x.buffer)-1])
}

func (x *lexer) escape() {
	c := x.peek()
	if i := strings.IndexByte("abfnrtv", byte(c)); c >= 0 && i >= 0 {
		x.buffer = append(x.buffer, "\a\b\f\n\r\t\v"[i])
		x.at++
		return
	}
	switch {
	case c == '\n' || c == '\r':
		x.buffer = append(x.buffer, '\n')
		x.newline()
	case c < 0: // the loop of quoted reports it
	case !isDigit(byte(c)):
		x.save()
	default:
		n := 0
		for i := 0; i < 3 && x.at < len(x.text) && isDigit(x.text[x.at]); i++ {
			n = 10*n + int(x.text[x.at]-'0')
			x.at++
		}
		if n > 255 {
			x.fail("escape sequence too large", tkString)
		}
		x.buffer = append(x.buffer, byte(n))
	}
}

// chunkName is how messages name a chunk: "@file" and "=text" by what follows, else as a piece of the source.
func chunkName(source string) string {
	const size = 60
	if source == "" {
		return `[string ""]`
	}
	switch source[0] {
	case '=':
		return source[1:min(len(source), size)]
	case '@':
		source = source[1:]
		if most := size - len(" '...' ") - 1; len(source) > most {
			return "..." + source[len(source)-most:]
		}
		return source
	}
	n := strings.IndexAny(source, "\n\r")
	if n < 0 {
		n = len(source)
	}
	n = min(n, size-len(` [string "..."] `)-1)
	if n < len(source) {
		return `[string "` + source[:n] + `..."]`
	}
	return `[string "` + source + `"]`
}
