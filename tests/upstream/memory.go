package upstream

import (
	"os"
	"runtime"
	"syscall"
)

// maxResident is the most memory that a process had, in bytes. Linux counts it in kilobytes.
func maxResident(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}

	if runtime.GOOS == "linux" {
		return usage.Maxrss << 10
	}

	return usage.Maxrss
}
