package world

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// task is one of Proxmox VE's worker processes.
type task struct {
	ctx    context.Context
	cancel context.CancelFunc
	world  *World

	TaskInfo
	lines []string
}

// TaskInfo is what is known of a task.
type TaskInfo struct {
	UPID   string
	Node   string
	PID    int
	PStart int
	Type   string
	ID     string
	User   string
	Start  time.Time
	// End is zero while the task runs.
	End time.Time
	// ExitStatus is "OK" or the error, empty while the task runs.
	ExitStatus string
}

// job is what a task is to do.
type job struct {
	node, kind, id string
	work           func(*task) error
	// undo puts back what was reserved for the work, when the work fails or is made to fail. It may be nil, and is called
	// with the world locked.
	undo func()
}

// start runs a job as a task. The world is locked.
func (w *World) start(c Caller, j job) string {
	w.counter++

	t := &task{world: w, TaskInfo: TaskInfo{
		Node: j.node, PID: 1000 + w.counter, PStart: 100000 + w.counter, Type: j.kind, ID: j.id, User: c.ID,
		Start: time.Now(),
	}}
	t.UPID = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", t.Node, t.PID, t.PStart, t.Start.Unix(), t.Type, t.ID, t.User)
	t.ctx, t.cancel = context.WithCancel(w.ctx)
	w.tasks[t.UPID] = t

	if w.closed {
		t.cancel()
		t.finish(context.Canceled)

		return t.UPID
	}

	w.wait.Add(1)

	go func() {
		defer w.wait.Done()
		defer t.cancel()

		done, err := t.run(c.Task, j.work)

		w.mu.Lock()
		defer w.mu.Unlock()

		if !done && j.undo != nil {
			j.undo()
		}

		t.finish(err)
	}()

	return t.UPID
}

// run does the work unless a fault comes before it, and tells whether it was done.
func (t *task) run(fault *TaskFault, work func(*task) error) (bool, error) {
	if fault != nil && fault.Hang > 0 {
		select {
		case <-t.ctx.Done():
			return false, t.ctx.Err()
		case <-time.After(fault.Hang):
		}

		fault = nil
	}

	if fault != nil && !fault.Late {
		return false, failf("%s", fault.Message)
	}

	if err := work(t); err != nil {
		return false, err
	}

	if fault != nil {
		return true, failf("%s", fault.Message)
	}

	return true, nil
}

// finish is called with the world locked.
func (t *task) finish(err error) {
	t.End = time.Now()
	t.ExitStatus = "OK"

	switch {
	case t.ctx.Err() != nil && err != nil:
		t.ExitStatus = "interrupted by signal"
	case err != nil:
		// An exit status is one line, whatever the complaint was.
		t.ExitStatus = strings.ReplaceAll(err.Error(), "\n", " ")
	}

	if warnings := t.warnings(); err == nil && warnings > 0 {
		t.ExitStatus = fmt.Sprintf("WARNINGS: %d", warnings)
		t.lines = append(t.lines, "TASK "+t.ExitStatus)
	} else if err == nil {
		t.lines = append(t.lines, "TASK OK")
	} else {
		t.lines = append(t.lines, "TASK ERROR: "+t.ExitStatus)
	}
}

// warnings are how many lines of the log warn of something.
func (t *task) warnings() int {
	count := 0

	for _, line := range t.lines {
		if strings.HasPrefix(line, "WARN: ") {
			count++
		}
	}

	return count
}

func (t *task) log(format string, args ...any) {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

func (w *World) findTask(node, upid string) (*task, error) {
	// A client may escape the "!" of a token's user once more than needed.
	if plain, err := url.PathUnescape(upid); err == nil {
		upid = plain
	}

	if parts := strings.Split(upid, ":"); len(parts) < 8 || parts[0] != "UPID" {
		return nil, Invalid("upid", "unable to parse worker upid")
	}

	t, ok := w.tasks[upid]
	if !ok || t.Node != node {
		return nil, Invalid("upid", "no such task")
	}

	return t, nil
}

// Task returns what is known of a task.
func (w *World) Task(node, upid string) (TaskInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	t, err := w.findTask(node, upid)
	if err != nil {
		return TaskInfo{}, err
	}

	return t.TaskInfo, nil
}

// TaskLog returns the lines a task has printed so far.
func (w *World) TaskLog(node, upid string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	t, err := w.findTask(node, upid)
	if err != nil {
		return nil, err
	}

	return slices.Clone(t.lines), nil
}

// StopTask interrupts a task; one that has ended stays as it is.
func (w *World) StopTask(node, upid string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	t, err := w.findTask(node, upid)
	if err != nil {
		return err
	}

	t.cancel()

	return nil
}

// Tasks lists the tasks of a host, or of all hosts when none is named, newest first.
func (w *World) Tasks(node string) []TaskInfo {
	w.mu.Lock()
	defer w.mu.Unlock()

	var list []TaskInfo

	for _, t := range w.tasks {
		if node == "" || t.Node == node {
			list = append(list, t.TaskInfo)
		}
	}

	slices.SortFunc(list, func(a, b TaskInfo) int { return b.PID - a.PID })

	return list
}

// pass lets the time of a VM's work go by, after what the VM did before.
func (t *task) pass(name string, d time.Duration, v *vm) error {
	w := t.world

	w.mu.Lock()
	after := v.span
	subject := v.subject()
	w.mu.Unlock()

	span, err := w.timeline.Wait(t.ctx, name, subject, d, after)
	if err != nil {
		return err
	}

	w.mu.Lock()
	v.span = span
	w.mu.Unlock()

	return nil
}
