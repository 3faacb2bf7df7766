package engine

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"neokv.dev/neokv/internal/keys"
)

// prefixes has a function for each value of engine.bloom_prefix: how much of a key's Split prefix goes into the filter.
var prefixes = map[string]func(key []byte) int{
	"key": func(key []byte) int { return len(key) },
	"collection": func(key []byte) int {
		switch keyspaceOf(key) {
		case keys.Data, keys.ColdData, keys.ZSetScore, keys.ZSetRank:
			return keys.CollectionLen(key)
		}
		return len(key)
	},
	"region": func(key []byte) int {
		switch keyspaceOf(key) {
		case keys.Data, keys.ColdData, keys.RedisMetadata, keys.ZSetScore, keys.ZSetRank:
			return min(keys.PrefixLen, len(key))
		}
		return len(key)
	},
}

func keyspaceOf(key []byte) keys.Keyspace {
	if len(key) == 0 {
		return 0
	}
	return keys.Keyspace(key[0])
}

// prefixPolicy is a bloom filter policy over the front of keys. Its name says how long the front is, and every table
// records the name. So tables made under different knobs live side by side, and each is read by the policy that made
// it. The filter itself records the bits per key.
type prefixPolicy struct {
	pebble.FilterPolicy // Pebble's own, of the wanted number of bits
	name                string
	length              func(key []byte) int
}

func (p *prefixPolicy) Name() string { return p.name }

func (p *prefixPolicy) MayContain(t pebble.FilterType, filter, key []byte) bool {
	return p.FilterPolicy.MayContain(t, filter, key[:p.length(key)])
}

func (p *prefixPolicy) NewWriter(t pebble.FilterType) pebble.FilterWriter {
	return prefixWriter{p.FilterPolicy.NewWriter(t), p.length}
}

type prefixWriter struct {
	pebble.FilterWriter
	length func(key []byte) int
}

func (w prefixWriter) AddKey(key []byte) { w.FilterWriter.AddKey(key[:w.length(key)]) }

// policy returns the filter policy for new tables.
func policy(prefix string, bits int) pebble.FilterPolicy {
	if bits == 0 {
		return pebble.NoFilterPolicy
	}
	return &prefixPolicy{FilterPolicy: bloom.FilterPolicy(bits), name: "neokv.bloom." + prefix,
		length: prefixes[prefix]}
}

// filters returns every policy that a table may have been written with. Reading does not depend on the bits.
func filters() map[string]pebble.FilterPolicy {
	m := make(map[string]pebble.FilterPolicy, len(prefixes))
	for prefix := range prefixes {
		p := policy(prefix, 10)
		m[p.Name()] = p
	}
	return m
}
