//go:build redisserver

package server

import (
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/parameters"
)

// configs asks for all parameters.
func configs(t *testing.T, c net.Conn) map[string]string {
	all := map[string]string{}
	items := reply(t, c, 2, "CONFIG GET *").Items
	for i := 0; i < len(items); i += 2 {
		all[string(items[i].Text)] = string(items[i+1].Text)
	}
	return all
}

// TestParametersAreRedis compares names, defaults, checks and errors of all parameters with redis-server's, and what
// CONFIG GET says after each CONFIG SET.
func TestParametersAreRedis(t *testing.T) {
	addr := redistest.RedisServer(t)
	theirs := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var kept []string
	_, dial := start(t, Options{OnKept: func(name string) { kept = append(kept, name) }})
	want, got := configs(t, theirs()), configs(t, dial())
	maps.DeleteFunc(got, func(name, _ string) bool { return strings.Contains(name, ".") }) // settings
	if w, g := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(g, w) {
		t.Errorf("CONFIG GET * has %d names %q\nwant %d %q", len(g), g, len(w), w)
	}
	const most = 192
	if len(want) != most {
		t.Errorf("redis-server has %d parameters; docs and the issue speak of %d", len(want), most)
	}
	// What these do to the server itself, or to the connection that sets them, would end the comparison.
	risky := strings.Fields("bind port tls-port appendonly maxmemory-clients requirepass save")
	a, b := theirs(), dial()
	defer a.Close()
	set := func(c net.Conn, name, value string) (reply, after string) {
		return ask(t, c, "CONFIG SET "+name+" \""+value+"\""), ask(t, c, "CONFIG GET "+name)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		row := parameters.Find(name)
		if row == nil {
			t.Fatalf("%s is in no row", name)
		}
		if d := want[name]; row.Default != d && !slices.Contains([]string{"port", "dir", "bind", "save"}, name) {
			t.Errorf("%s: the default is %q, want %q", name, row.Default, d)
		}
		if slices.Contains(risky, name) {
			continue
		}
		for _, v := range []string{"", "gar bage", "x", "YES", "No", "-1", "0", "1", "7", "007", "-0", "1kb", "2MB", "1x", "99",
			"501", "70000", "5000000000", "9223372036854775807", "99999999999999999999", "-99999999999999999999",
			"default now", "save NOW", "1 2 3", "1 2 x", "1 2 3000", "{title}", "{x}", "a.b-c", "a_b", "Ex",
			strings.Repeat("a", 256), strings.ToUpper(row.Default), row.Default} {
			w, wAfter := set(a, name, v)
			g, gAfter := set(b, name, v)
			switch closer := strings.Contains(g, "inclusive") && w == "+OK\r\n"; {
			case row.Effect == parameters.Refused && (w == "+OK\r\n" || strings.Contains(w, "TLS configuration")) &&
				strings.HasSuffix(g, " - "+row.Note+"\r\n"):
			case name == "maxclients" && strings.Contains(w, "operating system"),
				closer && (name == "slowlog-max-len" || name == "proto-max-bulk-len"):
				set(a, name, row.Default)
				set(b, name, row.Default)
			case g != w:
				t.Errorf("CONFIG SET %s %q: %q, want %q", name, v, g, w)
			case row.Effect != parameters.Refused && want[name] == got[name] && gAfter != wAfter:
				t.Errorf("CONFIG GET after CONFIG SET %s %q: %q, want %q", name, v, gAfter, wAfter)
			}
		}
	}
	for _, row := range parameters.All {
		if row.Effect == parameters.Kept && !slices.Contains(kept, row.Name) || row.Effect != parameters.Kept &&
			slices.Contains(kept, row.Name) {
			t.Errorf("%s is %s; OnKept has told %v of it", row.Name, row.Effect, slices.Contains(kept, row.Name))
		}
	}
}
