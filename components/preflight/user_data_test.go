package preflight

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
)

// cloudHost is a Proxmox VE that K3s nodes are to be made on.
type cloudHost struct {
	preflighttest.FixedVMs

	stores map[string]map[string]proxmoxapi.Store
	drive  string
	// snippets are there on every host, shared or not; userData are what VMs take from them, by VMID, and unread why that
	// of a VM is not known.
	snippets []string
	shared   bool
	userData map[int]string
	unread   map[int]error
	// narrow credentials see the VMs 401 and 9000 only.
	narrow bool
}

func (c cloudHost) Permissions(ctx context.Context) (proxmoxapi.Permissions, error) {
	held, err := c.FixedVMs.Permissions(ctx)
	if c.narrow {
		held["/vms"], held["/vms/401"], held["/vms/9000"] = map[string]bool{}, held["/"], held["/"]
	}

	return held, err
}

func (c cloudHost) Snippets(context.Context, string, string) (map[string]int64, error) {
	files := map[string]int64{}
	for _, name := range c.snippets {
		files[name] = 1
	}

	return files, nil
}

func (c cloudHost) SharedStores(context.Context) (map[string]bool, error) {
	return map[string]bool{"local": c.shared}, nil
}

func (c cloudHost) Stores(_ context.Context, host string) (map[string]proxmoxapi.Store, error) {
	return c.stores[host], nil
}

