//go:build !unix

package server

import "net"

// tryTCP returns nil: each outbox has a goroutine of its own write to its client.
func tryTCP(*net.TCPConn) tryWriter { return nil }
