package importcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/luthermonson/go-proxmox"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/tokens"
)

// pve is a Proxmox VE with a VM that was migrated, an image, a mapping, and a VM that is kept running.
type pve struct{}

func (pve) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Name: "c-control", Host: "pve2"}, vmid == 401 || vmid == 402, nil
}

func (pve) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{UUID: "11111111-2222-3333-4444-555555555555", CDROMs: map[string]string{"ide2": "none"}},
		nil
}

func (pve) Links(_ context.Context, vm proxmoxapi.VM) ([]proxmoxapi.Link, error) {
	if vm.ID != 401 {
		return nil, errors.New("QEMU guest agent is not running")
	}

	return []proxmoxapi.Link{
		{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		{
			Name: "eth0", MAC: "BC:24:11:00:00:01",
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.20"), netip.MustParseAddr("10.0.0.11")},
		},
	}, nil
}

func (pve) Files(_ context.Context, _, datastore string) (map[string]int64, error) {
	return map[string]int64{datastore + ":iso/talos.iso": 300 << 20}, nil
}

func (pve) Snippets(_ context.Context, _, datastore string) (map[string]int64, error) {
	return map[string]int64{datastore + ":snippets/c-server-1.yaml": 1 << 10}, nil
}

func (pve) Mappings(context.Context) (map[string][]proxmoxapi.Mapped, error) {
	return map[string][]proxmoxapi.Mapped{"c-gpu-1": {{Host: "pve1", BDF: "0000:01:00.0", ID: "10de:2204"}}}, nil
}

func (pve) FirewallRules(_ context.Context, vm proxmoxapi.VM) ([]proxmox.FirewallRule, error) {
	return make([]proxmox.FirewallRule, 402-vm.ID), nil
}

func (pve) HAResources(context.Context) (map[string]bool, error) {
	return map[string]bool{"vm:401": true}, nil
}

// entry is one of the file that the engine writes.
func entry(kind, name string) map[string]any {
	return map[string]any{"type": kind, "name": name, "id": placeholder, "parent": "c", "provider": "p"}
}

// TestFill: what is there is filled in with what is known of it, what is not goes out, and everything else stays.
func TestFill(t *testing.T) {
	component := map[string]any{"type": "talos-proxmox:index:TalosCluster", "name": "c", "component": true}
	provider := map[string]any{
		"type": "pulumi:providers:proxmoxve", "name": "p",
		"inputs": map[string]any{"endpoint": "https://pve:8006"},
	}

	renamed := entry(tokens.VM, "c-control-1-vmVirtualMachine")
	renamed["logicalName"] = "c-control-1-vm"

	w := &wanted{
		Resources: []map[string]any{
			provider, component, entry(tokens.Secrets, "c-secrets"), renamed, entry(tokens.VM, "c-control-2-vm"),
			entry(tokens.VM, "c-worker-1-vm"), entry(tokens.Download, "c-image"),
			entry(tokens.Download, "c-other-image"), entry(tokens.PCIMapping, "c-gpu-1"), entry(tokens.PCIMapping, "c-gpu-2"),
			entry(tokens.HAResource, "c-ha"), entry(tokens.HAResource, "c-ha-2"),
			entry(tokens.FirewallRules, "c-rules-1"), entry(tokens.FirewallRules, "c-rules-2"), entry(tokens.FirewallRules, "c-rules-3"),
			entry(tokens.FirewallOptions, "c-firewall"),
			entry(tokens.Configuration, "c-config"), entry(tokens.Stash, "c-contract"), entry(tokens.Stash, "c-precedence"),
			entry("a:b:New", "c-new"),
		},
		planned: map[key]planned{
			{tokens.VM, "c-control-1-vm"}: {
				map[string]any{
					"vmId": 401.0, "nodeName": "pve1", "smbios": map[string]any{"uuid": "made up"},
					"cdrom": map[string]any{"interface": "ide2"},
				},
				map[string]any{
					"vmId": 401.0, "nodeName": "pve1", "smbios": map[string]any{"uuid": "made up", "family": ""},
					"timeoutClone": 1800.0,
					"cdrom":        map[string]any{"interface": "ide2", "enabled": true},
				},
			},
			{tokens.VM, "c-control-2-vm"}: inputs("vmId", 402.0, "cdrom", map[string]any{"interface": "ide3", "fileId": "none"}),
			{tokens.VM, "c-worker-1-vm"}:  inputs("vmId", 501.0),
			{tokens.Download, "c-image"}: inputs("nodeName", "pve1", "datastoreId", "local", "contentType", "iso", "fileName",
				"talos.iso"),
			{tokens.Download, "c-other-image"}: inputs("nodeName", "pve1", "datastoreId", "local", "contentType", "iso", "fileName",
				"other.iso"),
			{tokens.PCIMapping, "c-gpu-1"}: gpu("0000:01:00.0", "10de:2204"),
			{tokens.PCIMapping, "c-gpu-2"}: inputs("name", "c-gpu-2"),
			{tokens.HAResource, "c-ha"}:    inputs("resourceId", "vm:401"),
			{tokens.HAResource, "c-ha-2"}:  inputs("resourceId", "vm:501"),
			{tokens.FirewallRules, "c-rules-1"}: inputs("vmId", 401.0, "nodeName", "pve1", "rules",
				[]any{map[string]any{"dport": "22"}, map[string]any{"dport": "443"}}),
			{tokens.FirewallRules, "c-rules-2"}:    inputs("vmId", 402.0),
			{tokens.FirewallRules, "c-rules-3"}:    inputs("vmId", 501.0),
			{tokens.FirewallOptions, "c-firewall"}: inputs("vmId", 401.0, "nodeName", "pve1"),
			{tokens.Stash, "c-contract"}:           inputs("input", "v1.12"),
			{tokens.Stash, "c-precedence"}:         inputs("input", "control planes before workers"),
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
		"found c-control-1-vm: VM 401 on host pve2, UUID 11111111-2222-3333-4444-555555555555",
		"found c-control-2-vm: VM 402 on host pve2, UUID 11111111-2222-3333-4444-555555555555",
		"absent c-worker-1-vm: no VM has VMID 501",
		"found c-image: local:iso/talos.iso on host pve1",
		"absent c-other-image: local:iso/other.iso is not on host pve1",
		"found c-gpu-1: resource mapping c-gpu-1",
		"absent c-gpu-2: there is no resource mapping c-gpu-2",
		"found c-ha: high availability of vm:401",
		"absent c-ha-2: the high-availability manager does not know vm:501",
		"found c-rules-1: firewall rules of VM 401",
		"absent c-rules-2: VM 402 has no firewall rules",
		"absent c-rules-3: no VM has VMID 501",
		"found c-firewall: firewall options of VM 401",
		"again c-config: a node that has the configuration is not changed by it",
		"again c-contract: it keeps cluster.versions.contract: set it if the cluster was made with another version",
		"again c-precedence: workers wait for it, and it for control planes",
		"absent c-new: this command cannot look up a a:b:New; check whether it exists before you run an update",
		"found c-secrets: /secrets.yaml",
	}, said)

	filled := func(e map[string]any, id string, state planned) map[string]any {
		e["id"], e["inputs"], e["outputs"] = id, state.inputs, state.outputs
		state.outputs["id"] = id

		return e
	}

	secrets := entry(tokens.Secrets, "c-secrets")
	secrets["id"] = "/secrets.yaml"

	vm := entry(tokens.VM, "c-control-1-vmVirtualMachine")
	vm["logicalName"] = "c-control-1-vm"

	const uuid = "11111111-2222-3333-4444-555555555555"

	image := inputs("nodeName", "pve1", "datastoreId", "local", "contentType", "iso", "fileName", "talos.iso")
	image.outputs["size"] = int64(300 << 20)

	rules := inputs("vmId", 401.0, "nodeName", "pve2")
	rules.inputs["rules"] = []any{map[string]any{"dport": "22"}, map[string]any{"dport": "443"}}
	rules.outputs["rules"] = []any{map[string]any{"dport": "22", "pos": 0}, map[string]any{"dport": "443", "pos": 1}}

	compare(t, []map[string]any{
		provider, component, secrets,
		filled(vm, "401", planned{
			map[string]any{
				"vmId": 401.0, "nodeName": "pve2", "smbios": map[string]any{"uuid": uuid},
				"cdrom": map[string]any{"interface": "ide2", "fileId": "none"},
			},
			map[string]any{
				"vmId": 401.0, "nodeName": "pve2", "smbios": map[string]any{"uuid": uuid, "family": ""}, "timeoutClone": 1800.0,
				"cdrom": map[string]any{"interface": "ide2", "enabled": true, "fileId": "none"},
			},
		}),
		filled(entry(tokens.VM, "c-control-2-vm"), "402", planned{
			map[string]any{"vmId": 402.0, "nodeName": "pve2", "cdrom": map[string]any{"interface": "ide3", "fileId": "none"}},
			map[string]any{"vmId": 402.0, "nodeName": "pve2"}, // it has no such drive
		}),
		filled(entry(tokens.Download, "c-image"), "local:iso/talos.iso", image),
		filled(entry(tokens.PCIMapping, "c-gpu-1"), "c-gpu-1", gpu("0000:01:00.0", "10de:2204")),
		filled(entry(tokens.HAResource, "c-ha"), "vm:401", inputs("resourceId", "vm:401")),
		filled(entry(tokens.FirewallRules, "c-rules-1"), "rule-3551421451", rules),
		filled(entry(tokens.FirewallOptions, "c-firewall"), "options-2201914918", inputs("vmId", 401.0, "nodeName", "pve2")),
	}, w.Resources)
}

// TestFillK3s: what a cluster of K3s is known by is nowhere but in the state. Where nothing of the cluster is there, it
// is not missed.
func TestFillK3s(t *testing.T) {
	fill := func(vmid float64, given bool) ([]outcome, error) {
		w := &wanted{
			Resources: []map[string]any{
				entry(tokens.Stash, "c-identity"), entry(tokens.Stash, "c-server-1-joined"),
				entry(tokens.VM, "c-server-1-vm"), entry(tokens.File, "c-server-1-user-data"),
			},
			planned: map[key]planned{
				{tokens.VM, "c-server-1-vm"}: inputs("vmId", vmid),
				{tokens.File, "c-server-1-user-data"}: inputs("nodeName", "pve", "datastoreId", "local", "contentType", "snippets",
					"sourceRaw", map[string]any{"fileName": fmt.Sprintf("c-server-%v.yaml", vmid-400)}),
			},
		}

		return (&finder{proxmox: pve{}, identity: "c-identity", given: given}).fill(t.Context(), w)
	}

	_, lost := fill(401, false)
	_, nothing := fill(501, false)
	all, err := fill(401, true)

	compare(t, nil, err)
	compare(t, "pve/local:snippets/c-server-1.yaml", all[2].id)
	compare(t, "it is made of k3sIdentity", all[len(all)-1].remark)

	compare(t, "c-identity is lost with the state, and the nodes of this cluster accept no other: go back to a "+
		"copy of "+
		"the state ('go run ./stacks/ops list', "+
		"'restore'), or read it from a server and set k3sIdentity (stacks/docs/recovery.md)", fmt.Sprint(lost))
	compare(t, "none of the resources of the program exist on Proxmox VE: to create them, run an update",
		fmt.Sprint(nothing))
}

// inputs are those of a resource that returns nothing else.
func inputs(pairs ...any) planned {
	all := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i].(string)] = pairs[i+1]
	}

	return planned{known(all), known(all)}
}

