package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// allowed tells whether a caller has a privilege: the grant on the longest path decides, and members of a pool also
// have what is granted on the pool.
func (w *World) allowed(id, path, privilege string) bool {
	if id == superuser {
		return true
	}

	// A token that was made here depends on what its user may do.
	if t, made := w.access.attributes[id]; made {
		user, _, _ := strings.Cut(id, "!")

		if may := w.allowed(user, path, privilege); !may || !t.Separated {
			return may
		}
	}

	if slices.Contains(w.access.on(id, path), privilege) {
		return true
	}

	var vmid int
	if _, err := fmt.Sscanf(path, "/vms/%d", &vmid); err == nil {
		for name, p := range w.pools {
			if p.vms[vmid] && slices.Contains(w.access.on(id, "/pool/"+name), privilege) {
				return true
			}
		}
	}

	return false
}

func (a *access) on(id, path string) []string {
	grants := a.grantsOf(id)

	for {
		if p, ok := grants[path]; ok {
			return p
		}

		i := strings.LastIndex(path, "/")
		switch {
		case path == "/" || i < 0:
			return nil
		case i == 0:
			path = "/"
		default:
			path = path[:i]
		}
	}
}

// grantsOf are the privileges of a user or a token by path: what it was granted, and what its roles on it give.
func (a *access) grantsOf(id string) map[string][]string {
	grants := a.grants[id]

	for _, g := range a.given {
		if g.ID != id {
			continue
		}

		if grants = maps.Clone(grants); grants == nil {
			grants = map[string][]string{}
		}

		list, _ := a.role(g.Role)
		grants[g.Path] = unique(slices.Concat(grants[g.Path], list))
	}

	return grants
}

// need asks for a privilege. The world is locked.
func (w *World) need(c Caller, path, privilege string) error {
	if w.allowed(c.ID, path, privilege) {
		return nil
	}

	return denied(path + ", " + privilege)
}

// needAny asks for one of several privileges, of which a version may not know some. The world is locked.
func (w *World) needAny(c Caller, path string, privileges ...string) error {
	known := w.version.Privileges()
	privileges = slices.DeleteFunc(slices.Clone(privileges), func(p string) bool { return !slices.Contains(known, p) })

	for _, p := range privileges {
		if w.allowed(c.ID, path, p) {
			return nil
		}
	}

	return denied(path + ", " + strings.Join(privileges, "|"))
}

// Require refuses a caller that has none of the privileges.
func (w *World) Require(c Caller, path string, privileges ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.needAny(c, path, privileges...)
}

// Permissions returns the caller's privileges by path, as pve-access-control lists them: on the top of the tree,
// wherever something was granted, and on members of pools; a path with nothing on it is left out.
func (w *World) Permissions(id string) map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()

	paths := map[string]bool{}
	for _, path := range []string{"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"} {
		paths[path] = true
	}

	user, _, _ := strings.Cut(id, "!")

	for _, holder := range []string{id, user} {
		for path := range w.access.grantsOf(holder) {
			paths[path] = true
		}
	}

	for _, p := range w.pools {
		for vmid := range p.vms {
			paths[fmt.Sprintf("/vms/%d", vmid)] = true
		}
	}

	all := map[string][]string{}

	for path := range paths {
		if p := w.privileges(id, path); len(p) > 0 {
			all[path] = p
		}
	}

	return all
}

// PermissionsOn returns the caller's privileges on one path.
func (w *World) PermissionsOn(id, path string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.privileges(id, path)
}

func (w *World) privileges(id, path string) []string {
	return slices.DeleteFunc(w.version.Privileges(), func(name string) bool { return !w.allowed(id, path, name) })
}

// denied is what Proxmox VE answers without the privilege.
func denied(what string) *Error {
	return &Error{Code: 403, Reason: "Permission check failed (" + what + ")"}
}
