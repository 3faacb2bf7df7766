package memconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

func testPair() (a, b net.Conn, stop func(), err error) {
	p := Listen(pipeAddr{})
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := p.Accept()
		if err != nil {
			panic(err)
		}
		accepted <- c
	}()
	a, err = p.Dial(context.Background())
	b = <-accepted
	return a, b, func() { a.Close(); b.Close(); p.Close() }, err
}

func TestConnIsANetConn(t *testing.T) { nettest.TestConn(t, testPair) }

// TestConnInVirtualTime fills a connection, waits out deadlines and closes, in a bubble.
func TestConnInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, stop, err := testPair()
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		begin := time.Now()
		a.SetWriteDeadline(begin.Add(time.Hour))
		n, err := a.Write(make([]byte, 2*BufferBytes))
		if n != BufferBytes || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Hour {
			t.Fatalf("writing into a full connection: %d, %v after %v", n, err, time.Since(begin))
		}
		a.SetWriteDeadline(time.Time{})
		var wg sync.WaitGroup
		wg.Go(func() {
			sent := bytes.Repeat([]byte("0123456789"), 200_000)
			if n, err := a.Write(sent); n != len(sent) || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
			a.Close()
		})
		got, err := io.ReadAll(b)
		wg.Wait()
		if err != nil || len(got) != BufferBytes+2_000_000 ||
			!bytes.Equal(got[BufferBytes:], bytes.Repeat([]byte("0123456789"), 200_000)) {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
		if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a closed end: %v", err)
		}
	})
}

func TestConnClosed(t *testing.T) {
	p := Listen(pipeAddr{})
	p.Close()
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept = %v", err)
	}
	if _, err := p.Dial(context.Background()); err == nil {
		t.Error("Dial succeeded")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Listen(pipeAddr{}).Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial that nobody accepts = %v", err)
	}
}

func BenchmarkConn(b *testing.B) {
	x, y, stop, err := testPair()
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := y.Read(buf)
			if err != nil {
				return
			}
			y.Write(buf[:n])
		}
	}()
	buf := make([]byte, 1000)
	b.ReportAllocs()
	for b.Loop() {
		x.Write(buf)
		io.ReadFull(x, buf)
	}
}
