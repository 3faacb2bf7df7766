package sim

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// respConn is a connection that speaks RESP2.
type respConn struct {
	nc net.Conn
	r  *bufio.Reader
}

func newWire(nc net.Conn) *respConn { return &respConn{nc: nc, r: bufio.NewReaderSize(nc, 512)} }

// call sends one command and reads its reply: a status, a number, a string, or the elements of an array with spaces
// between them. Null is "".
func (w *respConn) call(args ...string) (string, error) {
	if _, err := w.nc.Write(appendCommand(nil, args)); err != nil {
		return "", err
	}
	return w.read()
}

// appendCommand appends a command as RESP.
func appendCommand(b []byte, args []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// read reads the next reply. An error reply is a refusal or unknown, or errUnexpected; two errors of Redis are
// replies like any other.
func (w *respConn) read() (string, error) {
	line, err := w.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("%w: an empty line", errUnexpected)
	}
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(w.r, text); err != nil {
			return "", err
		}
		return string(text[:n]), nil
	case '*':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", err
		}
		elements := make([]string, n)
		for i := range elements {
			if elements[i], err = w.read(); err != nil {
				return "", err
			}
		}
		return strings.Join(elements, " "), nil
	case '-':
		if strings.HasPrefix(line, "-ERR script ended by ") {
			return limited, nil
		}
		for _, r := range []string{"MOVED ", "ASK ", "CLUSTERDOWN ", "TRYAGAIN ", "MISCONF ", "LOADING "} {
			if strings.HasPrefix(line[1:], r) {
				return "", refusal(line[1:])
			}
		}
		switch {
		case strings.HasPrefix(line[1:], "WRONGTYPE "):
			return wrongType, nil
		case line[1:] == "ERR no such key":
			return noSuchKey, nil
		}
		if strings.HasPrefix(line[1:], "ERR write outcome unknown: ") {
			return "", unknown(line[5:])
		}
	}
	return "", fmt.Errorf("%w: %q", errUnexpected, line)
}
