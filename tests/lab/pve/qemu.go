package pve

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/world"
)

const vmPath = "/nodes/{node}/qemu/{vmid}"

func qemuRoutes() []route {
	vm := "/vms/{vmid}"

	configure := need(vm, "VM.Config.Disk", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network",
		"VM.Config.HWType",
		"VM.Config.Options", "VM.Config.Cloudinit")

	return []route{
		{method: "GET", path: "/nodes/{node}/qemu", params: parameters("full:bool"), handle: listVMs},
		{
			method: "POST", path: "/nodes/{node}/qemu",
			params: parameters("vmid:int! storage pool start:bool force:bool bwlimit:int unique:bool CONFIG"), handle: createVM,
		},
		{
			method: "DELETE", path: vmPath, needs: need(vm, "VM.Allocate"),
			params: parameters("purge:bool destroy-unreferenced-disks:bool skiplock:bool"), handle: deleteVM,
		},
		{
			method: "GET", path: vmPath + "/config", needs: need(vm, "VM.Audit"), params: parameters("current:bool snapshot"),
			handle: getConfig,
		},
		{
			method: "PUT", path: vmPath + "/config", needs: configure,
			params: parameters("delete revert force:bool digest skiplock:bool CONFIG"), handle: putConfig,
		},
		{
			method: "POST", path: vmPath + "/config", needs: configure,
			params: parameters("delete revert force:bool digest skiplock:bool background_delay:int CONFIG"), handle: postConfig,
		},
		{method: "GET", path: vmPath + "/pending", needs: need(vm, "VM.Audit"), handle: pending},
		{
			method: "PUT", path: vmPath + "/unlink", needs: need(vm, "VM.Config.Disk"), params: parameters("idlist! force:bool"),
			handle: unlink,
		},
		{
			method: "POST", path: vmPath + "/clone", needs: need(vm, "VM.Clone"),
			params: parameters("newid:int! name description full:bool storage format target pool bwlimit:int snapname"),
			handle: clone,
		},
		{
			method: "PUT", path: vmPath + "/resize", needs: need(vm, "VM.Config.Disk"),
			params: parameters("disk! size! digest skiplock:bool"), handle: resize,
		},
		{
			method: "POST", path: vmPath + "/move_disk", needs: need(vm, "VM.Config.Disk"),
			params: parameters("disk! storage delete:bool digest format bwlimit:int"), handle: moveDisk,
		},
		{
			method: "POST", path: vmPath + "/migrate", needs: need(vm, "VM.Migrate"),
			params: parameters(
				"target! online:bool with-local-disks:bool targetstorage bwlimit:int force:bool migration_type migration_network"),
			handle: migrate,
		},
		{method: "POST", path: vmPath + "/template", needs: need(vm, "VM.Allocate"), handle: template},
		{method: "PUT", path: vmPath + "/cloudinit", needs: need(vm, "VM.Config.Cloudinit"), handle: rebuildCloudInit},
	}
}

// vmid reads the number in the path. Clients do ask for VM 0: one deletes it between two attempts to create a VM.
func (r *request) vmid() (int, error) {
	id, err := strconv.Atoi(r.vars["vmid"])
	if err != nil {
		return 0, world.Invalid("vmid", "invalid format - value does not look like a valid VM ID")
	}

	return id, validID("vmid", id)
}

func validID(field string, id int) error {
	if id < 100 {
		return world.Invalid(field, "invalid format - value does not look like a valid VM ID")
	}

	if id > 999_999_999 {
		return world.Invalid(field, "value must have a maximum value of 999999999")
	}

	return nil
}

// skipLock refuses an option that only root@pam may use.
func (r *request) skipLock() error {
	if r.values.isSet("skiplock") && r.caller.ID != "root@pam" {
		return world.Invalid("skiplock", "Only root may use this option.")
	}

	return nil
}

func listVMs(r *request) (any, error) {
	out := []map[string]any{}

	for _, v := range r.world.VMs(r.caller, r.vars["node"]) {
		entry := r.status(v)
		if r.values.isSet("full") {
			entry["qmpstatus"] = powerState(v)
		}

		out = append(out, entry)
	}

	return out, nil
}

// status is the part of a VM's status that lists have too.
func (r *request) status(v world.VMInfo) map[string]any {
	out := map[string]any{
		"vmid": v.ID, "name": v.Name, "status": powerState(v), "cpus": v.CPUs, "maxmem": v.Memory, "maxdisk": v.Disk,
		"disk":   0,
		"uptime": int(v.Uptime.Seconds()), "cpu": 0, "mem": 0, "netin": 0, "netout": 0,
	}

	if v.Running {
		out["pid"] = v.PID
	}

	// What the lab measures nothing of.
	none := []string{"diskread", "diskwrite"}
	if r.world.Version().Major() > 8 {
		none = []string{"memhost"}
		if v.Running {
			none = append(none, "pressurecpufull", "pressurecpusome", "pressureiofull", "pressureiosome",
				"pressurememoryfull", "pressurememorysome")
		}
	}

	for _, key := range none {
		out[key] = 0
	}

	if v.Template {
		out["template"] = 1
	}

	if v.Serial {
		out["serial"] = 1
	}

	optional(out, "lock", v.Lock)
	optional(out, "tags", v.Tags)

	return out
}

