package cluster

import (
	"errors"
	"fmt"
	"net"

	"neokv.dev/neokv/settings"
)

// CheckBind returns an error if a cluster with these settings may not listen on addr. An address beyond loopback needs
// a password (redis.requirepass).
func CheckBind(addr string, k settings.RedisKnobs) error {
	switch ip := net.ParseIP(addr); {
	case ip == nil:
		return errors.New("want an IP address such as 127.0.0.1 or ::1")
	case !ip.IsLoopback() && k.RequirePass == "":
		return errors.New("want a loopback address such as 127.0.0.1 or ::1, or a password in redis.requirepass")
	}
	return nil
}

// CheckNoDir returns an error if these settings need a data folder that stays, so that the cluster can run neither in
// memory nor in a temporary folder.
func CheckNoDir(k settings.EngineKnobs) error {
	switch {
	case k.Durable:
		return errors.New("engine.durable true: the data needs a folder that stays, not memory or a temporary one")
	case k.WALDir != "":
		return fmt.Errorf("engine.wal_dir %s: write-ahead logs apart need a data folder that stays", k.WALDir)
	}
	return nil
}

// shape returns the shape that the caller asked for, with zeros replaced by the numbers of the settings. It cuts the
// settings' number of replicas to the number of stores.
func shape(asked, from settings.ClusterKnobs) settings.ClusterKnobs {
	if asked.Stores == 0 {
		asked.Stores = from.Stores
	}
	if asked.Replicas == 0 {
		asked.Replicas = min(from.Replicas, asked.Stores)
	}
	if asked.Regions == 0 {
		asked.Regions = from.Regions
	}
	return asked
}

// CheckPorts returns an error if a cluster with these settings cannot listen on these ports: store 1 on port, the other
// stores on the ports that follow it, their second addresses, if they have any, behind, and the proxy on proxyPort. 0
// stands for free ports.
func CheckPorts(port, proxyPort int, s settings.Settings) error {
	return checkPorts(port, proxyPort, s.Cluster.Stores, s)
}

// checkPorts is CheckPorts for a cluster whose last store has this number.
func checkPorts(port, proxyPort, stores int, s settings.Settings) error {
	if more := stores - s.Cluster.Stores; more > 0 { // the ports of stores that have gone are left out
		s.Cluster.Stores += more
	}
	what := fmt.Sprintf("%d stores", stores)
	if s.Addresses() > stores {
		what += ", with a second address each (redis.follower_read),"
	}
	last, taken := port+s.Addresses()-1, proxyPort-port
	switch {
	case port < 0 || port > 0 && last > 65535:
		return fmt.Errorf("port %d: %s need the ports %d to %d, want 1 to 65535, or 0 for free ones",
			port, what, port, last)
	case proxyPort < 0 || proxyPort > 65535:
		return fmt.Errorf("proxy port %d: want 1 to 65535, or 0 for a free one", proxyPort)
	case port > 0 && port <= proxyPort && proxyPort <= last:
		who := fmt.Sprintf("store %d", taken%stores+1)
		if taken >= stores {
			who += " as a replica"
		}
		return fmt.Errorf("proxy port %d: it is the port of %s (ports %d to %d)", proxyPort, who, port, last)
	}
	return nil
}
