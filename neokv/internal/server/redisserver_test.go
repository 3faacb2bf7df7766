//go:build redisserver

package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// converse sends requests, ends with a mark and returns everything that came back.
func converse(t *testing.T, c net.Conn, requests string) string {
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	const mark = "*2\r\n$4\r\nECHO\r\n$8\r\nthat-end\r\n"
	if _, err := io.WriteString(c, requests+mark); err != nil && !errors.Is(err, net.ErrClosed) &&
		!errors.Is(err, io.ErrClosedPipe) {
		t.Logf("%.60q: %v", requests, err)
	}
	var got []byte
	buf := make([]byte, 1<<16)
	for !bytes.HasSuffix(got, []byte("$8\r\nthat-end\r\n")) {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			if nerr := net.Error(nil); errors.As(err, &nerr) && nerr.Timeout() {
				return string(got) + "<no answer>"
			}
			return string(got) + "<closed>"
		}
	}
	return string(got)
}

// numbers is what differs from server to server: connection ids, bus ports, and with them the lengths of lines, times
// and addresses.
var numbers = regexp.MustCompile(
	`(\$2\r\nid\r\n:)\d+|[$=]\d+(\r\n(?:txt:)?[0-9a-f]{40} :\d+@)\d+|()\*2\r\n\$10\r\n\d+\r\n\$\d\r\n\d+|()\+\d+\.\d{6} \[0 \S+\]`)

func compare(t *testing.T, redis string, ours func() net.Conn, sessions []string) {
	for _, proto := range []string{"", "HELLO 3\r\n"} {
		for _, s := range sessions {
			c, err := net.Dial("tcp", redis)
			if err != nil {
				t.Fatal(err)
			}
			want := numbers.ReplaceAllString(converse(t, c, proto+s), "$1$2$3$4#")
			if got := numbers.ReplaceAllString(converse(t, ours(), proto+s), "$1$2$3$4#"); got != want {
				t.Errorf("%.80q after %q:\n got %.600q\nwant %.600q", s, proto, got, want)
			}
		}
	}
}

