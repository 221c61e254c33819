package components

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/k3s"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// guest is a Proxmox VE with one VM, whose guest agent has files.
type guest struct {
	roomy

	files  map[string]string
	denied error
	absent bool
}

func (g guest) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Host: "pve"}, !g.absent, nil
}

func (g guest) GuestFile(_ context.Context, _ proxmoxapi.VM, path string) (string, error) {
	text, there := g.files[path]

	switch {
	case g.denied != nil:
		return "", g.denied
	case !there:
		return "", errors.New("no such file")
	default:
		return text, nil
	}
}

func k3sPlan(t *testing.T) *plan.Plan {
	t.Helper()

	return planOf(t, plan.Spec{
		Hosts: []plan.Host{{Name: "a"}, {Name: "b"}}, SSH: &plan.SSH{Username: "root"}, Given: plan.Secrets{SSHKey: true},
		Cluster: plan.Cluster{Name: "edge", Kind: plan.KindK3s, Versions: plan.Versions{K3s: "v1.34.2+k3s1"}},
		Image:   plan.Image{Template: plan.TemplateImage{Control: "ubuntu", Worker: "ubuntu"}},
		Network: plan.Network{CIDR: "127.0.0.0/8", Gateway: "127.0.0.1"},
		Pools:   map[string]plan.Pool{"server": {Role: plan.ControlPlane, Count: new(1), Addresses: "127.0.0.9"}},
		// Nobody is there to wait for.
		Lifecycle: plan.Lifecycle{ReadyTimeout: "300ms"},
	})
}

// TestJoiningFails: what is said when a node does not join, with the end of its logs or why they cannot be had.
func TestJoiningFails(t *testing.T) {
	const logged = "    k3s does not come up; its log ends with:\n    token is not valid"

	logs := map[string]string{
		k3s.InstallLog: "k3s does not come up; its log ends with:\ntoken is not valid\n", k3s.CloudInitLog: "Cloud-init v. 25.3 finished\n",
	}
	with := func(more map[string]string) map[string]string {
		for path, text := range logs {
			more[path] = text
		}

		return more
	}

	for name, c := range map[string]struct {
		guest guest
		want  string
		quick bool
	}{
		"given up": {
			guest: guest{files: with(map[string]string{k3s.FatalFile: "unsupported operating system debian 12\n"})}, quick: true,
			want: "unsupported operating system debian 12\n" +
				"/var/log/k3s-install.log ends with:\n" + logged + "\n/var/log/cloud-init-output.log ends with:\n    Cloud-init v. 25.3 finished",
		},
		"refused": {
			guest: guest{files: map[string]string{k3s.InstallLog: "https://127.0.0.1:6444/v1-k3s/config: 401 Unauthorized\n", k3s.CloudInitLog: "finished\n"}},
			want: "gave up after 300ms, waiting for the Kubernetes API of edge-server-1 (connection refused)\n" +
				"/var/log/k3s-install.log ends with:\n    https://127.0.0.1:6444/v1-k3s/config: 401 Unauthorized\n/var/log/cloud-init-output.log ends with:\n    finished\n" +
				"its servers do not know its token: they have been given another, or the state is that of an earlier cluster. Set token and agent-token in /etc/rancher/k3s/config.yaml " +
				"of each server to what the state keeps, and restart k3s there; the node goes on trying, and 'pulumi up' goes on with it",
		},
		"silent": {
			guest: guest{files: with(map[string]string{k3s.FatalFile: ""})},
			want: "gave up after 300ms, waiting for the Kubernetes API of edge-server-1 (connection refused)\n" +
				"/var/log/k3s-install.log ends with:\n" + logged + "\n/var/log/cloud-init-output.log ends with:\n    Cloud-init v. 25.3 finished",
		},
		"agent denied": {
			guest: guest{denied: fmt.Errorf("Proxmox VE %w", proxmoxapi.ErrRefused)},
			want: "gave up after 300ms, waiting for the Kubernetes API of edge-server-1 (connection refused)\n" +
				"the machine's logs cannot be read through its guest agent: Proxmox VE refuses the credentials; give its role VM.GuestAgent.FileRead (before Proxmox VE 9: VM.Monitor)\n" +
				"log in, and see them: ssh ubuntu@127.0.0.9 sudo tail /var/log/k3s-install.log /var/log/cloud-init-output.log",
		},
		"no machine": {
			guest: guest{absent: true},
			want: "gave up after 300ms, waiting for the Kubernetes API of edge-server-1 (connection refused)\n" +
				"the machine's logs cannot be read through its guest agent: there is no VM with VMID 401\n" +
				"log in, and see them: ssh ubuntu@127.0.0.9 sudo tail /var/log/k3s-install.log /var/log/cloud-init-output.log",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := k3sPlan(t)
			known := &roster{}
			known.enter("edge-server-1", "127.0.0.9")
			known.enter("", kubeconfigOf(t))

			if c.quick {
				p.ReadyTimeout = time.Hour
			}

			j := &joining{node: p.Nodes()[0], plan: p, proxmox: c.guest, known: known}
			require.EqualError(t, j.wait(t.Context(), func(string) {}), c.want)
		})
	}
}

// TestJoiningWaitsForCloudInit: a machine that has not finished with itself is not ready, whatever Kubernetes says.
func TestJoiningWaitsForCloudInit(t *testing.T) {
	j := &joining{node: k3sPlan(t).Nodes()[0], plan: k3sPlan(t), proxmox: guest{files: map[string]string{
		k3s.CloudInitStatus: `{"v1": {"stage": "modules-final", "modules-final": {"errors": [], "finished": null}}}`,
	}}}

	require.NoError(t, j.look(t.Context()))
	assert.Equal(t, "cloud-init of edge-server-1 to finish", j.setUp)
}

