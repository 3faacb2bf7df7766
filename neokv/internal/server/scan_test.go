package server

import (
	"bytes"
	"testing"
)

// TestScansAreForgotten: a scan that comes back has its cursor before forgotten; of scans that do not come back the
// newest are remembered, in bounded memory.
func TestScansAreForgotten(t *testing.T) {
	var x Scans
	first := x.note(scanned{slot: 7, after: []byte("a"), end: []byte("z")})
	s, ok := x.find(7, first)
	if !ok || string(s.after) != "a" || string(s.end) != "z" {
		t.Fatalf("the first place: %+v, %v", s, ok)
	}
	if _, ok := x.find(8, first); ok {
		t.Error("found in another slot")
	}
	s.before, s.after = s.place, []byte("b")
	second := x.note(s)
	if _, ok := x.find(7, first); !ok {
		t.Error("a client that has no answer yet cannot ask again")
	}
	if s, ok := x.find(7, second); !ok || string(s.after) != "b" {
		t.Errorf("the second place: %+v, %v", s, ok)
	}
	if _, ok := x.find(7, first); ok || len(x.all) != 1 {
		t.Errorf("%d places are remembered of one scan", len(x.all))
	}
	for range 3 * maxScans {
		first = x.note(scanned{slot: 7, after: make([]byte, 100), end: make([]byte, 100)})
	}
	if _, ok := x.find(7, first); !ok || len(x.all) != maxScans || x.bytes != 200*maxScans {
		t.Errorf("%d scans, %d bytes, the newest %v", len(x.all), x.bytes, ok)
	}
	x.note(scanned{after: bytes.Repeat([]byte("x"), maxScanBytes+1)})
	if len(x.all) != 0 || x.bytes != 0 {
		t.Errorf("%d scans, %d bytes after a key that is too large", len(x.all), x.bytes)
	}
}
