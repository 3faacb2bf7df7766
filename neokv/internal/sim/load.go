package sim

import (
	"time"
)

// client runs operations of the scenario until the schedule is over, with pauses of think on average. Every third
// client reads from followers, too.
func (s *sim) client(id int, x scenario, think time.Duration) {
	c := s.newCaller(id)
	defer c.close()
	c.readOnly = id%3 == 1
	if x.proxy > 0 && id%x.proxy == x.proxy-1 {
		c.proxied, c.addrs, c.replicas = true, []string{s.c.ProxyAddr()}, nil
	}
	total := x.weight()
	for n := 0; s.sleep(time.Duration(c.random.ExpFloat64() * float64(think))); n++ {
		region := c.random.IntN(simRegions)
		o := x.choose(c.random.IntN(total))
		s.fail(o.run(&user{s, c, region, n}))
	}
}

// lastReads are what finalReads reads: all that keys of each sort hold.
var lastReads = []struct {
	sort  byte
	kind  opName
	value string
}{
	{'r', get, ""}, {'c', get, ""}, {'n', get, ""}, {'e', get, ""}, {'h', hget, ""},
	{'l', lrange, ""}, {'s', smembers, ""}, {'z', zrange, ""}, {'g', mget, ""}, {'m', mget, ""}, {'j', hmget, ""},
	{'t', smembers, "a"}, {'t', smembers, "b"}, {'t', smembers, "c"},
}

// hangTime is how long no answer makes a cluster without faults count as one that hangs.
const hangTime = 20 * time.Second

// finalReads reads every key. So the history shows a lost write that no client has read since, and a cluster that
// does not serve again is found.
func (s *sim) finalReads() {
	c := s.newCaller(99)
	defer c.close()
	for _, epoch := range s.epochs {
		for region := range simRegions {
			for _, r := range lastReads {
				if err := c.readPatiently(r.kind, simKey(r.sort, epoch, region), r.value); err != nil {
					s.fail(err)
					return
				}
			}
		}
	}
}

// readPatiently runs a read again and again until it is acknowledged, for hangTime at most.
func (c *caller) readPatiently(k opName, key, value string) error {
	for deadline := time.Now().Add(hangTime); time.Now().Before(deadline); {
		if ok, err := c.do(k, key, value); ok || err != nil {
			return err
		}
	}
	return found(noAnswer, "key %s: no answer in %s", key, hangTime)
}
