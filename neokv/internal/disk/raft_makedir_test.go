package disk

import (
	"math/rand/v2"
	"testing"

	"neokv.dev/neokv/fault"
)

// TestRaftMakesFoldersOfAFailedDisk creates a file in a folder that is in memory, on a disk that cannot be read. The
// Raft library, which ends the process if it gets an error, gets none. The file system is fenced.
func TestRaftMakesFoldersOfAFailedDisk(t *testing.T) {
	const part, folder = "/raft/snapshot-part-3", "/raft/snapshot-part-3/snapshot-3-1"
	for _, dir := range []string{folder, folder + "/snapshot-0000000000000005"} {
		fs := Mem()
		if err := MakeDir(fs, part); err != nil {
			t.Fatal(err)
		}
		r := fs.raft("vm")
		if err := r.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		fs.SetDrive(fault.Drive{ReadErrors: true}, rand.New(rand.NewPCG(1, 1)))
		f, err := r.Create(dir + "/DELETED.dragonboat")
		if err != nil {
			t.Errorf("create in %s: %v", dir, err)
			continue
		}
		if err := f.Close(); err != nil || fs.Failed() == nil {
			t.Errorf("close: %v; the file system has failed: %v", err, fs.Failed())
		}
	}
}
