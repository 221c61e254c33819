package pve

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"strconv"
	"time"

	"talos-proxmox/tests/lab/world"
)

func nodeRoutes() []route {
	return []route{
		{method: "GET", path: "/nodes", handle: nodes},
		{method: "GET", path: "/nodes/{node}/status", needs: need("/nodes/{node}", "Sys.Audit"), handle: nodeStatus},
		{method: "GET", path: "/nodes/{node}/version", handle: version},
		{method: "GET", path: "/nodes/{node}/time", needs: need("/nodes/{node}", "Sys.Audit"), handle: nodeTime},
		{method: "GET", path: "/nodes/{node}/network", params: parameters("type"), handle: nodeNetwork},
		{method: "GET", path: "/nodes/{node}/hosts", needs: need("/", "Sys.Audit"), handle: nodeHosts},
		{method: "GET", path: "/nodes/{node}/dns", needs: need("/nodes/{node}", "Sys.Audit"), handle: nodeDNS},
	}
}

func nodes(r *request) (any, error) {
	out := []map[string]any{}

	for _, h := range r.world.Hosts() {
		entry := hostStats(r, h)
		entry["ssl_fingerprint"] = ""
		out = append(out, entry)
	}

	return out, nil
}

// hostStats is a host as lists show it: who may not audit it does not see its size (pve-manager: extract_node_stats).
func hostStats(r *request, h world.HostInfo) map[string]any {
	entry := map[string]any{
		"node": h.Name, "id": "node/" + h.Name, "type": "node", "status": hostState(h), "level": "",
	}

	if r.world.Require(r.caller, "/nodes/"+h.Name, "Sys.Audit") == nil {
		maps.Copy(entry, map[string]any{
			"maxcpu": h.VCPU, "cpu": 0.02, "maxmem": h.Memory, "mem": h.Used, "uptime": int(h.Uptime.Seconds()),
			"maxdisk": 100 * world.GiB, "disk": 10 * world.GiB,
		})
	}

	return entry
}

// self is the host that the call is about.
func self(r *request) world.HostInfo {
	for _, h := range r.world.Hosts() {
		if h.Name == r.vars["node"] {
			return h
		}
	}

	return world.HostInfo{}
}

func nodeStatus(r *request) (any, error) {
	h := self(r)

	return map[string]any{
		"cpuinfo": map[string]any{
			"cpus": h.VCPU, "cores": h.VCPU, "sockets": 1, "model": "Lab Virtual Processor", "mhz": "3000.000", "user_hz": 100,
			"hvm":   "1",
			"flags": "fpu vme de pse tsc msr pae",
		},
		"memory": map[string]any{"total": h.Memory, "used": h.Used, "free": h.Memory - h.Used},
		"swap":   map[string]any{"total": 0, "used": 0, "free": 0},
		"rootfs": map[string]any{
			"total": 100 * world.GiB, "used": 10 * world.GiB, "free": 90 * world.GiB,
			"avail": 90 * world.GiB,
		},
		"ksm":     map[string]any{"shared": 0},
		"loadavg": []string{"0.10", "0.12", "0.10"},
		"cpu":     0.02, "idle": 0, "wait": 0, "uptime": int(h.Uptime.Seconds()),
		"kversion":   "Linux 6.8.12-9-pve #1 SMP PREEMPT_DYNAMIC",
		"pveversion": fmt.Sprintf("pve-manager/%s/%s", r.world.Version(), r.world.Version().RepoID()),
		"current-kernel": map[string]any{
			"sysname": "Linux", "release": "6.8.12-9-pve", "version": "#1 SMP PREEMPT_DYNAMIC", "machine": "x86_64",
		},
	}, nil
}

func nodeTime(r *request) (any, error) {
	now := time.Now().Add(self(r).ClockSkew).Unix()

	return map[string]any{"timezone": "UTC", "time": now, "localtime": now}, nil
}

// nodeNetwork shows the host's address on its first bridge, which is where clients look for it.
func nodeNetwork(r *request) (any, error) {
	h := self(r)
	kind := r.values.Get("type")
	out := []map[string]any{}

	add := func(entry map[string]any) {
		if kind == "" || kind == entry["type"] || kind == "any_bridge" && entry["type"] == "bridge" {
			out = append(out, entry)
		}
	}

	for i, bridge := range h.Bridges {
		seen := r.world.Require(r.caller, "/sdn/zones/localnetwork/"+bridge, "SDN.Audit", "SDN.Use") == nil
		port := fmt.Sprintf("eno%d", i+1)

		entry := map[string]any{
			"iface": bridge, "type": "bridge", "active": 1, "autostart": 1, "method": "manual", "method6": "manual",
			"families":     []string{"inet"},
			"bridge_ports": port, "bridge_stp": "off", "bridge_fd": "0", "priority": 10 + i,
		}

		if mtu, stated := h.MTU[bridge]; stated {
			entry["mtu"] = strconv.Itoa(mtu) // as it is in its file
		}

		if i == 0 && h.Address.IsValid() {
			entry["method"], entry["address"], entry["netmask"] = "static", h.Address.String(), "16"
			entry["cidr"], entry["gateway"] = h.Address.String()+"/16", h.Address.String()
		}

		if seen {
			add(entry)
		}

		add(map[string]any{
			"iface": port, "type": "eth", "active": 1, "exists": 1, "method": "manual", "method6": "manual",
			"families": []string{"inet"},
			"priority": 3 + i,
		})
	}

	return out, nil
}

func nodeDNS(*request) (any, error) {
	return map[string]any{"search": "lan", "dns1": "127.0.0.1"}, nil
}

// nodeHosts is /etc/hosts as the installer writes it.
func nodeHosts(r *request) (any, error) {
	h := self(r)
	data := "127.0.0.1 localhost.localdomain localhost\n"

	if h.Address.IsValid() {
		data += fmt.Sprintf("%s %s.lan %s\n", h.Address, h.Name, h.Name)
	}

	return map[string]any{"data": data, "digest": fmt.Sprintf("%x", sha1.Sum([]byte(data)))}, nil
}
