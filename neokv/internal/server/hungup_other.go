//go:build !linux

package server

import "net"

// tcpHungUp knows nothing: a connection shows its end behind what the client has sent.
func tcpHungUp(*net.TCPConn) (gone, silent bool) { return false, false }
