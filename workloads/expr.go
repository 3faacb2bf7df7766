package workloads

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/types"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// An expression computes a number: of a record, of a share of them, of the place of a digit in a key. It has whole
// numbers of 64 bits and wraps like Go's int64:
//
//	expression = term { ("+" | "-") term }
//	term       = factor { ("*" | "/" | "%") factor }
//	factor     = number | name | function "(" [ argument ] ")" | "(" expression ")"
//
// That is the syntax of Go, so no name is a keyword of Go. Names are n (the number of the record), records (the setting
// of the load), and those of `let`. Functions are
//
//	hash(e)      FNV-1a of e as YCSB computes it
//	count(kind)  how many records of a kind there are before the run begins
//	last(kind)   the newest record of a kind that is there
//	random(e)    a random number from 0 to e-1; not in a key, since a record keeps its keys
//
// Division rounds to zero. What is divided by zero is 0, so that a workload for many records also works for few.
type expr interface {
	eval(v *exprValues) int64
}

// exprValues are what the names and functions of an expression stand for.
type exprValues struct {
	n, records int64
	count      func(kind string) int64
	last       func(kind string) int64
	rng        *rand.Rand
}

type (
	numberExpr int64
	nameExpr   string // "n" or "records"
	binaryExpr struct {
		op   byte
		l, r expr
	}
	hashExpr   struct{ of expr }
	randomExpr struct{ below expr }
	kindExpr   struct { // count or last of a kind
		last bool
		kind string
	}
)

func (e numberExpr) eval(*exprValues) int64 { return int64(e) }

func (e nameExpr) eval(v *exprValues) int64 {
	if e == "n" {
		return v.n
	}
	return v.records
}

func (e *binaryExpr) eval(v *exprValues) int64 {
	l, r := e.l.eval(v), e.r.eval(v)
	switch e.op {
	case '+':
		return l + r
	case '-':
		return l - r
	case '*':
		return l * r
	}
	switch {
	case r == 0:
		return 0
	case e.op == '/':
		return l / r
	}
	return l % r
}

// YCSB's hash is never negative, but for the hash of one number in 2^64, which fnv64 leaves at 2^63.
func (e *hashExpr) eval(v *exprValues) int64 { return int64(fnv64(uint64(e.of.eval(v)))) }

func (e *randomExpr) eval(v *exprValues) int64 {
	if n := e.below.eval(v); n > 0 {
		return v.rng.Int64N(n)
	}
	return 0
}

func (e *kindExpr) eval(v *exprValues) int64 {
	if e.last {
		return v.last(e.kind)
	}
	return v.count(e.kind)
}

// exprScope says what an expression may use.
type exprScope struct {
	names  map[string]expr // those of `let`; nil values are not there
	kinds  []string
	record bool // n is known
	random bool
}

// parseExpr parses an expression, as the expression of Go that it is, too. The error says what is wrong with it.
func parseExpr(text string, scope exprScope) (e expr, err error) {
	parsed, err := parser.ParseExpr(text)
	switch {
	case err != nil:
	case strings.Contains(text, "//") || strings.Contains(text, "/*"):
		err = errors.New("it has a comment")
	default:
		e, err = scope.expr(parsed)
	}
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	return e, nil
}

func (s exprScope) expr(n ast.Expr) (expr, error) {
	switch n := n.(type) {
	case *ast.ParenExpr:
		return s.expr(n.X)
	case *ast.BasicLit:
		number, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no whole number of 64 bits", n.Value)
		}
		return numberExpr(number), nil
	case *ast.Ident:
		return s.name(n.Name)
	case *ast.CallExpr:
		if name, ok := n.Fun.(*ast.Ident); ok && len(n.Args) == 1 && !n.Ellipsis.IsValid() {
			return s.function(name.Name, n.Args[0])
		}
	case *ast.BinaryExpr:
		op := n.Op.String()
		l, err := s.expr(n.X)
		if err != nil || !strings.Contains("+-*/%", op) {
			return nil, cmp.Or(err, fmt.Errorf("unexpected %q", op))
		}
		r, err := s.expr(n.Y)
		return &binaryExpr{op[0], l, r}, err
	}
	return nil, errors.New("want numbers, names, + - * / % and functions of one argument")
}

