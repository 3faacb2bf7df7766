package bench

import (
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct {
		text, addr string
		login      Login
		tls        bool
	}{
		{text: "127.0.0.1:7001", addr: "127.0.0.1:7001"},
		{text: "redis://h", addr: "h:6379"},
		{text: "redis://h:1/", addr: "h:1"},
		{text: "redis://h:1/0", addr: "h:1"},
		{text: "redis://[::1]:1", addr: "[::1]:1"},
		{text: "redis://:p%40%2C%2Fw@h:1", addr: "h:1", login: Login{Password: "p@,/w"}},
		{text: "redis://u:p@h:1", addr: "h:1", login: Login{User: "u", Password: "p"}},
		{text: "rediss://u@h:1", addr: "h:1", login: Login{User: "u"}, tls: true},
		{text: "unix:///run/redis.sock", addr: "unix:///run/redis.sock"},
		{text: "unix://u:p@/run/redis.sock", addr: "unix:///run/redis.sock", login: Login{User: "u", Password: "p"}},
	} {
		addr, login, err := ParseTarget(c.text)
		if withTLS := login.TLS != nil; err != nil || addr != c.addr || login.User != c.login.User ||
			login.Password != c.login.Password || withTLS != c.tls {
			t.Errorf("ParseTarget(%q) = %q, %+v, %v; want %q, %+v, TLS %v", c.text, addr, login, err, c.addr, c.login, c.tls)
		}
	}
}

// The error of a target says what is wanted, and nothing of a password, whole or the part before a comma.
func TestParseTargetRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"h":                          "want host:port, redis://",
		"http://h:1":                 "want host:port, redis://",
		"redis://":                   "want a host",
		"redis://h:1/1":              "want database 0, the only one of a cluster",
		"redis://h:1?db=1":           "want nothing behind the address",
		"unix://run/redis.sock":      "want the whole path of a socket",
		"redis://u:secret@h:1/7":     "want database 0",
		"redis://u:secret@h:x":       "want host:port, redis://",
		"redis://u:sec%ret@h:1":      "want host:port, redis://",
		"redis://:secret":            "want host:port, redis://",
		"rest-of-secret@h:1":         "want redis:// in front, and %2C for a comma",
		"ftp://u:secret@h:1":         "want host:port, redis://",
		"redis://u:secret@h:1#there": "want nothing behind the address",
	} {
		_, _, err := ParseTarget(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseTarget(%q): %v; want %q and no secret", text, err, want)
		}
	}
}

func TestShownTarget(t *testing.T) {
	for text, want := range map[string]string{
		"h:1": "h:1", "redis://h:1": "redis://h:1", "redis://u@h:1": "redis://u@h:1", "unix:///s": "unix:///s",
		"redis://u:p@h:1":         "redis://u:(set)@h:1",
		"redis://:p@q@h:1/0":      "redis://:(set)@h:1/0",
		"redis://u:a,redis://b@h": "redis://u:(set)@h",
	} {
		if got := ShownTarget(text); got != want {
			t.Errorf("ShownTarget(%q) = %q; want %q", text, got, want)
		}
	}
}
