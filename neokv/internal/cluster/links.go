package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"

	"neokv.dev/neokv/fault"
)

// links makes the links between stores bad, and good again. What is wrong with each the network knows.
type links struct {
	*core
	places *placeSet

	mu     sync.Mutex
	matrix string // whose delays the network has, "" for none
}

// set sets what is wrong with the links of a fault.
func (l *links) set(_ context.Context, f fault.Fault) (string, error) {
	if len(l.places.all()) < 2 {
		return "", errors.New("the cluster has one store, so no links")
	}
	state := f.Link
	if f.Verb != fault.Link {
		state = fault.Net{Cut: f.Verb == fault.Partition}
	}
	for _, a := range l.places.all().of(f.Stores) {
		for _, b := range l.places.all().of(f.Others) {
			if a == b || f.Others == nil && f.Stores != nil && slices.Contains(f.Stores, int(b.id)) {
				continue
			}
			l.network.SetLink(a.id, b.id, state, l.newRand())
			if !f.OneWay {
				l.network.SetLink(b.id, a.id, state, l.newRand())
			}
		}
	}
	return "", nil
}

// bad returns the faults of links that are cut, or those of all others. Two directions that are alike are one
// fault.
func (l *links) bad(v fault.Verb) (all []fault.Fault) {
	for _, a := range l.places.all() {
		for _, b := range l.places.all() {
			there, back := l.network.Link(a.id, b.id), l.network.Link(b.id, a.id)
			f := fault.Fault{Verb: fault.Link, Stores: []int{int(a.id)}, Others: []int{int(b.id)}, Link: there,
				OneWay: there != back}
			if !f.OneWay && there == (fault.Net{Cut: true}) {
				f = fault.Fault{Verb: fault.Partition, Stores: f.Stores, Others: f.Others}
			}
			if f.Verb == v && (f.OneWay || a.id < b.id) {
				all = append(all, f)
			}
		}
	}
	return all
}

// setMatrix gives all links the delays of a matrix, beside what else is wrong with them.
func (l *links) setMatrix(_ context.Context, f fault.Fault) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.places.all() {
		for _, b := range l.places.all() {
			delay, err := fault.MatrixDelay(f.Matrix, int(a.id), int(b.id))
			if err != nil {
				return "", err
			}
			l.network.SetDistance(a.id, b.id, delay)
		}
	}
	l.matrix = f.Matrix
	return "", nil
}

// extend gives the links of a store that has come the delays of the matrix in force.
func (l *links) extend(n *Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.matrix == "" {
		return
	}
	for _, other := range l.places.all() {
		if delay, err := fault.MatrixDelay(l.matrix, int(n.id), int(other.id)); err == nil {
			l.network.SetDistance(n.id, other.id, delay)
			l.network.SetDistance(other.id, n.id, delay)
		}
	}
}

// badMatrix returns the matrix whose delays the links have.
func (l *links) badMatrix() []fault.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return []fault.Fault{{Verb: fault.Network, Matrix: l.matrix}}
}
