package workloads

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Distribution draws record numbers for one client. It is not safe for concurrent use.
type Distribution interface {
	Next(rng *rand.Rand) uint64
}

// Uniform draws from [0, N), each number with the same chance.
type Uniform struct{ N uint64 }

func (u Uniform) Next(rng *rand.Rand) uint64 { return rng.Uint64N(u.N) }

// Theta is YCSB's zipfian constant.
const Theta = 0.99

// Zipfian draws from [0, N): number i with a chance proportional to 1/(i+1)^theta. The method is Gray et al., "Quickly
// Generating Billion-Record Synthetic Databases", SIGMOD 1994, section 3.2: exact for the first two numbers, a
// continuous approximation for the rest, constant time per draw.
type Zipfian struct {
	n                 uint64
	theta             float64
	zetan, alpha, eta float64
	second            float64 // Zeta(2): up to where u*zetan means number 1
}

// NewZipfian returns a distribution over n numbers with 0 < theta < 1, in time independent of n.
func NewZipfian(n uint64, theta float64) *Zipfian {
	z := &Zipfian{theta: theta, alpha: 1 / (1 - theta), second: Zeta(2, theta)}
	z.grow(n)
	return z
}

// grow extends the distribution to n numbers; n never falls. Each additional number costs the computation of one power.
func (z *Zipfian) grow(n uint64) {
	switch more := n - z.n; {
	case more == 0:
		return
	case more < zetaDirect:
		for i := z.n + 1; i <= n; i++ {
			z.zetan += math.Pow(float64(i), -z.theta)
		}
	default:
		z.zetan = Zeta(n, z.theta)
	}
	z.n = n
	z.eta = (1 - math.Pow(2/float64(n), 1-z.theta)) / (1 - z.second/z.zetan)
}

func (z *Zipfian) Next(rng *rand.Rand) uint64 { return z.at(rng.Float64()) }

// at returns the number at a quantile, 0 <= u < 1.
func (z *Zipfian) at(u float64) uint64 {
	uz := u * z.zetan
	switch {
	case uz < 1 || z.n == 1:
		return 0
	case uz < z.second || z.n == 2:
		return 1
	}
	return min(z.n-1, uint64(float64(z.n)*math.Pow(z.eta*u-z.eta+1, z.alpha)))
}

// zetaDirect is how many terms Zeta adds one by one. The rest is a closed form.
const zetaDirect = 1000

// Zeta returns the sum of 1/i^theta for i in [1, n]. The first terms are added, the tail is its Euler-Maclaurin
// expansion, whose error after the first derivative is below 1e-13 from term 1000 on. So it costs the same for a
// thousand and for ten billion.
func Zeta(n uint64, theta float64) float64 {
	sum := 0.0
	for i := min(n, zetaDirect); i >= 1; i-- { // small terms first
		sum += math.Pow(float64(i), -theta)
	}
	if n <= zetaDirect {
		return sum
	}
	f := func(x float64) float64 { return math.Pow(x, -theta) }
	d1 := func(x float64) float64 { return -theta * math.Pow(x, -theta-1) }
	a, b := float64(zetaDirect), float64(n)
	integral := (math.Pow(b, 1-theta) - math.Pow(a, 1-theta)) / (1 - theta)
	return sum + integral + (f(b)-f(a))/2 + (d1(b)-d1(a))/12
}

// ScrambledZipfian spreads the popular numbers of a zipfian over all records by hashing them, as YCSB's class of that
// name does. Like YCSB it draws from ten billion numbers, so its shape does not depend on the number of records: the
// most popular record gets 3.8 % of the draws, a little more if others fall on it.
type ScrambledZipfian struct {
	records uint64
	zipf    Distribution
}

// ycsbItems is the size of the space that YCSB draws from before it hashes.
const ycsbItems = 10_000_000_000

func (s *ScrambledZipfian) Next(rng *rand.Rand) uint64 { return fnv64(s.zipf.Next(rng)) % s.records }