// everywhere are sessions that any Redis answers alike, in cluster mode or not.
var everywhere = []string{
	"PING\r\n", "ping hello\r\n", "PING a b\r\n", "*2\r\n$4\r\nPiNg\r\n$2\r\n\r\n\r\n",
	"ECHO\r\n", "ECHO a\r\n", "ECHO a b\r\n", "TIME a\r\n", "TIME\r\n", "RESET\r\n", "RESET a\r\n",
	"HELLO 3\r\nRESET\r\nCLIENT GETNAME\r\n",
	"QUIT\r\nPING\r\n", "QUIT a b\r\n", "*1\r\n$4\r\nquit\r\n",
	"SELECT 0\r\n", "SELECT a\r\n", "SELECT 1a\r\n", "SELECT 4294967296\r\n", "SELECT\r\n", "SELECT 0 0\r\n",
	"HELLO\r\n", "HELLO 2\r\n", "HELLO 3\r\n", "HELLO 4\r\n", "HELLO 1\r\n", "HELLO a\r\n",
	"HELLO 3 AUTH default x\r\n", "HELLO 3 AUTH a x\r\n",
	"HELLO 2 AUTH default\r\n", "HELLO 2 SETNAME\r\n", "HELLO 2 SETNAME foo\r\nCLIENT GETNAME\r\n",
	"HELLO 2 SETNAME \"a b\"\r\nCLIENT GETNAME\r\n",
	"HELLO 2 foo\r\n", "HELLO 3 AUTH default x SETNAME a\r\nCLIENT GETNAME\r\n",
	"HELLO 3 SETNAME x foo\r\nCLIENT GETNAME\r\nPING\r\n",
	"AUTH x\r\n", "AUTH default x\r\n", "AUTH a x\r\n", "AUTH a b c\r\n", "AUTH\r\n",
	"CLIENT\r\n", "CLIENT foo\r\n", "CLIENT GETNAME\r\n", "CLIENT SETNAME x\r\nCLIENT GETNAME\r\n",
	"CLIENT SETNAME \"a b\"\r\n", "CLIENT SETNAME\r\n",
	"CLIENT SETNAME x\r\nCLIENT SETNAME \"\"\r\nCLIENT GETNAME\r\n", "CLIENT ID x\r\n", "CLIENT INFO x\r\n",
	"CLIENT LIST foo\r\n", "CLIENT LIST TYPE foo\r\n",
	"CLIENT LIST TYPE master\r\n", "CLIENT LIST TYPE PubSub\r\n", "CLIENT LIST ID a\r\n", "CLIENT LIST ID 99999999\r\n",
	"CLIENT LIST ID\r\n", "CLIENT LIST TYPE\r\n",
	"COMMAND foo\r\n", "COMMAND COUNT x\r\n", "COMMAND INFO nope\r\n",
	"COMMAND INFO ping echo select quit reset hello auth time info readonly readwrite asking\r\n",
	"COMMAND INFO scan get set mget\r\n",
	"COMMAND INFO client|id CLIENT|LIST client|setname client|getname client|info client|nope\r\n",
	"COMMAND INFO config|get config|set config|resetstat command|count command|docs command|info command|list " +
		"command|getkeys\r\n",
	"COMMAND INFO cluster|slots cluster|shards cluster|nodes cluster|info cluster|myid cluster|links cluster|keyslot " +
		"cluster|countkeysinslot cluster|getkeysinslot\r\n",
	"COMMAND INFO subscribe unsubscribe psubscribe punsubscribe publish ssubscribe sunsubscribe spublish\r\n",
	"COMMAND INFO pubsub|channels pubsub|numpat pubsub|numsub pubsub|shardchannels pubsub|shardnumsub pubsub|help\r\n",
	"COMMAND GETKEYS publish a b\r\n", "COMMAND GETKEYS spublish a b\r\n",
	"COMMAND GETKEYS ssubscribe a b\r\n", "COMMAND GETKEYSANDFLAGS spublish a b\r\n", "PUBSUB\r\n", "PUBSUB foo\r\n",
	"PUBSUB CHANNELS a b\r\n", "PUBSUB NUMPAT a\r\n", "PUBSUB NUMSUB\r\n", "PUBSUB SHARDNUMSUB\r\n",
	"PUBSUB HELP a\r\n", "PUBLISH\r\n", "PUBLISH a\r\n", "PUBLISH a b c\r\n", "SPUBLISH a\r\n", "SUBSCRIBE\r\n",
	"COMMAND DOCS nope\r\n", "COMMAND GETKEYS get a\r\n", "COMMAND GETKEYS ping\r\n", "COMMAND GETKEYS ping a\r\n",
	"COMMAND GETKEYS nope a\r\n", "COMMAND GETKEYS mset a 1 b 2\r\n",
	"COMMAND GETKEYS get a b\r\n", "COMMAND LIST foo\r\n", "COMMAND LIST FILTERBY PATTERN pin?\r\n",
	"COMMAND LIST FILTERBY PATTERN PING\r\n", "COMMAND LIST FILTERBY x y\r\n",
	"COMMAND LIST FILTERBY MODULE x\r\n", "COMMAND LIST FILTERBY ACLCAT nope\r\n", "COMMAND LIST FILTERBY PATTERN\r\n",
	"COMMAND LIST FILTERBY PATTERN client|in*\r\n",
	"CONFIG\r\n", "CONFIG foo\r\n", "CONFIG GET\r\n", "CONFIG GET nope\r\n", "CONFIG GET save\r\n",
	"CONFIG GET SAVE\r\n", "CONFIG GET appendonly\r\n", "CONFIG GET maxclient?\r\n",
	"CONFIG GET timeout Timeout\r\n", "CONFIG SET nope 1\r\n", "CONFIG SET a b c\r\n", "CONFIG SET maxclients a\r\n",
	"CONFIG SET maxclients 0\r\n", "CONFIG SET maxclients\r\n",
	"CONFIG SET timeout -1\r\n", "CONFIG SET timeout x\r\n", "CONFIG SET timeout 0\r\n", "CONFIG SET databases 3\r\n",
	"CONFIG SET cluster-enabled no\r\n",
	"CONFIG SET timeout 0 TIMEOUT 0\r\n", "CONFIG SET save \"\"\r\n", "CONFIG SET appendonly no\r\n",
	"CONFIG SET timeout 0 nope 1\r\n", "CONFIG RESETSTAT\r\n", "CONFIG RESETSTAT x\r\n",
	"INFO nope\r\n", "INFO cluster\r\n", "INFO CLUSTER nope\r\n", "INFO nope cluster\r\n",
	"SCAN\r\n", "SCAN a\r\n", "SCAN 1a\r\n", "SCAN 0 COUNT\r\n", "SCAN 0 COUNT 0\r\n", "SCAN 0 COUNT -1\r\n",
	"SCAN 0 COUNT a\r\n", "SCAN 0 foo bar\r\n", "SCAN 18446744073709551616\r\n",
	"SCAN -\r\n", "SCAN 0 MATCH\r\n", "SCAN 0 TYPE\r\n", "SCAN 0 MATCH a COUNT\r\n",
	"CLIENT REPLY ON\r\n", "CLIENT REPLY x\r\n", "CLIENT REPLY\r\n", "CLIENT REPLY SKIP\r\nPING\r\nECHO a\r\n",
	"CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING\r\nECHO a\r\n",
	"CLIENT REPLY SKIP\r\nCLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\n",
	"CLIENT REPLY OFF\r\nCLIENT REPLY SKIP\r\nPING\r\nRESET\r\nPING\r\n",
	"CLIENT REPLY SKIP\r\nRESET\r\nPING\r\n", "CLIENT REPLY SKIP\r\nNOPE\r\nNOPE\r\n",
	"CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nPING\r\n",
	"CLIENT KILL\r\n", "CLIENT KILL x\r\n", "CLIENT KILL x y\r\n", "CLIENT KILL ID 0\r\n", "CLIENT KILL ID x\r\n",
	"CLIENT KILL ID 99999999\r\n", "CLIENT KILL TYPE x\r\n", "CLIENT KILL TYPE master\r\n",
	"CLIENT KILL USER x\r\n", "CLIENT KILL ADDR a:1 SKIPME x\r\n", "CLIENT KILL ADDR a:1 SKIPME\r\n",
	"CLIENT KILL LADDR a:1 USER default\r\n",
	"CLIENT PAUSE\r\n", "CLIENT PAUSE x\r\n", "CLIENT PAUSE -1\r\n", "CLIENT PAUSE 1 x\r\n",
	"CLIENT PAUSE 1 WRITE x\r\n", "CLIENT PAUSE 0\r\n", "CLIENT PAUSE 0 write\r\nCLIENT UNPAUSE\r\n",
	"CLIENT UNPAUSE x\r\n",
	"CLIENT NO-EVICT\r\n", "CLIENT NO-EVICT x\r\n", "CLIENT NO-EVICT on\r\nCLIENT NO-EVICT OFF\r\n",
	"CLIENT UNBLOCK\r\n", "CLIENT UNBLOCK x\r\n", "CLIENT UNBLOCK 99999999\r\n", "CLIENT UNBLOCK 1 x\r\n",
	"CLIENT UNBLOCK 1 TIMEOUT x\r\n",
	"COMMAND INFO client|kill client|pause client|unpause client|reply client|unblock client|no-evict wait debug\r\n",
	"WAIT\r\n", "WAIT x 0\r\n", "WAIT 0 x\r\n", "WAIT 0 -1\r\n", "WAIT 1 99999999999999999999\r\n", "WAIT 0 0\r\n",
	"WAIT -5 0\r\n", "WAIT 1 50\r\nPING\r\n",
	"DEBUG\r\n", "DEBUG JMAP\r\n", "DEBUG OBJECT a\r\n", "DEBUG x y z\r\n",
	"CONFIG GET client-output-buffer-limit\r\n", "CONFIG GET client-query-buffer-limit\r\n",
	"CONFIG GET proto-max-bulk-len\r\n", "CONFIG GET tcp-keepalive\r\n", "CONFIG GET enable-debug-command\r\n",
	"CONFIG GET requirepass\r\n",
	"CONFIG SET client-output-buffer-limit \"normal 1 2\"\r\n", "CONFIG SET client-output-buffer-limit \"x 1 2 3\"\r\n",
	"CONFIG SET client-output-buffer-limit \"normal x 2 3\"\r\n",
	"CONFIG SET client-output-buffer-limit \"normal 1gb 2k 3\"\r\nCONFIG GET client-output-buffer-limit\r\n" +
		"CONFIG SET client-output-buffer-limit \"normal 0 0 0\"\r\n", "CONFIG SET client-query-buffer-limit x\r\n",
	"CONFIG SET client-query-buffer-limit 1\r\n", "CONFIG SET client-query-buffer-limit 1gb\r\n",
	"CONFIG SET tcp-keepalive x\r\n", "CONFIG SET tcp-keepalive -1\r\n", "CONFIG SET tcp-keepalive 300\r\n",
	"CONFIG SET maxmemory-clients 1gb\r\nCONFIG GET maxmemory-clients\r\nCONFIG SET maxmemory-clients 0\r\n" +
		"CONFIG GET maxmemory-clients\r\n", "CONFIG SET maxmemory-clients x\r\n",
	"CONFIG SET enable-debug-command yes\r\n",
	"CONFIG SET proto-max-bulk-len x\r\n",
	"CONFIG SET requirepass x\r\nRESET\r\nPING\r\nAUTH y\r\nHELLO 3\r\nAUTH x\r\nCONFIG GET requirepass\r\n" +
		"CONFIG SET requirepass \"\"\r\nPING\r\n",
	"*1048577\r\n$4\r\nPING\r\n$x\r\n", "*2147483648\r\n",
	"READONLY x\r\n", "ASKING x\r\n", "CLUSTER\r\n", "CLUSTER foo\r\n", "CLUSTER KEYSLOT\r\n", "CLUSTER SLOTS x\r\n",
	"CLUSTER MYID x\r\n",
	"NOPE\r\n", "NOPE a b\r\n", "GET\r\n", "GET a b\r\n", "MSET a\r\n", "SET a\r\n", "*1\r\n$0\r\n\r\n",
	"nope '" + strings.Repeat("x", 200) + "' y\r\n",
	// What introspection says where there is nothing to say, and what is wrong with its calls.
	"CONFIG REWRITE\r\n", "ROLE\r\nROLE x\r\n", "LASTSAVE x\r\n",
	"SAVE x\r\nBGSAVE x\r\nBGSAVE SCHEDULE x\r\nMULTI\r\nSAVE\r\nEXEC\r\n" +
		"EVAL \"return redis.call('save')\" 0\r\nEVAL \"return redis.call('bgsave')\" 0\r\n",
	"CLIENT TRACKINGINFO\r\nCLIENT TRACKINGINFO x\r\nCLIENT GETREDIR\r\nCLIENT GETREDIR x\r\n",
	"HELLO 3\r\nCLIENT TRACKING\r\nCLIENT TRACKING x\r\nCLIENT TRACKING on x\r\nCLIENT TRACKING on redirect\r\n" +
		"CLIENT TRACKINGINFO\r\nCLIENT GETREDIR\r\nCLIENT TRACKING off\r\nCLIENT TRACKING off optin\r\n" +
		"CLIENT TRACKINGINFO\r\n",
	"SLOWLOG\r\nSLOWLOG foo\r\nSLOWLOG GET 1 2\r\nSLOWLOG GET -2\r\nSLOWLOG GET x\r\nSLOWLOG LEN x\r\n" +
		"SLOWLOG RESET x\r\nSLOWLOG GET 0\r\n",
	"CONFIG SET slowlog-log-slower-than -1\r\nSLOWLOG RESET\r\nSLOWLOG LEN\r\nSLOWLOG GET\r\n" +
		"CONFIG SET slowlog-log-slower-than 10000\r\n",
	"LATENCY\r\nLATENCY foo\r\nLATENCY LATEST\r\nLATENCY LATEST x\r\nLATENCY HISTORY\r\nLATENCY HISTORY x\r\n" +
		"LATENCY GRAPH\r\nLATENCY GRAPH x\r\nLATENCY RESET\r\nLATENCY RESET a b\r\n",
	"LATENCY HISTOGRAM nope\r\nLATENCY DOCTOR x\r\n", "MONITOR x\r\n",
	"COMMAND GETKEYSANDFLAGS\r\nCOMMAND GETKEYSANDFLAGS get\r\nCOMMAND GETKEYSANDFLAGS ping x\r\n" +
		"COMMAND GETKEYSANDFLAGS nope x\r\nCOMMAND GETKEYSANDFLAGS get a b\r\n",
	"COMMAND GETKEYSANDFLAGS set a b\r\nCOMMAND GETKEYSANDFLAGS set a b GET\r\n" +
		"COMMAND GETKEYSANDFLAGS mset a b c d\r\nCOMMAND GETKEYSANDFLAGS rename a b\r\n",
	"COMMAND GETKEYSANDFLAGS sort a store b\r\nCOMMAND GETKEYSANDFLAGS sort a by x store\r\n" +
		"COMMAND GETKEYSANDFLAGS sort a store b store c\r\nCOMMAND GETKEYSANDFLAGS sort_ro a get x\r\n",
	"COMMAND GETKEYSANDFLAGS zunionstore d 2 a b\r\nCOMMAND GETKEYSANDFLAGS zunion x a\r\n" +
		"COMMAND GETKEYSANDFLAGS lmpop 2 a b left\r\nCOMMAND GETKEYSANDFLAGS object encoding a\r\n",
	"COMMAND INFO slowlog|get slowlog|len slowlog|reset slowlog|help latency|latest latency|history latency|graph " +
		"latency|doctor latency|reset latency|histogram latency|help\r\n",
	"COMMAND INFO multi exec discard watch unwatch\r\nCOMMAND GETKEYS watch a b\r\nCOMMAND GETKEYS multi\r\n" +
		"COMMAND GETKEYSANDFLAGS watch a b\r\n",
	"COMMAND INFO monitor role lastsave save bgsave client|tracking client|trackinginfo client|getredir client|caching " +
		"command|getkeysandflags\r\n",
	"CONFIG GET slowlog-max*\r\nCONFIG GET slowlog-log*\r\nCONFIG GET latency-monitor*\r\n" +
		"CONFIG GET latency-tracking\r\nCONFIG GET latency-tracking-*\r\nCONFIG SET slowlog-log-slower-than x\r\n" +
		"CONFIG SET slowlog-log-slower-than -2\r\nCONFIG SET slowlog-max-len x\r\nCONFIG SET slowlog-max-len 128\r\n",
	"CONFIG SET latency-monitor-threshold 0\r\nCONFIG SET latency-tracking yes\r\n" +
		"CONFIG SET latency-tracking-info-percentiles \"50 99 99.9\"\r\n",
	"CONFIG SET maxmemory-clients 10%\r\nCONFIG GET maxmemory-clients\r\nCONFIG SET maxmemory-clients 0%\r\n" +
		"CONFIG GET maxmemory-clients\r\nCONFIG SET maxmemory-clients 101%\r\n",
	"CONFIG SET maxmemory-clients 00%\r\nCONFIG SET maxmemory-clients %\r\nCONFIG SET maxmemory-clients 1.5%\r\n" +
		"CONFIG SET maxmemory-clients -1%\r\nCONFIG SET maxmemory-clients -1\r\nCONFIG SET maxmemory-clients 0\r\n",
	"CONFIG SET nope 1 databases 3\r\nCONFIG SET databases 3 nope 1\r\nCONFIG SET databases 16\r\n" +
		"CONFIG SET databases 16 databases 16\r\nCONFIG SET timeout 0 timeout 0 databases 3\r\n",
	"CONFIG SET databases 3 timeout 0 timeout 0\r\nCONFIG SET timeout 0 timeout 0 nope 1\r\n" +
		"CONFIG SET TIMEOUT x timeout 0\r\nCONFIG SET timeout x maxclients y\r\nCONFIG SET databases 3 databases\r\n",
	"CONFIG SET appendfsync x appendfsync y\r\nCONFIG SET maxmemory 0 maxmemory 0\r\nCONFIG SET maxmemory 0\r\n" +
		"CONFIG SET maxmemory-policy noeviction\r\nCONFIG SET port 1 PORT 1\r\n",
	"INFO modules\r\nINFO MODULE_LIST\r\nCONFIG RESETSTAT\r\nINFO errorstats\r\nGET\r\nNOPE\r\nAUTH x y\r\n" +
		"INFO errorstats\r\n",
	"MONITOR\r\nPING\r\nMONITOR\r\nGET a\r\nGET\r\nNOPE\r\nCONFIG GET save\r\nAUTH x\r\nAUTH default x\r\n" +
		"ECHO \"a\\x00\\xff\\r\\n\\t\\a\\b\\\"\\\\\"\r\nRESET\r\nPING\r\n",
	"MONITOR\r\nHELLO 3 AUTH default x SETNAME y\r\nRESET\r\nPING\r\n",
	// Scripts that touch no key.
	"EVAL\r\nEVAL x\r\nEVAL \"return 1\" x\r\nEVAL \"return 1\" -1\r\nEVAL \"return 1\" 2 a\r\nEVAL \"return 1\" 1x\r\n" +
		"EVAL \"return 1\" 99999999999999999999\r\nEVAL \"return 1\" \"\"\r\nEVAL \"return 1\" 0\r\n",
	"SCRIPT FLUSH\r\nEVALSHA abc 0\r\nEVALSHA abc x\r\nEVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0\r\n" +
		"EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db x\r\nSCRIPT LOAD \"return 1\"\r\n" +
		"EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0\r\nEVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0\r\n" +
		"SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db E0E1F9FABFC9D4800C877A703B823AC0578FF8DB x\r\n" +
		"SCRIPT FLUSH ASYNC\r\nSCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n",
	"EVAL \"retur 1\" 0\r\nEVAL \"return (\" 0\r\nEVAL \"#!lua\" 0\r\nEVAL \"#!lua flags=nope\\nreturn 1\" 0\r\n" +
		"EVAL \"#!lua bla\\nreturn 1\" 0\r\nEVAL \"#!py\\nreturn 1\" 0\r\nEVAL \"#!lua flags=no-writes,\\nreturn 1\" 0\r\n" +
		"EVAL \"#!lua flags=no-writes flags=allow-stale\\nreturn 1\" 0\r\nEVAL \"#! lua\\nreturn 1\" 0\r\n" +
		"EVAL \"#!LUA\\nreturn 1\" 0\r\nEVAL \"return 'a\\nb\" 0\r\nEVAL \"x = = \\x00 y\" 0\r\nEVAL \"\" 0\r\n",
	"EVAL_RO \"#!lua\\nreturn 1\" 0\r\nEVAL_RO \"#!lua flags=no-writes\\nreturn 1\" 0\r\nEVAL_RO \"return 1\" 0\r\n" +
		"EVAL_RO \"return redis.call('set', 'a', 1)\" 0\r\nEVAL \"#!lua flags=no-writes\\nreturn redis.call('set', 'a', 1)\" 0\r\n",
	"SCRIPT\r\nSCRIPT NOPE\r\nSCRIPT LOAD\r\nSCRIPT LOAD a b\r\nSCRIPT LOAD \"x x\"\r\nSCRIPT EXISTS\r\n" +
		"SCRIPT FLUSH x\r\nSCRIPT FLUSH sync x\r\nSCRIPT FLUSH Sync\r\nSCRIPT KILL\r\nSCRIPT KILL x\r\n" +
		"SCRIPT DEBUG\r\n",
	"EVAL \"return {1, 2.7, 'x', false, true, {ok='OK'}, {err='ERR e'}, {1, {2}}, nil, 3}\" 0\r\n" +
		"EVAL \"return {double=1.5}\" 0\r\nEVAL \"redis.setresp(3) return {true, false, {double=1.5}, {map={a=1}}, " +
		"{set={b=true}}, {big_number='12'}, {verbatim_string={format='txt',string='x'}}}\" 0\r\n" +
		"EVAL \"return ARGV\" 0 a b\r\nEVAL \"return {KEYS, ARGV}\" 0\r\nEVAL \"return redis.sha1hex('x')\" 0\r\n",
	"EVAL \"error('x')\" 0\r\nEVAL \"error({err='MY x'})\" 0\r\nEVAL \"return redis.error_reply('MY x')\" 0\r\n" +
		"EVAL \"return redis.status_reply('x')\" 0\r\nEVAL \"return redis.call()\" 0\r\nEVAL \"return redis.call('nope')\" 0\r\n" +
		"EVAL \"return redis.call('auth', 'x')\" 0\r\nEVAL \"return redis.pcall('config', 'get', 'x')\" 0\r\n" +
		"EVAL \"return redis.call('get')\" 0\r\nEVAL \"return redis.call('client', 'nope')\" 0\r\n" +
		"EVAL \"return redis.call('multi')\" 0\r\nEVAL \"return redis.call('eval', 'return 1', 0)\" 0\r\n" +
		"EVAL \"return redis.call({})\" 0\r\nEVAL \"x = 1\" 0\r\nEVAL \"return x\" 0\r\n",
	"EVAL \"return redis.call('ping')\" 0\r\nEVAL \"return redis.call('ping', 'x')\" 0\r\nEVAL \"return redis.call('echo', 'x')\" 0\r\n" +
		"EVAL \"return redis.call('ping', 'x', 'y')\" 0\r\nEVAL \"return #redis.call('time')\" 0\r\n" +
		"EVAL \"redis.log(redis.LOG_DEBUG, 'x')\" 0\r\nEVAL \"redis.log(1)\" 0\r\nEVAL \"redis.log(9, 'x')\" 0\r\n",
	"MULTI\r\nEVALSHA ffffffffffffffffffffffffffffffffffffffff 0\r\nSCRIPT LOAD \"return 7\"\r\n" +
		"EVALSHA 59b6ab2fbe0ee4b25733de0f62e6cda4899ef8e9 0\r\nEVAL \"retur\" 0\r\nEVAL \"return 1\" x\r\n" +
		"EVAL \"return 1\" 5 a\r\nSCRIPT EXISTS 59b6ab2fbe0ee4b25733de0f62e6cda4899ef8e9\r\nSCRIPT KILL\r\nEVAL \"return 1\" 0\r\nEXEC\r\n",
	"MULTI\r\nEVAL x\r\nEXEC\r\nMULTI\r\nEVAL \"return redis.error_reply('MY x')\" 0\r\nDISCARD\r\n",
	"COMMAND INFO eval evalsha eval_ro evalsha_ro script|exists script|flush script|kill script|debug script|load script|help\r\n",
	"COMMAND GETKEYS eval x 2 a b c\r\nCOMMAND GETKEYS eval x 0\r\nCOMMAND GETKEYS eval x 5 a\r\nCOMMAND GETKEYS eval x -1 a\r\n" +
		"COMMAND GETKEYS eval x\r\nCOMMAND GETKEYS evalsha_ro x 1 a\r\nCOMMAND GETKEYSANDFLAGS eval x 2 a b c\r\n" +
		"COMMAND GETKEYSANDFLAGS eval_ro x 1 a b\r\nCOMMAND GETKEYSANDFLAGS evalsha x 0\r\nCOMMAND GETKEYS script load x\r\n",
	"MONITOR\r\nEVAL \"return 1\" 0\r\nEVAL_RO \"return 1\" 0\r\nSCRIPT EXISTS x\r\nRESET\r\nPING\r\n",
	"CONFIG RESETSTAT\r\nEVAL \"return redis.error_reply('MY x')\" 0\r\nEVALSHA x 0\r\nEVAL \"error('x')\" 0\r\nEVAL x x\r\nINFO errorstats\r\n",
	"CONFIG GET lua-time-limit\r\nCONFIG GET busy-reply-threshold\r\nCONFIG SET lua-time-limit 5000\r\n",
	"ACL\r\nACL WHOAMI\r\nACL WHOAMI x\r\nACL nope\r\nMODULE\r\nMODULE LIST\r\nMODULE LIST x\r\nMODULE nope\r\n",
	"COMMAND INFO acl|whoami acl|help module|list module|help cluster|failover\r\n",
	// What is no command.
	"*0\r\nPING\r\n", "*-1\r\nPING\r\n", "*a\r\n", "*\r\n", "*01\r\n", "*+1\r\n", "*1 \r\n", "*1\r\n$-1\r\n",
	"*1\r\n$a\r\n", "*1\r\n$04\r\nPING\r\n", "*1\r\n$536870913\r\n",
	"*1\r\nx\r\n", "*1\r\n:1\r\n", "*2\r\n$4\r\nPING\r\n:1\r\n", "*1\r\n\r\n", "\"PING\r\n", "'PING'x\r\n",
	"\"PING\" \"a\\x41\\n\\\"b\"\r\n", "PING 'a\\'b\\n'\r\n", "PING\ta\r\n",
	"\r\nPING\r\n", "   \r\nPING\r\n", "PING a\"b\"\r\n", "$4\r\nPING\r\n", "\"\"\r\n", "PING\r\n*1\r\n$-1\r\n",
	"*1\r\n$1 \r\n", "*1\r\n$\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "Host: x\r\n",
}

