package store

import (
	"reflect"
	"testing"
)

// TestParts: a part of a store knows only the parts that stand above it in Store, and the store has few methods.
func TestParts(t *testing.T) {
	store := reflect.TypeFor[Store]()
	at := map[reflect.Type]int{store: store.NumField()}
	for i := range store.NumField() {
		at[store.Field(i).Type] = i
	}
	for i := range store.NumField() {
		part := store.Field(i)
		if part.Type.Kind() != reflect.Struct {
			continue
		}
		for j := range part.Type.NumField() {
			f := part.Type.Field(j)
			if f.Type.Kind() != reflect.Pointer {
				continue
			}
			if n, is := at[f.Type.Elem()]; is && n >= i {
				t.Errorf("%s knows %s, which does not stand above it", part.Name, f.Name)
			}
		}
	}
	if n := reflect.PointerTo(store).NumMethod(); n > 25 {
		t.Errorf("a store has %d methods; want at most 25", n)
	}
}
