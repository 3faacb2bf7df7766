package sim

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
)

// This file has clients that cache what they read, by CLIENT TRACKING, and compare what they have cached with what was
// acknowledged.

// caching is what clients that cache keys are checked by. Each key has one writer, which counts up.
type caching struct {
	*sim
	keys []string

	mu       sync.Mutex
	written  [][]acknowledged // of each key, in order
	unknown  []map[int]bool   // of each key: values whose writes have no outcome, so they may come after later ones
	problem  string
	checks   int // of what clients have cached
	told     int
	clients  int
	stopping bool
}

// acknowledged is a value, and when its writer knew that it was written.
type acknowledged struct {
	value int
	at    time.Time
}

// cachingClient keeps what it reads until it is told that it has changed.
type cachingClient struct {
	x      *caching
	name   string
	addr   string
	mode   string        // of CLIENT TRACKING ON
	behind time.Duration // what it has cached may have changed so long ago
	random *rand.Rand

	mu      sync.Mutex
	nc      net.Conn
	life    int     // counts connections
	waiting [][]int // the keys of the reads that are not answered
	cache   map[int]int
}

// late reports whether a value may have been written after later ones.
func (x *caching) late(key, value int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.unknown[key][value]
}

// knew returns the value of a key that was acknowledged last before an instant.
func (x *caching) knew(key int, at time.Time) (value int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := len(x.written[key]) - 1; i >= 0; i-- {
		if w := x.written[key][i]; w.at.Before(at) {
			return w.value
		}
	}
	return 0
}

func (x *caching) wrong(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.problem == "" {
		x.problem = fmt.Sprintf(format, args...)
	}
}

func (x *caching) over() bool {
	select {
	case <-x.sim.over:
		return true
	default:
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stopping || x.problem != ""
}

// write counts a key up.
func (x *caching) write(key int, random *rand.Rand, c *caller) {
	defer c.close()
	for n := 1; !x.over(); n++ {
		time.Sleep(time.Duration(1+random.IntN(60)) * time.Millisecond)
		x.mu.Lock()
		x.unknown[key][n] = true
		x.mu.Unlock()
		ok, err := c.do(set, x.keys[key], strconv.Itoa(n))
		if err != nil {
			x.wrong("%v", err)
		}
		x.mu.Lock()
		if ok {
			x.written[key] = append(x.written[key], acknowledged{n, time.Now()})
			delete(x.unknown[key], n)
		}
		x.mu.Unlock()
	}
}

// connect makes a new connection, and forgets what was cached.
func (c *cachingClient) connect() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	nc, err := c.x.c.Dial(ctx, c.addr)
	if err != nil {
		return
	}
	if _, err := fmt.Fprintf(nc, "HELLO 3\r\nCLIENT TRACKING ON %s\r\n", c.mode); err != nil {
		nc.Close()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life++
	c.nc, c.cache, c.waiting = nc, map[int]int{}, [][]int{nil, nil}
	life := c.life
	go c.listen(nc, life)
}

// listen takes what a connection gets, in order.
func (c *cachingClient) listen(nc net.Conn, life int) {
	in := bufio.NewReader(nc)
	for {
		v, err := redistest.Read(in)
		c.mu.Lock()
		if err != nil || c.life != life {
			nc.Close()
			if c.life == life {
				c.nc, c.cache = nil, nil
			}
			c.mu.Unlock()
			return
		}
		if v.Kind == '>' {
			c.tell(v)
		} else {
			keys := c.waiting[0]
			c.waiting = c.waiting[1:]
			for i, key := range keys {
				switch {
				case len(v.Items) != len(keys): // an error
				case v.Items[i].Null:
					c.cache[key] = 0
				default:
					c.cache[key], _ = strconv.Atoi(string(v.Items[i].Text))
				}
			}
		}
		c.mu.Unlock()
	}
}

func (c *cachingClient) tell(v redistest.ReplyValue) {
	c.x.mu.Lock()
	c.x.told++
	c.x.mu.Unlock()
	if v.Items[1].Null {
		clear(c.cache)
		return
	}
	for _, name := range v.Items[1].Items {
		for key := range c.x.keys {
			if c.x.keys[key] == string(name.Text) {
				delete(c.cache, key)
			}
		}
	}
}

// run reads now and then what is not cached, and looks at what is.
func (c *cachingClient) run() {
	for !c.x.over() {
		time.Sleep(time.Duration(1+c.random.IntN(10)) * time.Millisecond)
		c.mu.Lock()
		up := c.nc != nil
		c.mu.Unlock()
		if !up {
			c.connect()
			continue
		}
		c.look(c.behind)
		c.mu.Lock()
		first := c.random.IntN(len(c.x.keys))
		keys := []int{first}
		if strings.HasPrefix(c.name, "proxy") { // keys of two regions: the first is read before the second
			keys = append(keys, (first+1)%len(c.x.keys))
		}
		_, cached := c.cache[first]
		if nc := c.nc; nc != nil && !cached && len(c.waiting) < 4 {
			command := []string{"MGET"}
			for _, k := range keys {
				command = append(command, c.x.keys[k])
			}
			c.waiting = append(c.waiting, keys)
			c.mu.Unlock()
			nc.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := nc.Write(appendCommand(nil, command)); err != nil {
				nc.Close()
			}
			continue
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life++
	if c.nc != nil {
		c.nc.Close()
	}
}

// look compares what is cached with what was acknowledged some time ago.
func (c *cachingClient) look(behind time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 { // it is told behind the replies
		return
	}
	for key, value := range c.cache {
		c.x.mu.Lock()
		c.x.checks++
		c.x.mu.Unlock()
		if want := c.x.knew(key, time.Now().Add(-behind)); value < want && !c.x.late(key, value) {
			c.x.wrong("%s has %d cached for %s; %d was acknowledged %v before", c.name, value, c.x.keys[key], want, behind)
		}
	}
}

// newCaching returns what there is to cache: two keys of each region, and their writers are at work when it returns.
func (s *sim) newCaching(wg *sync.WaitGroup) *caching {
	x := &caching{sim: s}
	for r := range simRegions {
		x.keys = append(x.keys, "k1{"+regionTags[r]+"}", "k2{"+sortTags[r][2]+"}")
	}
	x.written = make([][]acknowledged, len(x.keys))
	for range x.keys {
		x.unknown = append(x.unknown, map[int]bool{})
	}
	for key := range x.keys {
		c, random := s.newCaller(100+key), s.random(uint64(300+key))
		wg.Go(func() { x.write(key, random, c) })
	}
	return x
}

// add has one more client at work.
func (x *caching) add(wg *sync.WaitGroup, name, addr, mode string, behind time.Duration) *cachingClient {
	x.clients++
	c := &cachingClient{x: x, name: name, addr: addr, mode: mode, behind: behind,
		random: x.random(uint64(400 + x.clients))}
	wg.Go(c.run)
	return c
}

// runCaching has clients at the proxy port at work until the schedule is over. The proxy port hears of all changes,
// whatever befalls the stores, so none of its clients may be behind.
func (s *sim) runCaching(clients int) {
	var wg sync.WaitGroup
	x := s.newCaching(&wg)
	for i := range clients {
		mode := []string{"", "BCAST PREFIX k", "NOLOOP"}[i%3]
		x.add(&wg, fmt.Sprint("proxy ", mode), s.c.ProxyAddr(), mode, 2*time.Millisecond)
	}
	wg.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.problem != "" {
		s.fail(found(staleCache, "%s", x.problem))
	}
	s.h.note("caches: %d looks at what was cached, %d messages", x.checks, x.told)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Cached += x.checks
}
