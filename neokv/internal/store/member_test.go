package store

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/topology"
)

// TestNextMember runs the scenarios of testdata/members.txt.
func TestNextMember(t *testing.T) {
	text, err := os.ReadFile("testdata/members.txt")
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[memberStep]bool)
	for i, line := range strings.Split(string(text), "\n") {
		known, want, ok := strings.Cut(line, " -> ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		next, p, why := nextMember(scenario(t, known))
		got := next.String()
		if p.Replica != 0 {
			got += fmt.Sprint(" ", p.Replica)
		}
		if got != want {
			t.Errorf("line %d: %s (%s); want %s", i+1, got, why, want)
		}
		if (next == memberWait) != (why != "") {
			t.Errorf("line %d: %s, and why is %q", i+1, got, why)
		}
		said[next] = true
	}
	for x := memberReserve; x <= memberNone; x++ {
		if !said[x] {
			t.Errorf("no scenario needs the step %s", x)
		}
	}
}

// scenario reads what is known.
func scenario(t *testing.T, text string) *memberView {
	t.Helper()
	v := &memberView{self: 1, up: make(map[topology.ReplicaID]bool), ended: make(map[topology.ReplicaID]bool)}
	v.members.Removed = make(map[topology.ReplicaID]bool)
	peer := func(word string) topology.Peer {
		var p topology.Peer
		if _, err := fmt.Sscan(word, &p.Replica); err != nil {
			t.Fatalf("%q: replica %q: %v", text, word, err)
		}
		switch p.Store = topology.StoreID(p.Replica); p.Replica {
		case 9:
			p.Store = 4
		case 33, 34:
			p.Store = 3
		}
		return p
	}
	parts := append(strings.Split(text, " | "), "")
	for _, word := range strings.Fields(parts[0]) {
		p := peer(strings.TrimLeft(word, "+-"))
		switch word[0] {
		case '+':
			p.Role = topology.Joining
		case '-':
			p.Role = topology.Leaving
		}
		v.peers = append(v.peers, p)
		v.up[p.Replica] = true
	}
	for _, word := range strings.Fields(parts[1]) {
		switch p := peer(strings.Trim(word, "!?")); {
		case word[0] == '!':
			v.members.Removed[p.Replica] = true
		case strings.HasSuffix(word, "?"):
			v.members.NonVoters = append(v.members.NonVoters, p)
		default:
			v.members.Voters = append(v.members.Voters, p)
		}
	}
	var ids []topology.ReplicaID
	for _, word := range strings.Fields(parts[2]) {
		switch word {
		case "down":
			for _, id := range ids {
				v.up[id] = false
			}
			ids = nil
		case "ended":
			for _, id := range ids {
				v.ended[id], v.up[id] = true, false
			}
			ids = nil
		case "near":
			v.near, ids = true, nil
		case "leads":
			v.self, ids = ids[0], nil
		default:
			ids = append(ids, peer(word).Replica)
		}
	}
	return v
}
