package redis

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"testing"

	"neokv.dev/neokv/internal/keys"
)

// TestStoredBytes has commands make the collections of the golden vectors, and compares what is stored with those.
func TestStoredBytes(t *testing.T) {
	b, err := os.ReadFile("../keys/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	type record struct {
		Type, Version, Size, Hex string
		ExpireMS                 string `json:"expire_ms"`
	}
	var vectors struct {
		MetadataValue []record `json:"metadata_value"`
		Subkey        []struct {
			Type, Version, Hex, Value string
			UserKey                   string `json:"user_key"`
			SubKey                    string `json:"sub_key"`
		}
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	text := func(hexed string) string {
		t.Helper()
		b, err := hex.DecodeString(hexed)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// adds add an element to a collection of a type.
	adds := map[string]func(d *region, key, sub, value string){
		"hash": func(d *region, key, sub, value string) { d.must(2, "hset", key, sub, value) },
	}
	checked := 0
	for _, v := range vectors.Subkey {
		add := adds[v.Type]
		if add == nil {
			continue
		}
		i := slices.IndexFunc(vectors.MetadataValue, func(m record) bool {
			return m.Type == v.Type && m.ExpireMS == "0" && m.Version == v.Version
		})
		if i < 0 {
			t.Fatalf("no metadata of a %s of version %s", v.Type, v.Version)
		}
		d := newRegion(t)
		d.space = keys.Space{Region: 1, Index: 1}
		version, err := strconv.ParseUint(v.Version, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		d.w.VersionBase = version - 1
		key := text(v.UserKey)
		add(d, key, text(v.SubKey), text(v.Value))
		for n := range vectors.MetadataValue[i].Size[0] - '1' {
			add(d, key, "other "+strconv.Itoa(int(n)), "x")
		}
		subkey := string(byte(keys.Data)) + text(v.Hex)
		if got, ok := d.has([]byte(subkey)); !ok || got != text(v.Value) {
			t.Errorf("%s: under %x there is %x, %v; want %s", v.Type, subkey, got, ok, v.Value)
		}
		if got, ok := d.has(d.space.AppendMetadataOf(nil, []byte(key))); !ok || got != text(vectors.MetadataValue[i].Hex) {
			t.Errorf("%s: the record is %x, %v; want %s", v.Type, got, ok, vectors.MetadataValue[i].Hex)
		}
		checked++
	}
	if checked != len(adds) {
		t.Errorf("%d types checked, want %d", checked, len(adds))
	}
}
