package pve

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/tests/lab/world"
)

func accessRoutes() []route {
	return append(accountRoutes(), []route{
		{
			method: "POST", path: "/access/ticket", open: true,
			params: parameters("username! password! otp realm path privs new-format:bool tfa-challenge"), handle: login,
		},
		{method: "GET", path: "/access/ticket", open: true, handle: answerNull},
		{method: "GET", path: "/access/domains", open: true, handle: domains},
		{method: "GET", path: "/access/permissions", params: parameters("path userid"), handle: permissions},
		{method: "GET", path: "/access/users", params: parameters("enabled:bool full:bool"), handle: users},
		{method: "GET", path: "/access/groups", handle: empty},
		{method: "GET", path: "/access/roles", handle: roles},
		{method: "GET", path: "/access/roles/{role}", handle: role},
		{method: "GET", path: "/version", handle: version},
	}...)
}

func answerNull(*request) (any, error) { return nil, nil } //nolint:nilnil // Proxmox VE answers null

func login(r *request) (any, error) {
	user := r.values.Get("username")
	if realm := r.values.Get("realm"); realm != "" {
		user += "@" + realm
	}

	t, err := r.world.Login(user, r.values.Get("password"))
	if err != nil {
		return nil, err
	}

	return map[string]any{
		"username": t.Username, "ticket": t.Ticket, "CSRFPreventionToken": t.CSRF, "clustername": clusterName,
		"cap": map[string]any{},
	}, nil
}

func domains(*request) (any, error) {
	return []map[string]any{
		{"realm": "pam", "type": "pam", "comment": "Linux PAM standard authentication"},
		{"realm": "pve", "type": "pve", "comment": "Proxmox VE authentication server"},
	}, nil
}

func permissions(r *request) (any, error) {
	id := cmp.Or(r.values.Get("userid"), r.caller.ID)

	if owner, _, _ := strings.Cut(id, "!"); id != r.caller.ID && owner != r.caller.ID {
		if err := r.world.Require(r.caller, "/access", "Sys.Audit"); err != nil {
			return nil, err
		}
	}

	held := r.world.Permissions(id)
	if path := r.values.Get("path"); path != "" {
		held = map[string][]string{path: r.world.PermissionsOn(id, path)}
	}

	out := map[string]map[string]int{}

	for path, list := range held {
		out[path] = map[string]int{}
		for _, p := range list {
			out[path][p] = 1 // and below it, as all that the lab grants
		}
	}

	return out, nil
}

func version(r *request) (any, error) {
	v := r.world.Version()

	return map[string]any{"release": v.Release(), "version": v, "repoid": v.RepoID()}, nil
}

// users shows what user.cfg has of users.
func users(r *request) (any, error) {
	out := []map[string]any{}

	for _, id := range r.world.Users(r.caller) {
		u, err := r.world.User(id)
		if err != nil {
			return nil, err
		}

		_, realm, _ := strings.Cut(id, "@")
		entry := userEntry(u)
		entry["userid"], entry["realm-type"] = id, realm
		out = append(out, entry)
	}

	return out, nil
}

func userEntry(u world.User) map[string]any {
	entry := map[string]any{"enable": 1, "expire": u.Expire}
	if u.Disabled {
		entry["enable"] = 0
	}

	optional(entry, "comment", u.Comment)
	optional(entry, "email", u.Email)
	optional(entry, "firstname", u.FirstName)
	optional(entry, "lastname", u.LastName)
	optional(entry, "keys", u.Keys)

	return entry
}

func roles(r *request) (any, error) {
	out, all := []map[string]any{}, r.world.Roles()

	for _, id := range slices.Sorted(maps.Keys(all)) {
		entry := map[string]any{"roleid": id, "privs": strings.Join(all[id], ",")}
		if r.world.Predefined(id) {
			entry["special"] = 1
		}

		out = append(out, entry)
	}

	return out, nil
}

func role(r *request) (any, error) {
	list, err := r.world.Role(r.vars["role"])
	if err != nil {
		return nil, err
	}

	out := map[string]int{}
	for _, p := range list {
		out[p] = 1
	}

	return out, nil
}
