package redis

// Reply appends replies in RESP2 or RESP3. The zero value writes RESP2.
type Reply struct {
	Buf   []byte
	Proto int // 3 for RESP3, anything else RESP2
}
