package neokv

import (
	"neokv.dev/neokv/internal/cluster"
	"neokv.dev/neokv/settings"
)

// CheckBind returns an error if a cluster with these settings may not listen on addr. An address beyond loopback needs
// a password (redis.requirepass).
func CheckBind(addr string, k settings.RedisKnobs) error {
	return cluster.CheckBind(addr, k)
}

// CheckNoDir returns an error if these settings need a data folder that stays, so that the cluster can run neither in
// memory nor in a temporary folder.
func CheckNoDir(k settings.EngineKnobs) error {
	return cluster.CheckNoDir(k)
}

// CheckPorts returns an error if a cluster with these settings cannot listen on these ports: store 1 on port, the other
// stores on the ports that follow it, their second addresses, if they have any, behind, and the proxy on proxyPort. 0
// stands for free ports.
func CheckPorts(port, proxyPort int, s settings.Settings) error {
	return cluster.CheckPorts(port, proxyPort, s)
}
