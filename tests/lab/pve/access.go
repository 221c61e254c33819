package pve

func accessRoutes() []route {
	return []route{
		{
			method: "POST", path: "/access/ticket", open: true,
			params: parameters("username! password! otp realm path privs new-format:bool tfa-challenge"), handle: login,
		},
		{method: "GET", path: "/access/ticket", open: true, handle: nothing},
		{method: "GET", path: "/access/domains", open: true, handle: domains},
		{method: "GET", path: "/access/permissions", params: parameters("path userid"), handle: permissions},
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
		"username": t.Username, "ticket": t.Ticket, "CSRFPreventionToken": t.CSRF, "clustername": clusterName, "cap": map[string]any{},
	}, nil
}

func domains(*request) (any, error) {
	return []map[string]any{
		{"realm": "pam", "type": "pam", "comment": "Linux PAM standard authentication"},
		{"realm": "pve", "type": "pve", "comment": "Proxmox VE authentication server", "default": 1},
	}, nil
}

func permissions(r *request) (any, error) {
	out := map[string]map[string]int{}

	for path, list := range r.world.Permissions(r.caller.ID) {
		if want := r.values.Get("path"); want != "" && want != path {
			continue
		}

		out[path] = map[string]int{}
		for _, p := range list {
			out[path][p] = 1
		}
	}

	return out, nil
}

func version(*request) (any, error) {
	return map[string]any{"release": "8.4", "version": "8.4.1", "repoid": "2a5fa54a8503f96d"}, nil
}
