package neokvtest_test

import (
	"fmt"
	"strings"
	"testing"

	"neokv.dev/neokv/neokvtest"
)

// complaints is a testing.TB that notes what a check complains of.
type complaints struct {
	testing.TB
	said []string
}

func (c *complaints) Errorf(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

// TestChecks: each check passes where it holds, and says what is there where it does not.
func TestChecks(t *testing.T) {
	said := &complaints{TB: t}
	c := neokvtest.Start(said)
	for _, call := range [][]any{{"SET", "s", "x"}, {"RPUSH", "l", "a", "b", "a"}, {"SADD", "m", "b", "a"},
		{"HSET", "h", "f", "1", "g", "2"}, {"ZADD", "z", 1.5, "a", 2, "b"}} {
		if _, err := c.Do(t.Context(), call...); err != nil {
			t.Fatal(err)
		}
	}
	c.CheckGet("s", "x")
	c.CheckList("l", "a", "b", "a")
	c.CheckSet("m", "b", "a", "b")
	c.CheckHash("h", map[string]string{"g": "2", "f": "1"})
	c.CheckSortedSet("z", map[string]float64{"a": 1.5, "b": 2})
	c.CheckGone("none", "nothing")
	c.CheckList("none")
	if said.said != nil {
		t.Errorf("checks that hold: %q", said.said)
	}
	for _, x := range []struct {
		check func()
		want  string
	}{
		{func() { c.CheckGet("s", "y") }, `key "s": it holds "x", want "y"`},
		{func() { c.CheckGet("none", "y") }, `key "none": it is not there, want "y"`},
		{func() { c.CheckGet("l", "y") }, `key "l": it is a list, want "y"`},
		{func() { c.CheckList("l", "a", "a", "b") }, `key "l": it holds ["a" "b" "a"], want ["a" "a" "b"]`},
		{func() { c.CheckList("none", "a") }, `key "none": it is not there, want ["a"]`},
		{func() { c.CheckSet("m", "a") }, `key "m": it holds ["a" "b"], want ["a"]`},
		{func() { c.CheckHash("h", map[string]string{"f": "1"}) },
			`key "h": it holds ["f":"1" "g":"2"], want ["f":"1"]`},
		{func() { c.CheckSortedSet("z", map[string]float64{"a": 1.5}) }, `key "z": it holds [a:1.5 b:2], want [a:1.5]`},
		{func() { c.CheckGone("none", "h") }, `key "h": it is there, a hash`},
	} {
		said.said = nil
		x.check()
		if got := strings.Join(said.said, "\n"); got != "neokvtest: "+x.want {
			t.Errorf("%q; want %q", got, x.want)
		}
	}
}

// TestFail: clients get the error, and Do does not. The other commands work.
func TestFail(t *testing.T) {
	c := neokvtest.Start(t)
	client, ctx := c.Client(), t.Context()
	const text = "ERR on purpose"
	c.Fail("get", text, 1)
	if err := client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
	if err := client.Get(ctx, "k").Err(); err == nil || err.Error() != text {
		t.Errorf("GET: %v; want %s", err, text)
	}
	c.CheckGet("k", "v")
	c.Fail("SET", text, 0.5)
	if got := fmt.Sprint(c.Faults()); got != "[fail all GET 100% ERR on purpose fail all SET 50% ERR on purpose]" {
		t.Errorf("in force: %s", got)
	}
	failed := 0
	const calls = 1000 // with half of them expected to fail, fewer than 400 or more than 600 come once in 10^9
	for i := range calls {
		if err := client.Set(ctx, "k", i, 0).Err(); err != nil {
			failed++
		}
	}
	if failed < 400 || failed > 600 {
		t.Errorf("%d of %d calls failed; want half", failed, calls)
	}
	c.Fail("GET", "", 0)
	if err := client.Get(ctx, "k").Err(); err != nil {
		t.Error(err)
	}
	c.Fault("heal")
	if got := c.Faults(); len(got) > 0 {
		t.Errorf("healed, but for %v", got)
	}
}
