package server

import (
	"net"

	"golang.org/x/sys/unix"
)

// tcpHungUp asks the system for the state of a connection. A reset shows at once. The end of what the client sends
// shows when it has arrived: it stays with the client while more is unread than the system's buffer holds.
func tcpHungUp(tcp *net.TCPConn) (gone, silent bool) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false, false
	}
	err = raw.Control(func(fd uintptr) {
		ask := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(ask, 0); err == nil && n > 0 {
			gone = ask[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
			silent = ask[0].Revents&unix.POLLRDHUP != 0
		}
	})
	return gone || err != nil, silent // it has been closed here
}
