package fault

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	ms = time.Millisecond

	samePlace   = ms / 2 // the round trip between two stores in one place
	otherZone   = 1 * ms // between data centres of one city
	zoneLetters = "abcdef"
)

// matrices say how far stores are apart that stand in several places: roundTrips[i][j] is how long a message from a
// store in place i to another one in place j takes there and back. Stores are dealt to the places in turn: with three
// places store 4 stands beside store 1.
var matrices = []struct {
	name, about string
	roundTrips  [][]time.Duration
}{
	// us-east1, us-west1 and europe-west1, as cockroach demo --global has them, which took them from cloudping.co.
	{"3 regions", "both coasts of the United States, and western Europe", [][]time.Duration{
		{samePlace, 66 * ms, 64 * ms},
		{66 * ms, samePlace, 146 * ms},
		{64 * ms, 146 * ms, samePlace},
	}},
	{"3 zones", "data centres of one city", [][]time.Duration{
		{samePlace, otherZone, otherZone},
		{otherZone, samePlace, otherZone},
		{otherZone, otherZone, samePlace},
	}},
}

// cloudRegion is a region of a cloud provider. A place is a region, or one of its zones: us-east-1, us-east-1a.
type cloudRegion struct {
	name, city string
	roundTrips []int // to each region above it in the table, in ms
}

// cloudRegions are regions of AWS by the names that AWS gives them. The round trips are approximate: they are what
// cloudping.co measured over TCP, the mean of both directions, on one day, of which the copy in the libp2p simulator
// (package io.libp2p.simulate.delay.latency.aws) does not tell the date. Other days and ways of measuring differ by a
// tenth and more.
var cloudRegions = []cloudRegion{
	{"us-east-1", "N. Virginia", nil},
	{"us-east-2", "Ohio", []int{13}},
	{"us-west-1", "N. California", []int{62, 52}},
	{"us-west-2", "Oregon", []int{64, 52, 22}},
	{"ca-central-1", "Montreal", []int{15, 25, 79, 60}},
	{"sa-east-1", "Sao Paulo", []int{114, 124, 172, 174, 125}},
	{"eu-west-1", "Ireland", []int{70, 79, 128, 119, 70, 177}},
	{"eu-west-2", "London", []int{76, 86, 147, 128, 78, 186, 13}},
	{"eu-central-1", "Frankfurt", []int{92, 102, 151, 141, 92, 204, 27, 17}},
	{"eu-north-1", "Stockholm", []int{112, 121, 174, 158, 108, 215, 42, 33, 22}},
	{"ap-south-1", "Mumbai", []int{186, 196, 228, 218, 187, 298, 120, 111, 110, 131}},
	{"ap-southeast-1", "Singapore", []int{212, 200, 172, 162, 210, 322, 182, 171, 158, 178, 56}},
	{"ap-southeast-2", "Sydney", []int{199, 187, 139, 140, 198, 312, 256, 265, 249, 295, 146, 93}},
	{"ap-northeast-1", "Tokyo", []int{146, 134, 108, 98, 144, 257, 201, 211, 223, 243, 125, 69, 107}},
	{"af-south-1", "Cape Town", []int{232, 242, 291, 274, 225, 343, 158, 147, 161, 178, 159, 203, 412, 356}},
}

// CloudRegions returns the names of the cloud regions that a network can have, in the order of the table.
func CloudRegions() (names []string) {
	for _, r := range cloudRegions {
		names = append(names, r.name)
	}
	return names
}

// matrixChoices has a line for each matrix and each cloud region.
func matrixChoices() (lines []string) {
	for _, m := range matrices {
		lines = append(lines, fmt.Sprintf("%-20s %s", m.name, m.about))
	}
	for _, r := range cloudRegions {
		lines = append(lines, fmt.Sprintf("%-20s %s", r.name, r.city))
	}
	return lines
}

// MatrixDelay returns how long a message takes from one store to another: half the round trip. name is that of a
// matrix, or places between spaces, to which the stores are dealt in turn. The delay is 0 without a name, and from a
// store to itself.
func MatrixDelay(name string, from, to int) (time.Duration, error) {
	if name == "" {
		return 0, nil
	}
	trip, places, err := findMatrix(name)
	if err != nil || from == to {
		return 0, err
	}
	return trip((from-1)%places, (to-1)%places) / 2, nil
}

// findMatrix returns the round trips between places, which count from 0, and how many places there are.
func findMatrix(name string) (trip func(i, j int) time.Duration, places int, err error) {
	var names, unknown []string
	for _, m := range matrices {
		if m.name == name {
			return func(i, j int) time.Duration { return m.roundTrips[i][j] }, len(m.roundTrips), nil
		}
		names = append(names, m.name)
	}
	words := strings.Fields(name)
	for _, word := range words {
		if regionOf(word) < 0 {
			unknown = append(unknown, word)
		}
	}
	if len(unknown) == 0 && len(words) > 0 {
		return func(i, j int) time.Duration { return roundTrip(words[i], words[j]) }, len(words), nil
	}
	what := fmt.Sprintf("matrix %q", name)
	if len(unknown) < len(words) {
		what = "cloud region " + strings.Join(unknown, ", ")
	}
	return nil, 0, fmt.Errorf("there is no %s; want %s, or cloud regions, each perhaps with the letter of a zone, as in "+
		"us-east-1a us-east-1b eu-west-1: %s", what, strings.Join(names, ", "), strings.Join(CloudRegions(), ", "))
}

// regionOf returns the row of a place in cloudRegions, or -1.
func regionOf(place string) int {
	if end := len(place) - 1; end > 0 && strings.IndexByte(zoneLetters, place[end]) >= 0 {
		place = place[:end] // names of regions end in a digit
	}
	return slices.IndexFunc(cloudRegions, func(r cloudRegion) bool { return r.name == place })
}

// roundTrip returns the round trip between stores in two places.
func roundTrip(a, b string) time.Duration {
	i, j := regionOf(a), regionOf(b)
	switch {
	case a == b:
		return samePlace
	case i == j:
		return otherZone
	}
	return time.Duration(cloudRegions[max(i, j)].roundTrips[min(i, j)]) * ms
}
