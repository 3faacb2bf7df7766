package redis

import (
	"math/rand/v2"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/engine"
)

// TestSubsequence compares subsequences with those of a table without tricks, whichever of the strings is the longer.
func TestSubsequence(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	text := func() string {
		b := make([]byte, random.IntN(12))
		for i := range b {
			b[i] = "abc"[random.IntN(3)]
		}
		return string(b)
	}
	for range 3000 {
		a, b := text(), text()
		lengths := make([][]int, len(a)+1) // of the subsequences of prefixes, as in Redis's lcsCommand
		for i := range lengths {
			lengths[i] = make([]int, len(b)+1)
			for j := range lengths[i] {
				switch {
				case i == 0 || j == 0:
				case a[i-1] == b[j-1]:
					lengths[i][j] = lengths[i-1][j-1] + 1
				default:
					lengths[i][j] = max(lengths[i-1][j], lengths[i][j-1])
				}
			}
		}
		var want [][2]int
		for i, j := len(a), len(b); i > 0 && j > 0; {
			switch {
			case a[i-1] == b[j-1]:
				i, j = i-1, j-1
				want = append(want, [2]int{i, j})
			case lengths[i-1][j] > lengths[i][j-1]:
				i--
			default:
				j--
			}
		}
		l := newSubsequence([]byte(a), []byte(b), nil)
		var got [][2]int
		l.back(func(i, j int) { got = append(got, [2]int{i, j}) })
		if l.length != len(want) || len(got) != len(want) {
			t.Fatalf("%q, %q: %d bytes at %v, want %v", a, b, l.length, got, want)
		}
		for k := range want {
			if got[k] != want[k] {
				t.Fatalf("%q, %q: %v, want %v", a, b, got, want)
			}
		}
	}
}

// TestSubsequenceLooks: whichever string is the longer, there are many looks, and none comes late.
func TestSubsequenceLooks(t *testing.T) {
	short, long := []byte("aba"), []byte(strings.Repeat("x", 1<<20))
	for _, c := range [][2][]byte{{short, long}, {long, short}} {
		looks := 0
		w := &engine.Work{Look: func() error {
			looks++
			return nil
		}}
		l := newSubsequence(c[0], c[1], w)
		if looks < 100 {
			t.Errorf("%d and %d bytes: %d looks", len(c[0]), len(c[1]), looks)
		}
		looks = 0
		l.text()
		if looks < 5 && len(c[0]) < len(c[1]) { // else the way back goes through the short string alone
			t.Errorf("%d and %d bytes: %d looks on the way back", len(c[0]), len(c[1]), looks)
		}
	}
}

func BenchmarkSubsequence(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) []byte {
		t := make([]byte, n)
		for i := range t {
			t[i] = byte('a' + random.IntN(4))
		}
		return t
	}
	for _, c := range []struct {
		name string
		a, b []byte
	}{{"10000 and 10000", text(10_000), text(10_000)}, {"100 and 1000000", text(100), text(1_000_000)},
		{"1000000 and 100", text(1_000_000), text(100)}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				newSubsequence(c.a, c.b, &engine.Work{}).text()
			}
		})
	}
}