func (s exprScope) name(word string) (expr, error) {
	switch {
	case word == "records", word == "n" && s.record:
		return nameExpr(word), nil
	case s.names[word] != nil:
		return s.names[word], nil
	}
	known := []string{"records"}
	if s.record {
		known = append(known, "n")
	}
	for name := range s.names {
		known = append(known, name)
	}
	slices.Sort(known)
	return nil, fmt.Errorf("name %q: unknown, want one of %s", word, strings.Join(known, ", "))
}

func (s exprScope) function(name string, of ast.Expr) (expr, error) {
	if (name == "random" || name == "last") && !s.random {
		return nil, fmt.Errorf("%s() may stand only in `record`", name)
	}
	switch name {
	case "hash", "random":
		arg, err := s.expr(of)
		if name == "hash" {
			return &hashExpr{arg}, err
		}
		return &randomExpr{arg}, err
	case "count", "last":
		kind, ok := of.(*ast.Ident)
		if !ok || !slices.Contains(s.kinds, kind.Name) {
			return nil, fmt.Errorf("kind of records %q: unknown, want one of %s", types.ExprString(of),
				strings.Join(s.kinds, ", "))
		}
		return &kindExpr{name == "last", kind.Name}, nil
	}
	return nil, fmt.Errorf("function %q: unknown, want one of count, hash, last, random", name)
}

// A template is text with expressions in angle brackets: `user:<n/10>:<n%10:4>` has the record's tens, and its last
// digit with zeros up to four digits.
type template []templatePart

type templatePart struct {
	text  string // if value is nil
	value expr
	width int // zeros are put before the number up to so many digits
}

// start returns the text before the first expression.
func (t template) start() string {
	if len(t) == 0 || t[0].value != nil {
		return ""
	}
	return t[0].text
}

func parseTemplate(text string, scope exprScope) (template, error) {
	var t template
	for rest := text; rest != ""; {
		plain, after, found := strings.Cut(rest, "<")
		if plain != "" {
			t = append(t, templatePart{text: plain})
		}
		if !found {
			break
		}
		inside, after, found := strings.Cut(after, ">")
		if !found {
			return nil, fmt.Errorf("template %q: no > behind <%s", text, inside)
		}
		part := templatePart{}
		number, width, padded := strings.Cut(inside, ":")
		var err error
		if padded {
			part.width, err = strconv.Atoi(strings.TrimSpace(width))
			if err != nil || part.width < 1 || part.width > maxWidth {
				return nil, fmt.Errorf("template %q: width %q, want 1 to %d", text, width, maxWidth)
			}
		}
		if part.value, err = parseExpr(number, scope); err != nil {
			return nil, fmt.Errorf("template %q: %w", text, err)
		}
		t, rest = append(t, part), after
	}
	return t, nil
}

// append appends the text for the values.
func (t template) append(dst []byte, v *exprValues) []byte {
	for i := range t {
		p := &t[i]
		if p.value == nil {
			dst = append(dst, p.text...)
			continue
		}
		dst = appendPadded(dst, p.value.eval(v), p.width)
	}
	return dst
}

// appendPadded appends a number with zeros before it up to width digits.
func appendPadded(dst []byte, n int64, width int) []byte {
	u := uint64(n)
	if n < 0 {
		dst, u = append(dst, '-'), -u
	}
	if width <= 1 || width < len(powers) && u >= powers[width] {
		return strconv.AppendUint(dst, u, 10)
	}
	dst = append(dst, zeros[:width]...)
	for i := len(dst) - 1; u > 0; i-- {
		dst[i] = byte('0' + u%10)
		u /= 10
	}
	return dst
}

// maxWidth is the largest width of a number.
const maxWidth = 40

var zeros = strings.Repeat("0", maxWidth)

// powers are those of ten.
var powers = func() (p [20]uint64) {
	p[0] = 1
	for i := range p[1:] {
		p[i+1] = 10 * p[i]
	}
	return p
}()
