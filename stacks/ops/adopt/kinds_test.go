package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/proxmoxapi"
)

// pve is a Proxmox VE with a VM that was migrated, an image, a mapping, and a VM that is kept running.
type pve struct{}

func (pve) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Name: "c-control-1", Host: "pve2"}, vmid == 401, nil
}

func (pve) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{UUID: "11111111-2222-3333-4444-555555555555", CDROMs: map[string]string{"ide2": "none"}}, nil
}

func (pve) Files(_ context.Context, host, datastore string) (map[string]int64, error) {
	return map[string]int64{datastore + ":iso/talos.iso": 300 << 20}, nil
}

func (pve) Mappings(context.Context) (map[string]bool, error) {
	return map[string]bool{"c-gpu-1": true}, nil
}

func (pve) HAResources(context.Context) (map[string]bool, error) {
	return map[string]bool{"vm:401": true}, nil
}

const (
	vmType      = "proxmoxve:VM/virtualMachine:VirtualMachine"
	fileType    = "proxmoxve:Download/file:File"
	mappingType = "proxmoxve:Hardware/mapping:Pci"
	haType      = "proxmoxve:HA/hAResource:HAResource"
	applyType   = "talos:machine/configurationApply:ConfigurationApply"
)

// entry is one of the file that the engine writes.
func entry(kind, name string) map[string]any {
	return map[string]any{"type": kind, "name": name, "id": placeholder, "parent": "c", "provider": "p"}
}

// TestFill: what is there is filled in with what is known of it, what is not goes out, and everything else stays.
func TestFill(t *testing.T) {
	component := map[string]any{"type": "talos-proxmox:index:TalosCluster", "name": "c", "component": true}
	provider := map[string]any{"type": "pulumi:providers:proxmoxve", "name": "p", "inputs": map[string]any{"endpoint": "https://pve:8006"}}

	renamed := entry(vmType, "c-control-1-vmVirtualMachine")
	renamed["logicalName"] = "c-control-1-vm"

	w := &wanted{
		Resources: []map[string]any{
			provider, component, entry(secretsType, "c-secrets"), renamed, entry(vmType, "c-worker-1-vm"), entry(fileType, "c-image"),
			entry(fileType, "c-other-image"), entry(mappingType, "c-gpu-1"), entry(mappingType, "c-gpu-2"), entry(haType, "c-ha"), entry(haType, "c-ha-2"),
			entry(applyType, "c-config"), entry("a:b:New", "c-new"),
		},
		inputs: map[key]map[string]any{
			{vmType, "c-control-1-vm"}: {
				"vmId": 401.0, "nodeName": "pve1", "smbios": map[string]any{"__defaults": []any{}, "uuid": "made up"}, "onBoot": true,
				"cdrom": map[string]any{"interface": "ide2", "fileId": unknown},
				"disks": []any{map[string]any{"interface": "scsi0", "fileId": unknown}}, "tags": []any{"talos", unknown},
				"initialization": map[string]any{"password": "[secret]", "type": "nocloud"},
			},
			{vmType, "c-worker-1-vm"}:   {"vmId": 501.0},
			{fileType, "c-image"}:       {"nodeName": "pve1", "datastoreId": "local", "contentType": "iso", "fileName": "talos.iso"},
			{fileType, "c-other-image"}: {"nodeName": "pve1", "datastoreId": "local", "contentType": "iso", "fileName": "other.iso"},
			{mappingType, "c-gpu-1"}:    {"name": "c-gpu-1"},
			{mappingType, "c-gpu-2"}:    {"name": "c-gpu-2"},
			{haType, "c-ha"}:            {"resourceId": "vm:401", "state": "started"},
			{haType, "c-ha-2"}:          {"resourceId": "vm:501"},
		},
	}

	f := finder{proxmox: pve{}, secrets: func(context.Context) (string, error) { return "/secrets.yaml", nil }}

	all, err := f.fill(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}

	var said []string
	for _, o := range all {
		said = append(said, string(o.verdict)+" "+o.name+": "+o.remark)
	}

	compare(t, []string{
		"found c-control-1-vm: VM 401 on host pve2",
		"absent c-worker-1-vm: no VM has VMID 501",
		"found c-image: local:iso/talos.iso on host pve1",
		"absent c-other-image: local:iso/other.iso is not on host pve1",
		"found c-gpu-1: resource mapping c-gpu-1",
		"absent c-gpu-2: there is no resource mapping c-gpu-2",
		"found c-ha: high availability of vm:401",
		"absent c-ha-2: the high-availability manager does not know vm:501",
		"again c-config: a node that has the configuration is not changed by it",
		"absent c-new: how to find a a:b:New is not known here; see whether it is there before you run an update",
		"found c-secrets: /secrets.yaml",
	}, said)

	filled := func(e map[string]any, id string, state map[string]any) map[string]any {
		e["id"] = id
		if state != nil {
			e["inputs"], e["outputs"] = state, state
		}

		return e
	}

	vm := entry(vmType, "c-control-1-vmVirtualMachine")
	vm["logicalName"] = "c-control-1-vm"

	compare(t, []map[string]any{
		provider, component, filled(entry(secretsType, "c-secrets"), "/secrets.yaml", nil),
		filled(vm, "401", map[string]any{
			"vmId": 401.0, "nodeName": "pve2", "smbios": map[string]any{"uuid": "11111111-2222-3333-4444-555555555555"}, "onBoot": true,
			"cdrom": map[string]any{"interface": "ide2", "fileId": "none"},
			"disks": []any{map[string]any{"interface": "scsi0"}}, "initialization": map[string]any{"type": "nocloud"},
		}),
		filled(entry(fileType, "c-image"), "local:iso/talos.iso", map[string]any{
			"nodeName": "pve1", "datastoreId": "local", "contentType": "iso", "fileName": "talos.iso", "size": int64(300 << 20),
		}),
		filled(entry(mappingType, "c-gpu-1"), "c-gpu-1", map[string]any{"name": "c-gpu-1"}),
		filled(entry(haType, "c-ha"), "vm:401", map[string]any{"resourceId": "vm:401", "state": "started"}),
	}, w.Resources)
}

// TestFillNothing: where nothing stands, nobody is asked for secrets.
func TestFillNothing(t *testing.T) {
	w := &wanted{
		Resources: []map[string]any{entry(secretsType, "c-secrets"), entry(vmType, "c-worker-1-vm")},
		inputs:    map[key]map[string]any{{vmType, "c-worker-1-vm"}: {"vmId": 501.0}},
	}
	f := finder{proxmox: pve{}, secrets: func(context.Context) (string, error) { return "", errors.New("asked") }}

	all, err := f.fill(t.Context(), w)
	if err == nil || err.Error() != "nothing that the program wants is on Proxmox VE: to make it all, run an update" || len(all) != 1 {
		t.Error(all, err)
	}
}

// TestFile: what is not known here of the file that the engine writes stays in it.
func TestFile(t *testing.T) {
	const text = `{"nameTable":{"a":"urn"},"providerInputs":{"p":{"apiToken":{"ciphertext":"x"}}},"resources":[{"name":"n","new":{"field":[1]}}]}`

	w := &wanted{}
	if err := w.decode([]byte(text)); err != nil {
		t.Fatal(err)
	}

	encoded, err := w.encode()
	if err != nil {
		t.Fatal(err)
	}

	var before, after any
	if err := errors.Join(json.Unmarshal([]byte(text), &before), json.Unmarshal(encoded, &after)); err != nil {
		t.Fatal(err)
	}

	compare(t, before, after)
}

func compare[T any](t *testing.T, want, got T) {
	t.Helper()

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
