package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// TestTakenPortsAreNamed: the error of a boot names every port that is taken, and the process that holds them.
func TestTakenPortsAreNamed(t *testing.T) {
	s := startServe(t, "--mem", "--port", "0")
	ports := strings.Split(s.ready[1], ",")
	stale, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stale.Close()
	// A store's port of this process, which another one wants with a proxy port that is taken, too.
	got := neokvRun(t, nil, "serve", "--profile", "small", "--mem", "--stores", "1", "--port", ports[0], "--proxy-port",
		portOf(stale.Addr().String()))
	wantOneLine(t, "two taken ports", got, statusFailed, "127.0.0.1:"+ports[0]+" of store 1",
		stale.Addr().String()+" of the proxy",
		fmt.Sprintf(", pid %d, holds ", os.Getpid()), "; --port 0 picks free ones")
	_, held, _ := strings.Cut(got.stderr, ", holds ")
	for _, port := range []string{ports[0], portOf(stale.Addr().String())} {
		if !strings.Contains(held, port) {
			t.Errorf("%q does not say who holds %s", got.stderr, port)
		}
	}
	s.stop(t)
}
