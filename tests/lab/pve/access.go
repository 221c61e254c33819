package pve

import (
	"maps"
	"slices"
	"strings"

	"talos-proxmox/tests/lab/world"
)

func accessRoutes() []route {
	return []route{
		{
			method: "POST", path: "/access/ticket", open: true,
			params: parameters("username! password! otp realm path privs new-format:bool tfa-challenge"), handle: login,
		},
		{method: "GET", path: "/access/ticket", open: true, handle: nothing},
		{method: "GET", path: "/access/domains", open: true, handle: domains},
		{method: "GET", path: "/access/permissions", params: parameters("path userid"), handle: permissions},
		{method: "GET", path: "/access/users", params: parameters("enabled:bool full:bool"), handle: users},
		{method: "GET", path: "/access/groups", handle: empty},
		{method: "GET", path: "/access/roles", handle: roles},
		{method: "GET", path: "/access/roles/{role}", handle: role},
		{method: "GET", path: "/version", handle: version},
	}
}

func nothing(*request) (any, error) { return nil, nil } //nolint:nilnil // Proxmox VE answers null

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
		{"realm": "pve", "type": "pve", "comment": "Proxmox VE authentication server", "default": 1},
	}, nil
}

func permissions(r *request) (any, error) {
	held := r.world.Permissions(r.caller.ID)
	if path := r.values.Get("path"); path != "" {
		held = map[string][]string{path: r.world.PermissionsOn(r.caller.ID, path)}
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

// users shows what user.cfg has of users: the lab's have no name, no mail and no end.
func users(r *request) (any, error) {
	out := []map[string]any{}

	for _, user := range r.world.Users(r.caller) {
		_, realm, _ := strings.Cut(user, "@")
		out = append(out, map[string]any{"userid": user, "enable": 1, "expire": 0, "realm-type": realm})
	}

	return out, nil
}

// predefined are the roles that every Proxmox VE has (pve-access-control: create_roles). There are no others: a lab's
// grants are privileges, not roles.
func predefined(v world.Version) map[string][]string {
	admin, user, audit := "Allocate Clone Migrate Monitor Snapshot Snapshot.Rollback", "", ""
	if v.Major() > 8 {
		admin = "Allocate Clone GuestAgent.Unrestricted Migrate Replicate Snapshot Snapshot.Rollback"
		user, audit = " GuestAgent.FileRead GuestAgent.FileSystemMgmt GuestAgent.FileWrite", " GuestAgent.Audit"
	}

	configure := privileges("VM", "Config.CPU Config.Disk Config.HWType Config.Memory Config.Network Config.Options")
	vmAudit := privileges("VM", "Audit"+audit)
	vmUser := slices.Concat(vmAudit, privileges("VM", "Backup Config.CDROM Config.Cloudinit Console PowerMgmt"+user))
	vmAdmin := slices.Concat(vmUser, configure, privileges("VM", admin))
	sysAdmin := privileges("Sys", "Audit Console Syslog")
	users := []string{"Group.Allocate", "Realm.AllocateUser", "User.Modify"}

	all := map[string][]string{
		"NoAccess":          {},
		"PVEVMAdmin":        vmAdmin,
		"PVEVMUser":         vmUser,
		"PVETemplateUser":   privileges("VM", "Audit Clone"),
		"PVEDatastoreUser":  privileges("Datastore", "AllocateSpace Audit"),
		"PVEDatastoreAdmin": privileges("Datastore", "Allocate AllocateSpace AllocateTemplate Audit"),
		"PVEPoolUser":       privileges("Pool", "Audit"), "PVEPoolAdmin": privileges("Pool", "Allocate Audit"),
		"PVESDNUser": privileges("SDN", "Audit Use"), "PVESDNAdmin": privileges("SDN", "Allocate Audit Use"),
		"PVEMappingUser": privileges("Mapping", "Audit Use"), "PVEMappingAdmin": privileges("Mapping", "Audit Modify Use"),
		"PVESysAdmin": sysAdmin, "PVEUserAdmin": users,
		"PVEAuditor": slices.Concat(vmAudit,
			[]string{"Datastore.Audit", "Mapping.Audit", "Pool.Audit", "SDN.Audit", "Sys.Audit"}),
	}

	all["PVEAdmin"] = slices.Concat(vmAdmin, sysAdmin, users, all["PVEDatastoreAdmin"], all["PVEPoolAdmin"],
		all["PVESDNAdmin"], all["PVEMappingUser"])
	all["Administrator"] = slices.Concat(all["PVEAdmin"], []string{
		"Mapping.Modify", "Permissions.Modify", "Realm.Allocate", "Sys.AccessNetwork", "Sys.Incoming", "Sys.Modify",
		"Sys.PowerMgmt",
	})

	for _, list := range all {
		slices.Sort(list)
	}

	return all
}

func privileges(kind, names string) []string {
	list := strings.Fields(names)
	for i := range list {
		list[i] = kind + "." + list[i]
	}

	return list
}

func roles(r *request) (any, error) {
	out, all := []map[string]any{}, predefined(r.world.Version())

	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, map[string]any{"roleid": id, "privs": strings.Join(all[id], ","), "special": 1})
	}

	return out, nil
}

func role(r *request) (any, error) {
	list, ok := predefined(r.world.Version())[r.vars["role"]]
	if !ok {
		return nil, &world.Error{Code: 500, Reason: "role '" + r.vars["role"] + "' does not exist"}
	}

	out := map[string]int{}
	for _, p := range list {
		out[p] = 1
	}

	return out, nil
}
