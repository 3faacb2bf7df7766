//go:build !race

package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"neokv.dev/workloads/forms"
)

// formsOf are forms of all commands of a server that read or write data: those of forms.Data, and those that follow
// from the command table. A container, such as OBJECT, has none but in forms.Data.
func formsOf(t testing.TB, addr string) (written, derived []string) {
	t.Helper()
	rows := rowsOf(t, addr)
	has := func(form string) bool {
		return slices.ContainsFunc(rows, func(r forms.Row) bool {
			name := strings.ToUpper(r.Name)
			return form == name || strings.HasPrefix(form, name+" ")
		})
	}
	for _, form := range slices.Concat(forms.Data, forms.Server) {
		if !has(form) {
			t.Errorf("%s is no command", form)
		}
	}
	for _, row := range rows {
		form := row.Of()[0]
		if row.IsData() && !row.Container && !strings.Contains(row.Name, " ") && !slices.Contains(forms.Data, form) {
			derived = append(derived, form)
		}
	}
	return forms.Data, derived
}

// rowsOf is the command table of a server.
func rowsOf(t testing.TB, addr string) []forms.Row {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	reply, err := c.Do(t.Context(), "COMMAND").Result()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := forms.Rows(reply)
	if err != nil || len(rows) < 100 {
		t.Fatalf("%d commands: %v", len(rows), err)
	}
	return rows
}

// largeCalls makes pipelines of large calls.
type largeCalls struct{ forms.Generator }

// pipeline makes one call that comes again and again, or several. All of them together have bytes enough for one that
// is refused.
func (g *largeCalls) pipeline() (calls []forms.Call) {
	n, same, bytes := 1+g.UpTo(511), g.IntN(2) == 0, entryLimit+entryLimit/8
	g.Tag = []string{"{a}", "{b}"}[g.IntN(2)]
	for range n {
		if len(calls) == 0 || !same {
			calls = append(calls, g.Call(bytes))
		} else {
			calls = append(calls, calls[0])
		}
		for _, a := range calls[len(calls)-1] {
			bytes -= a.Size()
		}
		if bytes <= 0 {
			break
		}
	}
	return calls
}

// TestDerivedForms: calls of every form that is derived run, at least now and then.
func TestDerivedForms(t *testing.T) {
	s := startServe(t, "--mem", "--port", "0", "--stores", "1", "--regions", "1")
	defer s.stop(t)
	addr := "127.0.0.1:" + s.ready[2]
	_, derived := formsOf(t, addr)
	if len(derived) < 10 {
		t.Fatalf("%d forms", len(derived))
	}
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	for _, form := range derived {
		g := &forms.Generator{Rand: rand.New(rand.NewPCG(1, 2)), Forms: []string{form}, Tag: "{a}"}
		var err error
		for try := 0; try == 0 || err != nil && err != redis.Nil; try++ {
			if try == 1000 {
				t.Errorf("%s: no call runs, the last says %v: write a form in forms.Data", form, err)
				break
			}
			for _, n := range []string{"1", "2", "3"} { // an earlier call may have replaced them
				for _, line := range []string{"SET s 5", "HSET h 1 1", "SADD e 1", "RPUSH l 1", "ZADD z 1 1"} {
					args := strings.Fields(line)
					key := g.Tag + args[1] + n
					if err := c.Del(t.Context(), key).Err(); err != nil {
						t.Fatal(err)
					}
					seed := []any{args[0], key}
					for _, a := range args[2:] {
						seed = append(seed, a)
					}
					if err := c.Do(t.Context(), seed...).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			var args []any
			for _, a := range g.Call(1000) {
				args = append(args, a.Text+strings.Repeat("x", a.Fill))
			}
			err = c.Do(t.Context(), args...).Err()
		}
	}
}
