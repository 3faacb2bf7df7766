package neokv

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"neokv.dev/neokv/fault"
)

// TestStandInsKnowWhoIsDown: a stand-in calls its own store and each other one that is down failed, at once, and the
// stores that run connected.
func TestStandInsKnowWhoIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, NoSockets: true, Seed: 1, Stores: 5})
		if _, err := c.Inject(t.Context(), fault.MustParse("kill 2,4")); err != nil {
			t.Fatal(err)
		}
		for _, down := range []int{2, 4} {
			nc, err := c.Dial(t.Context(), c.Addrs()[down-1])
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			x := &insideConn{nc: nc, in: bufio.NewReader(nc)}
			nodes, _, err := x.call([][]byte{[]byte("CLUSTER"), []byte("NODES")})
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(strings.TrimSpace(nodes.(string)), "\n") {
				flags := "master"
				if i+1 == down {
					flags = "myself,master"
				}
				want := fmt.Sprintf(" %s - 0 0 %d connected", flags, i+1)
				if i+1 == 2 || i+1 == 4 {
					want = fmt.Sprintf(" %s,fail - 0 0 %d disconnected", flags, i+1)
				}
				if !strings.Contains(line, want) {
					t.Errorf("the stand-in of store %d: %q, want %q in it", down, line, want)
				}
			}
		}
	})
}
