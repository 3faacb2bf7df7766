package server

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// TestTCPHungUp: the end of a connection shows however much the client has sent before, up to what the system holds,
// and a reset behind any amount.
func TestTCPHungUp(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	pair := func() (client, server *net.TCPConn) {
		a, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			a.Close()
			b.Close()
		})
		return a.(*net.TCPConn), b.(*net.TCPConn)
	}
	await := func(server *net.TCPConn, wantGone, wantSilent bool) {
		t.Helper()
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			gone, silent := hungUp(server)
			if gone == wantGone && silent == wantSilent {
				return
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("gone %v, silent %v; want %v, %v", gone, silent, wantGone, wantSilent)
			}
		}
	}
	client, server := pair()
	await(server, false, false)
	if _, err := client.Write(make([]byte, 50_000)); err != nil {
		t.Fatal(err)
	}
	await(server, false, false)
	client.CloseWrite()
	await(server, false, true)
	if got, err := server.Read(make([]byte, 100_000)); err != nil || got == 0 {
		t.Errorf("%d bytes, %v: what was sent can still be read", got, err)
	}
	client.SetLinger(0)
	client.Close()
	await(server, true, true)

	client, server = pair()
	client.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := client.Write(bytes.Repeat([]byte("x"), 64<<20)); err == nil {
		t.Fatal("the system holds 64 MiB")
	}
	client.SetLinger(0)
	client.Close()
	await(server, true, true)
	server.Close()
	if gone, _ := hungUp(server); !gone {
		t.Error("closed here, and not gone")
	}
}
