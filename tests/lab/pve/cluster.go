package pve

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/world"
)

const clusterName = "lab"

func clusterRoutes() []route {
	return []route{
		{method: "GET", path: "/cluster/nextid", params: parameters("vmid:int"), handle: nextID},
		{method: "GET", path: "/cluster/resources", params: parameters("type"), handle: resources},
		{method: "GET", path: "/cluster/status", needs: need("/", "Sys.Audit"), handle: clusterStatus},
		{method: "GET", path: "/cluster/options", handle: clusterOptions},
		{method: "GET", path: "/cluster/tasks", handle: clusterTasks},
	}
}

func empty(*request) (any, error) { return []any{}, nil }

// nextID answers a string, as Proxmox VE does.
func nextID(r *request) (any, error) {
	id, err := r.world.NextID(r.values.number("vmid"))

	return strconv.Itoa(id), err
}

func resources(r *request) (any, error) {
	kind := r.values.Get("type")
	out := []map[string]any{}

	if kinds := []string{"vm", "storage", "node", "sdn"}; kind != "" && !slices.Contains(kinds, kind) {
		return nil, world.Invalid("type", "value '%s' does not have a value in the enumeration '%s'", kind,
			strings.Join(kinds, ", "))
	}

	if kind == "" {
		for _, p := range r.world.Pools(r.caller) {
			out = append(out, map[string]any{"id": "/pool/" + p.ID, "pool": p.ID, "type": "pool"})
		}
	}

	if kind == "" || kind == "vm" {
		for _, v := range r.world.Heard(r.caller) {
			out = append(out, vmResource(r, v))
		}
	}

	if kind == "" || kind == "node" {
		for _, h := range r.world.Hosts() {
			out = append(out, hostResource(r, h))
		}
	}

	if kind == "" || kind == "storage" {
		for _, s := range r.world.Storages(r.caller, "") {
			out = append(out, storageResource(s))
		}
	}

	if kind == "" || kind == "sdn" {
		for _, h := range r.world.Hosts() {
			if r.world.Require(r.caller, "/sdn/zones/localnetwork", "SDN.Audit", "SDN.Use", "SDN.Allocate") == nil {
				out = append(out, networkResource(r, h))
			}
		}
	}

	return out, nil
}

// networkResource is the zone that has all bridges of a host, which version 9 calls by another name.
func networkResource(r *request, h world.HostInfo) map[string]any {
	const zone = "localnetwork"

	if r.world.Version().Major() > 8 {
		return map[string]any{
			"id": "network/" + h.Name + "/zone/" + zone, "type": "network", "network": zone, "network-type": "zone",
			"node": h.Name, "status": "ok",
		}
	}

	return map[string]any{
		"id": "sdn/" + h.Name + "/" + zone, "type": "sdn", "sdn": zone, "node": h.Name, "status": "ok",
	}
}

func vmResource(r *request, v world.VMInfo) map[string]any {
	out := map[string]any{"id": "qemu/" + strconv.Itoa(v.ID), "type": "qemu", "vmid": v.ID, "node": v.Host}

	if !v.Unheard {
		maps.Copy(out, map[string]any{
			"name": v.Name, "status": powerState(v), "template": bit(v.Template), "uptime": int(v.Uptime.Seconds()),
			"maxcpu": v.CPUs,
			"maxmem": v.Memory, "maxdisk": v.Disk, "cpu": 0, "mem": 0, "disk": 0, "netin": 0, "netout": 0, "diskread": 0,
			"diskwrite": 0,
		})

		if r.world.Version().Major() > 8 {
			out["memhost"] = 0
		}
	}

	optional(out, "pool", v.Pool)
	optional(out, "lock", v.Lock)
	optional(out, "tags", v.Tags)
	optional(out, "hastate", v.HAState)

	return out
}

func hostResource(r *request, h world.HostInfo) map[string]any {
	entry := hostStats(r, h)
	entry["cgroup-mode"], entry["hastate"] = 2, hostState(h)

	return entry
}

func storageResource(s world.StorageInfo) map[string]any {
	return map[string]any{
		"id": "storage/" + s.Host + "/" + s.Name, "type": "storage", "storage": s.Name, "node": s.Host, "plugintype": s.Type,
		"status": "available", "shared": bit(s.Shared), "content": s.Content, "maxdisk": s.Total, "disk": s.Used,
	}
}

func clusterStatus(r *request) (any, error) {
	hosts := r.world.Hosts()
	out := []map[string]any{}

	if len(hosts) > 1 {
		out = append(out, map[string]any{
			"type": "cluster", "id": "cluster", "name": clusterName, "nodes": len(hosts), "quorate": bit(r.world.Quorate()), "version": len(hosts),
		})
	}

	for _, h := range hosts {
		id := h.Order
		if len(hosts) == 1 {
			id = 0
		}

		out = append(out, map[string]any{
			"type": "node", "id": "node/" + h.Name, "name": h.Name, "nodeid": id, "ip": h.Address.String(),
			"local":  bit(h.Order == 1),
			"online": bit(h.Online), "level": "",
		})
	}

	return out, nil
}

// clusterOptions shows those who may not audit it what they need to use it (pve-manager: Cluster.pm, get_options).
func clusterOptions(r *request) (any, error) {
	out := map[string]any{"allowed-tags": []any{}}

	if r.world.Require(r.caller, "/", "Sys.Audit") == nil {
		out["keyboard"], out["mac_prefix"] = "en-us", "BC:24:11"
	}

	return out, nil
}

// clusterTasks shows auditors all tasks, and users those that they started themselves, not by a token.
func clusterTasks(r *request) (any, error) {
	auditor := r.world.Require(r.caller, "/", "Sys.Audit") == nil
	out := []map[string]any{}

	for _, entry := range taskList(r.world.Tasks("")) {
		delete(entry, "pid")
		delete(entry, "pstart")

		entry["saved"] = "0"
		if entry["endtime"] != nil {
			entry["saved"] = "1"
		}

		if auditor || entry["user"] == r.caller.ID {
			out = append(out, entry)
		}
	}

	return out, nil
}

func bit(on bool) int {
	if on {
		return 1
	}

	return 0
}

func optional(out map[string]any, key, value string) {
	if value != "" {
		out[key] = value
	}
}

func powerState(v world.VMInfo) string {
	if v.Running {
		return "running"
	}

	return "stopped"
}

func hostState(h world.HostInfo) string {
	if h.Online {
		return "online"
	}

	return "offline"
}
