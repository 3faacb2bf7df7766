package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// holders says which processes listen on some ports, as far as that can be seen: "redis-server, pid 7, holds 7001,
// 7002".
func holders(ports []uint64) (all []string) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil
	}
	const listening = 0x0a
	sockets, _ := proc.NetTCP()
	wider, _ := proc.NetTCP6()
	portOf := map[string]uint64{} // by what a descriptor of the socket leads to
	for _, s := range slices.Concat(sockets, wider) {
		if slices.Contains(ports, s.LocalPort) && s.St == listening {
			portOf[fmt.Sprintf("socket:[%d]", s.Inode)] = s.LocalPort
		}
	}
	if len(portOf) == 0 {
		return nil
	}
	processes, _ := proc.AllProcs()
	for _, p := range processes {
		open, _ := p.FileDescriptorTargets() // none of other users' processes
		var held []uint64
		for _, target := range open {
			if port, ok := portOf[target]; ok {
				held = append(held, port)
			}
		}
		slices.Sort(held)
		if name, err := p.Comm(); err == nil && len(held) > 0 {
			list := strings.Trim(strings.ReplaceAll(fmt.Sprint(slices.Compact(held)), " ", ", "), "[]")
			all = append(all, fmt.Sprintf("%s, pid %d, holds %s", name, p.PID, list))
		}
	}
	return all
}
