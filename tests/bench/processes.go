package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Process is what a process is.
type Process string

// The processes of a command.
const (
	Engine  Process = "engine"
	Program Process = "program"
	Proxmox Process = "proxmoxve plugin"
	Talos   Process = "talos plugin"
)

// executables by their names.
var executables = map[string]Process{
	"pulumi": Engine, program: Program, "pulumi-resource-proxmoxve": Proxmox, "pulumi-resource-talos": Talos,
}

// program is what the compiled program is called.
const program = "program"

// watch notes what the processes use that run with a backend, until it is stopped. It reads /proc; where there is none,
// it sees nothing.
type watch struct {
	backend string
	mu      sync.Mutex
	seen    map[int]seen // by process id
	stop    chan struct{}
	done    sync.WaitGroup
}

type seen struct {
	process Process
	use     Use
}

// often is how often it looks. The kernel keeps the peak of the memory itself: only what a process does at its very end
// is missed.
const often = 250 * time.Millisecond

func newWatch(backend string) *watch {
	w := &watch{backend: backend, seen: map[int]seen{}, stop: make(chan struct{})}

	w.done.Go(func() {
		ticker := time.NewTicker(often)
		defer ticker.Stop()

		for {
			select {
			case <-w.stop:
				return
			case <-ticker.C:
				w.look(os.Getpid())
			}
		}
	})

	return w
}

func (w *watch) close() {
	close(w.stop)
	w.done.Wait()
}

// take returns what was used since the last time.
func (w *watch) take() map[Process]Use {
	w.mu.Lock()
	defer w.mu.Unlock()

	used := map[Process]Use{}

	for id, s := range w.seen {
		u := used[s.process]
		u.PeakMiB = max(u.PeakMiB, s.use.PeakMiB)
		u.CPU += s.use.CPU
		used[s.process] = u

		delete(w.seen, id)
	}

	return used
}

// look visits a process and those that it started.
func (w *watch) look(id int) {
	dir := filepath.Join("/proc", strconv.Itoa(id))

	if link, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it has ended
		name, _, _ := strings.Cut(string(args), "\x00")

		// What is started by a link is called after the link.
		process, known := executables[filepath.Base(name)]
		if !known {
			process, known = executables[filepath.Base(link)]
		}

		if known && w.ours(dir) {
			w.note(id, process, dir)
		}
	}

	children, _ := filepath.Glob(filepath.Join(dir, "task", "*", "children")) // the pattern is good
	for _, file := range children {
		text, _ := os.ReadFile(file) // it has ended
		for _, child := range strings.Fields(string(text)) {
			if id, err := strconv.Atoi(child); err == nil {
				w.look(id)
			}
		}
	}
}

// ours says whether a process runs with the backend: those of other stacks are not ours.
func (w *watch) ours(dir string) bool {
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))

	return err == nil && strings.Contains(string(environment), "\x00PULUMI_HOME="+w.backend)
}

func (w *watch) note(id int, process Process, dir string) {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return
	}

	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return
	}

	s := seen{process: process, use: Use{PeakMiB: peak(string(status)), CPU: computed(string(stat))}}
	if s.use.PeakMiB == 0 {
		return // it has ended
	}

	w.mu.Lock()
	w.seen[id] = s
	w.mu.Unlock()
}

// peak is the line VmHWM of a process's status, in MiB.
func peak(status string) int {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			var kiB int
			if _, err := fmt.Sscanf(value, "%d kB", &kiB); err == nil {
				return kiB >> 10
			}
		}
	}

	return 0
}

// computed is the fourteenth and fifteenth field of a process's stat, in hundredths of a second. The second one, the
// name, may hold blanks.
func computed(stat string) time.Duration {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}

	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0
	}

	system, err := strconv.Atoi(fields[12])
	if err != nil {
		return 0
	}

	return time.Duration(user+system) * 10 * time.Millisecond
}
