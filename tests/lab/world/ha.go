package world

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// HAGroup is a group of hosts that high availability prefers for what is in it.
type HAGroup struct {
	Name string
	// Nodes are host names, each with a priority if it has one: "pve1:2".
	Nodes                  []string
	Comment                string
	Restricted, NoFailback bool
}

// HAResource is a VM that high availability looks after.
type HAResource struct {
	// SID is "vm:401".
	SID string
	// State is what is asked for: started, stopped, enabled, disabled or ignored; empty: started.
	State          string
	Group, Comment string
	// MaxRestart and MaxRelocate are nil when not set.
	MaxRestart, MaxRelocate *int
}

var haStates = oneOf("started", "stopped", "enabled", "disabled", "ignored")

// HAGroups returns the groups by name.
func (w *World) HAGroups() ([]HAGroup, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := w.noGroups("cannot index groups"); err != nil {
		return nil, err
	}

	return slices.SortedFunc(slices.Values(w.groups), func(a, b HAGroup) int { return strings.Compare(a.Name, b.Name) }), nil
}

// HAGroup returns one group.
func (w *World) HAGroup(name string) (HAGroup, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := w.noGroups("cannot read group"); err != nil {
		return HAGroup{}, err
	}

	i := slices.IndexFunc(w.groups, func(g HAGroup) bool { return g.Name == name })
	if i < 0 {
		return HAGroup{}, failf("no such ha group '%s'", name)
	}

	return w.groups[i], nil
}

func (w *World) hasGroup(name string) bool {
	return slices.ContainsFunc(w.groups, func(g HAGroup) bool { return g.Name == name })
}

// HAView is a resource as it is shown: with a remark when its group is none.
type HAView struct {
	HAResource
	Digest     string
	GroupError string
}

// HAResources returns what high availability looks after, by number.
func (w *World) HAResources() []HAView {
	w.mu.Lock()
	defer w.mu.Unlock()

	var list []HAView

	for _, id := range sortedKeys(w.ha) {
		list = append(list, w.haView(w.ha[id]))
	}

	return list
}

func (w *World) haView(r *HAResource) HAView {
	h := sha1.New()
	for _, id := range sortedKeys(w.ha) {
		fmt.Fprintf(h, "%+v\n", *w.ha[id])
	}

	v := HAView{HAResource: *r, Digest: hex.EncodeToString(h.Sum(nil))}
	if r.Group != "" && !w.hasGroup(r.Group) {
		v.GroupError = fmt.Sprintf("group '%s' does not exist", r.Group)
	}

	return v
}

// HAResource returns one resource.
func (w *World) HAResource(sid string) (HAView, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	id, sid, err := w.parseSID(sid)
	if err != nil {
		return HAView{}, err
	}

	if w.ha[id] == nil {
		return HAView{}, failf("no such resource '%s'", sid)
	}

	return w.haView(w.ha[id]), nil
}

var serviceID = regexp.MustCompile(`^([a-z]+):(\S+)$`)

// parseSID reads "vm:401", or the number alone when there is such a VM. The number is 0 for what is no VM.
func (w *World) parseSID(sid string) (int, string, error) {
	if n, err := strconv.Atoi(sid); err == nil {
		if w.vms[n] == nil {
			return 0, sid, failf("unable do detect SID from VMID - VM/CT %d does not exist", n)
		}

		return n, fmt.Sprintf("vm:%d", n), nil
	}

	m := serviceID.FindStringSubmatch(sid)
	if m == nil {
		return 0, sid, Invalid("sid", "invalid format - value does not look like a valid ha resource id")
	}

	n, _ := strconv.Atoi(m[2])
	if m[1] != "vm" {
		n = 0
	}

	return n, sid, nil
}

func (r HAResource) verify() error {
	for field, n := range map[string]*int{"max_restart": r.MaxRestart, "max_relocate": r.MaxRelocate} {
		if n != nil && *n < 0 {
			return Invalid(field, "value must have a minimum value of 0")
		}
	}

	for field, c := range map[string]struct {
		schema
		value string
	}{"state": {haStates, r.State}, "group": {configID, r.Group}} {
		if wrong := c.complaint(field, c.value); c.value != "" && wrong != "" {
			return Invalid(field, "%s", wrong)
		}
	}

	return nil
}

// CreateHAResource puts a VM under the care of high availability. That its group exists is not checked: it shows
// when the resource is listed or changed (pve-ha-manager 4: API2/HA/Resources.pm).
func (w *World) CreateHAResource(r HAResource) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := r.verify(); err != nil {
		return err
	}

	id, sid, err := w.parseSID(r.SID)
	if err == nil && r.Group != "" {
		err = w.noGroups("invalid parameter 'group'")
	}

	switch {
	case err != nil:
		return err
	case w.vms[id] == nil:
		return failf("resource '%s' does not exist in cluster", sid)
	case w.ha[id] != nil:
		return failf("create resource failed: resource ID '%s' already defined", sid)
	}

	r.SID = sid
	w.ha[id] = &r
	w.enforce(id)

	return nil
}

