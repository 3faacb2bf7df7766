package workloads

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
)

// Distribution draws record numbers. Its only state is its random source and, if records are inserted, their number.
type Distribution interface {
	Next(rng *rand.Rand) uint64
	String() string
}

// Uniform draws from [0, N), each number with the same chance.
type Uniform struct{ N uint64 }

func (u Uniform) Next(rng *rand.Rand) uint64 { return rng.Uint64N(u.N) }
func (u Uniform) String() string             { return fmt.Sprintf("uniform(%d)", u.N) }

func uniform(records uint64, _ *Inserts) Distribution { return Uniform{records} }

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

func (z *Zipfian) Next(rng *rand.Rand) uint64 {
	u := rng.Float64()
	uz := u * z.zetan
	switch {
	case uz < 1 || z.n == 1:
		return 0
	case uz < z.second || z.n == 2:
		return 1
	}
	return min(z.n-1, uint64(float64(z.n)*math.Pow(z.eta*u-z.eta+1, z.alpha)))
}

func (z *Zipfian) String() string { return fmt.Sprintf("zipfian(%d, %g)", z.n, z.theta) }

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
	zipf    *Zipfian
}

// ycsbItems is the size of the space that YCSB draws from before it hashes.
const ycsbItems = 10_000_000_000

// NewScrambledZipfian returns the distribution over so many records.
func NewScrambledZipfian(records uint64) *ScrambledZipfian {
	return &ScrambledZipfian{records: records, zipf: NewZipfian(ycsbItems, Theta)}
}

func (s *ScrambledZipfian) Next(rng *rand.Rand) uint64 { return fnv64(s.zipf.Next(rng)) % s.records }
func (s *ScrambledZipfian) String() string {
	return fmt.Sprintf("scrambled_zipfian(%d, %g)", s.records, s.zipf.theta)
}

func scrambledZipfian(records uint64, _ *Inserts) Distribution { return NewScrambledZipfian(records) }

// GrowingZipfian is a ScrambledZipfian over a growing number of records. A record keeps its popularity when others are
// inserted: hashes are folded onto the records as in linear hashing (Litwin, VLDB 1980), where a new record takes its
// share from a single other one.
type GrowingZipfian struct {
	inserts *Inserts
	zipf    *Zipfian
}

func (g *GrowingZipfian) Next(rng *rand.Rand) uint64 {
	n, hash := g.inserts.Acknowledged(), fnv64(g.zipf.Next(rng))
	half := uint64(1) << (bits.Len64(n) - 1) // half <= n < 2*half
	if at := hash & (2*half - 1); at < n {
		return at
	}
	return hash & (half - 1)
}

func (g *GrowingZipfian) String() string { return fmt.Sprintf("growing_zipfian(%g)", g.zipf.theta) }

func growingZipfian(_ uint64, inserts *Inserts) Distribution {
	return &GrowingZipfian{inserts, NewZipfian(ycsbItems, Theta)}
}

// Latest favours the newest records: the distance from the newest one is zipfian over all records, as in YCSB's
// SkewedLatestGenerator. It follows the number of records, so it is not safe for concurrent use.
type Latest struct {
	inserts *Inserts
	zipf    Zipfian
}

// NewLatest returns the distribution over the acknowledged records.
func NewLatest(inserts *Inserts) *Latest {
	return &Latest{inserts, *NewZipfian(inserts.Acknowledged(), Theta)}
}

func (l *Latest) Next(rng *rand.Rand) uint64 {
	l.zipf.grow(l.inserts.Acknowledged())
	return l.zipf.n - 1 - l.zipf.Next(rng)
}

func (l *Latest) String() string { return fmt.Sprintf("latest(%g)", l.zipf.theta) }

func latest(_ uint64, inserts *Inserts) Distribution { return NewLatest(inserts) }

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

// ycsbKey appends the key of a record as YCSB names it with hashed insert order: "user" and the hash in decimal.
func ycsbKey(dst []byte, record uint64) []byte {
	return strconv.AppendUint(append(dst, "user"...), fnv64(record), 10)
}

// ThreadRecords is how many posts make a thread, which has one hash tag.
const ThreadRecords = 100

// threadKey appends the key of a post: its thread as hash tag, so that a thread lies in one slot, and its place there.
func threadKey(dst []byte, record uint64) []byte {
	dst = append(ycsbKey(append(dst, '{'), record/ThreadRecords), "}:"...)
	at := record % ThreadRecords
	return append(dst, byte('0'+at/10), byte('0'+at%10))
}

// absentKey appends a key that nobody writes. It sorts right after one that is written.
func absentKey(dst []byte, record uint64) []byte { return append(plainKey(dst, record), '-') }

// counterKey appends the key of a record's counter as redis-benchmark names it.
func counterKey(dst []byte, record uint64) []byte { return numbered(dst, "counter:", record) }

// plainKey appends the key of a record as redis-benchmark names it: "key:" and twelve digits.
func plainKey(dst []byte, record uint64) []byte { return numbered(dst, "key:", record) }

func numbered(dst []byte, prefix string, record uint64) []byte {
	dst = append(append(dst, prefix...), "000000000000"...)
	for i := len(dst) - 1; record > 0 && dst[i] != ':'; i-- {
		dst[i] = byte('0' + record%10)
		record /= 10
	}
	return dst
}
