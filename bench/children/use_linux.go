package children

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// tick is the unit of CPU time in /proc, by USER_HZ, which is 100 on every Linux that Go knows.
const tick = time.Second / 100

// processUse returns what a process and its descendants use. Those that have ended count with the process that has
// waited for them.
func processUse(pid int) (sum Usage, err error) {
	family := descendants(pid)
	for range 10 {
		sum, err = useOf(family)
		// One that ended meanwhile was perhaps counted twice or not at all: look again.
		before := family
		if family = descendants(pid); slices.Equal(before, family) {
			break
		}
	}
	return sum, err
}

// descendants returns a process, its children, their children, and so on.
func descendants(pid int) []int {
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", family[i])) // of each of its threads
		for _, name := range lists {
			text, _ := os.ReadFile(name) // the thread may have ended
			for child := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(child); err == nil {
					family = append(family, pid)
				}
			}
		}
	}
	return family
}

func useOf(pids []int) (sum Usage, err error) {
	for _, pid := range pids {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return Usage{}, err
		}
		stat, err := process.Stat()
		if err != nil {
			return Usage{}, err
		}
		io, err := process.IO() // has the reads of children that have ended
		if err != nil {
			return Usage{}, err
		}
		sum.add(Usage{
			CPU:    time.Duration(int(stat.UTime+stat.STime)+stat.CUTime+stat.CSTime) * tick,
			Memory: int64(stat.ResidentMemory()), DiskReads: int64(io.ReadBytes),
		})
	}
	return sum, nil
}
