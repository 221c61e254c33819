package preflight

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan/plantest"
	"talos-proxmox/components/proxmoxapi"
)

// cloudHost is a Proxmox VE that K3s nodes are to be made on.
type cloudHost struct {
	fixedVMs

	stores map[string]map[string]proxmoxapi.Store
	drive  string
}

func (c cloudHost) Stores(_ context.Context, host string) (map[string]proxmoxapi.Store, error) {
	return c.stores[host], nil
}

func (c cloudHost) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 4}, CloudInit: c.drive}, nil
}

// TestK3sPreflight: what Proxmox VE lacks for nodes of K3s is found before anything is made.
func TestK3sPreflight(t *testing.T) {
	p := plantest.K3s(t)
	host := p.Nodes()[0].Host
	template := proxmoxapi.VM{ID: 9000, Name: "ubuntu", Host: host, Template: true}
	first := proxmoxapi.VM{ID: p.Nodes()[0].VMID, Name: p.Nodes()[0].Name, Host: p.Nodes()[0].Host}
	disks := proxmoxapi.Store{Content: []string{"images"}, Active: true, Free: 1 << 50}
	taken := map[string]map[string]proxmoxapi.Store{host: {
		"local":     {Content: []string{"iso", "snippets"}, Active: true},
		"local-lvm": disks,
	}}

	for name, c := range map[string]struct {
		cloud cloudHost
		want  string
	}{
		"as it should be": {cloud: cloudHost{
			fixedVMs: fixedVMs{vms: []proxmoxapi.VM{template}}, stores: taken,
			drive: "ide2",
		}},
		"no snippets": {
			cloud: cloudHost{
				fixedVMs: fixedVMs{vms: []proxmoxapi.VM{template}},
				stores: map[string]map[string]proxmoxapi.Store{host: {
					"local":     {Content: []string{"iso", "vztmpl"}, Active: true},
					"local-lvm": disks,
				}}, drive: "ide2",
			},
			want: "proxmox.storage.snippets: takes no snippets on host " + host + " (given: local, which takes iso, vztmpl); " +
				"run 'pvesm set local --content iso,vztmpl,snippets', or name another datastore",
		},
		"no datastore": {
			cloud: cloudHost{
				fixedVMs: fixedVMs{vms: []proxmoxapi.VM{template}},
				stores:   map[string]map[string]proxmoxapi.Store{host: {"local-lvm": disks}}, drive: "ide2",
			},
			want: "proxmox.storage.snippets: datastore not found on host " + host + " (given: local); name one that is, and " +
				"takes snippets",
		},
		"no template for cloud-init": {
			cloud: cloudHost{fixedVMs: fixedVMs{vms: []proxmoxapi.VM{template}}, stores: taken},
			want: "image.template.control: must be a template for cloud-init, and this one has no cloud-init drive (given: " +
				"ubuntu, VMID 9000 on host " + host + "); " +
				"name another, or, where Ubuntu's cloud image is in it, run 'qm set 9000 --ide2 <datastore>:cloudinit' on that " +
				"host",
		},
		"no template": {
			cloud: cloudHost{stores: taken},
			want: "image.template.control: is not on host " + host + ", nor anything like it on another (given: ubuntu); " +
				"prepare the template, or correct the name",
		},
		"a server that is left out": {
			cloud: cloudHost{
				fixedVMs: fixedVMs{vms: []proxmoxapi.VM{
					template, first,
					{ID: 402, Name: "edge-server-2", Host: "b", Tags: []string{"controlplane", "edge", "k3s"}},
				}}, stores: taken,
				drive: "ide2",
			},
			want: "pools: 1 of 2 control planes would stay, and etcd needs 2 of them: nothing is removed (given: without " +
				"edge-server-2); add a control plane first",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := check(t, p, c.cloud)
			if c.want == "" {
				require.NoError(t, err)

				return
			}

			require.EqualError(t, err, "the configuration has 1 problem:\n  - "+c.want)
		})
	}
}
