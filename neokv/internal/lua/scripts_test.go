package lua

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestScripts(t *testing.T) {
	var s Scripts
	one, two := compile(t, "return 1"), compile(t, "return 2")
	if s.Get(one.SHA) != nil || s.Has(one.SHA) {
		t.Error("an empty set has a script")
	}
	s.Add(one, false)
	s.Add(one, false)
	s.Add(two, true)
	s.Add(two, false)
	n, size := s.Size()
	if n != 2 || size != one.Bytes()+two.Bytes() {
		t.Errorf("%d scripts of %d bytes, want 2 of %d", n, size, one.Bytes()+two.Bytes())
	}
	if s.Get(one.SHA) != one || s.Get(strings.ToUpper(two.SHA)) != two || !s.Has(strings.ToUpper(one.SHA)) {
		t.Error("a script is missing, or not found in upper case")
	}
	s.Flush()
	if n, size := s.Size(); n != 0 || size != 0 || s.Get(one.SHA) != nil {
		t.Errorf("%d scripts of %d bytes are left", n, size)
	}
	s.Add(one, true)
	if s.Get(one.SHA) != one {
		t.Error("nothing can be added any more")
	}
}

// Of those that may leave goes the one that was used least lately; those that shall stay go when they are alone.
func TestScriptsHaveABound(t *testing.T) {
	var s Scripts
	numbered := func(i int) *Script { return compile(t, fmt.Sprint("return ", i)) }
	s.Add(numbered(-1), false)
	s.Add(numbered(-1), true)
	s.Add(numbered(0), false)
	for i := 1; i <= maxScripts; i++ {
		s.Add(numbered(i), false)
		s.Get(numbered(0).SHA)
	}
	if n, _ := s.Size(); n != maxScripts {
		t.Errorf("%d scripts, want %d", n, maxScripts)
	}
	for i, want := range map[int]bool{-1: true, 0: true, 1: false, 2: false, 3: true, maxScripts: true} {
		if got := s.Has(numbered(i).SHA); got != want {
			t.Errorf("script %d: %v, want %v", i, got, want)
		}
	}
	long := "return '" + strings.Repeat("x", MaxText-100)
	for i := range 100 {
		s.Add(compile(t, fmt.Sprintf("%s%d'", long, i)), true)
	}
	if n, size := s.Size(); size > maxScriptBytes || n < 2 {
		t.Errorf("%d scripts of %d bytes, want at most %d bytes", n, size, maxScriptBytes)
	}
	if s.Has(numbered(3).SHA) || s.Has(numbered(-1).SHA) {
		t.Error("a script stays in place of one that was added later to stay")
	}
	staying, _ := s.Size()
	for i := range 2 * maxScripts {
		s.Add(numbered(i), false)
	}
	if n := s.stay.Len(); n != staying {
		t.Errorf("%d of %d scripts stay while others come and go", n, staying)
	}
}

// Bytes is about right, whatever a script consists of.
func TestBytesOfAScript(t *testing.T) {
	for _, text := range []string{
		"return 1" + strings.Repeat(" ", MaxText-8), strings.Repeat("a=1 ", MaxText/4),
		strings.Repeat("local function f() end f() ", 1) + strings.Repeat("do local function f() end end ", MaxText/30),
		"return {" + strings.Repeat("{},", MaxText/3-10) + "}", "return '" + strings.Repeat("x", MaxText-10) + "'",
		many("a%d=%d ", MaxText/18), many("do local a%d end ", MaxText/25), "-- " + strings.Repeat("\n", MaxText-100),
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := compile(t, text)
		runtime.GC()
		runtime.ReadMemStats(&after)
		// The text is the caller's, and counts all the same: nobody else keeps it.
		got, want := s.Bytes(), len(text)+int(after.HeapAlloc)-int(before.HeapAlloc)
		if float64(got) < 0.7*float64(want) || float64(got) > 1.5*float64(want)+10_000 {
			t.Errorf("%.40s: %d bytes, and the heap grew by %d", text, got, want)
		}
		runtime.KeepAlive(s)
	}
}

func many(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, strings.ReplaceAll(format, "%d", "%[1]d"), i)
	}
	return b.String()
}
