package pve

import (
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/world"
)

func taskRoutes() []route {
	path := "/nodes/{node}/tasks"

	return []route{
		{
			method: "GET", path: path, params: parameters("start:int limit:int vmid:int source errors:bool typefilter"),
			handle: nodeTasks,
		},
		{method: "GET", path: path + "/{upid}/status", handle: taskStatus},
		{method: "GET", path: path + "/{upid}/log", params: parameters("start:int limit:int"), handle: taskLog},
		{method: "DELETE", path: path + "/{upid}", handle: stopTask},
	}
}

// ownTask lets everybody see their own tasks, and auditors all.
func ownTask(r *request, privilege string) (world.TaskInfo, error) {
	t, err := r.world.Task(r.vars["node"], r.vars["upid"])
	if err != nil || t.User == r.caller.ID {
		return t, err
	}

	return t, r.world.Require(r.caller, "/nodes/"+r.vars["node"], privilege)
}

func taskStatus(r *request) (any, error) {
	t, err := ownTask(r, "Sys.Audit")
	if err != nil {
		return nil, err
	}

	out := taskEntry(t)
	out["status"] = "running"

	if !t.End.IsZero() {
		out["status"], out["exitstatus"] = "stopped", t.ExitStatus
	}

	delete(out, "endtime")

	return out, nil
}

func taskEntry(t world.TaskInfo) map[string]any {
	user, token, _ := strings.Cut(t.User, "!")
	out := map[string]any{
		"upid": t.UPID, "node": t.Node, "pid": t.PID, "pstart": t.PStart, "starttime": t.Start.Unix(), "type": t.Type,
		"id": t.ID, "user": user,
	}
	optional(out, "tokenid", token)

	if !t.End.IsZero() {
		out["endtime"] = t.End.Unix()
	}

	return out
}

// taskList is how lists show tasks: the exit status is the status.
func taskList(tasks []world.TaskInfo) []map[string]any {
	out := []map[string]any{}

	for _, t := range tasks {
		entry := taskEntry(t)
		if !t.End.IsZero() {
			entry["status"] = t.ExitStatus
		}

		out = append(out, entry)
	}

	return out
}

// nodeTasks lists the tasks of a host; without a source, those that have ended (pve-manager: PVE/API2/Tasks.pm).
func nodeTasks(r *request) (any, error) {
	var list []world.TaskInfo

	id, kind, source := r.values.Get("vmid"), r.values.Get("typefilter"), r.values.Get("source")
	auditor := r.world.Require(r.caller, "/nodes/"+r.vars["node"], "Sys.Audit") == nil

	for _, t := range r.world.Tasks(r.vars["node"]) {
		running := t.End.IsZero()

		switch {
		case !auditor && t.User != r.caller.ID:
		case id != "" && t.ID != id, kind != "" && t.Type != kind:
		case source == "active" && !running, (source == "" || source == "archive") && running:
		default:
			list = append(list, t)
		}
	}

	start, limit := window(r, len(list))

	out := taskList(list[start : start+limit])
	for _, entry := range out {
		if entry["status"] == nil {
			entry["status"] = "RUNNING"
		}
	}

	return out, nil
}

// window is the part of a list that start and limit ask for.
func window(r *request, length int) (int, int) {
	start := min(max(r.values.number("start"), 0), length)
	limit := 50

	if n, err := strconv.Atoi(r.values.Get("limit")); err == nil && n > 0 {
		limit = n
	}

	return start, min(limit, length-start)
}

func taskLog(r *request) (any, error) {
	if _, err := ownTask(r, "Sys.Audit"); err != nil {
		return nil, err
	}

	lines, err := r.world.TaskLog(r.vars["node"], r.vars["upid"])
	if err != nil {
		return nil, err
	}

	out := []map[string]any{}
	start, limit := window(r, len(lines))

	for i, line := range lines[start : start+limit] {
		out = append(out, map[string]any{"n": start + i + 1, "t": line})
	}

	return out, nil
}

func stopTask(r *request) (any, error) {
	if _, err := ownTask(r, "Sys.Modify"); err != nil {
		return nil, err
	}

	return nil, r.world.StopTask(r.vars["node"], r.vars["upid"])
}