func TestLikeRedis(t *testing.T) {
	addr := redistest.RedisServer(t)
	_, dial := start(t, Options{})
	compare(t, addr, dial, everywhere)
	compare(t, addr, dial, []string{
		"SELECT 99\r\n", "SELECT -1\r\n", "READONLY\r\n", "READWRITE\r\n", "ASKING\r\n", "CLUSTER SLOTS\r\n",
		"CLUSTER NODES\r\n", "CLUSTER KEYSLOT a\r\n",
		"CLUSTER COUNTKEYSINSLOT a\r\n", "CLUSTER GETKEYSINSLOT 1 a\r\n", "CLUSTER INFO\r\n", "CLUSTER SHARDS\r\n",
		"CLUSTER LINKS\r\n", "CLUSTER MYID\r\n",
	})
}

func TestLikeRedisCluster(t *testing.T) {
	addr := redistest.RedisServer(t, "--cluster-enabled", "yes")
	do := func(request string) string {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return ask(t, c, request)
	}
	do("cluster set-config-epoch 1")
	do("cluster addslotsrange 0 16383")
	for end := time.Now().Add(20 * time.Second); !strings.Contains(do("cluster info"), "cluster_state:ok"); {
		if time.Now().After(end) {
			t.Fatal("redis-server's cluster is not ready")
		}
	}
	id := strings.Split(do("cluster myid"), "\r\n")[1]
	_, text, _ := net.SplitHostPort(addr)
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	table := route.NewTable(1, []route.PublicStore{{ID: 1, NodeID: id, Port: port, Alive: true}},
		[]route.LedRegion{{Region: topology.Region{ID: 1, Slots: topology.SlotRange{Last: topology.SlotCount - 1}},
			Leader: 1}})
	_, dial := start(t, Options{Self: 1, Node: &fakeNode{table: func() *route.Table { return table }}})
	compare(t, addr, dial, everywhere)
	compare(t, addr, dial, []string{
		"SELECT 1\r\n", "SELECT -1\r\n", "READONLY\r\n", "READWRITE\r\n", "ASKING\r\n", "CLUSTER SLOTS\r\n",
		"CLUSTER SHARDS\r\n", "CLUSTER NODES\r\n", "CLUSTER INFO\r\n",
		"CLUSTER MYID\r\n", "CLUSTER LINKS\r\n", "CLUSTER KEYSLOT {foo}bar\r\n", "CLUSTER KEYSLOT \"\"\r\n",
		"CLUSTER COUNTKEYSINSLOT a\r\n", "CLUSTER COUNTKEYSINSLOT 16384\r\n",
		"CLUSTER COUNTKEYSINSLOT -1\r\n", "CLUSTER GETKEYSINSLOT 1 a\r\n", "CLUSTER GETKEYSINSLOT a 1\r\n",
		"CLUSTER GETKEYSINSLOT 16384 1\r\n", "CLUSTER GETKEYSINSLOT 1 -1\r\n",
		"CLUSTER FAILOVER x\r\nCLUSTER FAILOVER FORCE x\r\n",
		"MGET a b\r\n", "MSET a 1 b 2\r\n", "DEL a b\r\n",
		"MULTI\r\nWATCH a\r\nEXEC\r\n", "MULTI\r\nWATCH a b\r\nEXEC\r\n", "MULTI\r\nMGET a b\r\nEXEC\r\n",
		"EVAL \"return 1\" 2 a b\r\nEVALSHA x 2 a b\r\nEVAL_RO \"return 1\" 2 a b\r\nEVAL \"retur\" 2 a b\r\n",
		"EVAL \"#!lua flags=no-cluster\\nreturn 1\" 0\r\n",
		fmt.Sprintf("*3\r\n$4\r\nMGET\r\n$%d\r\n%s\r\n$1\r\nb\r\n", 300, strings.Repeat("a", 300)),
	})
}

