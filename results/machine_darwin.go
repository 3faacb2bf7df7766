package results

import (
	"os"

	"golang.org/x/sys/unix"
)

// systemFacts returns the model of the CPU, the names of the system and its kernel, and the bytes of memory. What the
// system does not tell is empty or 0.
func systemFacts() (cpu, system, kernel string, memoryBytes uint64) {
	cpu, _ = unix.Sysctl("machdep.cpu.brand_string")
	version, _ := unix.Sysctl("kern.osproductversion")
	kernel, _ = unix.Sysctl("kern.osrelease")
	memoryBytes, _ = unix.SysctlUint64("hw.memsize")
	return cpu, "macOS " + version, kernel, memoryBytes
}

func fileSystem(path string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(s.Fstypename[:]), nil
}

// syncData is a full sync: macOS has no fdatasync that reaches the medium.
func syncData(f *os.File) error { return f.Sync() }
