package results

import "os"

// systemFacts knows nothing of Windows beside its name.
func systemFacts() (cpu, system, kernel string, memoryBytes uint64) { return "", "Windows", "", 0 }

func fileSystem(string) (string, error) { return "a file system of Windows", nil }

func syncData(f *os.File) error { return f.Sync() }