func createVM(r *request) (any, error) {
	id := r.values.number("vmid")
	if err := validID("vmid", id); err != nil {
		return nil, err
	}

	return r.world.Create(r.caller, r.vars["node"], world.CreateRequest{
		VMID: id, Conf: r.values.config(), Storage: r.values.Get("storage"), Pool: r.values.Get("pool"),
		Start: r.values.isSet("start"),
	})
}

func deleteVM(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	if err := r.skipLock(); err != nil {
		return nil, err
	}

	return r.world.Destroy(r.caller, r.vars["node"], id, world.DestroyRequest{
		Unreferenced: r.values.isSet("destroy-unreferenced-disks"), Purge: r.values.isSet("purge"),
	})
}

func getConfig(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	if name := r.values.Get("snapshot"); name != "" {
		return nil, &world.Error{Code: 500, Reason: "snapshot '" + name + "' does not exist"}
	}

	return r.world.Config(r.vars["node"], id, r.values.isSet("current"))
}

func (r *request) update() (int, world.UpdateRequest, error) {
	id, err := r.vmid()
	if err == nil {
		err = r.skipLock()
	}

	return id, world.UpdateRequest{
		Conf: r.values.config(), Delete: r.values.list("delete"), Revert: r.values.list("revert"),
		Force:  r.values.isSet("force"),
		Digest: r.values.Get("digest"),
	}, err
}

func putConfig(r *request) (any, error) {
	id, update, err := r.update()
	if err != nil {
		return nil, err
	}

	return nil, r.world.Update(r.caller, r.vars["node"], id, update)
}

func postConfig(r *request) (any, error) {
	id, update, err := r.update()
	if err != nil {
		return nil, err
	}

	return r.world.UpdateTask(r.caller, r.vars["node"], id, update)
}

func unlink(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	return nil, r.world.Update(r.caller, r.vars["node"], id, world.UpdateRequest{
		Delete: r.values.list("idlist"), Force: r.values.isSet("force"),
	})
}

func pending(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	items, err := r.world.Pending(r.vars["node"], id)
	if err != nil {
		return nil, err
	}

	out := []map[string]any{}

	for _, item := range items {
		entry := map[string]any{"key": item.Key}

		if item.Value != nil {
			entry["value"] = item.Value
		}

		if item.Pending != nil {
			entry["pending"] = item.Pending
		}

		if item.Delete {
			entry["delete"] = 1
		}

		out = append(out, entry)
	}

	return out, nil
}

func clone(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	newID := r.values.number("newid")
	if err := validID("newid", newID); err != nil {
		return nil, err
	}

	if name := r.values.Get("snapname"); name != "" {
		return nil, &world.Error{Code: 500, Reason: "snapshot '" + name + "' does not exist"}
	}

	return r.world.Clone(r.caller, r.vars["node"], id, world.CloneRequest{
		NewID: newID, Name: r.values.Get("name"), Description: r.values.Get("description"), Full: r.values.flag("full"),
		Storage: r.values.Get("storage"), Format: r.values.Get("format"), Target: r.values.Get("target"),
		Pool: r.values.Get("pool"),
	})
}

func resize(r *request) (any, error) {
	id, err := r.vmid()
	if err == nil {
		err = r.skipLock()
	}

	if err != nil {
		return nil, err
	}

	return r.world.Resize(r.caller, r.vars["node"], id, world.ResizeRequest{
		Disk: r.values.Get("disk"), Size: r.values.Get("size"), Digest: r.values.Get("digest"),
	})
}

func moveDisk(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	if disk := r.values.Get("disk"); !slices.Contains(world.Disks, disk) {
		return nil, world.Invalid("disk", "value '%s' does not have a value in the enumeration '%s'", disk,
			strings.Join(world.Disks, ", "))
	}

	if r.values.Get("storage") == "" {
		why := "both 'storage' and 'target-vmid' missing, either needs to be set"

		return nil, &world.Error{
			Code: http.StatusBadRequest, Reason: "Parameter verification failed.",
			Fields: map[string]string{"storage": why, "target-vmid": why},
		}
	}

	return r.world.MoveDisk(r.caller, r.vars["node"], id, world.MoveRequest{
		Disk: r.values.Get("disk"), Storage: r.values.Get("storage"), Format: r.values.Get("format"),
		Digest: r.values.Get("digest"),
		Delete: r.values.isSet("delete"),
	})
}

func migrate(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	for _, name := range []string{"force", "migration_type", "migration_network"} {
		if v := r.values.Get(name); v != "" && v != "0" && r.caller.ID != "root@pam" {
			return nil, world.Invalid(name, "Only root may use this option.")
		}
	}

	return r.world.Migrate(r.caller, r.vars["node"], id, world.MigrateRequest{
		Target: r.values.Get("target"), Online: r.values.isSet("online"), WithLocalDisks: r.values.isSet("with-local-disks"),
		TargetStorage: r.values.Get("targetstorage"),
	})
}

func template(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	return r.world.ConvertToTemplate(r.caller, r.vars["node"], id)
}

func rebuildCloudInit(r *request) (any, error) {
	id, err := r.vmid()
	if err != nil {
		return nil, err
	}

	return nil, r.world.WriteCloudInit(r.vars["node"], id)
}
