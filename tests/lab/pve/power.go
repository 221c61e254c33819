package pve

import (
	"time"

	"talos-proxmox/tests/lab/world"
)

func powerRoutes() []route {
	power := need("/vms/{vmid}", "VM.PowerMgmt")

	return []route{
		{method: "GET", path: vmPath + "/status/current", needs: need("/vms/{vmid}", "VM.Audit"), handle: currentStatus},
		{
			method: "POST", path: vmPath + "/status/start", needs: power,
			params: parameters("timeout:int skiplock:bool"), handle: powerCall((*world.World).Start),
		},
		{
			method: "POST", path: vmPath + "/status/stop", needs: power,
			params: parameters("timeout:int skiplock:bool keepActive:bool overrule-shutdown:bool"),
			handle: powerCall((*world.World).Stop),
		},
		{
			method: "POST", path: vmPath + "/status/reset", needs: power,
			params: parameters("skiplock:bool"), handle: powerCall((*world.World).Reset),
		},
		{
			method: "POST", path: vmPath + "/status/shutdown", needs: power,
			params: parameters("timeout:int forceStop:bool skiplock:bool keepActive:bool"), handle: shutdown,
		},
		{method: "POST", path: vmPath + "/status/reboot", needs: power, params: parameters("timeout:int"), handle: reboot},
	}
}

func powerCall(call func(*world.World, world.Caller, string, int) (string, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		id, err := r.vmid()
		if err == nil {
			err = r.skipLock()
		}

		if err != nil {
			return nil, err
		}

		return call(r.world, r.caller, r.vars["node"], id)
	}
}

func (r *request) timeout() *time.Duration {
	if !r.values.Has("timeout") {
		return nil
	}

	d := time.Duration(r.values.number("timeout")) * time.Second

	return &d
}

func shutdown(r *request) (any, error) {
	id, err := r.vmid()
	if err == nil {
		err = r.skipLock()
	}

	if err != nil {
		return nil, err
	}

	return r.world.Shutdown(r.caller, r.vars["node"], id, world.ShutdownRequest{
		Timeout: r.timeout(), Force: r.values.isSet("forceStop"),
	})
}

func reboot(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	return r.world.Reboot(r.caller, r.vars["node"], id, r.timeout())
}

func currentStatus(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	v, err := r.world.VM(r.vars["node"], id)
	if err != nil {
		return nil, err
	}

	out := r.status(v)
	out["ha"] = map[string]any{"managed": 0}

	if v.HAState != "" {
		ha := map[string]any{"managed": 1, "state": v.HAState}
		if r.world.Version().Major() < 9 {
			ha["group"] = nil // version 9 has rules
		}

		optional(ha, "group", v.HAGroup)
		out["ha"] = ha
	}

	out["qmpstatus"] = powerState(v)

	// Who states a display is told of its clipboard, which is null where none is stated.
	if v.Display {
		out["clipboard"] = nil
	}

	if v.Agent {
		out["agent"] = 1
	}

	if v.Running {
		out["diskread"], out["diskwrite"] = 0, 0
		out["running-qemu"], out["running-machine"] = "9.2.0", "pc-i440fx-9.2+pve1"
	}

	return out, nil
}
