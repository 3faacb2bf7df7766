//go:build unix

package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// tcpWriter writes to a TCP connection what the system takes at once. One goroutine uses it at a time.
type tcpWriter struct {
	raw   syscall.RawConn
	write func(fd uintptr) bool // w.once; made once
	p     []byte
	n     int
	err   error
}

// tryTCP returns nil if the connection has been closed.
func tryTCP(tcp *net.TCPConn) tryWriter {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	w := &tcpWriter{raw: raw}
	w.write = w.once
	return w
}

func (w *tcpWriter) TryWrite(p []byte) (int, error) {
	w.p, w.n, w.err = p, 0, nil
	err := w.raw.Write(w.write)
	w.p = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}

// once returns true: raw.Write shall not call it again when the system takes more.
func (w *tcpWriter) once(fd uintptr) bool {
	n, err := unix.Write(int(fd), w.p)
	for err == unix.EINTR {
		n, err = unix.Write(int(fd), w.p)
	}
	if w.n = max(0, n); err != unix.EAGAIN {
		w.err = err
	}
	return true
}
