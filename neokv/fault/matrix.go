package fault

import (
	"fmt"
	"strings"
	"time"
)

const ms = time.Millisecond

// matrices say how far stores are apart that stand in several places: roundTrips[i][j] is how long a message from a
// store in place i to another one in place j takes there and back. Stores are dealt to the places in turn: with three
// places store 4 stands beside store 1.
var matrices = []struct {
	name       string
	roundTrips [][]time.Duration
}{
	// us-east1, us-west1 and europe-west1, as cockroach demo --global has them, which took them from cloudping.co.
	{"3 regions", [][]time.Duration{
		{ms / 2, 66 * ms, 64 * ms},
		{66 * ms, ms / 2, 146 * ms},
		{64 * ms, 146 * ms, ms / 2},
	}},
	// Data centres of one city.
	{"3 zones", [][]time.Duration{
		{ms / 2, 1 * ms, 1 * ms},
		{1 * ms, ms / 2, 1 * ms},
		{1 * ms, 1 * ms, ms / 2},
	}},
}

// matrixNames returns the names of the matrices.
func matrixNames() (names []string) {
	for _, m := range matrices {
		names = append(names, m.name)
	}
	return names
}

// MatrixDelay returns how long a message takes from one store to another in a matrix: half the round trip. It is 0
// without a matrix, and from a store to itself.
func MatrixDelay(name string, from, to int) (time.Duration, error) {
	if name == "" {
		return 0, nil
	}
	for _, m := range matrices {
		if m.name == name {
			if from == to {
				return 0, nil
			}
			places := len(m.roundTrips)
			return m.roundTrips[(from-1)%places][(to-1)%places] / 2, nil
		}
	}
	return 0, fmt.Errorf("there is no matrix %q; want %s", name, strings.Join(matrixNames(), ", "))
}
