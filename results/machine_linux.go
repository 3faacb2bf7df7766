package results

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// systemFacts returns the model of the CPU, the names of the system and its kernel, and the bytes of memory. What the
// system does not tell is empty or 0.
func systemFacts() (cpu, system, kernel string, memoryBytes uint64) {
	cpu = fileField("/proc/cpuinfo", "model name", ":")
	system = strings.Trim(fileField("/etc/os-release", "PRETTY_NAME", "="), `"`)
	if system == "" {
		system = "linux"
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) == nil {
		memoryBytes = uint64(s.Totalram) * uint64(s.Unit)
	}
	return cpu, system, kernel, memoryBytes
}

// fileField returns the value of the first line of a file that has the key.
func fileField(path, key, separator string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if k, v, ok := strings.Cut(in.Text(), separator); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// fileSystems names the file systems by the type that statfs returns.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.RAMFS_MAGIC:           "ramfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.FUSE_SUPER_MAGIC:      "fuse",
	unix.V9FS_MAGIC:            "9p",
	unix.CIFS_SUPER_MAGIC:      "cifs",
	0x2fc12fc1:                 "zfs",
}

func fileSystem(path string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return "", err
	}
	if name, ok := fileSystems[int64(s.Type)]; ok {
		return name, nil
	}
	return fmt.Sprintf("type %#x", s.Type), nil
}

func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
