package forms

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Generator makes calls. Every key begins with Tag. The keys of a type end in 1, 2 or 3.
type Generator struct {
	*rand.Rand
	Forms []string
	Tag   string
	// Commands and Slot are names of commands, and a slot, that calls name.
	Commands []string
	Slot     int
	// Size is how many elements Load gives the largest keys.
	Size int
	// Keys is how many collections a costly call names, 0 for a few or very many.
	Keys int

	room   int  // bytes of the present call's next argument
	costly bool // the present call is to take long
	bounds int  // how many bounds the present call has
}

// UpTo is of any order of magnitude up to most, and often most.
func (g *Generator) UpTo(most int) int {
	if g.IntN(4) == 0 {
		return most
	}
	return int(math.Exp(g.Float64()*math.Log(float64(most)+1))) - 1
}

func (g *Generator) pick(from ...string) string { return from[g.IntN(len(from))] }

// Call makes a call of a form with arguments of at most so many bytes.
func (g *Generator) Call(most int) Call {
	g.costly = false
	g.room = g.UpTo(most)
	return g.make(g.pick(g.Forms...))
}

// Costly makes a call that may take as long as calls of its form do: about the largest keys, and with many arguments,
// of at most so many bytes together.
func (g *Generator) Costly(form string, most int) Call {
	g.costly, g.bounds = true, g.IntN(2)
	g.room = most
	return g.make(form)
}

// many is how often a group comes again and again.
func (g *Generator) many(group string) int {
	switch {
	case g.costly && strings.Trim(group, "hezl,") == "" && (g.Keys > 0 || g.IntN(2) == 0):
		return cmp.Or(g.Keys, 48)
	case g.costly:
		return 1 + g.room/(20*(1+strings.Count(group, ","))) // bytes on the wire
	case strings.ContainsAny(group, "mv"):
		return 1 + g.UpTo(min(100_000, g.room/10))
	}
	return 1 + g.UpTo(1000)
}

func (g *Generator) make(form string) (c Call) {
	for i, word := range strings.Fields(form) {
		inner, optional := strings.CutPrefix(word, "[")
		if optional {
			word = strings.TrimSuffix(inner, "]")
			if g.IntN(2) == 0 {
				continue
			}
		}
		group, many := strings.CutSuffix(word, "+")
		switch {
		case i == 0:
			c = append(c, Argument{Text: word})
		case many:
			group, counted := strings.CutPrefix(group, "#")
			words := strings.Split(group, ",")
			if optional { // the option's name comes once
				c, words = append(c, Argument{Text: words[0]}), words[1:]
			}
			n := g.many(group)
			if counted {
				c = append(c, Argument{Text: strconv.Itoa(n)})
			}
			g.room /= n
			for range n {
				c = g.group(c, words)
			}
		default:
			c = g.group(c, strings.Split(word, ","))
		}
	}
	return c
}

func (g *Generator) group(c Call, words []string) Call {
	for _, word := range words {
		c = append(c, g.argument(word))
	}
	return c
}

