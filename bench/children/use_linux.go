package children

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ticks is how many ticks /proc counts a second: USER_HZ, which is 100 on every Linux that Go knows.
const ticks = 100

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

// descendants returns a process, its children, their children, and so on, each as /proc names it.
func descendants(pid int) []string {
	family := []string{strconv.Itoa(pid)}
	for i := 0; i < len(family); i++ {
		lists, _ := filepath.Glob("/proc/" + family[i] + "/task/*/children") // of each of its threads
		for _, name := range lists {
			text, _ := os.ReadFile(name) // the thread may have ended
			family = append(family, strings.Fields(string(text))...)
		}
	}
	return family
}

func useOf(pids []string) (sum Usage, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return Usage{}, err
		}
		io, err := os.ReadFile("/proc/" + pid + "/io")
		if err != nil {
			return Usage{}, err
		}
		use, err := parseStat(string(stat))
		if err == nil {
			use.DiskReads, err = parseIO(string(io))
		}
		if err != nil {
			return Usage{}, fmt.Errorf("/proc/%s: %w", pid, err)
		}
		sum.add(use)
	}
	return sum, nil
}

// parseStat reads a line of /proc/PID/stat; proc_pid_stat(5) numbers its fields.
func parseStat(line string) (u Usage, err error) {
	// The second field is a name in parentheses, which may itself have spaces and parentheses.
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	const third, utime, cstime, rss = 3, 14, 17, 24
	if len(fields) <= rss-third {
		return u, fmt.Errorf("%q: want at least %d fields", line, rss)
	}
	number := func(field int) int64 {
		n, wrong := strconv.ParseInt(fields[field-third], 10, 64)
		err = errors.Join(err, wrong)
		return n
	}
	for field := utime; field <= cstime; field++ { // of the process, and of children that it has waited for
		u.CPU += time.Duration(number(field)) * time.Second / ticks
	}
	u.Memory = number(rss) * int64(os.Getpagesize())
	return u, err
}

// parseIO reads /proc/PID/io, which proc_pid_io(5) describes. Reads of children that have ended are in it.
func parseIO(text string) (diskReads int64, err error) {
	_, field, found := strings.Cut(text, "\nread_bytes: ")
	field, _, ended := strings.Cut(field, "\n")
	if diskReads, err = strconv.ParseInt(field, 10, 64); !found || !ended || err != nil {
		return 0, fmt.Errorf("io: %q: want read_bytes", text)
	}
	return diskReads, nil
}
