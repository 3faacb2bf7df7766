package redis

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
)

// TestBatch has the operations one by one and together, and what a batch refuses.
func TestBatch(t *testing.T) {
	d := newRegion(t)
	d.scenario(`
		neokv batch set {t}a 1 => OK
		NeoKV Batch SET {t}b 2 psetex {t}c 5000 3 Del {t}a pexpire {t}b 7000 PERSIST {t}c => OK
		mget {t}a {t}b {t}c => [(nil) "2" "3"]
		pttl {t}a => -2
		pttl {t}b => 7000
		pttl {t}c => -1
		neokv batch set {t}b 4 => OK
		pttl {t}b => -1
		neokv batch set {t}a 1 pexpire {t}a 100 set {t}a 2 set {t}b 1 del {t}b => OK
		mget {t}a {t}b => ["2" (nil)]
		pttl {t}a => -1
		neokv batch del {t}x pexpire {t}x 9 persist {t}x => OK
		exists {t}x => 0
		neokv batch set {t}a 1 pexpire {t}a 0 set {t}b 1 pexpire {t}b -5 => OK
		exists {t}a {t}b => 0
		hset {t}h f v g v => 2
		rpush {t}l x => 1
		neokv batch set {t}h 1 pexpire {t}l 500 => OK
		get {t}h => "1"
		pttl {t}l => 500
		neokv batch persist {t}l del {t}h del {t}h => OK
		pttl {t}l => -1
		neokv batch set del del del set => OK
		neokv batch set set psetex persist => ERR syntax error
		exists set => 0
		neokv batch set "" "" => OK
		get "" => ""

		set {t}a 1 => OK
		neokv batch => ERR syntax error
		neokv batch set {t}a 2 set {t}b => ERR syntax error
		neokv batch set {t}a 2 incr {t}a => ERR syntax error
		neokv batch set {t}a 2 del => ERR syntax error
		neokv batch del {t}a psetex {t}b 0 v => ERR invalid expire time in 'neokv|batch' command
		neokv batch del {t}a psetex {t}b -1 v => ERR invalid expire time in 'neokv|batch' command
		neokv batch del {t}a psetex {t}b 9223372036854775807 v => ERR invalid expire time in 'neokv|batch' command
		neokv batch del {t}a psetex {t}b 1.5 v => ERR value is not an integer or out of range
		neokv batch del {t}a pexpire {t}a 9223372036854775807 => ERR invalid expire time in 'neokv|batch' command
		neokv batch del {t}a pexpire {t}a "" => ERR value is not an integer or out of range
		get {t}a => "1"
		exists {t}b => 0
	`)
}

// TestBatchIsLikeItsOperations: a batch stores what its operations store as calls one by one, blind or not.
func TestBatchIsLikeItsOperations(t *testing.T) {
	shortPieces(t, 100)
	together, apart := newRegion(t), newRegion(t)
	long := strings.Repeat("v", 1000)
	for _, batch := range []string{
		"set {t}a 1; psetex {t}b 1000 2",
		"set {t}a " + long + "; set {t}a 1; set {t}b " + long + "; pexpire {t}b 1000",
		"set {t}b " + long + "1; persist {t}b; del {t}a",
		"psetex {t}a 10 1; persist {t}a; del {t}b; set {t}b 1; pexpire {t}b 50",
	} {
		call := []string{"neokv", "batch"}
		for operation := range strings.SplitSeq(batch, "; ") {
			words := strings.Fields(operation)
			call = append(call, words...)
			apart.must(2, words...)
		}
		if got := together.must(2, call...).String(); got != "OK" {
			t.Fatalf("%.100q: %s", call, got)
		}
		for _, key := range []string{"{t}a", "{t}b"} {
			for _, read := range []string{"get", "pttl", "type"} {
				got, want := together.must(2, read, key).String(), apart.must(2, read, key).String()
				if got != want {
					t.Errorf("%s %s behind %.200q: %.100s; want %.100s", read, key, batch, got, want)
				}
			}
		}
		if together.state.CollectedIn != apart.state.CollectedIn {
			t.Errorf("behind %.200q slots %x are not blind; want %x", batch, together.state.CollectedIn,
				apart.state.CollectedIn)
		}
	}
}

