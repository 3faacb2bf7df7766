package redistest

// pubsubCall makes calls that publish, and ask who listens. Nobody does: messages to the connection itself would be
// more than a reply for each call.
func pubsubCall(g *CallGenerator) [][]string {
	channel := func() string { return g.Tag + g.pick("a", "b", "ab", "") }
	switch g.IntN(5) {
	case 0:
		return [][]string{g.call("publish", channel(), g.Value())}
	case 1:
		return [][]string{g.call("spublish", channel(), g.Value())}
	case 2:
		return [][]string{g.call("pubsub", g.pick("numpat", "NUMPAT", "nope", ""))}
	case 3:
		return [][]string{g.call("pubsub", g.pick("channels", "SHARDCHANNELS"), g.pick("*", "[a", "\\", ""))}
	}
	args := []string{"pubsub", g.pick("numsub", "SHARDNUMSUB")}
	for range g.IntN(3) {
		args = append(args, channel())
	}
	return [][]string{g.call(args...)}
}
