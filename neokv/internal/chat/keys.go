package chat

import (
	"fmt"
	"strings"
)

// What a tenant has, as in workloads/chat.yaml.
const (
	tenantUsers  = 50
	tenantGroups = 5
	// newest minus the number of a message, with 13 digits, stands in a timeline: keys are in ascending order, and so the
	// newest message comes first.
	newest = 9999999999999
)

// The keys. Numbers of users, messages and groups are of the whole chat; t is the tenant.
func tagOf(t int) string { return fmt.Sprintf("t%d", t) }

func keyOf(t int, format string, args ...any) string {
	return fmt.Sprintf("{t%d}:", t) + fmt.Sprintf(format, args...)
}

func userKey(t, u int) string               { return keyOf(t, "user:u_%d", u) }
func usernameKey(t int, name string) string { return keyOf(t, "username:%s", name) }
func sessionKey(t, u int) string            { return keyOf(t, "session:u_%d", u) }
func friendKey(t, a, b int) string          { return keyOf(t, "friend:u_%d:u_%d", a, b) }
func convKey(t, u, c int) string            { return keyOf(t, "conv:u_%d:c_%d", u, c) }
func msgKey(t, n int) string                { return keyOf(t, "msg:m_%d", n) }
func chatKey(t, c, n int) string            { return keyOf(t, "chat:c_%d:%013d:m_%d", c, newest-n, n) }
func offlineKey(t, u, n int) string         { return keyOf(t, "offline:u_%d:%013d:m_%d", u, newest-n, n) }
func groupKey(t, g int) string              { return keyOf(t, "group:g_%d", g) }
func memberKey(t, g, u int) string          { return keyOf(t, "group_member:g_%d:u_%d", g, u) }
func userGroupKey(t, u, g int) string       { return keyOf(t, "user_groups:u_%d:g_%d", u, g) }

// nameOf returns the name of a user: a hash, so that names are in another order than users.
func nameOf(u int) string { return fmt.Sprintf("name%d", uint64(u)*0x9e3779b97f4a7c15) }

// neighbours are the two users of a conversation: the one with its number, and the next one of the tenant.
func neighbours(t, c int) (a, b int) { return c, t*tenantUsers + (c%tenantUsers+1)%tenantUsers }

// parts are the words of a key behind its hash tag.
func parts(key string) []string {
	_, rest, _ := strings.Cut(key, "}:")
	return strings.Split(rest, ":")
}

// numberIn returns the number in the last word of a key, such as 12 of m_12.
func numberIn(key string) (n int) {
	i := strings.LastIndexByte(key, '_')
	fmt.Sscan(key[i+1:], &n)
	return n
}

// The values. A body begins with its conversation and its two users, an entry in a list of conversations with its last
// message, a group with its count.
func bodyOf(c, from, to, n int, text string) string {
	return fmt.Sprintf("c_%d u_%d u_%d %d %s", c, from, to, n, text)
}

func parseBody(body string) (c, from, to int, ok bool) {
	n, _ := fmt.Sscanf(body, "c_%d u_%d u_%d", &c, &from, &to)
	return c, from, to, n == 3
}

func groupOf(count int, change string) string { return fmt.Sprintf("%d members, %s", count, change) }

func parseGroup(group string) (count int, ok bool) {
	n, _ := fmt.Sscanf(group, "%d members", &count)
	return count, n == 1
}

func convOf(n int) string { return fmt.Sprintf("m_%d is the last message", n) }

func parseConv(conv string) (n int, ok bool) {
	m, _ := fmt.Sscanf(conv, "m_%d is", &n)
	return n, m == 1
}

// firstWord returns what stands before the first space.
func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}
