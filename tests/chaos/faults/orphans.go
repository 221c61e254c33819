package faults

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// EndOrphans ends the plugins that have outlived their CLI: those whose binary is below a directory of the harness's
// own. Where processes are not shown as files, they are left.
func EndOrphans(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}

	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}

	var errs []error

	for _, file := range processes {
		// One that has ended meanwhile has none.
		line, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(line, []byte(dir+string(filepath.Separator))) {
			continue
		}

		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
				errs = append(errs, err)
			}
		}
	}

	return errors.Join(errs...)
}
