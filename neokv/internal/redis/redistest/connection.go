package redistest

// connectionCall makes calls about the connection and the server. Replies to what stands behind CLIENT REPLY may be missing; the frame
// sends such calls alone, switches replies on again behind them, and compares all replies together. Other calls must leave the connection as
// it was: what changes the protocol is followed by HELLO with g.Proto.
func connectionCall(g *Generator) [][]string {
	switch g.IntN(4) {
	case 0:
		return [][]string{g.call("echo", g.Value())}
	case 1:
		return [][]string{g.call("ping")}
	case 2:
		return [][]string{g.call("select", g.pick("0", "x", "", "4294967296"))}
	}
	return [][]string{g.call("client", "getname")}
}