func (c cloudHost) Config(_ context.Context, v proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{
		Disks: map[string]int{"scsi0": 4}, CloudInit: c.drive, UserData: c.userData[v.ID],
	}, c.unread[v.ID]
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
			FixedVMs: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template}}, stores: taken,
			drive: "ide2",
		}},
		"no snippets": {
			cloud: cloudHost{
				FixedVMs: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template}},
				stores: map[string]map[string]proxmoxapi.Store{host: {
					"local":     {Content: []string{"iso", "vztmpl"}, Active: true},
					"local-lvm": disks,
				}}, drive: "ide2",
			},
			want: "proxmox.storage.snippets: does not accept snippets on host " + host + " (given: local, which " +
				"takes iso, vztmpl); " +
				"run 'pvesm set local --content iso,vztmpl,snippets', or name another datastore",
		},
		"no datastore": {
			cloud: cloudHost{
				FixedVMs: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template}},
				stores:   map[string]map[string]proxmoxapi.Store{host: {"local-lvm": disks}}, drive: "ide2",
			},
			want: "proxmox.storage.snippets: datastore not found on host " + host + " (given: local); name one that is, and " +
				"takes snippets",
		},
		"no template for cloud-init": {
			cloud: cloudHost{FixedVMs: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template}}, stores: taken},
			want: "image.template.control: must be a template for cloud-init, and this one has no cloud-init drive (given: " +
				"ubuntu, VMID 9000 on host " + host + "); " +
				"name another, or, where Ubuntu's cloud image is in it, run 'qm set 9000 --ide2 <datastore>:cloudinit' on that " +
				"host",
		},
		"no template": {
			cloud: cloudHost{stores: taken},
			want: "image.template.control: is not on host " + host + ", and no host has a similar one (given: " +
				"ubuntu); " +
				"prepare the template, or correct the name",
		},
		"a server that is left out": {
			cloud: cloudHost{
				FixedVMs: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{
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

// TestUserDataOfOthers: the file of user data has the name of a node, whatever the cluster. A new node does not take the
// place of another cluster's, and one that is made again has its own.
func TestUserDataOfOthers(t *testing.T) {
	const (
		file   = "local:snippets/edge-server-1.yaml"
		again  = ", and cloud-init would set that VM up again at its next start (given: edge-server-1); "
		rename = "choose names that no other cluster has, such as {cluster}-{pool}-{n} with another pool or cluster name; " +
			"or remove that VM"
	)

	p := plantest.K3s(t)
	n := p.Nodes()[0]
	template := proxmoxapi.VM{ID: 9000, Name: "ubuntu", Host: n.Host, Template: true}
	own := proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: n.Host, Tags: []string{"controlplane", "edge", "k3s"}}
	other := proxmoxapi.VM{ID: 700, Name: n.Name, Host: "b", Tags: []string{"controlplane", "other", "k3s"}}
	renamed := proxmoxapi.VM{ID: 701, Name: "renamed", Host: n.Host, Tags: []string{"other", "k3s"}}
	away := proxmoxapi.VM{ID: 702, Host: "b"}
	uses := map[int]string{701: "user=" + file, 702: "meta=local:snippets/meta.yaml,user=" + file}

	stores := map[string]map[string]proxmoxapi.Store{n.Host: {
		"local":     {Content: []string{"iso", "snippets"}, Active: true},
		"local-lvm": {Content: []string{"images"}, Active: true, Free: 1 << 50},
	}}

	for name, c := range map[string]struct {
		vms     []proxmoxapi.VM
		cloud   cloudHost
		replace bool
		want    string
	}{
		"nothing like it": {vms: []proxmoxapi.VM{renamed}},
		"the name of another cluster's node": {
			vms: []proxmoxapi.VM{other},
			want: "pools.server.names: edge-server-1 (VMID 700 on host b) has that name, and does not belong to " +
				"this cluster: both would share one user data file" + again + rename,
		},
		"the name of a container": {vms: []proxmoxapi.VM{{ID: 700, Name: n.Name, Host: "b", Container: true}}},
		"the file of a run that was cut off": {
			vms: []proxmoxapi.VM{renamed}, cloud: cloudHost{snippets: []string{file}},
		},
		"the file of another VM": {
			vms: []proxmoxapi.VM{renamed}, cloud: cloudHost{snippets: []string{file}, userData: uses},
			want: "pools.server.names: renamed (VMID 701 on host " + n.Host + ") does not belong to this cluster " +
				"and uses the user data " + file + again + rename,
		},
		"a file of that name on another host": {
			vms: []proxmoxapi.VM{away}, cloud: cloudHost{snippets: []string{file}, userData: uses},
		},
		"the file of another host's VM": {
			vms: []proxmoxapi.VM{away}, cloud: cloudHost{snippets: []string{file}, userData: uses, shared: true},
			want: "pools.server.names: VM 702 (VMID 702 on host b) does not belong to this cluster and uses the " +
				"user data " + file +
				again + rename,
		},
		"who uses the file is unknown": {
			vms: []proxmoxapi.VM{away}, cloud: cloudHost{
				snippets: []string{file}, shared: true, unread: map[int]error{702: proxmoxapi.ErrHostUnreachable},
			},
			want: "pools.server: its user data " + file + " already exists, and it could not be determined whether " +
				"VM 702 (VMID 702 on host b) uses it: cannot reach that host (given: edge-server-1); make sure " +
				"that the host answers; or delete the file, " +
				"if no VM uses it",
		},
		"who uses the file cannot be seen": {
			vms: []proxmoxapi.VM{renamed}, cloud: cloudHost{snippets: []string{file}, narrow: true},
			want: "pools.server: its user data " + file + " already exists, and the credentials do not see all VMs: it is not " +
				"known whether one uses it (given: edge-server-1); grant VM.Audit on /vms; or delete the file, if no VM uses it",
		},
		"a node that is there": {
			vms: []proxmoxapi.VM{own, other}, cloud: cloudHost{snippets: []string{file}, userData: uses},
		},
		"a node that is replaced": {
			vms: []proxmoxapi.VM{own}, replace: true,
			cloud: cloudHost{snippets: []string{file}, userData: map[int]string{n.VMID: "user=" + file}},
		},
		"a node that is replaced, with another of its name": {
			vms: []proxmoxapi.VM{own, other}, replace: true,
			want: "lifecycle.replace: edge-server-1 (VMID 700 on host b) has that name, and does not belong to " +
				"this cluster: both would share one user data file" + again + "take the node out of the list until " +
				"that VM is gone, or has other " +
				"user data and another name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := *p
			if c.replace {
				changed.Replace = []string{n.Name}
			}

			c.cloud.Listed, c.cloud.drive, c.cloud.stores = append(c.vms, template), "ide2", stores

			_, err := check(t, &changed, c.cloud)
			if c.want == "" {
				require.NoError(t, err)

				return
			}

			require.EqualError(t, err, "the configuration has 1 problem:\n  - "+c.want)
		})
	}
}
