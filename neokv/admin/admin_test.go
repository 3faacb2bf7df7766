package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/settings"
)

func start(t *testing.T) *neokv.Cluster {
	t.Helper()
	s := settings.Default()
	s.Engine.MemtableSize, s.Engine.BlockCache = 12<<20, 12<<20
	c, err := neokv.Start(t.Context(), neokv.Config{Stores: 3, InMemory: true, NoSockets: true, Settings: &s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func listen(t *testing.T, c *neokv.Cluster) *Port {
	t.Helper()
	p, err := Listen(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestClient does things to a cluster through its control port, which outlives the stores.
func TestClient(t *testing.T) {
	p := listen(t, start(t))
	client := &Announcement{Addr: p.Addr(), Token: p.token}
	do := func(text string) (Done, error) {
		t.Helper()
		f, err := fault.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return client.Inject(t.Context(), f)
	}
	s, err := do("kill 2")
	if err != nil || s.Stores[1].State != neokv.StateKilled || len(s.Faults) != 1 || s.Faults[0].String() != "kill 2" {
		t.Errorf("after a kill: %+v, %v", s, err)
	}
	if _, err = do("kill 2"); err == nil || err.Error() != "kill 2: store 2 does not run" || errors.As(err, new(InvalidError)) {
		t.Errorf("kill of a store that does not run: %v", err)
	}
	if _, err = do("kill 4"); !errors.As(err, new(InvalidError)) {
		t.Errorf("kill of a store that there is not: %v; want an InvalidError", err)
	}
	if s, err = do("kill all"); err != nil || len(s.Faults) != 3 {
		t.Errorf("after a kill of all: %+v, %v", s, err)
	}
	if s, err = do("heal"); err != nil || len(s.Faults) != 0 {
		t.Errorf("after heal: %+v, %v", s, err)
	}
	if _, err = do("merge 9"); !errors.As(err, new(InvalidError)) {
		t.Errorf("merge of a region that there is not: %v; want an InvalidError", err)
	}
	const outcome = "region 8 is split at slot 16000: region 9 has slots 16000-16383"
	if s, err = do("split 8 16000"); err != nil || s.Outcome != outcome {
		t.Errorf("after a split: %+v, %v; want the outcome %q", s, err, outcome)
	}
	if _, err = do("merge 9"); err == nil || errors.As(err, new(InvalidError)) {
		t.Errorf("merge of the last region: %v", err)
	}
	status, err := client.Status(t.Context())
	if err != nil || len(status.Stores) != 3 || len(status.Regions) != 9 {
		t.Errorf("status = %+v, %v", status, err)
	}
}

// TestStrangers sends requests that have no token, a wrong token, or what no client of ours sends.
func TestStrangers(t *testing.T) {
	c := start(t)
	h := Handler(c, "secret")
	for _, r := range []struct {
		method, path, token, body string
		want                      int
	}{
		{"GET", "/v1/status", "", "", http.StatusUnauthorized},
		{"GET", "/v1/status", "secre", "", http.StatusUnauthorized},
		{"POST", "/v1/do", "", "kill all", http.StatusUnauthorized},
		{"GET", "/nothing", "", "", http.StatusUnauthorized},
		{"GET", "/nothing", "secret", "", http.StatusNotFound},
		{"GET", "/v1/do", "secret", "", http.StatusMethodNotAllowed},
		{"POST", "/v1/do", "secret", "", http.StatusBadRequest},
		{"POST", "/v1/do", "secret", "kil 2", http.StatusBadRequest},
		{"POST", "/v1/do", "secret", strings.Repeat("x", 1<<20), http.StatusBadRequest},
		{"POST", "/v1/do", "secret", "kill 7", http.StatusBadRequest},
		{"POST", "/v1/do", "secret", "transfer 1 1", http.StatusOK},
	} {
		request := httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
		if r.token != "" {
			request.Header.Set("Authorization", "Bearer "+r.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request)
		if w.Code != r.want {
			t.Errorf("%s %s, token %q, body %.20q: %d %s; want %d", r.method, r.path, r.token, r.body, w.Code, w.Body, r.want)
		}
	}
	if got := c.Faults(); len(got) > 0 {
		t.Errorf("strangers have brought about %v", got)
	}
}

// TestAnnounce announces control ports and finds them. The announcement of a process that was killed goes away, and
// that of another user's folder is refused.
func TestAnnounce(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "neokv")
	find := func() []Announcement {
		t.Helper()
		all, err := Find(t.Context(), folder)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := find(); len(all) > 0 {
		t.Errorf("found without a folder: %v", all)
	}
	c := start(t)
	one, two := listen(t, c), listen(t, c)
	removeOne, err := one.Announce(folder, c.Addrs(), "/data")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Announce(folder, c.Addrs(), ""); err != nil {
		t.Fatal(err)
	}
	all := find()
	if len(all) != 2 || all[0].PID != os.Getpid() || all[0].Dir+all[1].Dir != "/data" {
		t.Errorf("found %+v; want two of this process", all)
	}
	for _, a := range all {
		if _, err := a.Status(t.Context()); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 2 {
		t.Errorf("files %v, %v; want two", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v; want 0600", e.Name(), info.Mode(), err)
		}
	}
	if err := removeOne(); err != nil {
		t.Error(err)
	}
	if all := find(); len(all) != 1 || all[0].Addr != two.Addr() {
		t.Errorf("found %+v; want the second alone", all)
	}

	// A process that has ended.
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(folder, "control-1.json")
	text := strings.Replace(`{"addr":"127.0.0.1:1","token":"x","pid":PID}`, "PID", strconv.Itoa(dead.Process.Pid), 1)
	if err := os.WriteFile(left, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if all := find(); len(all) != 1 {
		t.Errorf("found %+v; want one that lives", all)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the announcement of a dead process: %v; want it gone", err)
	}

	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(context.Background(), folder); err == nil || !strings.Contains(err.Error(), "mode 0700") {
		t.Errorf("Find in a folder that others can enter: %v", err)
	}
	if _, err := one.Announce(folder, nil, ""); err == nil || !strings.Contains(err.Error(), "mode 0700") {
		t.Errorf("Announce in a folder that others can enter: %v", err)
	}
}