// GrowingZipfian is a ScrambledZipfian over a growing number of records. A record keeps its popularity when others are
// inserted: hashes are folded onto the records as in linear hashing (Litwin, VLDB 1980), where a new record takes its
// share from a single other one.
type GrowingZipfian struct {
	inserts *Inserts
	zipf    Distribution
}

func (g *GrowingZipfian) Next(rng *rand.Rand) uint64 {
	n, hash := g.inserts.Acknowledged(), fnv64(g.zipf.Next(rng))
	half := uint64(1) << (bits.Len64(n) - 1) // half <= n < 2*half
	if at := hash & (2*half - 1); at < n {
		return at
	}
	return hash & (half - 1)
}

// Latest favours the newest records: the distance from the newest one is zipfian over all records, as in YCSB's
// SkewedLatestGenerator. It follows the number of records, so it is not safe for concurrent use.
type Latest struct {
	inserts *Inserts
	zipf    Zipfian
}

// NewLatest returns the distribution over the acknowledged records, 0 < theta < 1.
func NewLatest(inserts *Inserts, theta float64) *Latest {
	return &Latest{inserts, *NewZipfian(inserts.Acknowledged(), theta)}
}

func (l *Latest) Next(rng *rand.Rand) uint64 {
	l.zipf.grow(l.inserts.Acknowledged())
	return l.zipf.n - 1 - l.zipf.Next(rng)
}

// fnv64 is YCSB's Utils.fnvhash64: FNV-1a over the eight bytes, the low one first, then the absolute value of the
// result as a signed number.
func fnv64(v uint64) uint64 {
	h := uint64(0xcbf29ce484222325)
	for range 8 {
		h = (h ^ v&0xff) * 1099511628211
		v >>= 8
	}
	if int64(h) < 0 {
		h = -h
	}
	return h
}

// growingUniform draws from all acknowledged records, each with the same chance.
type growingUniform struct{ inserts *Inserts }

func (u growingUniform) Next(rng *rand.Rand) uint64 {
	return rng.Uint64N(max(1, u.inserts.Acknowledged()))
}

// sequential goes through the records in order, again and again. Client c of k takes the records c, c+k, c+2k and so
// on, so all clients together send each record once in a round.
type sequential struct {
	records, next, step uint64
}

func (s *sequential) Next(*rand.Rand) uint64 {
	n := s.next % s.records
	s.next += s.step
	return n
}

// hotspot sends a share of the draws to a hot part of the records, the rest to the others, in both parts with the same
// chance for each record (YCSB's HotspotIntegerGenerator). The hot part may move on by its own width after a number of
// draws of all clients. Clients count their own draws and do not wait for each other, so they agree only about; the
// same seed still gives the same draws.
type hotspot struct {
	records, hot uint64
	share        float64
	every        float64 // draws of this client before the hot part moves; 0 for never
	drawn        float64
	begin        uint64 // of the hot part
}

func (h *hotspot) Next(rng *rand.Rand) uint64 {
	if h.every > 0 {
		if h.drawn++; h.drawn >= h.every {
			h.drawn -= h.every
			h.begin = (h.begin + h.hot) % h.records
		}
	}
	if h.hot == h.records || rng.Float64() < h.share {
		return (h.begin + rng.Uint64N(h.hot)) % h.records
	}
	return (h.begin + h.hot + rng.Uint64N(h.records-h.hot)) % h.records
}

// owned draws from the records of one client alone: client c of k has the records whose number is c modulo k. There are
// at least as many records as clients.
type owned struct {
	of                       Distribution
	records, client, clients uint64
}

func (o *owned) Next(rng *rand.Rand) uint64 {
	n := o.of.Next(rng)
	if n += o.client - n%o.clients; n >= o.records {
		n -= o.clients
	}
	return n
}