// HAUpdate changes a resource. What is nil stays.
type HAUpdate struct {
	State, Group, Comment   *string
	MaxRestart, MaxRelocate *int
	Delete                  []string
	Digest                  string
}

// UpdateHAResource changes what high availability does with a VM.
func (w *World) UpdateHAResource(sid string, u HAUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	id, sid, err := w.parseSID(sid)
	if err != nil {
		return err
	}

	next := HAResource{SID: sid}
	if r := w.ha[id]; r != nil {
		next = *r
	}

	set(&next.State, u.State)
	set(&next.Group, u.Group)
	set(&next.Comment, u.Comment)

	if u.MaxRestart != nil {
		next.MaxRestart = u.MaxRestart
	}

	if u.MaxRelocate != nil {
		next.MaxRelocate = u.MaxRelocate
	}

	err = next.verify()
	if err == nil && u.Group != nil && *u.Group != "" {
		err = w.noGroups("invalid parameter 'group'")
	}

	switch {
	case err != nil:
		return err
	case u.Group != nil && *u.Group != "" && !w.hasGroup(*u.Group):
		return failf("HA group '%s' does not exist", *u.Group)
	case w.ha[id] == nil:
		return failf("update resources config failed: no such resource '%s'", sid)
	case u.Digest != "" && u.Digest != w.haView(w.ha[id]).Digest:
		return failf(
			"update resources config failed: detected modified configuration - file changed by other user? Try again.")
	}

	for _, name := range u.Delete {
		switch name {
		case "state":
			next.State = ""
		case "group":
			next.Group = ""
		case "comment":
			next.Comment = ""
		case "max_restart":
			next.MaxRestart = nil
		case "max_relocate":
			next.MaxRelocate = nil
		default:
			return failf("update resources config failed: no such option '%s'", name)
		}
	}

	*w.ha[id] = next
	w.enforce(id)

	return nil
}

func set(value, to *string) {
	if to != nil {
		*value = *to
	}
}

// DeleteHAResource takes a VM out of the care of high availability. The VM stays as it is.
func (w *World) DeleteHAResource(sid string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	id, sid, err := w.parseSID(sid)
	if err != nil {
		return err
	}

	if w.ha[id] == nil {
		return failf("cannot delete service '%s', not HA managed!", sid)
	}

	delete(w.ha, id)
	w.leaveRules(id)

	return nil
}

// managed tells whether calls about a VM's power go through high availability.
func (w *World) managed(id int) bool { return w.ha[id] != nil && w.ha[id].State != "ignored" }

// wanted tells whether a managed VM is to run.
func (w *World) wanted(id int) bool {
	return w.managed(id) && slices.Contains([]string{"", "started", "enabled"}, w.ha[id].State)
}

// haStatus is what high availability makes of a VM, empty when it is not managed.
func (w *World) haStatus(id int) (group, state string) {
	if !w.managed(id) {
		return "", ""
	}

	running := w.vms[id] != nil && w.vms[id].run != nil

	switch {
	case w.wanted(id) && running:
		state = "started"
	case w.wanted(id):
		state = "starting"
	case running:
		state = "request_stop"
	default:
		state = "stopped"
	}

	return w.ha[id].Group, state
}

// enforce starts or stops a managed VM that is not as it should be, in a task of its own as the resource manager does.
// Whoever has the VM's lock file is not disturbed. The world is locked.
func (w *World) enforce(id int) {
	v := w.vms[id]
	if v == nil || !w.managed(id) || w.closed || len(v.busy) > 0 || w.wanted(id) == (v.run != nil) {
		return
	}

	kind, act := "qmshutdown", func(t *task, v *vm) error { return w.shutdown(t, v, ShutdownRequest{Force: true}) }

	if w.wanted(id) {
		kind, act = "qmstart", func(t *task, v *vm) error {
			w.mu.Lock()
			running := v.run != nil
			w.mu.Unlock()

			if running {
				return nil
			}

			return w.powerOn(t, v)
		}
	}

	host := v.host

	w.start(Caller{ID: superuser}, job{node: host, kind: kind, id: strconv.Itoa(id), work: func(t *task) error {
		return t.withVM(host, id, func(v *vm) error { return act(t, v) })
	}})
}

// throughHA asks high availability for a state of a VM, if it manages it: the task ends once that is asked, not when it
// is done.
func (w *World) throughHA(c Caller, host string, id int, kind, state string) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, err := w.find(host, id); err != nil || !w.managed(id) {
		return "", false
	}

	return w.start(c, job{node: host, kind: kind, id: strconv.Itoa(id), work: func(*task) error {
		w.mu.Lock()
		defer w.mu.Unlock()

		if r := w.ha[id]; r != nil {
			r.State = state
			w.enforce(id)
		}

		return nil
	}}), true
}