// gpu is the resource mapping of a GPU of host pve1.
func gpu(bdf, id string) planned {
	return inputs("name", "c-gpu-1", "maps", []any{map[string]any{"node": "pve1", "path": bdf, "id": id}})
}

// TestMappingOfOthers: a resource mapping has its name from others, where it is of other devices.
func TestMappingOfOthers(t *testing.T) {
	const refused = "c-gpu-1: resource mapping c-gpu-1 is of [pve1 0000:01:00.0 (10de:2204)], and the configuration " +
		"gives it [%s]: it may be another cluster's and is not taken into the state. Set gpus of the pool to what the " +
		"mapping has; or, if no VM uses it, run 'pvesh delete /cluster/mapping/pci/c-gpu-1' on a host"

	for name, c := range map[string]struct {
		planned planned
		given   string
	}{
		"the same":              {planned: gpu("0000:01:00.0", "10de:2204")},
		"without its domain":    {planned: gpu("01:00.0", "10DE:2204")},
		"what it is, not known": {planned: gpu("0000:01:00.0", unknown)},
		"another address":       {gpu("0000:02:00.0", "10de:2204"), "pve1 0000:02:00.0 (10de:2204)"},
		"another card":          {gpu("0000:01:00.0", "10de:2684"), "pve1 0000:01:00.0 (10de:2684)"},
		"another host": {
			inputs("name", "c-gpu-1", "maps", []any{map[string]any{"node": "pve2", "path": "0000:01:00.0"}}),
			"pve2 0000:01:00.0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wanted{
				Resources: []map[string]any{entry(tokens.PCIMapping, "c-gpu-1")},
				planned:   map[key]planned{{tokens.PCIMapping, "c-gpu-1"}: c.planned},
			}

			want := ""
			if c.given != "" {
				want = fmt.Sprintf(refused, c.given)
			}

			_, err := (&finder{proxmox: pve{}}).fill(t.Context(), w)
			compare(t, want, message(err))
		})
	}
}