// keyChoice says how records are chosen, as in a workload file.
type keyChoice struct {
	kind       string
	theta      float64 // of zipfian and latest
	ordered    bool    // zipfian without scrambling
	hot, share float64
	every      float64 // draws of all clients between two moves of the hotspot
	text       string  // as it was typed
}

func (c keyChoice) String() string { return c.text }

const choiceForms = "want `uniform`, `sequential`, `zipfian [THETA] [ordered]`, `latest [THETA]` or " +
	"`hotspot PART SHARE [every N]`"

// parseChoice parses how records are chosen.
func parseChoice(text string) (keyChoice, error) {
	c := keyChoice{theta: Theta, text: text}
	words := strings.Fields(text)
	bad := func(format string, args ...any) (keyChoice, error) {
		return keyChoice{}, fmt.Errorf("%q: "+format, append([]any{text}, args...)...)
	}
	if len(words) == 0 {
		return bad(choiceForms)
	}
	c.kind, words = words[0], words[1:]
	number := func(low, high float64) (float64, bool) {
		if len(words) == 0 {
			return 0, false
		}
		x, err := strconv.ParseFloat(words[0], 64)
		words = words[1:]
		return x, err == nil && x > low && x < high
	}
	switch c.kind {
	case "uniform", "sequential":
	case "zipfian", "latest":
		if len(words) > 0 && words[0] != "ordered" {
			var ok bool
			if c.theta, ok = number(0, 10); !ok || c.theta == 1 || c.theta > 1 && c.kind == "latest" {
				if c.kind == "latest" {
					return bad("exponent out of range, want more than 0 and less than 1")
				}
				return bad("exponent out of range, want more than 0 and less than 10, and not 1")
			}
		}
		if len(words) > 0 && words[0] == "ordered" && c.kind == "zipfian" {
			c.ordered, words = true, words[1:]
		}
	case "hotspot":
		var ok1, ok2 bool
		c.hot, ok1 = number(0, 1)
		c.share, ok2 = number(0, 1)
		if !ok1 || !ok2 {
			return bad("want the hot part of the records and its share of the operations, both more than 0 and less than 1")
		}
		if len(words) > 0 && words[0] == "every" {
			words = words[1:]
			var ok bool
			if c.every, ok = number(0, 1e15); !ok {
				return bad("want the operations between two moves of the hotspot, more than 0")
			}
		}
	default:
		return bad(choiceForms)
	}
	if len(words) > 0 {
		return bad("unexpected %q; %s", words[0], choiceForms)
	}
	return c, nil
}

// distribution returns what one client of several draws from. inserted says that the run adds records.
func (c keyChoice) distribution(records uint64, inserts *Inserts, inserted bool, client, clients int,
	rng *rand.Rand) Distribution {
	items := uint64(ycsbItems)
	if c.ordered {
		items = records
	}
	zipfian := func() Distribution {
		if c.theta > 1 {
			return &steepZipfian{rand.NewZipf(rng, c.theta, 1, items-1)}
		}
		return NewZipfian(items, c.theta)
	}
	switch c.kind {
	case "sequential":
		return &sequential{records: records, next: uint64(client), step: uint64(clients)}
	case "zipfian":
		switch {
		case c.ordered:
			return zipfian()
		case inserted:
			return &GrowingZipfian{inserts, zipfian()}
		}
		return &ScrambledZipfian{records, zipfian()}
	case "latest":
		return NewLatest(inserts, c.theta)
	case "hotspot":
		return &hotspot{
			records: records, hot: max(1, uint64(c.hot*float64(records))), share: c.share,
			every: c.every / float64(clients),
		}
	}
	if inserted {
		return growingUniform{inserts}
	}
	return Uniform{records}
}

// steepZipfian is a zipfian distribution with an exponent above 1. It has its own random source.
type steepZipfian struct{ zipf *rand.Zipf }

func (s *steepZipfian) Next(*rand.Rand) uint64 { return s.zipf.Uint64() }
