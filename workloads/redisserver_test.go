//go:build redisserver

package workloads

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCommandsAreRedis compares the list of commands with what a real redis-server says.
func TestCommandsAreRedis(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	ctx, stop := context.WithCancel(t.Context())
	server := exec.CommandContext(ctx, "redis-server", "--port", fmt.Sprint(port), "--save", "")
	server.Dir = t.TempDir()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer stop()
	var c net.Conn
	for range 200 {
		if c, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "COMMAND\r\n")
	in := bufio.NewReader(c)
	var value func() any
	value = func() any {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSpace(line[1:])
		n := 0
		switch line[0] {
		case '*':
			fmt.Sscan(text, &n)
			var list []any
			for range n {
				list = append(list, value())
			}
			return list
		case '$':
			fmt.Sscan(text, &n)
			if n < 0 {
				return nil
			}
			b := make([]byte, n+2)
			for read := 0; read < len(b); {
				k, err := in.Read(b[read:])
				if err != nil {
					t.Fatal(err)
				}
				read += k
			}
			return string(b[:n])
		}
		return text
	}
	var lines []string
	for _, x := range value().([]any) {
		row := x.([]any)
		does := "other"
		for _, flag := range row[2].([]any) {
			switch flag {
			case "readonly":
				does = "read"
			case "write":
				does = "write"
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s\n", row[0], row[1], does, row[3]))
	}
	slices.Sort(lines)
	if want := strings.Join(lines, ""); commandsText != want {
		t.Errorf("commands.txt differs from redis-server's:\n%s", want)
	}
}
