package store

import (
	"bytes"
	"encoding/json"
	"testing"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// idle returns store 1 without disk, Raft and replicas: it learns and routes, and answers calls.
func idle() *Store {
	s := newStore(Options{ID: 1, FS: disk.Mem(), Host: "h", Port: 7001})
	s.raft = multiraft.New(multiraft.Options{})
	return s
}

// FuzzCalls reads any bytes as a call of another store, and as the answer to one. What is not refused encodes to a text
// that reads back, gets no more answer than it asks for, and leaves a slot table.
func FuzzCalls(f *testing.F) {
	initial := meta.Initial("00", settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 4})
	initial.Version = 1
	id := topology.RegionID(3)
	view := &meta.ClusterView{
		Map:    initial,
		Stores: []meta.Status{{ID: 2, Host: "h", Port: 7002, Alive: true}, {ID: 3}},
		Leads:  []meta.Lead{{Region: 1, Store: 2, Term: 4}, {Region: 9, Store: 9, Term: 1}},
	}
	for _, seed := range []any{
		message{Beat: &meta.Beat{Store: 2, Host: "h", Port: 7002, Leads: view.Leads, Full: true}}, message{View: view},
		message{Bounds: &boundsCall{Region: id}}, message{Fit: []topology.RegionID{1, 2}},
		message{Checksum: &checksumCall{id, 7}}, heartbeatAnswer{Leader: 2, View: view}, heartbeatAnswer{Leader: 3},
	} {
		f.Add(mustJSON(f, seed))
	}
	overlapping := bytes.Replace(mustJSON(f, message{View: view}), []byte(`"first":4096`), []byte(`"first":4095`), 1)
	f.Add(overlapping)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := idle()
		answer := func(data []byte) (a heartbeatAnswer, err error) { // as report takes one
			if err = json.Unmarshal(data, &a); err == nil {
				err = checkView(a.View)
			}
			return a, err
		}
		if a, err := answer(data); err == nil {
			text := mustJSON(t, a)
			back, err := answer(text)
			if err != nil || !bytes.Equal(mustJSON(t, back), text) {
				t.Errorf("%s comes back as %+v, %v", text, back, err)
			}
			if a.View != nil {
				routes(t, s, a.View)
			}
		}
		m, err := parseMessage(2, data)
		if err != nil {
			return
		}
		text := mustJSON(t, m)
		back, err := parseMessage(2, text)
		if err != nil || !bytes.Equal(mustJSON(t, back), text) {
			t.Errorf("%s comes back as %+v, %v", text, back, err)
		}
		reply, err := s.calls.handle(t.Context(), 2, data)
		if most := 100 + 4*len(data); err == nil && len(reply) > most {
			t.Errorf("an answer of %d bytes to %d; want at most %d", len(reply), len(data), most)
		}
		if m.View != nil {
			routes(t, s, m.View)
		}
	})
}

// routes makes a store learn a view, and make a slot table of its map.
func routes(t *testing.T, s *Store, v *meta.ClusterView) {
	s.cluster.learn(v)
	if s.cluster.newer == nil {
		return
	}
	s.cluster.current = s.cluster.newer
	s.cluster.publish()
	if table := s.Table(); table == nil || len(table.Regions) != len(v.Map.Regions) {
		t.Errorf("no table of %+v", v.Map)
	}
}

func mustJSON(t testing.TB, x any) []byte {
	t.Helper()
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
