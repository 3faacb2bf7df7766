package redis

// Match reports whether s matches a glob pattern, by the rules of KEYS and SCAN in Redis 7.0: * ? [a-z] [^a] and \
// before a character. It keeps Redis's peculiarities: only the pattern "*" matches the empty string, a class that is
// not closed ends with the pattern, and bytes from 0x80 on are below the others in ranges. At worst it takes time
// proportional to len(pattern) * len(s).
func Match(pattern, s []byte) bool {
	if len(pattern) == 1 && pattern[0] == '*' {
		return true
	}
	if len(s) == 0 {
		return len(pattern) == 0
	}
	p, i := 0, 0
	star, from := -1, 0 // where the pattern goes on after its last star, and where in s that was tried last
	for {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			for p < len(pattern) && pattern[p] == '*' {
				p++
			}
			if p == len(pattern) {
				return true
			}
			star, from = p, i
			continue
		case i == len(s) && p == len(pattern):
			return true
		case i == len(s):
			return false // the rest of the pattern needs more bytes than there are, also from any later start
		case p < len(pattern):
			if n, ok := matchOne(pattern[p:], s[i]); ok {
				p, i = p+n, i+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, i = star, from
	}
}

// matchOne matches one byte against the first element of a pattern that is not empty and does not begin with a star. It
// returns the element's length.
func matchOne(pattern []byte, c byte) (n int, ok bool) {
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		return matchClass(pattern, c)
	case '\\':
		if len(pattern) > 1 {
			return 2, pattern[1] == c
		}
	}
	return 1, pattern[0] == c
}

func matchClass(pattern []byte, c byte) (n int, ok bool) {
	p := 1
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			ok = ok || pattern[p] == c
		case p+2 < len(pattern) && pattern[p+1] == '-':
			low, high := int8(pattern[p]), int8(pattern[p+2])
			if low > high {
				low, high = high, low
			}
			ok = ok || low <= int8(c) && int8(c) <= high
			p += 2
		default:
			ok = ok || pattern[p] == c
		}
	}
	return min(p+1, len(pattern)), ok != not
}
