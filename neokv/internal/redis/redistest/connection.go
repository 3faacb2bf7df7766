package redistest

// connectionCall makes calls about the connection and the server. After CLIENT REPLY replies may be missing; Run sends
// such calls alone, switches replies on again after them, and compares all replies together. Other calls must leave the
// connection as it was: after a call that changes the protocol comes HELLO with g.Proto.
func connectionCall(g *CallGenerator) [][]string {
	switch g.IntN(13) {
	case 0:
		return [][]string{g.call("echo", g.Value())}
	case 1:
		return [][]string{g.call("ping")}
	case 2:
		return [][]string{g.call("select", g.pick("0", "x", "", "4294967296"))}
	case 3:
		return [][]string{g.call("auth", g.pick("x", "default", ""), g.pick("x", ""))}
	case 4:
		return [][]string{g.call("hello", g.pick(g.version(), "1", "4", "x", "")), {"hello", g.version()}}
	case 5:
		args := []string{"hello", g.version()}
		for range 1 + g.IntN(2) {
			args = append(args, g.pick("auth", "AUTH", "setname", "x"), g.pick("default", "x", "a b", ""),
				g.pick("x", "y"))
		}
		return [][]string{g.call(args...), {"hello", g.version()}, {"client", "getname"}}
	case 6:
		return [][]string{g.call("client", "no-evict", g.pick("on", "OFF", "x", ""))}
	case 7:
		args := []string{"client", "kill"}
		for range 1 + g.IntN(3) {
			args = append(args, g.pick("id", "ID", "type", "addr", "laddr", "user", "skipme", "x"),
				g.pick("0", "-1", "99999999", "x", "pubsub", "master", "nobody:1", "maybe"))
		}
		return [][]string{append(args, "addr", "nobody:1")} // with this filter the call kills no client
	case 8:
		return [][]string{g.call("client", "pause", g.pick("0", "x", "", "-1", "1.5", "99999999999999999999"),
			g.pick("write", "ALL", "x", ""))}
	case 9:
		return [][]string{g.call("client", g.pick("unpause", "UNPAUSE"))}
	case 10:
		return [][]string{g.call("client", "unblock", g.pick("99999999", "x", "", "1.5"),
			g.pick("timeout", "ERROR", "x"))}
	case 11:
		return [][]string{g.call("wait", g.pick("0", "-1", "x", "", "9223372036854775808"),
			g.pick("1", "-1", "x", "", "99999999999999999999"))}
	case 12:
		return [][]string{g.call("config", "set",
			g.pick("timeout", "tcp-keepalive", "maxclients", "client-query-buffer-limit", "nope"),
			g.pick("-1", "x", "", "1x", "99999999999999999999"))}
	}
	return [][]string{g.call("client", "getname")}
}

// version is the version of the protocol that the connection speaks.
func (g *CallGenerator) version() string {
	if g.Proto == 3 {
		return "3"
	}
	return "2"
}
