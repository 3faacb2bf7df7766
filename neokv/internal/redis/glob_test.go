package redis

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/engine"
)

// match reports whether s matches a pattern.
func match(pattern, s []byte) bool { return NewGlob(pattern, nil).Match(s, nil) }

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"**", "", false}, {"", "", true}, {"", "a", false}, {"?", "", false}, {"a", "a", true},
		{"a", "b", false}, {"a*", "a", true}, {"a**", "a", true}, {"*a", "ba", true}, {"*a*b*", "xaxbx", true},
		{"*a*b", "ab b", true}, {"a*b", "aXXc", false}, {"h?llo", "hello", true}, {"h[ae]llo", "hallo", true},
		{"h[^e]llo", "hello", false}, {"h[a-c]llo", "hbllo", true}, {"[c-a]", "b", true}, {`\*`, "*", true},
		{`\*`, "a", false}, {`\`, `\`, true}, {`[\]]`, "]", true}, {`[\-]`, "-", true}, {"[a-]", "-", false},
		{"[a-]", "_", true}, {"[a-", "-", true}, {"[a", "a", true}, {"[", "[", false}, {"[^", "a", true},
		{"[]", "a", false}, {"[^]", "a", true}, {"*[", "a", false}, {"[\x00-\xff]", "\x00", true},
		{"[\x00-\xff]", "a", false}, {"[\x80-\x7f]", "a", true},
	} {
		if got := match([]byte(c.pattern), []byte(c.s)); got != c.want {
			t.Errorf("%q on %q: %v, want %v", c.pattern, c.s, got, c.want)
		}
	}
	// A pattern that takes exponential time where every star is tried at every place.
	if match(bytes.Repeat([]byte("a*"), 40), append(bytes.Repeat([]byte("a"), 2000), 'b')) != true ||
		match(append(bytes.Repeat([]byte("*a"), 40), 'c'), bytes.Repeat([]byte("a"), 2000)) {
		t.Error("many stars")
	}
}

// TestManyClasses compares patterns of more classes than a Glob keeps, short ones and long ones.
func TestManyClasses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var pattern, s []byte
		for range keptClasses + 20 {
			class := []byte{'['}
			for range r.IntN(2 * longClass) {
				class = append(class, byte(r.Uint32()))
			}
			pattern = append(append(pattern, class...), ']')
			c := byte(r.Uint32())
			for tries := 0; !redisMatch(append(class, ']'), []byte{c}) && tries < 1000; tries++ {
				c = byte(r.Uint32())
			}
			s = append(s, c)
		}
		if got, want := match(pattern, s), redisMatch(pattern, s); got != want {
			t.Fatalf("Match(%q, %q) = %v, want %v", pattern, s, got, want)
		}
	}
}

// TestLongClass matches a long class against a long key. That takes less than a millisecond; reading the class for each
// byte of the key took a minute.
func TestLongClass(t *testing.T) {
	const n = 256 << 10
	begin := time.Now()
	pattern := []byte("[" + strings.Repeat("ab", n/2) + "c]*[" + strings.Repeat("b", n) + "]")
	if match(pattern, bytes.Repeat([]byte("c"), n)) {
		t.Error("it matches")
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestMatchEnds: a match that takes long ends when the work is over, soon after.
func TestMatchEnds(t *testing.T) {
	over := errors.New("over")
	looks := 0
	w := engine.Work{Look: func() error {
		if looks++; looks == 3 {
			return over
		}
		return nil
	}}
	const n = 1 << 20 // n * n steps
	pattern := []byte("*" + strings.Repeat("a", n) + "b")
	NewGlob(pattern, nil).Match(bytes.Repeat([]byte("a"), 2*n), &w)
	if looks != 3 || w.Ended() != over {
		t.Errorf("%d looks, ended by %v", looks, w.Ended())
	}
}

func FuzzMatch(f *testing.F) {
	f.Add([]byte(`*[^a-c\]]?x\`), []byte("abc"))
	f.Add([]byte(`[z-a][`), []byte("bb"))
	f.Add([]byte(`**a*[\`), []byte("xax"))
	f.Fuzz(func(t *testing.T, pattern, s []byte) {
		got := match(pattern, s)
		if bytes.Count(pattern, []byte("*")) < 5 && len(s) < 50 { // Redis's way takes long for many
			if want := string(pattern) == "*" || redisMatch(pattern, s); got != want {
				t.Errorf("Match(%q, %q) = %v, want %v", pattern, s, got, want)
			}
		}
		quoted := make([]byte, 0, 2*len(s))
		for _, c := range s {
			quoted = append(quoted, '\\', c)
		}
		if !match(quoted, s) || len(s) > 0 && !match(append(quoted, '*'), s) {
			t.Errorf("%q does not match itself", s)
		}
	})
}

// redisMatch is stringmatchlen of Redis 7.0 (util.c), step by step. Where that reads the NUL behind a string, at does.
func redisMatch(p, s []byte) bool {
	at := func(i int) byte {
		if i < len(p) {
			return p[i]
		}
		return 0
	}
	for len(p) > 0 && len(s) > 0 {
		switch p[0] {
		case '*':
			for at(1) == '*' {
				p = p[1:]
			}
			if len(p) == 1 {
				return true
			}
			for ; len(s) > 0; s = s[1:] {
				if redisMatch(p[1:], s) {
					return true
				}
			}
			return false
		case '?':
			s = s[1:]
		case '[':
			p = p[1:]
			not := at(0) == '^'
			if not {
				p = p[1:]
			}
			match, ended := false, false
			for {
				if len(p) == 0 {
					ended = true
					break
				}
				if len(p) >= 2 && p[0] == '\\' {
					p = p[1:]
					match = match || p[0] == s[0]
				} else if p[0] == ']' {
					break
				} else if len(p) >= 3 && p[1] == '-' {
					low, high, c := int8(p[0]), int8(p[2]), int8(s[0])
					p = p[2:]
					match = match || min(low, high) <= c && c <= max(low, high)
				} else {
					match = match || p[0] == s[0]
				}
				p = p[1:]
			}
			if match == not {
				return false
			}
			if s = s[1:]; ended { // as if it stood on the last byte
				p = []byte{0}
			}
		default:
			if p[0] == '\\' && len(p) >= 2 {
				p = p[1:]
			}
			if p[0] != s[0] {
				return false
			}
			s = s[1:]
		}
		p = p[1:]
		if len(s) == 0 {
			for at(0) == '*' {
				p = p[1:]
			}
			break
		}
	}
	return len(p) == 0 && len(s) == 0
}

func BenchmarkMatch(b *testing.B) {
	key := []byte("user:1234567:profile")
	for _, pattern := range []string{"user:*", "*profile", "user:12[0-9]4*", "*[a-f]rofile", "user:[^a-z]*[abcdefghijklmnop]*x"} {
		b.Run(pattern, func(b *testing.B) {
			g := NewGlob([]byte(pattern), nil)
			for b.Loop() {
				g.Match(key, nil)
			}
		})
	}
}
