package pve

import (
	"strconv"

	"talos-proxmox/tests/lab/world"
)

func poolRoutes() []route {
	members := "comment vms storage delete:bool allow-move:bool"

	return []route{
		{method: "GET", path: "/pools", params: parameters("poolid type"), handle: pools},
		{
			method: "POST", path: "/pools", needs: need("/pool/{poolid}", "Pool.Allocate"),
			params: parameters("poolid! comment"), handle: createPool,
		},
		{
			method: "PUT", path: "/pools", needs: need("/pool/{poolid}", "Pool.Allocate"),
			params: parameters("poolid! " + members), handle: updatePool,
		},
		{
			method: "DELETE", path: "/pools", needs: need("/pool/{poolid}", "Pool.Allocate"), params: parameters("poolid!"),
			handle: deletePool,
		},
		{
			method: "GET", path: "/pools/{poolid}", needs: need("/pool/{poolid}", "Pool.Audit"), params: parameters("type"),
			handle: getPool,
		},
		{
			method: "PUT", path: "/pools/{poolid}", needs: need("/pool/{poolid}", "Pool.Allocate"), params: parameters(members),
			handle: updatePool,
		},
		{method: "DELETE", path: "/pools/{poolid}", needs: need("/pool/{poolid}", "Pool.Allocate"), handle: deletePool},
	}
}

// pool is the pool a call is about, which older calls have in the path and newer ones in a parameter.
func (r *request) pool() string {
	if id := r.vars["poolid"]; id != "" {
		return id
	}

	return r.values.Get("poolid")
}

func pools(r *request) (any, error) {
	if r.pool() != "" {
		if err := r.world.Require(r.caller, "/pool/"+r.pool(), "Pool.Audit"); err != nil {
			return nil, err
		}

		p, err := getPool(r)

		return []any{p}, err
	}

	out := []map[string]any{}

	for _, p := range r.world.Pools(r.caller) {
		entry := map[string]any{"poolid": p.ID}
		optional(entry, "comment", p.Comment)
		out = append(out, entry)
	}

	return out, nil
}

func getPool(r *request) (any, error) {
	p, err := r.world.Pool(r.pool())
	if err != nil {
		return nil, err
	}

	members := []map[string]any{}
	kind := r.values.Get("type")

	for _, v := range r.world.VMs(world.Caller{ID: "root@pam"}, "") {
		if v.Pool == p.ID && (kind == "" || kind == "qemu") {
			// Members have no tags, and no pool.
			v.Pool, v.Tags = "", ""
			members = append(members, vmResource(r, v))
		}
	}

	for _, s := range r.world.Storages(world.Caller{ID: "root@pam"}, "") {
		for _, name := range p.Storages {
			if s.Name == name && (kind == "" || kind == "storage") {
				members = append(members, storageResource(s))
			}
		}
	}

	out := map[string]any{"poolid": p.ID, "members": members}
	optional(out, "comment", p.Comment)

	return out, nil
}

func createPool(r *request) (any, error) {
	return nil, r.world.CreatePool(r.pool(), r.values.Get("comment"))
}

func updatePool(r *request) (any, error) {
	u := world.PoolUpdate{
		VMs: r.values.list("vms"), Storages: r.values.list("storage"), Delete: r.values.isSet("delete"),
		AllowMove: r.values.isSet("allow-move"),
		Comment:   r.values.text("comment"),
	}

	for _, id := range u.VMs {
		if _, err := strconv.Atoi(id); err != nil {
			return nil, world.Invalid("vms", "invalid format - value does not look like a valid VM ID")
		}
	}

	return nil, r.world.UpdatePool(r.pool(), u)
}

func deletePool(r *request) (any, error) { return nil, r.world.DeletePool(r.pool()) }