func (g *Generator) argument(word string) Argument {
	number := func(most int) Argument { return Argument{Text: strconv.Itoa(g.UpTo(most))} }
	if word == "a" {
		word = g.pick("v", "m", "i", "n", "c", "k", "p", "t")
	}
	switch word {
	case "s", "h", "e", "l", "z", "k":
		which := g.pick("1", "2", "3")
		switch {
		case g.costly && word != "s" && g.IntN(4) > 0:
			which = "1"
		case !g.costly && g.IntN(20) == 0:
			word = "k"
		}
		if word == "k" {
			word = g.pick("s", "h", "e", "l", "z")
		}
		return Argument{Text: g.Tag + word + which}
	case "v":
		if g.costly {
			return Argument{Fill: max(0, g.room-20)}
		}
		return Argument{Fill: g.UpTo(g.room)}
	case "m":
		if g.costly {
			return Argument{Text: strconv.Itoa(g.IntN(2*g.Size + 1))}
		}
		m := number(200_000)
		if g.IntN(4) == 0 {
			m.Text, m.Fill = m.Text+".", g.UpTo(g.room)
		}
		return m
	case "i":
		if g.costly {
			return g.bound("0", "-1")
		}
		if g.IntN(2) == 0 {
			return Argument{Text: g.pick("0", "-1", "-1")}
		}
		return number(1_000_000)
	case "o":
		return Argument{Text: g.pick("0", strconv.Itoa(g.UpTo(512<<20)), strconv.Itoa(512<<20-1-g.UpTo(1<<20)))}
	case "n":
		if g.costly {
			return Argument{Text: g.pick("0", "1", "100000", "1000000", "2147483648")}
		}
		return Argument{Text: g.pick("1", "1000", "1000000", "-1000000", "2147483648", "4611686018427387904",
			strconv.Itoa(g.UpTo(1000)))}
	case "c":
		return Argument{Text: g.pick("0", "1", "-1.5", "inf", strconv.Itoa(g.IntN(1_000_000)))}
	case "b":
		if g.costly {
			return g.bound("-inf", "+inf")
		}
		return Argument{Text: g.pick("-inf", "+inf", "(0", strconv.Itoa(g.IntN(1_000_000)))}
	case "x":
		if g.costly {
			return g.bound("-", "+")
		}
		return Argument{Text: g.pick("-", "+", "(1", "["+strconv.Itoa(g.IntN(200_000)))}
	case "j":
		return Argument{Text: strconv.Itoa(g.Slot)}
	case "p":
		return Argument{Text: g.pattern()}
	case "t":
		if len(g.Commands) > 0 {
			return Argument{Text: g.pick(g.Commands...)}
		}
		return Argument{Text: "get"}
	}
	return Argument{Text: word}
}

// bound is one of two bounds, the other one than before.
func (g *Generator) bound(low, high string) Argument {
	g.bounds++
	if g.bounds%2 == 0 {
		return Argument{Text: high}
	}
	return Argument{Text: low}
}

// pattern is one that takes long for a name of many a's.
func (g *Generator) pattern() string {
	n := min(g.room/2, longName/2)
	if n < 100 {
		return g.pick("*", "x*y", "*[a-z]?")
	}
	return g.pick("*", "*"+strings.Repeat("a", n)+"b", "*"+strings.Repeat("[a-z]", n/5)+"b")
}

// longName is the length of the longest name.
const longName = 1 << 20

// Load makes what Costly calls are about: keys of all types, the largest of which end in 1, elements with a long name,
// and a key that has one.
func (g *Generator) Load(each func(Call) error) error {
	const step = 5000
	key := func(kind string, i int) string { return fmt.Sprint(g.Tag, kind, i) }
	name := Argument{Text: strings.Repeat("a", longName)}
	for i, size := range []int{g.Size, g.Size / 10, g.Size / 100} {
		for _, command := range []string{"h HSET", "e SADD", "l RPUSH", "z ZADD"} {
			kind, write, _ := strings.Cut(command, " ")
			n := size
			if kind == "l" && i == 0 {
				n = 4 * g.Size
			}
			for at := 0; at < n; at += step {
				c := Parse(write + " " + key(kind, i+1))
				for m := at; m < min(n, at+step); m++ {
					switch kind {
					case "z":
						c = append(c, Argument{Text: strconv.Itoa(m % 100)})
					case "l":
						c = append(c, Argument{Text: strconv.Itoa(m * 7919 % n)})
						continue
					}
					c = append(c, Argument{Text: strconv.Itoa(m)})
					if kind == "h" {
						c = append(c, Argument{Text: "1"})
					}
				}
				if err := each(c); err != nil {
					return err
				}
			}
			if i == 1 { // one long name
				c := Parse(write + " " + key(kind, i+1))
				if kind == "z" {
					c = append(c, Argument{Text: "1"})
				}
				if c = append(c, name); kind == "h" {
					c = append(c, Argument{Text: "1"})
				}
				if err := each(c); err != nil {
					return err
				}
			}
		}
	}
	text := Argument{Text: strings.Repeat("ab", 5700)} // LCS takes no more
	for _, c := range []Call{
		append(Parse("SET "+key("s", 1)), Argument{Fill: 16 << 20}), append(Parse("SET "+key("s", 2)), text),
		append(Parse("SET "+key("s", 3)), text), {{Text: "SET"}, {Text: g.Tag + name.Text}, {Text: "1"}},
	} {
		if err := each(c); err != nil {
			return err
		}
	}
	return nil
}