// TestJoiningShowsCloudInit: what cloud-init has failed at is said while the node is waited for.
func TestJoiningShowsCloudInit(t *testing.T) {
	known := &roster{}
	known.enter("edge-server-1", "127.0.0.9")
	known.enter("", kubeconfigOf(t))

	j := &joining{node: k3sPlan(t).Nodes()[0], plan: k3sPlan(t), known: known, proxmox: guest{files: map[string]string{
		k3s.CloudInitStatus: `{"v1": {"stage": null, "modules-final": {"errors": ["('scripts_user', RuntimeError())"], "finished": 40.5}}}`,
	}}}

	var said []string

	require.Error(t, j.wait(t.Context(), func(message string) { said = append(said, message) }))
	assert.Equal(t, "waiting for the Kubernetes API of edge-server-1 (connection refused); its cloud-init has failed: ('scripts_user', RuntimeError()) "+
		"(0s of at most 300ms)", said[0])
}

// TestSameToken: another token than the cluster began with is refused, and not shown.
func TestSameToken(t *testing.T) {
	text, err := k3s.Identity{
		ServerCA: k3s.KeyPair{Certificate: "c"}, ClientCA: k3s.KeyPair{Key: "k"}, Token: "the-first-of-the-operators",
	}.Text()
	require.NoError(t, err)

	require.NoError(t, sameToken(text, "the-first-of-the-operators"))
	require.EqualError(t, sameToken(text, "another-of-the-operators"), "the configuration has 1 problem:\n"+
		"  - k3sToken: must stay as it was when the cluster was made: its servers let nobody in by another; "+
		"run 'pulumi config rm k3sToken', for the state keeps the token; a cluster with another is a new one")
}

func kubeconfigOf(t *testing.T) string {
	t.Helper()

	i, err := k3s.NewIdentity("edge", time.Now())
	require.NoError(t, err)

	text, err := i.Administrator(time.Now())
	require.NoError(t, err)

	pair, err := k3s.ReadAdministrator(text)
	require.NoError(t, err)

	kubeconfig, err := i.Kubeconfig("edge", "https://127.0.0.9:6443", pair)
	require.NoError(t, err)

	return kubeconfig
}

// cloud is a Proxmox VE that K3s nodes are to be made on.
type cloud struct {
	shelf

	stores map[string]map[string]proxmoxapi.Store
	drive  bool
}

func (c cloud) Stores(_ context.Context, host string) (map[string]proxmoxapi.Store, error) {
	return c.stores[host], nil
}

func (c cloud) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 4}, CloudInit: c.drive}, nil
}

// TestK3sPreflight: what Proxmox VE lacks for nodes of K3s is found before anything is made.
func TestK3sPreflight(t *testing.T) {
	p := k3sPlan(t)
	host := p.Nodes()[0].Host
	template := proxmoxapi.VM{ID: 9000, Name: "ubuntu", Host: host, Template: true}
	first := proxmoxapi.VM{ID: p.Nodes()[0].VMID, Name: p.Nodes()[0].Name, Host: p.Nodes()[0].Host}
	disks := proxmoxapi.Store{Content: []string{"images"}, Active: true, Free: 1 << 50}
	taken := map[string]map[string]proxmoxapi.Store{host: {"local": {Content: []string{"iso", "snippets"}, Active: true}, "local-lvm": disks}}

	for name, c := range map[string]struct {
		cloud cloud
		want  string
	}{
		"as it should be": {cloud: cloud{shelf: shelf{vms: []proxmoxapi.VM{template}}, stores: taken, drive: true}},
		"no snippets": {
			cloud: cloud{shelf: shelf{vms: []proxmoxapi.VM{template}}, stores: map[string]map[string]proxmoxapi.Store{host: {"local": {Content: []string{"iso", "vztmpl"}, Active: true}, "local-lvm": disks}}, drive: true},
			want: "proxmox.storage.snippets: takes no snippets on host " + host + " (given: local, which takes iso, vztmpl); " +
				"run 'pvesm set local --content iso,vztmpl,snippets', or name another datastore",
		},
		"no datastore": {
			cloud: cloud{shelf: shelf{vms: []proxmoxapi.VM{template}}, stores: map[string]map[string]proxmoxapi.Store{host: {"local-lvm": disks}}, drive: true},
			want:  "proxmox.storage.snippets: is no datastore of host " + host + " (given: local); name one that is, and takes snippets",
		},
		"no template for cloud-init": {
			cloud: cloud{shelf: shelf{vms: []proxmoxapi.VM{template}}, stores: taken},
			want: "image.template.control: must be a template for cloud-init, and this one has no cloud-init drive (given: ubuntu, VMID 9000 on host " + host + "); " +
				"name another, or, where Ubuntu's cloud image is in it, run 'qm set 9000 --ide2 <datastore>:cloudinit' on that host",
		},
		"no template": {
			cloud: cloud{stores: taken},
			want: "image.template.control: is not on host " + host + ", nor anything like it on another (given: ubuntu); " +
				"prepare the template, or correct the name",
		},
		"a server that is left out": {
			cloud: cloud{shelf: shelf{vms: []proxmoxapi.VM{template, first, {ID: 402, Name: "edge-server-2", Host: "b", Tags: []string{"controlplane", "edge", "k3s"}}}}, stores: taken, drive: true},
			want:  "pools: 1 of 2 control planes would stay, and etcd needs 2 of them: nothing is removed (given: without edge-server-2); add a control plane first",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := look(t, p, c.cloud)
			if c.want == "" {
				require.NoError(t, err)

				return
			}

			require.EqualError(t, err, "the configuration has 1 problem:\n  - "+c.want)
		})
	}
}