// infoOwn are lines of INFO that Redis does not have.
var infoOwn = strings.Fields(`neokv_version go_version store_id client_query_buffer_limit_disconnections
	client_output_buffer_limit_disconnections client_hung_disk_disconnections client_unknown_outcome_disconnections x`)

// infoLacks are lines of Redis that a server by itself does not have. A node adds those that count keys.
var infoLacks = strings.Fields(`
	atomicvar_api configured_hz expire_cycle_cpu_milliseconds expired_keys expired_stale_perc
	expired_time_cap_reached_count gcc_version hz keyspace_hits keyspace_misses lru_clock monotonic_clock multiplexing_api
	redis_build_id reply_buffer_expands reply_buffer_shrinks used_cpu_sys_main_thread used_cpu_user_main_thread
	used_memory_dataset used_memory_dataset_perc used_memory_overhead`)

// infoVaries is what the names of lines begin with that say something else of every process, or that are about another
// kind of server.
var infoVaries = strings.Fields(`os run_id process_id executable tcp_port server_time_usec uptime_in_
	used_ allocator_ rss_overhead_ mem_ client_recent_ total_reads_processed total_writes_processed instantaneous_
	rdb_last_save_time master_replid repl_backlog_size`)

// TestInfoLikeRedis wants the same sections as redis-server's for whatever a client asks, our own after them, the same
// lines but for those named above, and the same values after the same calls.
func TestInfoLikeRedis(t *testing.T) {
	addr := redistest.RedisServer(t)
	theirs, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	_, dial := start(t, Options{Node: &fakeNode{info: []Section{{Name: "Neokv", Lines: []string{"x:1"}}}}})
	ours := dial()
	sections := func(c net.Conn, request string) (names, fields []string) {
		text := ask(t, c, request)
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\r\n")
			if name, ok := strings.CutPrefix(line, "# "); ok {
				names = append(names, name)
			} else if name, _, ok := strings.Cut(line, ":"); ok {
				fields = append(fields, name)
			}
		}
		return names, fields
	}
	for request, neokv := range map[string]bool{
		"info": true, "info default": true, "info ALL": true, "info everything": true, "info server": false,
		"info Modules clients":      false,
		"info default commandstats": true, "info cpu nope latencystats": false, "info nope": false,
	} {
		want, _ := sections(theirs, request)
		if neokv {
			want = append(want, "Neokv")
		}
		if got, _ := sections(ours, request); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
	_, theirFields := sections(theirs, "info everything")
	_, ourFields := sections(ours, "info everything")
	begins := func(f string, with ...string) bool {
		return slices.ContainsFunc(with, func(begin string) bool { return strings.HasPrefix(f, begin) })
	}
	named := func(f string) bool { // after a command or an error
		return begins(f, "cmdstat_", "errorstat_", "latency_percentiles_")
	}
	for _, f := range ourFields {
		if !slices.Contains(theirFields, f) && !slices.Contains(infoOwn, f) && !named(f) {
			t.Errorf("INFO has the line %q, which Redis has not", f)
		}
	}
	for _, f := range theirFields {
		if slices.Contains(ourFields, f) == slices.Contains(infoLacks, f) && !named(f) {
			t.Errorf("INFO has the line %q: %v, which is not what infoLacks says", f, slices.Contains(ourFields, f))
		}
	}
	if got := ask(t, ours, "latency histogram ping"); got != "*0\r\n" {
		t.Errorf("LATENCY HISTOGRAM before any PING: %q", got)
	}
	values := func(c net.Conn) map[string]string {
		calls := []string{"config resetstat", "ping", "nope", "get", "ping a b", "echo x", "client setname x"}
		for _, call := range calls {
			ask(t, c, call)
		}
		return infoLines(t, c, "default")
	}
	want, got := values(theirs), values(ours)
	for f, value := range want {
		if got, ok := got[f]; ok && got != value && !begins(f, infoVaries...) {
			t.Errorf("INFO says %s:%s, want %s", f, got, value)
		}
	}
}

