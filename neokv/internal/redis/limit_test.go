package redis

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
)

// setWriteLimit sets writeLimit until the end of the test.
func setWriteLimit(t testing.TB, n int) {
	before := writeLimit
	t.Cleanup(func() { writeLimit = before })
	writeLimit = n
}

// TestWriteLimit: a write that would go through more elements than it may is refused. Nothing changes but for orphans
// that nobody refers to; they cover all that the write has left. A write below the limit runs.
func TestWriteLimit(t *testing.T) {
	const most = 5000
	sizes := map[string]int{"{t}large": most + 500, "{t}small": 500}
	load := func(d *region, names ...string) {
		many := func(call string, n int, f func(i int) string) {
			for i := 0; i < n; i += 500 {
				args := strings.Fields(call)
				for k := range 500 {
					args = append(args, strings.Fields(f(i+k))...)
				}
				d.must(2, args...)
			}
		}
		for _, name := range names {
			n := sizes[name]
			many("sadd "+name+"set", n, func(i int) string { return fmt.Sprint("m", i) })
			many("rpush "+name+"list", n, func(i int) string { return fmt.Sprint("m", i) })
			many("zadd "+name+"zset", n, func(i int) string { return fmt.Sprint(i, " m", i) })
			many("hset "+name+"hash", n, func(i int) string { return fmt.Sprint("f", i, " v") })
			d.must(2, "set", name+"string", strings.Repeat("x", 100_000+most*elementUnit*(n/most)))
		}
		d.must(2, "rpush", "{t}to", "a")
	}
	setWriteLimit(t, 1<<24)
	limit(t, 4<<10)      // of elements that are removed one by one
	full := newRegion(t) // of the calls that are refused, which change nothing
	load(full, "{t}large", "{t}small")
	whole := full.live()
	for _, call := range []string{
		"rename {t}SIZEset {t}to", "rename {t}SIZEstring {t}to", "renamenx {t}SIZEzset {t}new", "copy {t}SIZEhash {t}new",
		"copy {t}SIZElist {t}to replace", "copy {t}SIZEstring {t}new",
		"sunionstore {t}to {t}SIZEset {t}smallset", "sinterstore {t}to {t}SIZEset {t}SIZEset",
		"sdiffstore {t}to {t}SIZEset {t}smallset", "zunionstore {t}to 2 {t}SIZEset {t}SIZEzset",
		"zinterstore {t}to 2 {t}SIZEzset {t}SIZEset", "zdiffstore {t}to 2 {t}SIZEzset {t}smallset",
		"zrangestore {t}to {t}SIZEzset 0 -1", "zrangestore {t}to {t}SIZEzset - + bylex",
		"sort {t}SIZEset alpha store {t}to", "sort {t}smalllist by nosort get # get {t}* store {t}to",
		"lrem {t}SIZElist 0 none", "linsert {t}SIZElist before none x",
		"spop {t}SIZEset LESS", "spop {t}SIZEset MORE", "lpop {t}SIZElist MORE", "lmpop 1 {t}SIZElist right count MORE",
		"zpopmin {t}SIZEzset MORE", "zmpop 1 {t}SIZEzset max count MORE", "zremrangebyrank {t}SIZEzset 0 -2",
		"zremrangebyscore {t}SIZEzset (0 inf", "zremrangebylex {t}SIZEzset (m0 +",
	} {
		for _, size := range []string{"small", "large"} {
			d, n := full, sizes["{t}"+size]
			if size == "small" {
				writeLimit = 1 << 24
				d = newRegion(t)
				load(d, "{t}small")
			}
			args := strings.Fields(strings.NewReplacer("SIZE", size, "LESS", fmt.Sprint(n-1), "MORE",
				fmt.Sprint(n)).Replace(call))
			if strings.Contains(call, "get {t}*") && size == "large" {
				for range 15 {
					args = append(args, "get", "{t}*")
				}
			}
			writeLimit = most
			reply := d.must(2, args...).String()
			switch refused := strings.Contains(reply, string(errWriteLimit[4:])); {
			case refused != (size == "large"):
				t.Errorf("%q: %.100s", args, reply)
			case refused && !maps.Equal(d.live(), whole):
				t.Errorf("%q: refused, and something has changed", args)
			}
			d.covered(args)
		}
	}
}

// live returns what the engine holds of keys that exist.
func (d *region) live() map[string]string {
	found := map[string]string{}
	versions := d.versions(false)
	for key, value := range d.stored() {
		if keys.Keyspace(key[0]) == keys.MetaInfo {
			continue
		}
		if k, err := keys.ParseRedis([]byte(key)); err == nil && keys.Keyspace(key[0]) != keys.RedisMetadata {
			if version, _, ok := k.Subkey(); ok && !versions[version] {
				continue
			}
		}
		found[key] = value
	}
	return found
}

// versions returns the versions that records name, and with orphans those that these name.
func (d *region) versions(orphans bool) map[uint64]bool {
	all := map[uint64]bool{}
	for key, value := range d.stored() {
		switch keys.Keyspace(key[0]) {
		case keys.RedisMetadata:
			if m, err := keys.ParseMetadata([]byte(value)); err == nil && m.Apart() {
				all[m.Version] = true
			}
		case keys.MetaInfo:
			if o, err := keys.ParseOrphan([]byte(key), []byte(value)); err == nil && orphans {
				all[o.Version] = true
			}
		}
	}
	return all
}

// covered fails the test if there are elements of a version that neither a record nor an orphan names.
func (d *region) covered(args []string) {
	d.t.Helper()
	versions := d.versions(true)
	for key := range d.stored() {
		ks := keys.Keyspace(key[0])
		if ks == keys.RedisMetadata || ks == keys.MetaInfo {
			continue
		}
		k, err := keys.ParseRedis([]byte(key))
		if err != nil {
			d.t.Fatal(err)
		}
		if version, _, ok := k.Subkey(); ok && !versions[version] {
			d.t.Fatalf("%q: an element of version %d, which nothing names", args, version)
		}
	}
}
