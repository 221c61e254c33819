package pve

import (
	"slices"
	"strings"

	"talos-proxmox/tests/lab/world"
)

func haRoutes() []route {
	see, change := need("/", "Sys.Audit"), need("/", "Sys.Console")
	settings := "state group max_restart:int max_relocate:int comment"

	return []route{
		{method: "GET", path: "/cluster/ha/groups", needs: see, handle: haGroups},
		{method: "GET", path: "/cluster/ha/groups/{group}", needs: see, handle: haGroup},
		{method: "GET", path: "/cluster/ha/rules", needs: see, params: parameters("type resource"), since: 9, handle: haRules},
		{method: "GET", path: "/cluster/ha/rules/{rule}", needs: see, since: 9, handle: haRule},
		{
			method: "POST", path: "/cluster/ha/rules", needs: change,
			params: parameters("rule! type! resources! nodes affinity strict:bool disable:bool comment"),
			since:  9, handle: createHARule,
		},
		{
			method: "PUT", path: "/cluster/ha/rules/{rule}", needs: change,
			params: parameters("type! resources nodes affinity strict:bool disable:bool comment delete digest"),
			since:  9, handle: updateHARule,
		},
		{method: "DELETE", path: "/cluster/ha/rules/{rule}", needs: change, since: 9, handle: deleteHARule},
		{method: "GET", path: "/cluster/ha/resources", needs: see, params: parameters("type"), handle: haResources},
		{
			method: "POST", path: "/cluster/ha/resources", needs: change, params: parameters("sid! type " + settings),
			handle: createHAResource,
		},
		{method: "GET", path: "/cluster/ha/resources/{sid}", needs: see, handle: haResource},
		{
			method: "PUT", path: "/cluster/ha/resources/{sid}", needs: change, params: parameters("delete digest " + settings),
			handle: updateHAResource,
		},
		{method: "DELETE", path: "/cluster/ha/resources/{sid}", needs: change, handle: deleteHAResource},
	}
}

func groupEntry(g world.HAGroup) map[string]any {
	out := map[string]any{"group": g.Name, "type": "group", "nodes": strings.Join(g.Nodes, ",")}
	optional(out, "comment", g.Comment)

	if g.Restricted {
		out["restricted"] = 1
	}

	if g.NoFailback {
		out["nofailback"] = 1
	}

	return out
}

func haGroups(r *request) (any, error) {
	all, err := r.world.HAGroups()
	if err != nil {
		return nil, err
	}

	out := []map[string]any{}
	for _, g := range all {
		out = append(out, groupEntry(g))
	}

	return out, nil
}

func haGroup(r *request) (any, error) {
	g, err := r.world.HAGroup(r.vars["group"])
	if err != nil {
		return nil, err
	}

	return groupEntry(g), nil
}

func resourceEntry(v world.HAView) map[string]any {
	out := map[string]any{"sid": v.SID, "type": "vm", "digest": v.Digest}
	optional(out, "state", v.State)
	optional(out, "group", v.Group)
	optional(out, "comment", v.Comment)

	if v.MaxRestart != nil {
		out["max_restart"] = *v.MaxRestart
	}

	if v.MaxRelocate != nil {
		out["max_relocate"] = *v.MaxRelocate
	}

	return out
}

func haResources(r *request) (any, error) {
	out := []map[string]any{}

	for _, v := range r.world.HAResources() {
		if kind := r.values.Get("type"); kind != "" && kind != "vm" {
			continue
		}

		entry := resourceEntry(v)
		if v.GroupError != "" {
			entry["errors"] = map[string]any{"group": v.GroupError}
		}

		out = append(out, entry)
	}

	return out, nil
}

func haResource(r *request) (any, error) {
	v, err := r.world.HAResource(r.vars["sid"])
	if err != nil {
		return nil, err
	}

	return resourceEntry(v), nil
}

// sameType refuses a type that is not what the id says. It may be left out.
func (r *request) sameType(sid string) error {
	if kind := r.values.Get("type"); kind != "" && !strings.HasPrefix(sid, kind+":") {
		return &world.Error{Code: 500, Reason: "types does not match"}
	}

	return nil
}

func createHAResource(r *request) (any, error) {
	sid := r.values.Get("sid")
	if err := r.sameType(sid); err != nil {
		return nil, err
	}

	return nil, r.world.CreateHAResource(world.HAResource{
		SID: sid, State: r.values.Get("state"), Group: r.values.Get("group"), Comment: r.values.Get("comment"),
		MaxRestart: r.values.optionalNumber("max_restart"), MaxRelocate: r.values.optionalNumber("max_relocate"),
	})
}

func updateHAResource(r *request) (any, error) {
	return nil, r.world.UpdateHAResource(r.vars["sid"], world.HAUpdate{
		State: r.values.text("state"), Group: r.values.text("group"), Comment: r.values.text("comment"),
		MaxRestart: r.values.optionalNumber("max_restart"), MaxRelocate: r.values.optionalNumber("max_relocate"),
		Delete: r.values.list("delete"), Digest: r.values.Get("digest"),
	})
}

func deleteHAResource(r *request) (any, error) { return nil, r.world.DeleteHAResource(r.vars["sid"]) }

func haRuleEntry(rule world.HARule) map[string]any {
	out := map[string]any{
		"rule": rule.Name, "type": rule.Kind, "resources": strings.Join(rule.Resources, ","), "order": rule.Order,
		"digest": rule.Digest,
	}
	optional(out, "comment", rule.Comment)
	optional(out, "nodes", strings.Join(rule.Nodes, ","))
	optional(out, "affinity", rule.Affinity)

	if rule.Strict {
		out["strict"] = 1
	}

	if rule.Disable {
		out["disable"] = 1
	}

	if len(rule.Errors) > 0 {
		out["errors"] = rule.Errors
	}

	return out
}

func haRules(r *request) (any, error) {
	out := []map[string]any{}

	for _, rule := range r.world.HARules() {
		kind, resource := r.values.Get("type"), r.values.Get("resource")
		if (kind == "" || kind == rule.Kind) && (resource == "" || slices.Contains(rule.Resources, resource)) {
			out = append(out, haRuleEntry(rule))
		}
	}

	return out, nil
}

func haRule(r *request) (any, error) {
	rule, err := r.world.HARule(r.vars["rule"])
	if err != nil {
		return nil, err
	}

	return haRuleEntry(rule), nil
}

func createHARule(r *request) (any, error) {
	return nil, r.world.CreateHARule(world.HARule{
		Name: r.values.Get("rule"), Kind: r.values.Get("type"), Comment: r.values.Get("comment"),
		Resources: r.values.list("resources"), Nodes: r.values.list("nodes"), Affinity: r.values.Get("affinity"),
		Strict: r.values.isSet("strict"), Disable: r.values.isSet("disable"),
	})
}

func updateHARule(r *request) (any, error) {
	return nil, r.world.UpdateHARule(r.vars["rule"], world.HARuleUpdate{
		Resources: r.values.list("resources"), Nodes: r.values.list("nodes"), Affinity: r.values.text("affinity"),
		Comment: r.values.text("comment"), Strict: r.values.flag("strict"),
		Disable: r.values.flag("disable"), Delete: r.values.list("delete"), Digest: r.values.Get("digest"),
	})
}

func deleteHARule(r *request) (any, error) {
	r.world.DeleteHARule(r.vars["rule"])

	return nil, nil //nolint:nilnil // Proxmox VE answers null
}