// TestSlowLogLikeRedis: what is kept of long calls, and what of passwords. Identifiers count on from any number.
func TestSlowLogLikeRedis(t *testing.T) {
	addr := redistest.RedisServer(t)
	_, dial := start(t, Options{})
	varies := regexp.MustCompile(`(\*6\r\n:)(\d+)\r\n:\d+\r\n:\d+|\$\d+\r\n(127.0.0.1|pipe):\d+`)
	many := "*40\r\n$4\r\nPING\r\n" + strings.Repeat("$1\r\nx\r\n", 39)
	session := "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 5\r\nSLOWLOG RESET\r\n" +
		"CLIENT SETNAME me\r\nPING a\r\n" + many + "GET\r\nNOPE\r\nECHO " + strings.Repeat("y", 200) +
		"\r\nAUTH secret\r\nHELLO 2 AUTH default secret SETNAME you\r\nCONFIG SET timeout 0 requirepass \"\"\r\n" +
		"SLOWLOG GET\r\nSLOWLOG GET 2\r\nSLOWLOG LEN\r\nCONFIG SET slowlog-max-len 1\r\nSLOWLOG LEN\r\n" +
		"CONFIG SET slowlog-max-len 14\r\n"
	for i := range 15 {
		session += fmt.Sprintf("ECHO %d\r\nSLOWLOG LEN\r\n", i)
	}
	session += "SLOWLOG GET\r\nSLOWLOG GET -1\r\nCONFIG SET slowlog-max-len 128 slowlog-log-slower-than 10000\r\n"
	talk := func(c net.Conn) string {
		first := -1
		got := numbers.ReplaceAllString(converse(t, c, session), "$1#")
		return varies.ReplaceAllStringFunc(got, func(found string) string {
			id, err := strconv.Atoi(varies.FindStringSubmatch(found)[2])
			if err != nil {
				return "an address"
			}
			if first < 0 {
				first = id
			}
			return fmt.Sprint("call ", id-first)
		})
	}
	theirs, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	want := talk(theirs)
	if got := talk(dial()); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// planted is a password in calls that are searched for it.
const planted = "pLaNtEd"

// callsWithSecrets has every command that takes a password, right and wrong, whether or not it exists here.
var callsWithSecrets = []string{
	"AUTH pLaNtEd", "AUTH default pLaNtEd", "AUTH default pLaNtEd more", "AUTH", "auth pLaNtEd",
	"HELLO 3 AUTH default pLaNtEd", "HELLO 2 SETNAME me AUTH default pLaNtEd", "HELLO 2 AUTH default pLaNtEd SETNAME me",
	"HELLO 2 SETNAME auth AUTH default pLaNtEd", "HELLO 2 AUTH auth pLaNtEd", "HELLO 2 AUTH pLaNtEd",
	"HELLO 2 AUTH default wrong AUTH default pLaNtEd", "HELLO 9 AUTH default pLaNtEd", "HELLO AUTH default pLaNtEd",
	"HELLO x AUTH default pLaNtEd", "HELLO 2 PASS pLaNtEd", "HELLO 2 SETNAME", "HELLO 3", "HELLO 2",
	"CONFIG SET requirepass pLaNtEd", "CONFIG SET RequirePass pLaNtEd", "CONFIG SET timeout 0 requirepass pLaNtEd",
	"CONFIG SET requirepass x requirepass pLaNtEd", "CONFIG SET requirepass pLaNtEd nosuch x",
	"CONFIG SET nosuch x requirepass pLaNtEd", "CONFIG SET timeout x requirepass pLaNtEd",
	"CONFIG SET requirepass pLaNtEd timeout", "CONFIG SET timeout requirepass pLaNtEd",
	"CONFIG SET requirepas pLaNtEd", "CONFIG SET pLaNtEd requirepass", "CONFIG SET masterauth pLaNtEd",
	"CONFIG SET masteruser pLaNtEd", "CONFIG SET tls-key-file-pass pLaNtEd", "CONFIG SET redis.requirepass pLaNtEd",
	"CONFIG SET timeout 0", "CONFIG GET requirepass", "CONFIG SET requirepass \"\"",
	"MIGRATE 127.0.0.1 1 k 0 9 AUTH pLaNtEd", "MIGRATE 127.0.0.1 1 k 0 9 AUTH2 user pLaNtEd",
	"MIGRATE 127.0.0.1 1 k 0 x AUTH pLaNtEd", "ACL SETUSER u >pLaNtEd", "ACL SETUSER u nosuch >pLaNtEd", "ACL DELUSER u",
}

// TestSecretsLikeRedis: neither SLOWLOG nor MONITOR shows a password, also of a call that is refused. Of a call that is
// right, SLOWLOG has what redis-server's has.
func TestSecretsLikeRedis(t *testing.T) {
	theirs, err := net.Dial("tcp", redistest.RedisServer(t))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	_, dial := start(t, Options{})
	ours, monitor := dial(), dial()
	ask(t, monitor, "monitor")
	bulk := regexp.MustCompile(`\$\d+\r\n(.*)\r\n`)
	// logged makes a call and returns what SLOWLOG has of it.
	logged := func(c net.Conn, call string) (words []string, refused bool) {
		ask(t, c, "SLOWLOG RESET")
		refused = strings.HasPrefix(ask(t, c, call), "-")
		for _, found := range bulk.FindAllStringSubmatch(ask(t, c, "SLOWLOG GET 1"), -1) {
			words = append(words, found[1])
		}
		if words[0] == "SLOWLOG" { // the call is not in it
			return nil, refused
		}
		return words[:len(words)-2], refused // without the client's address and name
	}
	for _, c := range []net.Conn{theirs, ours} {
		ask(t, c, "CONFIG SET slowlog-log-slower-than 0")
	}
	for _, call := range callsWithSecrets {
		want, _ := logged(theirs, call)
		got, refused := logged(ours, call)
		if strings.Contains(strings.Join(got, " "), planted) {
			t.Errorf("%s: SLOWLOG shows %q", call, got)
		}
		mayHide := refused || strings.Contains(call, "tls-key-file-pass") // Redis shows that one
		for i := range got {                                              // of a call that is refused it may show less
			if mayHide && len(want) == len(got) && got[i] == "(redacted)" {
				want[i] = got[i]
			}
		}
		if got != nil && !slices.Equal(got, want) {
			t.Errorf("%s: SLOWLOG shows %q, redis-server's %q", call, got, want)
		}
	}
	ask(t, ours, "ECHO that-end")
	lines := bufio.NewReader(monitor)
	for seen := 0; ; seen++ {
		line, err := lines.ReadString('\n')
		if err != nil || strings.Contains(line, planted) {
			t.Errorf("MONITOR shows %q, %v", line, err)
		}
		if err != nil || strings.Contains(line, "that-end") {
			if seen < len(callsWithSecrets)/3 {
				t.Errorf("MONITOR shows %d calls", seen)
			}
			break
		}
	}
}
