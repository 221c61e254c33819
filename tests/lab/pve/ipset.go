package pve

import "talos-proxmox/tests/lab/world"

func ipsetRoutes() []route {
	return append(
		setRoutes(clusterFirewall+"/ipset", need("/", "Sys.Audit"), need("/", "Sys.Modify")),
		setRoutes(vmFirewall+"/ipset", need("/vms/{vmid}", "VM.Audit"), need("/vms/{vmid}", "VM.Config.Network"))...,
	)
}

func setRoutes(path string, see, change privilege) []route {
	one, entry := path+"/{name}", path+"/{name}/{cidr}"

	return []route{
		{method: "GET", path: path, needs: see, handle: ipsets},
		{method: "POST", path: path, needs: change, params: parameters("name! comment rename"), handle: createIPSet},
		{method: "GET", path: one, needs: see, handle: ipset},
		{method: "POST", path: one, needs: change, params: parameters("cidr! comment nomatch:bool"), handle: addToIPSet},
		{method: "DELETE", path: one, needs: change, params: parameters("force:bool"), handle: deleteIPSet},
		{method: "GET", path: entry, needs: see, handle: ipsetEntry},
		{
			method: "PUT", path: entry, needs: change, params: parameters("comment nomatch:bool digest"),
			handle: updateIPSetEntry,
		},
		{method: "DELETE", path: entry, needs: change, params: parameters("digest"), handle: removeFromIPSet},
	}
}

func ipsets(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	sets, digest := r.world.IPSets(at)
	out := []map[string]any{}

	for _, s := range sets {
		entry := map[string]any{"name": s.Name, "digest": digest}
		optional(entry, "comment", s.Comment)
		out = append(out, entry)
	}

	return out, nil
}

func createIPSet(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	return nil, r.world.CreateIPSet(at, r.values.Get("name"), r.values.Get("rename"), r.values.text("comment"))
}

func deleteIPSet(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	return nil, r.world.DeleteIPSet(at, r.vars["name"], r.values.isSet("force"))
}

func entryOf(e world.IPSetEntry, digest string) map[string]any {
	out := map[string]any{"cidr": e.CIDR, "digest": digest}
	optional(out, "comment", e.Comment)

	if e.NoMatch {
		out["nomatch"] = 1
	}

	return out
}

func ipset(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	entries, digest, err := r.world.IPSetEntries(at, r.vars["name"])
	if err != nil {
		return nil, err
	}

	out := []map[string]any{}
	for _, e := range entries {
		out = append(out, entryOf(e, digest))
	}

	return out, nil
}

func ipsetEntry(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	entries, digest, err := r.world.IPSetEntries(at, r.vars["name"])
	if err != nil {
		return nil, err
	}

	for _, e := range entries {
		if e.CIDR == r.vars["cidr"] {
			return entryOf(e, digest), nil
		}
	}

	return nil, world.Invalid("cidr", "no such IP/Network")
}

func addToIPSet(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	return nil, r.world.AddToIPSet(at, r.vars["name"], world.IPSetEntry{
		CIDR: r.values.Get("cidr"), Comment: r.values.Get("comment"), NoMatch: r.values.isSet("nomatch"),
	})
}

func updateIPSetEntry(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	return nil, r.world.UpdateIPSetEntry(at, r.vars["name"], world.IPSetEntry{
		CIDR: r.vars["cidr"], Comment: r.values.Get("comment"), NoMatch: r.values.isSet("nomatch"),
	}, r.values.Get("digest"))
}

func removeFromIPSet(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	return nil, r.world.RemoveFromIPSet(at, r.vars["name"], r.vars["cidr"], r.values.Get("digest"))
}
