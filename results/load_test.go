package results

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestContent: a header keeps what a file holds, up to a bound and without passwords, and a hash of all of it.
func TestContent(t *testing.T) {
	whole := ContentOf([]byte("mix:\n  - do: GET <key>\n"))
	edited := ContentOf([]byte("mix:\n  - do: SET <key> <value>\n"))
	if whole.Text != "mix:\n  - do: GET <key>\n" || whole.Bytes != 23 || whole.SHA256 == edited.SHA256 ||
		whole.String() == edited.String() {
		t.Errorf("%+v and %+v", whole, edited)
	}
	long := ContentOf([]byte(strings.Repeat("x", MaxContent+1)))
	other := ContentOf([]byte(strings.Repeat("x", MaxContent) + "y"))
	if long.Text != "" || long.Bytes != MaxContent+1 || long.SHA256 == other.SHA256 {
		t.Errorf("more than the bound: %d bytes of text, %+v", len(long.Text), other)
	}
	sum := NewContentSum()
	for _, part := range []string{"mix:\n", "  - do: GET <key>\n"} {
		fmt.Fprint(sum, part)
	}
	if got := sum.Content(); *got != *whole {
		t.Errorf("in parts: %+v, want %+v", got, whole)
	}
	const secret = `1700000000.1 [0 127.0.0.1:1] "SET" "a" "b"
1700000000.2 [0 127.0.0.1:1] "AUTH" "hunter2"
1700000000.3 [0 127.0.0.1:1] "CONFIG" "SET" "requirepass" "hunter2"
1700000000.4 [0 127.0.0.1:1] "ACL" "SETUSER" "u" ">hunter2"
1700000000.5 [0 127.0.0.1:1] "SET" "author" "x"
`
	text, err := json.Marshal(ContentOf([]byte(secret)))
	if err != nil || strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), "author") {
		t.Errorf("%v %s", err, text)
	}
}

// TestLoad: every part of a load is in what names it.
func TestLoad(t *testing.T) {
	h := func() *Header {
		return &Header{Groups: []ClientGroup{{Name: "w.yaml", Workload: "w.yaml", Clients: 2, Pipeline: 4,
			Content: ContentOf([]byte("a"))}}}
	}
	base := strings.Join(h().Load(), " | ")
	if want := "w.yaml: 2 clients, pipeline 4, closed loop; sha256 ca978112ca1b"; base != want {
		t.Errorf("%q, want %q", base, want)
	}
	for name, change := range loadChanges {
		x := h()
		change(x)
		if got := strings.Join(x.Load(), " | "); got == base {
			t.Errorf("%s: the load is %q as before", name, got)
		}
	}
	x := h()
	x.Schedule = NewSchedule([]string{"1s FLUSHALL", "2s kill 2"}, 1)
	if got, want := x.Load()[1], "schedule: 2 events, 1 fault among them: 1s FLUSHALL; 2s kill 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if NewSchedule(nil, 0) != nil {
		t.Error("no events are a schedule")
	}
	many := NewSchedule(make([]string, 9), 0)
	if got := many.String(); !strings.HasPrefix(got, "9 events, sha256 ") {
		t.Errorf("%q", got)
	}
}

// loadChanges are changes of a header after which its load is another one.
var loadChanges = map[string]func(*Header){
	"contents":      func(h *Header) { h.Groups[0].Content = ContentOf([]byte("b")) },
	"one node":      func(h *Header) { h.Groups[0].OneNode = true },
	"one slot":      func(h *Header) { h.Groups[0].OneSlot = true },
	"schedule":      func(h *Header) { h.Schedule = NewSchedule([]string{"1s FLUSHALL"}, 0) },
	"search":        func(h *Header) { h.Search = "many rates" },
	"verify":        func(h *Header) { h.Verify = true },
	"loaded before": func(h *Header) { h.LoadedBefore = true },
}

// TestInForce: of a NeoKV that ran already the settings are named that it tells, which are not in its shape.
func TestInForce(t *testing.T) {
	h := &Header{Target: Target{Info: map[string]string{"neokv_version": "v2", "stores": "3", "os": "x",
		"lease_ms": "900", "journal": "shared", "wal_sync": "always"}}}
	if got, want := h.inForce(), "journal shared, lease_ms 900"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var table strings.Builder
	if err := PrintTable(&table, *h, Summary{}); err != nil || !strings.Contains(table.String(),
		"\nsettings in force: journal shared, lease_ms 900\n") {
		t.Errorf("%v:\n%s", err, table.String())
	}
	h.Target.Info = map[string]string{"os": "x"}
	if got := h.inForce(); got != "" {
		t.Errorf("of a Redis: %q", got)
	}
}

// TestWhere: a target is called what it is, and says whether a power failure could take acknowledged writes away.
func TestWhere(t *testing.T) {
	neokv := func(change ...string) map[string]string {
		info := map[string]string{"neokv_version": "v2", "stores": "3", "replicas": "3", "regions": "8",
			"in_memory": "0", "wal_sync": "always", "raft_transport": "memory"}
		for i := 0; i < len(change); i += 2 {
			info[change[i]] = change[i+1]
		}
		return info
	}
	for _, c := range []struct {
		target Target
		want   string
	}{
		{Target{Info: neokv(), Cluster: true, Version: "7.4.0"},
			"NeoKV v2 at h:1, 3 stores and 8 regions, memory transport, sync always"},
		{Target{Info: neokv("in_memory", "1"), Cluster: true},
			"NeoKV v2 at h:1, 3 stores and 8 regions, memory transport, not durable (in memory)"},
		{Target{Info: neokv("wal_sync", "none")},
			"NeoKV v2 at h:1, 3 stores and 8 regions, memory transport, not durable (sync none)"},
		{Target{Version: "7.0.0"}, "Redis 7.0.0 at h:1"},
		{Target{Version: "7.0.0", Info: map[string]string{"aof_enabled": "0"}},
			"Redis 7.0.0 at h:1, not durable (no append-only file)"},
		{Target{Version: "7.0.0", Info: map[string]string{"aof_enabled": "1", "appendfsync": "everysec"}},
			"Redis 7.0.0 at h:1, not durable (appendfsync everysec)"},
		{Target{Version: "7.0.0", Info: map[string]string{"aof_enabled": "1", "appendfsync": "always"}},
			"Redis 7.0.0 at h:1, appendfsync always"},
		{Target{Version: "7.2.4", Info: map[string]string{"server_name": "valkey", "valkey_version": "8.0.1"}},
			"Valkey 8.0.1 at h:1"},
		{Target{Version: "7.0.0", Cluster: true, Nodes: []string{"a", "b", "c"}},
			"Redis Cluster of 3 nodes 7.0.0 at h:1"},
	} {
		c.target.Addrs = []string{"h:1"}
		h := &Header{Target: c.target}
		if got := h.Where(); got != c.want {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}