// TestMarkImported: the component of a node says that its VM has no hooks yet.
func TestMarkImported(t *testing.T) {
	for _, kind := range []string{tokens.TalosNode, tokens.K3sNode} {
		node := func() map[string]any { return map[string]any{"type": kind, "name": "c-1", "component": true} }
		w := &wanted{
			Resources: []map[string]any{node(), entry(tokens.VM, "c-1-vm")},
			planned:   map[key]planned{{kind, "c-1"}: inputs("vmid", 401.0)},
		}
		w.markImported()

		marked := node()
		marked["inputs"] = map[string]any{"vmid": 401.0}
		marked["outputs"] = map[string]any{vmidentity.ImportedOutput: true}

		compare(t, []map[string]any{marked, entry(tokens.VM, "c-1-vm")}, w.Resources)
	}
}

// TestKnown: what a preview does not tell is left out, and with it the list that it is an element of.
func TestKnown(t *testing.T) {
	compare(t, map[string]any{
		"text": "x", "nothing": nil, "disks": []any{map[string]any{"interface": "scsi0"}},
		"initialization": map[string]any{"type": "nocloud"},
	}, known(map[string]any{
		"text": "x", "nothing": nil, "disks": []any{map[string]any{"interface": "scsi0", "fileId": unknown}},
		"initialization": map[string]any{"type": "nocloud", "password": hidden}, "id": unknown,
		"tags": []any{"talos", unknown},
	}))
}

// TestFillNothing: where no cluster exists, no secrets are asked for.
func TestFillNothing(t *testing.T) {
	w := &wanted{
		Resources: []map[string]any{entry(tokens.Secrets, "c-secrets"), entry(tokens.VM, "c-worker-1-vm")},
		planned:   map[key]planned{{tokens.VM, "c-worker-1-vm"}: inputs("vmId", 501.0)},
	}
	f := finder{proxmox: pve{}, secrets: func(context.Context) (string, error) { return "", errors.New("asked") }}

	all, err := f.fill(t.Context(), w)
	if err == nil || err.Error() != "none of the resources of the program exist on Proxmox VE: to create them, run "+
		"an update" ||
		len(all) != 1 {
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
