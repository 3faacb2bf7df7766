package cluster

import (
	"reflect"
	"testing"
)

// TestParts: a part of a cluster knows only the parts that stand above it in Cluster, no part knows the cluster, and
// the cluster has few methods.
func TestParts(t *testing.T) {
	cluster, places := reflect.TypeFor[Cluster](), reflect.TypeFor[placeSet]()
	at := map[reflect.Type]int{cluster: cluster.NumField()}
	for i := range cluster.NumField() {
		if part := cluster.Field(i).Type; part.PkgPath() == cluster.PkgPath() {
			at[part] = i
		}
	}
	check := func(i int, known reflect.Type) {
		for j := range known.NumField() {
			of := known.Field(j).Type
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if n, is := at[of]; is && n >= i && !(known == reflect.TypeFor[placeParts]() && of == places) {
				t.Errorf("%s knows %s, which does not stand above it", cluster.Field(i).Name, known.Field(j).Name)
			}
		}
	}
	for part, i := range at {
		switch {
		case part == places:
			check(i, reflect.TypeFor[Place]())
			check(i, reflect.TypeFor[placeParts]())
		case part != cluster:
			check(i, part)
		}
	}
	if n := reflect.PointerTo(cluster).NumMethod(); n > 25 {
		t.Errorf("a cluster has %d methods; want at most 25", n)
	}
}
