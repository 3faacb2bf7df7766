package profiles

import (
	"reflect"
	"testing"
)

func TestSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"redis.requirepass=a=b":    "redis.requirepass=(set)",
		" redis.requirepass = x":   " redis.requirepass =(set)",
		"load.password=x":          "load.password=(set)",
		"load.password=":           "load.password=",
		"load.password":            "load.password",
		"engine.bloom_bits=5":      "engine.bloom_bits=5",
		"engine.wal_dir=/password": "engine.wal_dir=/password",
	} {
		if got := Shown(text); got != want {
			t.Errorf("Shown(%q) = %q; want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"NEOKV_REDIS_REQUIREPASS=x": "NEOKV_REDIS_REQUIREPASS=(set)", "GOGC=50": "GOGC=50", "": "",
	} {
		if got := ShownVariable(text); got != want {
			t.Errorf("ShownVariable(%q) = %q; want %q", text, got, want)
		}
	}
	open, secret := Split([]string{"raft.rtt=5ms", "redis.requirepass=x", "load.password =y"})
	if !reflect.DeepEqual(open, []string{"raft.rtt=5ms"}) ||
		!reflect.DeepEqual(secret, []string{"redis.requirepass=x", "load.password=y"}) {
		t.Errorf("Split: %q, %q", open, secret)
	}
	open, secret = SplitVariables([]string{"A=1", "NEOKV_LOAD_PASSWORD=y=z", "NEOKV_RAFT_RTT=5ms"})
	if !reflect.DeepEqual(open, []string{"A=1", "NEOKV_RAFT_RTT=5ms"}) ||
		!reflect.DeepEqual(secret, []string{"load.password=y=z"}) {
		t.Errorf("SplitVariables: %q, %q", open, secret)
	}
}
