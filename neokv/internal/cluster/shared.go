package cluster

import "neokv.dev/neokv/internal/server"

// shared is what the servers of all ports have in common.
type shared struct {
	hub     server.Hub
	memory  *server.ClientMemory // bounds what they hold for their clients
	sockets server.Sockets       // bounds how many connections of clients they have
	scans   server.Scans
	used    int // file descriptors that the process had open when the cluster began
}
