package server

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/settings"
)

// TestManyCallsOfALongScript: EVALSHA is a short command that stands for a long text. However many of them a client
// sends, in a transaction or not, the server makes no copies of the text.
func TestManyCallsOfALongScript(t *testing.T) {
	const calls, long = 300, 256 << 10
	x, err := lua.Compile("return 1 --" + strings.Repeat("x", long))
	if err != nil {
		t.Fatal(err)
	}
	node := &fakeNode{}
	node.LoadScript(x, true)
	o := Options{Settings: settings.Default(), Node: node}
	o.Settings.Redis.LeaderlessWait = time.Millisecond // no region is there
	_, dial, stop := serve(t, o)
	defer stop()
	call := fmt.Sprintf("*4\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$1\r\nb\r\n", x.SHA)
	for _, inside := range []bool{false, true} {
		c := dial()
		r := bufio.NewReader(c)
		request, lines := strings.Repeat(call, calls), calls
		if inside {
			request, lines = "*1\r\n$5\r\nMULTI\r\n"+request+"*1\r\n$4\r\nEXEC\r\n", calls+2
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		go io.WriteString(c, request)
		for range lines {
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > 20*long {
			t.Errorf("inside of a transaction %t: %d calls of a script of %d bytes made %d bytes", inside, calls, long, made)
		}
		c.Close()
	}
}
