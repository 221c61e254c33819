package pve

import "talos-proxmox/tests/lab/world"

func mappingRoutes() []route {
	var all []route

	// PCI mappings are checked against a host on request, and know more of what their devices can do.
	list := map[string]string{"pci": "check-node", "usb": ""}
	more := map[string]string{"pci": " mdev:bool live-migration-capable:bool", "usb": ""}

	for _, kind := range []string{"pci", "usb"} {
		path, one := "/cluster/mapping/"+kind, "/cluster/mapping/"+kind+"/{id}"

		all = append(all,
			route{method: "GET", path: path, params: parameters(list[kind]), handle: listMappings(kind)},
			route{
				method: "POST", path: path, needs: need("/mapping/"+kind, "Mapping.Modify"),
				params: parameters("id! map*! description" + more[kind]), handle: createMapping(kind),
			},
			route{method: "GET", path: one, handle: getMapping(kind)},
			route{
				method: "PUT", path: one, needs: need("/mapping/"+kind+"/{id}", "Mapping.Modify"),
				params: parameters("map* description delete digest" + more[kind]), handle: updateMapping(kind),
			},
			route{method: "DELETE", path: one, needs: need("/mapping/"+kind, "Mapping.Modify"), handle: deleteMapping(kind)},
		)
	}

	return all
}

// seeMapping are the privileges of which one is enough to see a mapping.
var seeMapping = []string{"Mapping.Use", "Mapping.Modify", "Mapping.Audit"}

func (r *request) mappingEntry(m world.Mapping) map[string]any {
	out := map[string]any{"type": m.Kind, "map": m.Map, "digest": r.world.MappingDigest(m.Kind)}
	optional(out, "description", m.Description)

	if m.MDev {
		out["mdev"] = 1
	}

	if m.LiveMigration {
		out["live-migration-capable"] = 1
	}

	return out
}

func listMappings(kind string) func(*request) (any, error) {
	return func(r *request) (any, error) {
		out := []map[string]any{}

		for _, m := range r.world.Mappings(kind) {
			if r.world.Require(r.caller, "/mapping/"+kind+"/"+m.ID, seeMapping...) != nil {
				continue
			}

			entry := r.mappingEntry(m)
			entry["id"] = m.ID

			if host := r.values.Get("check-node"); host != "" {
				checks, err := r.world.CheckMapping(m.ID, host)
				if err != nil {
					return nil, err
				}

				list := []map[string]any{}
				for _, c := range checks {
					list = append(list, map[string]any{"severity": c.Severity, "message": c.Message})
				}

				entry["checks"] = list
			}

			out = append(out, entry)
		}

		return out, nil
	}
}

func getMapping(kind string) func(*request) (any, error) {
	return func(r *request) (any, error) {
		if r.world.Require(r.caller, "/mapping/"+kind+"/"+r.vars["id"], seeMapping...) != nil {
			return nil, errDenied
		}

		m, err := r.world.Mapping(kind, r.vars["id"])
		if err != nil {
			return nil, err
		}

		return r.mappingEntry(m), nil
	}
}

func createMapping(kind string) func(*request) (any, error) {
	return func(r *request) (any, error) {
		return nil, r.world.CreateMapping(world.Mapping{
			ID: r.values.Get("id"), Kind: kind, Description: r.values.Get("description"), Map: r.values.Values["map"],
			MDev: r.values.isSet("mdev"), LiveMigration: r.values.isSet("live-migration-capable"),
		})
	}
}

func updateMapping(kind string) func(*request) (any, error) {
	return func(r *request) (any, error) {
		u := world.MappingUpdate{
			Map: r.values.Values["map"], MDev: r.values.flag("mdev"), LiveMigration: r.values.flag("live-migration-capable"),
			Description: r.values.text("description"), Delete: r.values.list("delete"), Digest: r.values.Get("digest"),
		}

		return nil, r.world.UpdateMapping(kind, r.vars["id"], u)
	}
}

func deleteMapping(kind string) func(*request) (any, error) {
	return func(r *request) (any, error) { return nil, r.world.DeleteMapping(kind, r.vars["id"]) }
}
