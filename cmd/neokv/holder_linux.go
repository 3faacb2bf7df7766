package main

import (
	"fmt"
	"slices"

	"github.com/prometheus/procfs"
)

// holder says which process listens on a port, "" if that cannot be seen.
func holder(port uint64) string {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return ""
	}
	const listening = 0x0a
	sockets, _ := proc.NetTCP()
	wider, _ := proc.NetTCP6()
	for _, s := range slices.Concat(sockets, wider) {
		if s.LocalPort != port || s.St != listening {
			continue
		}
		target := fmt.Sprintf("socket:[%d]", s.Inode)
		all, _ := proc.AllProcs()
		for _, p := range all {
			open, _ := p.FileDescriptorTargets() // none of other users' processes
			if name, err := p.Comm(); err == nil && slices.Contains(open, target) {
				return fmt.Sprintf("%s, pid %d", name, p.PID)
			}
		}
	}
	return ""
}
