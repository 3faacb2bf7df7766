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
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/seam"
)

// caching is what TestCachingClients knows of its keys. Each key has one writer, which counts up.
type caching struct {
	*sim
	keys []string

	mu       sync.Mutex
	written  [][]acknowledged // of each key, in order
	problem  string
	checks   int // of what clients have cached
	told     int
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
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stopping || x.problem != ""
}

// write counts a key up.
func (x *caching) write(key int, random *rand.Rand, c *caller) {
	defer c.close()
	for n := 1; !x.over(); n++ {
		time.Sleep(time.Duration(1+random.IntN(60)) * time.Millisecond)
		ok, err := c.do(set, x.keys[key], strconv.Itoa(n))
		if err != nil {
			x.wrong("%v", err)
		}
		if ok {
			x.mu.Lock()
			x.written[key] = append(x.written[key], acknowledged{n, time.Now()})
			x.mu.Unlock()
		}
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
		if strings.HasSuffix(c.name, "proxy") { // keys of two regions: the first is read before the second
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
		if want := c.x.knew(key, time.Now().Add(-behind)); value < want {
			c.x.wrong("%s has %d cached for %s; %d was acknowledged %v before", c.name, value, c.x.keys[key], want, behind)
		}
	}
}

// cachingGame lets clients cache, in each mode, at the proxy port and at each store, while keys change and faults come.
func cachingGame(t *testing.T, seed uint64, mistakes seam.Mistakes) (problem string, checks, told int) {
	k := simSettings()
	k.Raft.RTT, k.Raft.ElectionTicks = 10*time.Millisecond, 5 // hardly any lease: there is time between two reads
	inBubbleWith(t, k, seam.Hooks{Mistakes: mistakes}, func(t *testing.T, s *sim, _ *caller) {
		random := rand.New(rand.NewPCG(seed, 0))
		x := &caching{sim: s}
		for r := range simRegions {
			x.keys = append(x.keys, "k1{"+regionTags[r]+"}", "k2{"+sortTags[r][2]+"}")
		}
		x.written = make([][]acknowledged, len(x.keys))
		var wg sync.WaitGroup
		for key := range x.keys {
			c := s.newCaller(100 + key)
			own := rand.New(rand.NewPCG(seed, uint64(100+key)))
			wg.Go(func() { x.write(key, own, c) })
		}
		s.do("link all all delay=3ms")
		var clients []*cachingClient
		add := func(name, addr, mode string, behind time.Duration) {
			c := &cachingClient{x: x, name: name, addr: addr, mode: mode, behind: behind,
				random: rand.New(rand.NewPCG(seed, uint64(len(clients))))}
			clients = append(clients, c)
			wg.Go(c.run)
		}
		add("proxy", s.c.ProxyAddr(), "", 2*time.Millisecond)
		add("broadcast proxy", s.c.ProxyAddr(), "BCAST PREFIX k", 2*time.Millisecond)
		for _, n := range s.nodes {
			add(fmt.Sprint("store ", n.ID()), n.Addr(), "NOLOOP", 5*time.Second)
		}
		for step := range 10 {
			time.Sleep(time.Duration(200+random.IntN(300)) * time.Millisecond)
			if x.over() {
				break
			}
			store := 1 + random.IntN(3)
			switch step % 5 {
			case 0:
				s.do("transfer %d %d", 1+random.IntN(simRegions), store)
			case 1:
				s.do("partition %d all", store)
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				s.do("mend %d all", store)
			case 2:
				s.do("kill %d", store)
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
				s.do("restart %d", store)
			case 3:
				s.do("transfer %d %d", 1+random.IntN(simRegions), store)
			case 4:
				time.Sleep(3 * time.Second) // all replicas are there again
				if step < 5 {
					s.do("split %d", 1+random.IntN(simRegions))
				} else {
					s.do("merge %d", 1+random.IntN(simRegions-1))
				}
			}
		}
		time.Sleep(6 * time.Second)
		for _, c := range clients {
			c.look(10 * time.Millisecond) // no fault is left: everybody has been told
		}
		x.mu.Lock()
		x.stopping = true
		x.mu.Unlock()
		wg.Wait()
		problem, checks, told = x.problem, x.checks, x.told
	})
	return problem, checks, told
}

// TestCachingClients: no client has a value cached that was changed before, under transfers, cuts, kills, splits and
// merges. A client of a store that is cut off learns of changes when its store stops to lead. Each mistake is found.
func TestCachingClients(t *testing.T) {
	for seed := range uint64(2) {
		problem, checks, told := cachingGame(t, seed, seam.Mistakes{})
		t.Logf("seed %d: %d looks at what was cached, %d messages", seed, checks, told)
		if problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
		if checks < 1000 || told < 100 {
			t.Errorf("seed %d: %d looks at what was cached, %d messages: too few", seed, checks, told)
		}
	}
	notShort(t)
	for _, m := range []struct {
		name  string
		plant func(*seam.Mistakes)
	}{
		{"LateTelling", func(m *seam.Mistakes) { m.Store.Region.LateTelling = true }},
		{"KeptTracking", func(m *seam.Mistakes) { m.Store.Region.KeptTracking = true }},
		{"EarlyTelling", func(m *seam.Mistakes) { m.Server.EarlyTelling = true }},
		{"LateInterest", func(m *seam.Mistakes) { m.Server.LateInterest = true }},
	} {
		var mistakes seam.Mistakes
		m.plant(&mistakes)
		problem := ""
		seed := uint64(0)
		for ; problem == "" && seed < 10; seed++ {
			problem, _, _ = cachingGame(t, seed, mistakes)
		}
		t.Logf("%s: after %d games: %s", m.name, seed, problem)
		if problem == "" {
			t.Errorf("%s is not found", m.name)
		}
	}
}
