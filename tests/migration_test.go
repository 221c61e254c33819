package tests

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	variables "talos-proxmox/stacks/migrate"
	"talos-proxmox/stacks/ops/importcmd"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// TestMigration takes over VMs that Terraform has cloned, as stacks/docs/migration.md says: the variables and outputs
// become a stack file, what stands is imported, and no VM is made again.
func TestMigration(t *testing.T) {
	t.Parallel()

	const tfvars = `
proxmox_api_url = "https://pve.lan:8006/api2/json"
proxmox_api_token_id = "terraform@pve!k3s-dev"
node = "pve"
control_plane_template = "talos-v1.12.4-base"
worker_template = "talos-v1.12.4-base"
worker_count = 1
disk_pool = "tank"
`

	outputs := `{"talos_bootstrap_nodes": {"value": {
		"control_plane": [{"name": "k3s-dev-control-1", "vmid": 110, "ip": "192.168.10.11", "node": "pve"}],
		"workers": [{"name": "k3s-dev-worker-1", "vmid": 115, "ip": null, "node": "pve"}], "gpu_workers": []}}}`

	result, err := variables.TFVars("terraform.tfvars", []byte(tfvars), variables.Options{
		Cluster: "k3s-dev", CIDR: "192.168.10.0/24", Outputs: []byte(outputs),
	})
	require.NoError(t, err)

	r := rehearse(t, stackFile(t, string(result.File)))
	macs := map[string]string{}

	for name, vmid := range map[string]int{"control": 110, "worker": 115} {
		macs[name] = terraform(t, r, vmid, "k3s-dev-"+name+"-1")
		set(t, r.Stack, "pools."+name+`.nodes["1"].mac`, macs[name])
	}

	// Tasks go on after their request has been answered.
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(r.Lab.World().Tasks(""), func(task world.TaskInfo) bool { return task.End.IsZero() })
	}, wait, 50*time.Millisecond)

	before := r.Lab.World().Snapshot()

	files, said := adoptable(t, r, importcmd.Options{})
	assert.Contains(t, said, "found  k3s-dev-control-1-vm  VM 110 on host pve, UUID ")
	importFile(t, r, files.Import)

	sent := len(r.Lab.Journal().Entries())
	_, err = r.Stack.Up(t.Context(), optup.ProgressStreams(newOutput(t)), optup.Refresh())
	require.NoError(t, err)

	contract := requireOutputs(t, upResult(t, r.Stack).Outputs)
	requireNoChange(t, r.Stack)

	assert.Equal(t, map[string]int{"k3s-dev-control-1": 110, "k3s-dev-worker-1": 115}, contract.NodeVMIDMap)

	// The VMs get their tags and an empty drive. None is restarted.
	var changes []string

	for _, e := range r.Lab.Journal().Entries()[sent:] {
		if !strings.HasPrefix(e.Call, "GET ") {
			changes = append(changes, e.Call)
		}
	}

	assert.ElementsMatch(t, []string{"PUT /nodes/pve/qemu/110/config", "PUT /nodes/pve/qemu/115/config"}, changes)

	after := r.Lab.World().Snapshot()
	for i := range after.VMs {
		after.VMs[i].Config = before.VMs[i].Config
	}

	assert.Equal(t, before, after)
}

// terraform clones a VM as the environment does, and returns the MAC address that Proxmox VE gave it.
func terraform(t *testing.T, r *rehearsal.Rehearsal, vmid int, name string) string {
	t.Helper()

	w, operator := r.Lab.World(), world.Caller{ID: r.Lab.Credentials().TokenID}

	_, err := w.Clone(operator, "pve", 9000, world.CloneRequest{NewID: vmid, Name: name, Full: new(true)})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		err = w.Update(operator, "pve", vmid, world.UpdateRequest{Conf: map[string]string{
			"cores": "2", "memory": "4096", "balloon": "0", "cpu": "host", "onboot": "1",
			"agent": "enabled=0,fstrim_cloned_disks=0,type=virtio", "ostype": "l26", "net0": "virtio,bridge=vmbr0",
			"vga":  "memory=16,type=std", // as migration.md asks for
			"tags": "k3s-dev;talos",      // by them the operator says whose the VM is
		}})

		return err == nil
	}, wait, 50*time.Millisecond, "%v", err)

	_, err = w.Resize(operator, "pve", vmid, world.ResizeRequest{Disk: "scsi0", Size: "40G"})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		_, err = w.Start(operator, "pve", vmid)

		return err == nil
	}, wait, 50*time.Millisecond, "%v", err)

	for _, vm := range w.Snapshot().VMs {
		if vm.ID == vmid {
			return vm.MACs[0]
		}
	}

	require.Fail(t, "there is no VM", vmid)

	return ""
}