// TestBatchOfDeletions: a batch that removes large collections leaves each to the reclaimer, so it writes little.
func TestBatchOfDeletions(t *testing.T) {
	d := newRegion(t)
	call := []string{"neokv", "batch"}
	for i := range 1000 {
		key := fmt.Sprintf("{t}%d", i)
		d.plant(key, keys.Metadata{Type: keys.Hash, Version: uint64(1 + i), Size: 1 << 40})
		call = append(call, "DEL", key)
	}
	d.must(2, call...)
	if d.w.Orphans.Collections != 1000 || d.wrote > 200_000 {
		t.Errorf("%d orphans, %d bytes written; want 1000 and some 100 bytes each", d.w.Orphans.Collections, d.wrote)
	}
}

// TestBatchIsBounded: the estimate of what a batch writes is that of the same MSET, and more by the strings that
// PEXPIRE and PERSIST store again.
func TestBatchIsBounded(t *testing.T) {
	batch, mset := Call{Command: Batch, Args: callOf("neokv batch")}, Call{Command: data.Lookup([]byte("mset")),
		Args: callOf("mset")}
	bytesOf := func(c *Call) (n int) {
		for _, a := range c.Args {
			n += len(a)
		}
		return n
	}
	for i := range 10_000 {
		key := fmt.Appendf(nil, "{t}%d", i)
		batch.Args = append(batch.Args, []byte("set"), key, []byte("v"))
		mset.Args = append(mset.Args, key, []byte("v"))
	}
	if b, m := batch.Writes(bytesOf(&batch)), mset.Writes(bytesOf(&mset)); b > 2*m || b > 4<<20 {
		t.Errorf("a batch of 10,000 SETs may write %d bytes, the MSET %d", b, m)
	}
	for i := range 1000 {
		batch.Args = append(batch.Args, []byte([]string{"pexpire", "persist"}[i%2]), fmt.Appendf(nil, "{t}%d", i))
		if i%2 == 0 {
			batch.Args = append(batch.Args, []byte("9"))
		}
	}
	if n := batch.Writes(bytesOf(&batch)); n < 1000*pieceBytes || n > 1000*pieceBytes+4<<20 {
		t.Errorf("a batch that stores 1000 strings again may write %d bytes", n)
	}
	if got := len(batch.Command.AppendKeys(nil, batch.Args)); got != 11_000 {
		t.Errorf("%d keys", got)
	}
	batch.Args = append(batch.Args, []byte("set"))
	if got := batch.Command.AppendKeys(nil, batch.Args); len(got) != 0 {
		t.Errorf("%d keys of a batch that is cut short; want none", len(got))
	}
	long := Call{Command: Batch, Args: callOf("neokv batch set k v del")}
	if long.Args = append(long.Args, make([]byte, 9<<20)); long.LongestName() != 9<<20 {
		t.Errorf("longest name of %d bytes", long.LongestName())
	}
}

// TestBatchLooksUp: a batch looks something up for sure if one of its operations does.
func TestBatchLooksUp(t *testing.T) {
	for line, want := range map[string][2]bool{
		"neokv batch set a 1 psetex b 9 1": {false, true},
		"neokv batch set a 1 del b":        {true, true},
		"neokv batch persist a":            {true, true},
	} {
		c := Call{Batch, callOf(line)}
		if got := [2]bool{c.LooksUp(0), c.LooksUp(keys.AllSlots)}; got != want {
			t.Errorf("%s looks up %v; want %v", line, got, want)
		}
	}
}

func callOf(line string) [][]byte { return bytes.Fields([]byte(line)) }
