package tests

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	talosgenerate "github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/talosapi"
	stackconfig "talos-proxmox/stacks/config"
	"talos-proxmox/stacks/ops/generate"
	"talos-proxmox/stacks/ops/importcmd"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// foreignLab is where a cluster stands that this program has not made: its addresses are reserved there.
const foreignLab = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [{ name: pve }] }
  talos-proxmox:cluster: { name: lab, versions: { talos: v1.12.4, kubernetes: v1.34.2 } }
  talos-proxmox:image: { source: iso, iso: { volume: local:iso/talos-1.12.4.iso } }
  talos-proxmox:network: { cidr: 192.168.10.0/24, gateway: 192.168.10.1 }
  talos-proxmox:pools:
    control: { role: controlplane, vmids: 310, addresses: 192.168.10.11, nodes: { "1": { mac: "BC:24:11:00:03:10" } } }
    worker: { role: worker, vmids: 320, addresses: 192.168.10.21, nodes: { "1": { mac: "BC:24:11:00:03:20" } } }
`

// madeElsewhere is a cluster by how its VMs were made.
type madeElsewhere struct {
	names map[string]string // of the VMs, by the names in foreignLab
	conf  map[string]string // of each VM, as it was sent
	given generate.Options
}

var foreignClusters = map[string]madeElsewhere{
	// qm create, with what a person states.
	"by hand": {
		names: map[string]string{"lab-control-1": "talos-cp", "lab-worker-1": "talos-w1"},
		conf:  map[string]string{},
		given: generate.Options{VMIDs: "310,320"},
	},
	// A module on the provider bpg/proxmox: what that sends where nothing is stated.
	"by Terraform": {
		names: map[string]string{"lab-control-1": "tf-cp-0", "lab-worker-1": "tf-worker-0"},
		conf: map[string]string{
			"acpi": "1", "agent": "enabled=0,fstrim_cloned_disks=0,type=virtio", "balloon": "0", "cpuunits": "1024",
			"description": "Managed by Terraform", "keyboard": "en-us", "numa": "0", "onboot": "1", "protection": "0",
			"sockets": "1", "tablet": "1", "tags": "terraform", "vga": "memory=16,type=std",
		},
		given: generate.Options{Tag: "terraform"},
	},
}

// TestForeignCluster takes over a cluster that was made without this program, as stacks/docs/recovery.md says: its
// stack file is generated, its VMs get the cluster's tags and are imported. No VM is made again, and the preview is
// empty in the end.
func TestForeignCluster(t *testing.T) {
	t.Parallel()

	for name, f := range foreignClusters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, stackFile(t, foreignLab))
			talosconfig := f.deploy(t, r)
			w := r.Lab.World()
			before := w.Snapshot()

			cli(t, r, "stack", "rm", "--force", "--yes")

			credentials := r.Lab.Credentials()
			o := f.given
			o.Talosconfig = talosconfig
			o.Access = proxmoxapi.Access{
				Endpoint: r.Lab.Endpoint(), Insecure: true, TokenID: credentials.TokenID, TokenSecret: credentials.TokenSecret,
			}

			result, err := generate.Stack(t.Context(), o)
			require.NoError(t, err)
			assert.Equal(t, "legacy", result.Cluster)

			file := filepath.Join(r.Stack.Workspace().WorkDir(), "Pulumi."+r.Stack.Name()+".yaml")
			require.NoError(t, os.WriteFile(file, result.File, 0o600))
			cli(t, r, "stack", "init")
			require.NoError(t, r.Stack.SetConfig(t.Context(), stackconfig.Project+":proxmoxTokenSecret",
				auto.ConfigValue{Value: credentials.TokenSecret, Secret: true}))

			for _, vmid := range []int{310, 320} {
				conf := map[string]string{"tags": "legacy;talos", "vga": "std,memory=16"} // as recovery.md asks for
				if f.conf["tags"] != "" {
					conf["tags"] += ";" + f.conf["tags"]
				}

				require.NoError(t, w.Update(world.Caller{ID: credentials.TokenID}, "pve", vmid, world.UpdateRequest{Conf: conf}))
			}

			files, said := adoptable(t, r, importcmd.Options{Talosconfig: talosconfig})
			assert.NotContains(t, said, "absent")
			importFile(t, r, files.Import)

			_, err = r.Stack.Up(t.Context(), optup.ProgressStreams(newOutput(t)), optup.Refresh())
			require.NoError(t, err)
			up(t, r.Stack)
			requireNoChange(t, r.Stack)

			after := w.Snapshot()
			assert.Equal(t, machinesIn(before), machinesIn(after), "no VM is made again")
			assert.Empty(t, calls(r, "DELETE /nodes/pve/qemu"))
		})
	}
}

// machinesIn are the VMs by name, with their disks and interfaces.
func machinesIn(s world.State) map[string]string {
	found := map[string]string{}
	for _, v := range s.VMs {
		found[v.Name] = strconv.Itoa(v.ID) + " " + strings.Join(slices.Concat(v.Disks, v.MACs), " ")
	}

	return found
}

// deploy makes the VMs with requests to Proxmox VE, and a cluster of them as talosctl does. It returns the file of the
// administrator's talosconfig.
func (f madeElsewhere) deploy(t *testing.T, r *rehearsal.Rehearsal) string {
	t.Helper()

	contract, err := config.ParseContractFromVersion("v1.12")
	require.NoError(t, err)

	bundle, err := secrets.NewBundle(secrets.NewClock(), contract)
	require.NoError(t, err)

	first := addressOf(r, "lab-control-1")
	input, err := talosgenerate.NewInput("legacy", "https://"+first+":6443", "1.34.2",
		talosgenerate.WithVersionContract(contract), talosgenerate.WithSecretsBundle(bundle),
		talosgenerate.WithInstallDisk("/dev/sda"), talosgenerate.WithEndpointList([]string{first}),
		talosgenerate.WithInstallImage("ghcr.io/siderolabs/installer:v1.12.4"))
	require.NoError(t, err)

	credentials, err := talosapi.Administrator(bundle)
	require.NoError(t, err)

	var targets []talosapi.Target

	for _, n := range r.Plan.Nodes() {
		conf := map[string]string{
			"name": f.names[n.Name], "cores": "2", "memory": "4096", "cpu": "host", "ostype": "l26", "scsihw": "virtio-scsi-pci",
			"scsi0": "local-lvm:40", "ide2": "local:iso/talos-1.12.4.iso,media=cdrom", "boot": "order=scsi0;ide2",
			"net0": "virtio=" + n.NICs[0].MAC + ",bridge=vmbr0",
		}
		for key, value := range f.conf {
			conf[key] = value
		}

		_, err := r.Lab.World().Create(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve",
			world.CreateRequest{VMID: n.VMID, Conf: conf, Start: true})
		require.NoError(t, err)

		target := talosapi.Target{Name: f.names[n.Name], Address: n.Address.String()}
		targets = append(targets, target)

		role := configmachine.TypeWorker
		if len(targets) == 1 {
			role = configmachine.TypeControlPlane
		}

		generated, err := input.Config(role)
		require.NoError(t, err)

		patches, err := configpatcher.LoadPatches([]string{
			"apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\nhostname: " + target.Name,
		})
		require.NoError(t, err)

		patched, err := configpatcher.Apply(configpatcher.WithConfig(generated), patches)
		require.NoError(t, err)

		text, err := patched.Bytes()
		require.NoError(t, err)
		require.NoError(t, talosapi.WaitAnswering(t.Context(), target, wait, func(string) {}))

		require.Eventually(t, func() bool {
			m, err := talosapi.ConnectMaintenance(t.Context(), target)
			if err != nil {
				return false
			}

			defer m.Close()

			return m.Apply(context.WithoutCancel(t.Context()), text) == nil
		}, wait, 100*time.Millisecond)
	}

	require.NoError(t, talosapi.Bootstrap(t.Context(), targets[:1], credentials, nil, wait, func(string) {}))

	require.NoError(t, talosapi.WaitReady(t.Context(), targets[:1], credentials, wait, func(string) {}))
	require.Eventually(t, func() bool {
		return talosapi.CheckServices(t.Context(), targets[1], credentials, false) == nil
	}, wait, 100*time.Millisecond)

	for _, n := range r.Plan.Nodes() {
		require.NoError(t, r.Lab.World().Update(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", n.VMID,
			world.UpdateRequest{Conf: map[string]string{"ide2": "none,media=cdrom"}}))
	}

	made, err := input.Talosconfig()
	require.NoError(t, err)

	made.Contexts[made.Context].Endpoints = []string{first}

	text, err := made.Bytes()
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "talosconfig")
	require.NoError(t, os.WriteFile(path, text, 0o600))

	return path
}

// TestLeftDisk: no VM is created with a VMID whose disks are there without a VM, for it would take them along when it is
// deleted.
func TestLeftDisk(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	n := r.Plan.Nodes()[0]

	disk, err := r.Lab.World().AddDisk(n.Host, n.Disks[0].Datastore, n.VMID, 1<<30)
	require.NoError(t, err)

	said := failPreview(t, r.Stack)
	assert.Contains(t, said, strconv.Itoa(n.VMID)+" has no VM, but disks on host "+n.Host+" ("+disk+
		"): their owner is unknown, and they would be deleted together with this node's VM")
	assert.Contains(t, said, "run 'pvesm free "+disk+"' on host "+n.Host)
	assert.Contains(t, failUp(t, r.Stack), disk)
	assert.NotContains(t, vmids(r), n.Name)

	_, err = r.Lab.World().DeleteVolume(world.Caller{ID: "root@pam"}, n.Host, n.Disks[0].Datastore, disk)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := r.Stack.Preview(t.Context())

		return err == nil
	}, wait, time.Second)
}
