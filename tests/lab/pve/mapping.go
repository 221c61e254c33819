package pve

import "talos-proxmox/tests/lab/world"

func mappingRoutes() []route {
	var all []route

	for _, kind := range []string{"pci", "usb"} {
		path, one := "/cluster/mapping/"+kind, "/cluster/mapping/"+kind+"/{id}"

		all = append(all,
			route{method: "GET", path: path, params: parameters("check-node"), handle: listMappings(kind)},
			route{
				method: "POST", path: path, needs: need("/mapping/"+kind, "Mapping.Modify"),
				params: parameters("id! map*! description mdev:bool live-migration-capable:bool"), handle: setMapping(kind, true),
			},
			route{method: "GET", path: one, needs: need("/mapping/"+kind+"/{id}", "Mapping.Audit", "Mapping.Use", "Mapping.Modify"), handle: getMapping(kind)},
			route{
				method: "PUT", path: one, needs: need("/mapping/"+kind+"/{id}", "Mapping.Modify"),
				params: parameters("map*! description mdev:bool delete digest live-migration-capable:bool"), handle: setMapping(kind, false),
			},
			route{method: "DELETE", path: one, needs: need("/mapping/"+kind, "Mapping.Modify"), handle: deleteMapping(kind)},
		)
	}

	return all
}

func mappingEntry(m world.Mapping) map[string]any {
	out := map[string]any{"id": m.ID, "type": m.Kind, "map": m.Map}
	optional(out, "description", m.Description)

	if m.MDev {
		out["mdev"] = 1
	}

	return out
}

func listMappings(kind string) func(*request) (any, error) {
	return func(r *request) (any, error) {
		out := []map[string]any{}

		for _, m := range r.world.Mappings(kind) {
			if r.world.Require(r.caller, "/mapping/"+kind+"/"+m.ID, "Mapping.Audit", "Mapping.Use", "Mapping.Modify") == nil {
				out = append(out, mappingEntry(m))
			}
		}

		return out, nil
	}
}

func getMapping(kind string) func(*request) (any, error) {
	return func(r *request) (any, error) {
		m, err := r.world.Mapping(kind, r.vars["id"])
		if err != nil {
			return nil, err
		}

		return mappingEntry(m), nil
	}
}

func setMapping(kind string, create bool) func(*request) (any, error) {
	return func(r *request) (any, error) {
		id := r.vars["id"]
		if create {
			id = r.values.Get("id")
		}

		return nil, r.world.SetMapping(world.Mapping{
			ID: id, Kind: kind, Description: r.values.Get("description"), Map: r.values.Values["map"], MDev: r.values.isSet("mdev"),
		}, create)
	}
}

func deleteMapping(kind string) func(*request) (any, error) {
	return func(r *request) (any, error) { return nil, r.world.DeleteMapping(kind, r.vars["id"]) }
}
