package pve

func agentRoutes() []route {
	agent := need("/vms/{vmid}", "VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted", "VM.Monitor")
	path := vmPath + "/agent"

	return []route{
		{method: "GET", path: path + "/network-get-interfaces", needs: agent, handle: interfaces},
		{
			method: "GET", path: path + "/file-read",
			needs:  need("/vms/{vmid}", "VM.GuestAgent.FileRead", "VM.GuestAgent.Unrestricted", "VM.Monitor"),
			params: parameters("file!"), handle: guestFile,
		},
		{
			method: "POST", path: path + "/file-write",
			needs:  need("/vms/{vmid}", "VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted", "VM.Monitor"),
			params: parameters("file! content!"), handle: writeGuestFile,
		},
		{method: "POST", path: path + "/ping", needs: agent, handle: agentReply(map[string]any{})},
		{method: "GET", path: path + "/info", needs: agent, handle: agentReply(map[string]any{
			"version": "9.2.0", "supported_commands": []map[string]any{
				{"name": "guest-ping", "enabled": true, "success-response": true},
				{"name": "guest-network-get-interfaces", "enabled": true, "success-response": true},
			},
		})},
		{method: "GET", path: path + "/get-osinfo", needs: agent, handle: agentReply(map[string]any{
			"id": "talos", "name": "Talos", "pretty-name": "Talos", "machine": "x86_64", "kernel-release": "6.12.0-talos",
			"kernel-version": "#1 SMP",
			"version":        "", "version-id": "",
		})},
	}
}

// agentReply answers with the same whenever the agent answers at all.
func agentReply(result any) func(*request) (any, error) {
	return func(r *request) (any, error) {
		id, err := r.vmid()
		if err != nil {
			return nil, err
		}

		if _, err := r.world.Interfaces(r.vars["node"], id); err != nil {
			return nil, err
		}

		return map[string]any{"result": result}, nil
	}
}

func guestFile(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	text, err := r.world.GuestFile(r.vars["node"], id, r.values.Get("file"))
	if err != nil {
		return nil, err
	}

	return map[string]any{"content": text, "bytes-read": len(text)}, nil
}

func writeGuestFile(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	return nil, r.world.WriteGuestFile(r.vars["node"], id, r.values.Get("file"), r.values.Get("content"))
}

func interfaces(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	list, err := r.world.Interfaces(r.vars["node"], id)
	if err != nil {
		return nil, err
	}

	result := []map[string]any{}

	for _, i := range list {
		addresses := []map[string]any{}

		for _, a := range i.Addresses {
			kind := "ipv6"
			if a.Addr().Is4() {
				kind = "ipv4"
			}

			addresses = append(addresses, map[string]any{
				"ip-address": a.Addr().String(), "ip-address-type": kind,
				"prefix": a.Bits(),
			})
		}

		entry := map[string]any{
			"name": i.Name, "hardware-address": i.MAC,
			"statistics": map[string]any{
				"rx-bytes": 0, "rx-packets": 0, "rx-errs": 0, "rx-dropped": 0, "tx-bytes": 0, "tx-packets": 0, "tx-errs": 0,
				"tx-dropped": 0,
			},
		}

		// The agent says nothing of the addresses of a link that has none (QEMU: qga/commands-posix.c).
		if len(addresses) > 0 {
			entry["ip-addresses"] = addresses
		}

		result = append(result, entry)
	}

	return map[string]any{"result": result}, nil
}
