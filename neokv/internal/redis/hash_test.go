package redis

import (
	"fmt"
	"testing"
)

func TestHash(t *testing.T) {
	d := newRegion(t)
	d.scenario(`
		hset h a 1 b 2 a 3 => 2
		hget h a => "3"
		hgetall h => ["a" "3" "b" "2"]
		hlen h => 2
		hincrby h b 5 => 7
		hdel h a c => 1
		hscan h 0 => ["0" ["b" "7"]]
		hrandfield h => "b"
		hrandfield h -3 withvalues => ["b" "7" "b" "7" "b" "7"]
		rename h g => OK
		hgetall g => ["b" "7"]
		copy g h => 1
		hset h x y => 1
		hdel g b => 1
		exists g h => 1
		dbsize => 1`)
	_ = fmt.Sprint
}
